// The last step of QUANTIZED_LINEAR_CONVOLUTION in float32, for devices that promise to round float32 to nearest even,
// which the kernel has to ask for (RoundingModeRTE): then
// f32(f32(acc) m) is one conversion and one product, as long as acc fits 32 bits and m is a normal number. A smaller m
// makes every output 0, and an infinite one saturates all but 0 like the largest finite number.
#include "quantized_exact.glsl"

const int LARGEST_EXPONENT = 127;
const int SMALLEST_EXPONENT = -126;
const uint LARGEST_TAP_COUNT = 32767;  // x'(w' - zw) is at most 128 * 255, so that many sum up to less than 2^30

float multiplier_of(uint record) {
    uint mantissa = table[record + PARAMETER_MANTISSA];
    int packed_exponent = int(table[record + PARAMETER_EXPONENT]);
    int exponent = packed_exponent >> 1;
    if (mantissa == 0 || exponent < SMALLEST_EXPONENT)
        return 0.0;
    uint bits = uint(exponent + 127) << 23 | ((mantissa >> 8) & 0x7FFFFF);
    if (exponent > LARGEST_EXPONENT)
        bits = 0x7F7FFFFF;
    return uintBitsToFloat(bits | uint(packed_exponent & 1) << 31);
}

// Whether sums of a channel with this constant fit 32 bits.
bool is_narrow(Wide constant, uint taps) {
    return taps <= LARGEST_TAP_COUNT && constant.high == uint(int(constant.low) >> 31)
        && abs(int(constant.low) >> 1) < 1 << 29;
}

// The output's range less its zero point.
struct Range {
    float low;
    float high;
    uint zero_point;
};

Range range_of(int output_zero_point) {
    int low = OUTPUT_UNSIGNED != 0 ? 0 : -128;
    return Range(float(low - output_zero_point), float(low + 255 - output_zero_point), uint(output_zero_point));
}

// y in the lowest eight bits. Adding 1.5 * 2^23 leaves the nearest integer, even ones at ties, in the lowest bits.
uint rounded_byte(int accumulator, float multiplier, Range range) {
    precise float value = clamp(float(accumulator) * multiplier, range.low, range.high);
    precise float rounded = value + 12582912.0;
    return (floatBitsToUint(rounded) + range.zero_point) & 0xFF;
}
