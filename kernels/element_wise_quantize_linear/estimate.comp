#version 460

// ELEMENT_WISE_QUANTIZE_LINEAR: y = nearest_even(clamp(f32(x / s), low - z, high - z)) + z, and low if x / s is no number
//
// Maths. f32() is one rounding to binary32, nearest even. Vulkan's division may be 2.5 units in the last place off, its
// products and sums are rounded in any direction, and denormals may be flushed. So x * (1 / s) is an estimate: it is off
// by at most 4 * 2^-23 of its size, 2.5 units for the reciprocal, one for the product and a half for v = f32(x / s)
// itself. In the output's range, |v| < 256, that is less than 2^-13. An estimate that is nearer than 1/2 - 2^-13 to an
// integer gives y for certain, on every device; one in 4,000 is not, and is divided again in integers. So are all values
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
const uint INFINITY_BITS = 0x7F800000;
const uint SMALLEST_SCALE = (127 - 100) << 23;
const uint LARGEST_SCALE = (127 + 100) << 23;
// Adding 1.5 * 2^23 leaves an integer in the lowest bits of a float. It is not used to round: see
// element_wise_quantized_linear_add/sum.comp.
const float TO_INTEGER = 12582912.0;
const float CERTAIN = 0.5 - 1.0 / 8192.0;

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

// Four elements in a word.
uint quantized(uvec4 x, uvec4 scale, uint zero_points) {
    uvec4 size_x = x & 0x7FFFFFFF;
    uvec4 size_s = scale & 0x7FFFFFFF;
    // More than 2^10 steps of the exponent above the scale, a value saturates like one of that size, and is finite.
    vec4 bounded = uintBitsToFloat(min(size_x, size_s + (10u << 23)) | (x & 0x80000000));
    vec4 estimate = bounded * (1.0 / uintBitsToFloat(scale));
    uint value = 0;
    [[unroll]] for (int slot = 0; slot < 4; ++slot) {
        int zero = HAS_ZERO_POINT ? integer_of(zero_points >> (8 * slot), 0) : 0;
        int low = LEAST - zero;
        float v = clamp(estimate[slot], float(low), float(low + 255));
        float integer = roundEven(v);
        int result = int(floatBitsToUint(integer + TO_INTEGER));
        if (!(abs(v - integer) < CERTAIN) || size_s[slot] - SMALLEST_SCALE > LARGEST_SCALE - SMALLEST_SCALE
            || size_x[slot] > INFINITY_BITS)
            result = clamp(exact_integer(x[slot], scale[slot]), low, low + 255);
        value |= (uint(result + zero) & 0xFF) << (8 * slot);
    }
    return value;
}

void main() {
    Unit unit;
    if (!find_unit(unit))
        return;
    uvec4 x = uvec4(0);
    uvec4 scale = uvec4(1);
    uint zero_points = 0;
    if (is_inside_row(unit)) {
        x = input_unit(unit.offsets.y);
        scale = scale_unit(unit.offsets.z);
        zero_points = HAS_ZERO_POINT ? zero_point_unit(unit.offsets.w).x : 0;
    } else {
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
    }
    store_unit(unit, uvec4(quantized(x, scale, zero_points)));
}
