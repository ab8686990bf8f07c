// ELEMENT_WISE_ADD: y = f32(a + b)
//
// Maths. f32() is one rounding to binary32, nearest even, denormals kept. Vulkan's sum is rounded in any direction, and may
// flush denormals. What is no number has the bits of x86-64: windows/sum.glsl.
//     integers.comp adds in integers, which are exact on every device.
//     float32.comp, which defines ROUNDS_TO_NEAREST, is for devices that promise to round to nearest even. Where both numbers
//         and their sum have ordinary sizes or are 0, a sum of floats is right. The sign of a 0 is taken from the operands.
//
// Loops and layout: element_wise/word_operation.glsl.
//
// Preconditions: output elements do not overlap. Elements may have any bits.
#extension GL_EXT_control_flow_attributes : require
const uint UNSIGNED_TYPES = 0;
#include "quantized_linear_convolution/arithmetic.glsl"
#include "quantized_linear_convolution/multiplier.glsl"
#include "windows/sum.glsl"

// The code is long: it stays a loop.
uvec4 added_one_by_one(uvec4 a, uvec4 b) {
    uvec4 value = uvec4(0);
    [[dont_unroll]] for (int slot = 0; slot < 4; ++slot) {
        value = uvec4(value.yzw, added(a.x, b.x));
        a = a.yzwx;
        b = b.yzwx;
    }
    return value;
}

#ifdef ROUNDS_TO_NEAREST
// Whether a number is neither denormal, infinite nor a NaN; nor 0, unless that may be.
bool is_ordinary(uint bits, bool or_zero) {
    uint size = bits & 0x7FFFFFFF;
    return size - (1u << 23) < 0x7F000000 || (or_zero && size == 0);
}

uvec4 operation(uvec4 a, uvec4 b) {
    precise vec4 total = uintBitsToFloat(a) + uintBitsToFloat(b);
    uvec4 value = floatBitsToUint(total);
    bool are_right = true;
    [[unroll]] for (int slot = 0; slot < 4; ++slot) {
        bool is_zero = (a[slot] ^ b[slot]) == 0x80000000 || ((a[slot] | b[slot]) & 0x7FFFFFFF) == 0;
        value[slot] = is_zero ? a[slot] & b[slot] & 0x80000000 : value[slot];
        are_right = are_right && is_ordinary(a[slot], true) && is_ordinary(b[slot], true);
        are_right = are_right && is_ordinary(value[slot], is_zero);
    }
    return are_right ? value : added_one_by_one(a, b);
}
#else
uvec4 operation(uvec4 a, uvec4 b) {
    return added_one_by_one(a, b);
}
#endif

#include "element_wise/word_operation.glsl"
