#version 450

// QUANTIZED_LINEAR_CONVOLUTION, preparation: what belongs to an output channel, as one record of integers.
//
// Maths: part 0 writes the multiplier m = f32(f32(sx * sw[c]) / sy) as mantissa and exponent; part 1 the three zero
// points (and a bias of 0 where there is none); part 2 the bias.
//
// Loops: one invocation a channel, some hundred integer operations. Divisions run bit by bit: 32 steps a channel are
// nothing beside the sums that follow, and exact on every device, with denormals, infinities and signs.
//
// Layout: three sources and the table make the four storage buffers that every device has in a stage; hence the parts.
// A source has one element, stride 0, or one a channel at any stride. 8-bit elements are addressed in bytes inside
// words.
//
// Preconditions: `count` channels from the first that the windows show. Sources that a part does not have are bound to
// some other window and never read.

#extension GL_GOOGLE_include_directive : require
#include "quantized_arithmetic.glsl"
#include "quantized_parameters.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint PART = 0;
layout(constant_id = 2) const uint PRESENT = 0;         // bits 0 to 2: which zero points there are; bit 3: a bias
layout(constant_id = 3) const uint UNSIGNED_TYPES = 0;  // bits 0 to 2: input, filter, output are UINT8

layout(set = 0, binding = 0) readonly buffer First { uint first_words[]; };
layout(set = 0, binding = 1) readonly buffer Second { uint second_words[]; };
layout(set = 0, binding = 2) readonly buffer Third { uint third_words[]; };
layout(set = 0, binding = 3) buffer Table { uint table[]; };

layout(push_constant) uniform PushConstants {
    uint first_start;  // in elements, like the strides
    uint second_start;
    uint third_start;
    uint table_start;  // in words
    uint first_stride;
    uint second_stride;
    uint third_stride;
    uint count;
} push;

const uint ZERO = 0, FINITE = 1, INFINITE = 2, NOT_A_NUMBER = 3;

uint kind_of(uint bits) {
    uint magnitude = bits & 0x7FFFFFFF;
    return magnitude == 0 ? ZERO : magnitude < 0x7F800000 ? FINITE : magnitude == 0x7F800000 ? INFINITE : NOT_A_NUMBER;
}

Binary32 from_bits(uint bits) {
    uint biased = (bits >> 23) & 0xFF;
    uint mantissa = bits & 0x7FFFFF;
    if (biased != 0)
        mantissa |= 1u << 23;
    else
        biased = 1;
    int top = max(findMSB(mantissa), 0);
    return Binary32(mantissa << (31 - top), int(biased) - 127 - 23 + top, int(bits) < 0);
}

Binary32 infinity(bool negative) {
    return Binary32(1u << 31, INFINITE_EXPONENT, negative);
}

uint kind_of(Binary32 value) {
    return value.mantissa == 0 ? ZERO : value.exponent == INFINITE_EXPONENT ? INFINITE : FINITE;
}

Binary32 multiply(Binary32 a, Binary32 b) {
    uint high, low;
    umulExtended(a.mantissa, b.mantissa, high, low);
    int exponent = a.exponent + b.exponent;
    if (int(high) < 0) {
        ++exponent;
    } else {
        high = (high << 1) | (low >> 31);
        low <<= 1;
    }
    return rounded_to_binary32(high, low != 0, exponent, a.negative != b.negative);
}

Binary32 divide(Binary32 a, Binary32 b) {
    uint rest = a.mantissa >> 8;
    uint divisor = b.mantissa >> 8;
    int exponent = a.exponent - b.exponent;
    if (rest < divisor) {
        rest <<= 1;
        --exponent;
    }
    uint quotient = 0;
    for (uint i = 0; i < 32; ++i) {
        quotient <<= 1;
        if (rest >= divisor) {
            rest -= divisor;
            quotient |= 1;
        }
        rest <<= 1;
    }
    return rounded_to_binary32(quotient, rest != 0, exponent, a.negative != b.negative);
}

// f32(f32(x * w) / y); a mantissa of 0 where that is 0 or not a number.
Binary32 multiplier(uint x, uint w, uint y) {
    Binary32 nothing = Binary32(0, 0, false);
    uint kind_x = kind_of(x), kind_w = kind_of(w), kind_y = kind_of(y);
    if (max(max(kind_x, kind_w), kind_y) == NOT_A_NUMBER)
        return nothing;
    bool negative = int(x ^ w) < 0;
    Binary32 t;
    if (kind_x == ZERO || kind_w == ZERO)
        return nothing;  // 0, or 0 times infinity, or then 0 / 0
    if (kind_x == INFINITE || kind_w == INFINITE)
        t = infinity(negative);
    else
        t = multiply(from_bits(x), from_bits(w));
    negative = negative != (int(y) < 0);
    uint kind_t = kind_of(t);
    if (kind_t == ZERO || kind_y == INFINITE)
        return nothing;  // infinity / infinity too
    if (kind_t == INFINITE || kind_y == ZERO)
        return infinity(negative);
    return divide(t, from_bits(y));
}

int signed_byte(uint word, uint element, uint flip) {
    uint bits = (word >> (8 * (element & 3))) ^ flip;
    return bitfieldExtract(int(bits), 0, 8);
}

uint flip_of(uint tensor) {
    return (UNSIGNED_TYPES >> tensor & 1) != 0 ? 0x80 : 0;
}

void main() {
    uint workgroup = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    uint channel = workgroup * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (channel >= push.count)
        return;
    uint first = push.first_start + channel * push.first_stride;
    uint second = push.second_start + channel * push.second_stride;
    uint third = push.third_start + channel * push.third_stride;
    uint record = push.table_start + channel * PARAMETER_WORDS;
    if (PART == 0) {
        Binary32 m = multiplier(first_words[first], second_words[second], third_words[third]);
        table[record + PARAMETER_MANTISSA] = m.mantissa;
        table[record + PARAMETER_EXPONENT] = uint(m.exponent * 2 + (m.negative ? 1 : 0));
    } else if (PART == 1) {
        // An absent zero point is 0, which is -128 for UINT8 data taken as INT8.
        int zero_x = -int(flip_of(0)), zero_w = -int(flip_of(1)), zero_y = 0;
        if ((PRESENT & 1) != 0)
            zero_x = signed_byte(first_words[first >> 2], first, flip_of(0));
        if ((PRESENT & 2) != 0)
            zero_w = signed_byte(second_words[second >> 2], second, flip_of(1));
        if ((PRESENT & 4) != 0)
            zero_y = signed_byte(third_words[third >> 2], third, flip_of(2)) + int(flip_of(2));
        table[record + PARAMETER_FILTER_ZERO_POINT] = uint(zero_w);
        table[record + PARAMETER_INPUT_ZERO_POINT] = uint(zero_x);
        table[record + PARAMETER_OUTPUT_ZERO_POINT] = uint(zero_y);
        if ((PRESENT & 8) == 0)
            table[record + PARAMETER_BIAS] = 0;
    } else {
        table[record + PARAMETER_BIAS] = first_words[first];
    }
}
