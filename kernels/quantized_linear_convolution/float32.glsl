// The last step of QUANTIZED_LINEAR_CONVOLUTION in float32, for devices that promise to round float32 to nearest even.
// The kernel has to ask for that (RoundingModeRTE). Then f32(f32(acc) m) is one conversion and one product, as long as
// acc fits 32 bits and m is a normal number. A smaller m makes every output 0. An infinite m saturates all but 0, like
// the largest finite number.
//
// Include this file after parameter_sources.glsl.

const int LARGEST_EXPONENT = 127;
const int SMALLEST_EXPONENT = -126;
const uint LARGEST_TAP_COUNT = 32767;  // |x'(w' - zw)| <= 128 * 255, so the sum of this many is below 2^30
const uint ONES = 0x01010101;

float multiplier_of(uint channel) {
    // Not called in a function that returns the structure: with one, NVIDIA's compiler takes 17 more registers.
    Binary32 m = multiplier(input_scale(channel), filter_scale(channel), output_scale(channel));
    if (m.mantissa == 0 || m.exponent < SMALLEST_EXPONENT)
        return 0.0;
    uint bits = uint(m.exponent + 127) << 23 | ((m.mantissa >> 8) & 0x7FFFFF);
    if (m.exponent > LARGEST_EXPONENT)
        bits = 0x7F7FFFFF;
    return uintBitsToFloat(bits | (m.negative ? 1u << 31 : 0));
}

// Whether the sums of a channel with this constant, and with this number of products, fit 32 bits.
bool is_narrow(Wide constant, uint taps) {
    return taps <= LARGEST_TAP_COUNT && constant.high == uint(int(constant.low) >> 31)
        && abs(int(constant.low) >> 1) < 1 << 29;
}

// y of a whole sum, in integers only.
uint exact_byte(Wide accumulator, float multiplier, int output_zero_point) {
    uint bits = floatBitsToUint(multiplier);
    int exponent = int(bits >> 23 & 0xFF) - 127;
    uint mantissa = bits << 1 == 0 ? 0 : ((bits & 0x7FFFFF) | 0x800000) << 8;
    int value = scaled(accumulator, mantissa, exponent, int(bits) < 0) + output_zero_point;
    return uint(OUTPUT_UNSIGNED != 0 ? clamp(value, 0, 255) : clamp(value, -128, 127)) & 0xFF;
}

// The output's range minus its zero point, and the term that turns four sums of bits into bytes.
struct Range {
    float low;
    float high;
    uint first;
};

// Adding 1.5 * 2^23 leaves the nearest integer, even at ties, in the lowest bits of a float32.
const float TO_INTEGER = 12582912.0;
const uint TO_INTEGER_BITS = 0x4B400000;

Range range_of(int output_zero_point) {
    int low = (OUTPUT_UNSIGNED != 0 ? 0 : -128) - output_zero_point;
    return Range(float(low), float(low + 255), -(TO_INTEGER_BITS + uint(low)) * ONES);
}

// The integer nearest to an accumulator times its multiplier, clamped to the range, in the low bits of a float32. Four
// of them, each shifted by eight bits more than the one before, and `range.first` add up to a word of four bytes that
// count from 0. No byte carries into the next, because all are from 0 to 255. The bits above the bytes add up to a
// constant.
uint rounded_bits(int accumulator, float multiplier, Range range) {
    precise float value = clamp(float(accumulator) * multiplier, range.low, range.high);
    precise float rounded = value + TO_INTEGER;
    return floatBitsToUint(rounded);
}

// Turns bytes that count from 0 into bytes of the output's type.
const int OUTPUT_FLIP = OUTPUT_UNSIGNED != 0 ? 0 : int(0x80808080);
