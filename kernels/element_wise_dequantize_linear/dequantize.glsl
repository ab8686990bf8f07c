// ELEMENT_WISE_DEQUANTIZE_LINEAR: y = f32(f32(x - z) * s)
//
// Maths. f32() is one rounding to binary32, nearest even, denormals kept. x - z has eight bits and a sign. Vulkan's product
// is rounded in any direction, and may flush denormals. What is no number becomes 0x7FC00000.
//     integers.comp: the mantissa of s has 24 bits, so that the product has 32. It is computed and rounded in integers,
//         which are exact on every device.
//     float32.comp, which defines ROUNDS_TO_NEAREST, is for devices that promise to round to nearest even. If s is neither
//         denormal nor very large, y is an ordinary number, and a product of floats is right.
//
// Loops: an invocation writes a unit of 16 bytes, from 4 bytes: element_wise/loop_nest.glsl.
//
// Layout: the scale and the zero point step along like the input, with strides of 0 where they are shared.
//
// Preconditions: output elements do not overlap. Scales may have any bits.
#define UNIT 4
#include "element_wise/loop_nest.glsl"
layout(constant_id = FIRST_OWN_CONSTANT) const bool HAS_ZERO_POINT = false;
layout(constant_id = FIRST_OWN_CONSTANT + 1) const uint UNSIGNED_TYPES = 0;  // bit 0: the input
#include "element_wise/output_words.glsl"
#define OPERAND input
#define BINDING 1
#define STEP FIRST_STEP
#define STRIDE push.strides[0].y
#include "element_wise/bytes.glsl"
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

const uint NO_NUMBER = 0x7FC00000;
const uint LARGEST_ORDINARY = 245;  // with this exponent, the bias of 127 included, no product becomes infinite

// For scales that are 0, denormal, very large, infinite or no number.
uint extreme_product(int difference, uint scale) {
    uint kind = kind_of(scale);
    uint sign = (scale ^ uint(difference)) & 0x80000000;
    if (kind == NOT_A_NUMBER || (kind == INFINITE && difference == 0))
        return NO_NUMBER;
    if (kind == INFINITE)
        return sign | 0x7F800000;
    if (kind == ZERO || difference == 0)
        return sign;
    return bits_of(multiply(from_bits(floatBitsToUint(float(difference))), from_bits(scale)));
}

uint product(int difference, uint scale) {
    uint exponent = scale >> 23 & 0xFF;
    if (exponent - 1 >= LARGEST_ORDINARY)
        return extreme_product(difference, scale);
    uint sign = (scale ^ uint(difference)) & 0x80000000;
#ifdef ROUNDS_TO_NEAREST
    return floatBitsToUint(float(abs(difference)) * uintBitsToFloat(scale & 0x7FFFFFFF)) | sign;
#else
    uint size = uint(abs(difference)) * ((scale & 0x7FFFFF) | 0x800000);
    int top = max(findMSB(size), 23);
    uint fraction = size << (31 - top);
    uint kept = fraction >> 8;
    kept += (fraction & 0xFF) + (kept & 1) > 128 ? 1 : 0;
    // The mantissa's leading bit adds one to the exponent, and a carry out of it one more.
    uint bits = (exponent + uint(top) - 24 << 23) + kept;
    return (difference == 0 ? 0 : bits) | sign;
#endif
}

uvec4 dequantized_one_by_one(uint x, uvec4 scale, uint zero_points) {
    uvec4 value = uvec4(0);
    [[dont_unroll]] for (int slot = 0; slot < 4; ++slot) {
        int zero = HAS_ZERO_POINT ? integer_of(zero_points, 0) : 0;
        value = uvec4(value.yzw, product(integer_of(x, 0) - zero, scale.x));
        x >>= 8;
        zero_points >>= 8;
        scale = scale.yzwx;
    }
    return value;
}

#ifdef ROUNDS_TO_NEAREST
const uint FLIP = (UNSIGNED_TYPES & 1) != 0 ? 0 : 0x80808080u;
const float ORIGIN = (UNSIGNED_TYPES & 1) != 0 ? 8388608.0 : 8388736.0;

// A byte in the lowest bits of 2^23 is the sum of both, so that no conversion is needed. Elements that share a scale
// or a zero point share what follows from it.
uvec4 dequantized(uint x, uvec4 scale, uint zero_points, bool share_scale, bool share_zero_point) {
    uint flipped = x ^ FLIP;
    float zero = HAS_ZERO_POINT ? float(integer_of(zero_points, 0)) : 0.0;
    uvec4 value;
    [[unroll]] for (int slot = 0; slot < 4; ++slot) {
        if (HAS_ZERO_POINT && !share_zero_point)
            zero = float(integer_of(zero_points >> (8 * slot), 0));
        float difference = uintBitsToFloat(0x4B000000 | (flipped >> (8 * slot) & 0xFF)) - (ORIGIN + zero);
        uint sign = (scale[slot] ^ floatBitsToUint(difference)) & 0x80000000;
        value[slot] = floatBitsToUint(abs(difference) * uintBitsToFloat(scale[slot] & 0x7FFFFFFF)) | sign;
    }
    uvec4 exponent = (share_scale ? scale.xxxx : scale) >> 23 & 0xFF;
    bool is_ordinary = all(lessThan(exponent - 1, uvec4(LARGEST_ORDINARY)));
    return is_ordinary ? value : dequantized_one_by_one(x, scale, zero_points);
}
#else
uvec4 dequantized(uint x, uvec4 scale, uint zero_points, bool share_scale, bool share_zero_point) {
    return dequantized_one_by_one(x, scale, zero_points);
}
#endif

void main() {
    Unit unit;
    if (!find_unit(unit))
        return;
    if (is_inside_row(unit)) {
        uint x = input_unit(unit.offsets.y).x;
        uvec4 scale = scale_unit(unit.offsets.z);
        uint zero_points = HAS_ZERO_POINT ? zero_point_unit(unit.offsets.w).x : 0;
        store_unit(unit, dequantized(x, scale, zero_points, SECOND_STEP == 0, THIRD_STEP == 0));
        return;
    }
    uint x = 0;
    uvec4 scale = uvec4(0x3F800000);
    uint zero_points = 0;
    Unit next = unit;
    [[unroll]] for (uint slot = 0; slot < 4; ++slot) {
        uint element = unit.start + slot;
        if (element >= unit.first && element < unit.last) {
            x |= input_byte(next.offsets.y) << (8 * slot);
            scale[slot] = scale_words[next.offsets.z];
            zero_points |= HAS_ZERO_POINT ? zero_point_byte(next.offsets.w) << (8 * slot) : 0;
            if (element + 1 < unit.last)
                advance(next);
        }
    }
    store_unit(unit, dequantized(x, scale, zero_points, false, false));
}
