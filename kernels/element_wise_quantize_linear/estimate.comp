#version 460

// ELEMENT_WISE_QUANTIZE_LINEAR: y = nearest_even(clamp(f32(x / s), low - z, high - z)) + z, and low if x / s is no number
//
// Maths. f32() is one rounding to binary32, nearest even. Vulkan's division may be 2.5 units in the last place off, its
// products and sums are rounded in any direction, and denormals may be flushed. So y - low is estimated in fixed point, by
//     f = x * (1 / s) + 256.5 - low, whose lowest 15 bits are the fraction, and the 8 above them y's distance from its least.
// x is bounded before, by comparing bits as integers, so that 256 < f < 512: what lies a quarter beyond the range saturates.
// f is off by less than 5 * 2^-15: |x / s| < 255.3 by at most 2.5 units for the reciprocal, one for the product and a half
// for f32(x / s) itself, which is 3.99 * 2^-15, and by one of f's own units for the sum. If the fraction is at least as far
// from 0, y is certain, on every device. One in 3,000 is not, and is divided again in integers. So are all values if a
// scale is not between 2^-100 and 2^100: the reciprocal is then not an ordinary number. This needs no table of thresholds
// and no preparation, and takes scales of any layout.
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
const uint FRACTION_BITS = 15;
const uint ABOVE_DISTANCE = 0x43800000 >> FRACTION_BITS;  // of the bits of 256
const uint TOLERANCE = 5;  // in the last place of an estimate
// Of near_integer.
const uint LEAST_CERTAIN = 2 * TOLERANCE << (32 - FRACTION_BITS);

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

// Small if the fraction of an estimate's bits is near 0, from either side.
uint near_integer(uint bits) {
    return (bits + TOLERANCE) << (32 - FRACTION_BITS);
}

// How far a scale is from what has an ordinary reciprocal; negative ones are very far.
uint beyond_smallest(uint scale) {
    return scale - SMALLEST_SCALE;
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
    uint origins = HAS_ZERO_POINT ? zero_points ^ FLIP : (LEAST == 0 ? 0 : 0x80808080u);
    uint value = 0u - ABOVE_DISTANCE * 0x01010101u;
    uint nearest = 0xFFFFFFFFu, farthest_scale = 0;
    int largest = 0;
    uvec4 estimates;
    float reciprocal, origin, least, most;
    [[unroll]] for (uint slot = 0; slot < 4; ++slot) {
        float s = uintBitsToFloat(scale[slot]);
        bool is_new = slot == 0 || !share_scale || HAS_ZERO_POINT && !share_zero_point;
        if (slot == 0 || !share_scale) {
            reciprocal = 1.0 / s;
            farthest_scale = max(farthest_scale, beyond_smallest(scale[slot]));
        }
        if (is_new) {
            origin = float(origins >> 8 * slot & 0xFF);  // the zero point's distance from LEAST: -low
            least = (-0.25 - origin) * s;
            most = (255.25 - origin) * s;
        }
        // A float's bits grow with it as a signed integer if it is positive, and fall as an unsigned one if it is not.
        uint bounded = min(uint(min(int(x[slot]), floatBitsToInt(most))), floatBitsToUint(least));
        largest = max(largest, int(x[slot]));
        estimates[slot] = floatBitsToUint(uintBitsToFloat(bounded) * reciprocal + (origin + 256.5));
        nearest = min(nearest, near_integer(estimates[slot]));
        value += estimates[slot] >> FRACTION_BITS << 8 * slot;
    }
    value ^= FLIP;
    // A NaN with a sign is bounded to `least`, as it should be.
    bool has_number = largest <= int(INFINITY_BITS) && farthest_scale <= LARGEST_SCALE - SMALLEST_SCALE;
    uint uncertain = 0;
    if (nearest < LEAST_CERTAIN || !has_number) {
        [[unroll]] for (uint slot = 0; slot < 4; ++slot)
            uncertain |= !has_number || near_integer(estimates[slot]) < LEAST_CERTAIN ? 1u << slot : 0;
    }
    return corrected(value, uncertain, x, scale, zero_points);
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
    uvec4 scale = uvec4(floatBitsToUint(1.0));
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
