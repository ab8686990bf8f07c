// Exact arithmetic of the quantized element-wise kernels: binary32 in integers, on any device. See
// quantized_linear_convolution/arithmetic.glsl for why. The kernel defines UNSIGNED_TYPES before it includes this file.
#include "quantized_linear_convolution/arithmetic.glsl"
#include "quantized_linear_convolution/multiplier.glsl"

// The integer nearest to a value, ties to even, clamped to [-1024, 1024]. Beyond that, every byte saturates.
int nearest_even(Binary32 value) {
    if (value.mantissa == 0 || value.exponent < -1)
        return 0;
    uint whole = 1024;
    if (value.exponent <= 9) {
        int shift = 31 - value.exponent;  // 22 to 32
        whole = shift == 32 ? 0 : value.mantissa >> shift;
        uint rest = shift == 32 ? value.mantissa : value.mantissa & ((1u << shift) - 1);
        uint half_step = 1u << (shift - 1);
        if (rest > half_step || (rest == half_step && (whole & 1) != 0))
            ++whole;
    }
    return value.negative ? -int(whole) : int(whole);
}

// The bits of a value that is already rounded to binary32.
uint bits_of(Binary32 value) {
    uint bits = 0;
    if (value.exponent > 127)
        bits = 0x7F800000;
    else if (value.exponent < -126)
        bits = value.mantissa >> min(-118 - value.exponent, 31);
    else if (value.mantissa != 0)
        bits = (uint(value.exponent + 127) << 23) | ((value.mantissa >> 8) & 0x7FFFFF);
    return bits | (value.negative ? 1u << 31 : 0);
}

// A byte of a tensor (numbered as in UNSIGNED_TYPES) as the integer that it stands for.
int integer_of(uint byte, uint tensor) {
    return (UNSIGNED_TYPES >> tensor & 1) != 0 ? int(byte & 0xFF) : bitfieldExtract(int(byte), 0, 8);
}
