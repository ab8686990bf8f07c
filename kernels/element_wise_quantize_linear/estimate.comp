#version 460

// ELEMENT_WISE_QUANTIZE_LINEAR: y = nearest_even(clamp(f32(x / s), low - z, high - z)) + z, and low if x / s is no number
//
// Maths. f32() is one rounding to binary32, nearest even. Vulkan's division may be 2.5 units in the last place off, its
// products and sums are rounded in any direction, and denormals may be flushed. So x * (1 / s) is an estimate: it is off
// by at most 4 * 2^-23 of its size, 2.5 units for the reciprocal, one for the product and a half for v = f32(x / s)
// itself. An estimate that is nearer than 1/2 - 2^-21 |v| to an integer gives y for certain, on every device (2^-23 is left
// for the rounding of this comparison); less than one in 4,000 is not, and is divided again in integers. So are all values
// if a scale is below 2^-100 or above 2^100: the reciprocal is then not an ordinary number. This needs no table of
// thresholds and no preparation, and takes scales of any layout.
//
// Loops: an invocation writes a unit of 4 bytes, from 16 bytes: element_wise/loop_nest.glsl.
//
// Layout: the scale and the zero point step along like the input, with strides of 0 where they are shared.
//
// Preconditions: output elements do not overlap. Scales may have any bits.
#extension GL_GOOGLE_include_directive : require
#define UNIT 4
#include "element_wise/loop_nest.glsl"
layout(constant_id = FIRST_OWN_CONSTANT) const bool HAS_ZERO_POINT = false;
layout(constant_id = FIRST_OWN_CONSTANT + 1) const uint UNSIGNED_TYPES = 0;  // bit 0: the output
#include "element_wise/output_bytes.glsl"
#define OPERAND input
#define BINDING 1
#define STEP FIRST_STEP
#define STRIDE push.strides[0].y
#include "element_wise/words.glsl"
#define OPERAND scale
#define BINDING 2
#define STEP SECOND_STEP
#define STRIDE push.strides[0].z
#include "element_wise/words.glsl"
#define OPERAND zero_point
#define BINDING 3
#define STEP THIRD_STEP
#define STRIDE push.strides[0].w
#include "element_wise/bytes.glsl"
#include "element_wise/exact.glsl"

const int LEAST = (UNSIGNED_TYPES & 1) != 0 ? 0 : -128;
const uint FLIP = (UNSIGNED_TYPES & 1) != 0 ? 0 : 0x80808080u;  // from distances from LEAST to bytes
const uint INFINITY_BITS = 0x7F800000;
const uint SMALLEST_SCALE = (127 - 100) << 23;
const uint LARGEST_SCALE = (127 + 100) << 23;
// Adding 1.5 * 2^23 leaves an integer in the lowest bits of a float. It is not used to round: see
// element_wise_quantized_linear_add/sum.comp.
const float TO_INTEGER = 12582912.0;
const float ERROR = 1.0 / 2097152.0;  // of an estimate, for its size
const float CERTAIN = 0.5 - 1.0 / 8388608.0;

int exact_integer(uint x, uint scale) {
    uint kind_x = kind_of(x), kind_s = kind_of(scale);
    if (max(kind_x, kind_s) == NOT_A_NUMBER || (kind_x == kind_s && kind_x != FINITE))
        return -1024;  // no number
    if (kind_x == ZERO || kind_s == INFINITE)
        return 0;
    if (kind_x == INFINITE || kind_s == ZERO)
        return int(x ^ scale) < 0 ? -1024 : 1024;
    return nearest_even(divide(from_bits(x), from_bits(scale)));
}

uint of_slot(uvec4 vector, uint slot) {
    return slot < 2 ? (slot == 0 ? vector.x : vector.y) : (slot == 2 ? vector.z : vector.w);
}

// A word with those elements divided in integers that are not certain, by slot. The code is long: it stays a loop.
uint corrected(uint value, uint uncertain, uvec4 x, uvec4 scale, uint zero_points) {
    while (uncertain != 0) {
        uint slot = findLSB(uncertain);
        uncertain &= uncertain - 1;
        int zero = HAS_ZERO_POINT ? integer_of(zero_points >> (8 * slot), 0) : 0;
        int low = LEAST - zero;
        int result = clamp(exact_integer(of_slot(x, slot), of_slot(scale, slot)), low, low + 255) + zero;
        value = value & ~(0xFFu << (8 * slot)) | (uint(result) & 0xFF) << (8 * slot);
    }
    return value;
}

// Four elements in a word. Those that share a scale or a zero point share what follows from it.
uint quantized(uvec4 x, uvec4 scale, uint zero_points, bool share_scale, bool share_zero_point) {
    uvec4 size_x = x & 0x7FFFFFFF;
    uvec4 size_s = scale & 0x7FFFFFFF;
    // More than 2^10 steps of the exponent above the scale, a value saturates like one of that size, and is finite.
    vec4 bounded = uintBitsToFloat(min(size_x, size_s + (10u << 23)) | (x & 0x80000000));
    vec4 reciprocal = share_scale ? vec4(1.0 / uintBitsToFloat(scale.x)) : 1.0 / uintBitsToFloat(scale);
    vec4 estimate = bounded * reciprocal;
    float low = float(LEAST - (HAS_ZERO_POINT ? integer_of(zero_points, 0) : 0));
    // The sum of the outputs' distances from LEAST, which each has the bits of TO_INTEGER above it.
    uint value = 0u - floatBitsToUint(TO_INTEGER) * 0x01010101u;
    uint uncertain = 0;
    [[unroll]] for (int slot = 0; slot < 4; ++slot) {
        if (HAS_ZERO_POINT && !share_zero_point)
            low = float(LEAST - integer_of(zero_points >> (8 * slot), 0));
        float v = clamp(estimate[slot], low, low + 255.0);
        float integer = roundEven(v);
        value += floatBitsToUint(integer + (TO_INTEGER - low)) << (8 * slot);
        bool is_certain = abs(v - integer) + abs(v) * ERROR < CERTAIN && size_x[slot] <= INFINITY_BITS;
        if (!share_scale)
            is_certain = is_certain && size_s[slot] - SMALLEST_SCALE <= LARGEST_SCALE - SMALLEST_SCALE;
        uncertain |= is_certain ? 0 : 1u << slot;
    }
    if (share_scale && size_s.x - SMALLEST_SCALE > LARGEST_SCALE - SMALLEST_SCALE)
        uncertain = 15;
    return corrected(value ^ FLIP, uncertain, x, scale, zero_points);
}

void main() {
    Unit unit;
    if (!find_unit(unit))
        return;
    if (is_inside_row(unit)) {
        uvec4 x = input_unit(unit.offsets.y);
        uvec4 scale = scale_unit(unit.offsets.z);
        uint zero_points = HAS_ZERO_POINT ? zero_point_unit(unit.offsets.w).x : 0;
        store_unit(unit, uvec4(quantized(x, scale, zero_points, SECOND_STEP == 0, THIRD_STEP == 0)));
        return;
    }
    uvec4 x = uvec4(0);
    uvec4 scale = uvec4(1);
    uint zero_points = 0;
    Unit next = unit;
    [[unroll]] for (uint slot = 0; slot < 4; ++slot) {
        uint element = unit.start + slot;
        if (element >= unit.first && element < unit.last) {
            x[slot] = input_words[next.offsets.y];
            scale[slot] = scale_words[next.offsets.z];
            zero_points |= HAS_ZERO_POINT ? zero_point_byte(next.offsets.w) << (8 * slot) : 0;
            if (element + 1 < unit.last)
                advance(next);
        }
    }
    store_unit(unit, uvec4(quantized(x, scale, zero_points, false, false)));
}
