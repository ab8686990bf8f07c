// The last step of QUANTIZED_LINEAR_CONVOLUTION by an estimate, with the integers of arithmetic.glsl as a fallback.
//
// y is an integer next to v = f32(f32(acc) m). Float units differ in how they round, but everywhere a product is
// correctly rounded in some direction, and a sum of up to 24 bits is exact as a float. If no clamp hides it, |v| <
// 256, so the estimate is off by less than 2^-15: 2^-16 for its own rounding, and 2^-17 for that of v. So an estimate
// that is at least 2^-15 away from the middle between two integers gives y for certain, on every device. One in 16,000
// estimates does not, and is computed again in integers. Channels whose sums may have more bits, or whose multiplier
// is not of ordinary size, always use the integers.
//
// Include this file after parameter_table.glsl.

const float CERTAIN = 0.5 - 1.0 / 32768.0;
const int LARGEST_EXPONENT = 90;
const int LARGEST_SUM = 1 << 24;
const int LARGEST_PRODUCT = 128 * 255;  // of x' and w - zw

// The parameters of an output channel for the last step: the multiplier as the bits of a float, the constant part of
// the sum (64 bits, low word first), and 1 if the estimate must not be used. The rest of the sum is a sum of `taps`
// products.
uvec4 estimate_parameters(uint channel, Wide constant, uint taps) {
    Binary32 m = exact_multiplier_of(channel);
    int room = LARGEST_SUM - int(taps) * LARGEST_PRODUCT;
    int low = int(constant.low);
    bool small = constant.high == uint(low >> 31) && low <= room && low >= -room;
    bool ordinary = m.mantissa == 0 || abs(m.exponent) <= LARGEST_EXPONENT;
    uint bits = 0;
    if (m.mantissa != 0 && ordinary)
        bits = uint(m.exponent + 127) << 23 | ((m.mantissa >> 8) & 0x7FFFFF) | (m.negative ? 1u << 31 : 0);
    return uvec4(bits, constant.low, constant.high, small && ordinary ? 0 : 1);
}

// The output's range minus its zero point. `to_byte` makes an integer in a float a byte in its lowest bits.
struct Range {
    float low;
    float high;
    float to_byte;
};

Range range_of(int output_zero_point) {
    int low = OUTPUT_UNSIGNED != 0 ? 0 : -128;
    return Range(
        float(low - output_zero_point), float(low + 255 - output_zero_point), float(12582912 + output_zero_point));
}

// y of a whole sum. `distance_to_integer` becomes the largest distance of v from its integer, in all calls so far.
uint estimate(int accumulator, float multiplier, Range range, inout float distance_to_integer) {
    float value = clamp(float(accumulator) * multiplier, range.low, range.high);
    float rounded = roundEven(value);
    distance_to_integer = max(distance_to_integer, abs(value - rounded));
    return floatBitsToUint(rounded + range.to_byte) & 0xFF;
}

// y of a whole sum, in integers only.
uint exact_byte(Wide accumulator, uint channel) {
    Binary32 m = exact_multiplier_of(channel);
    return clamped_byte(scaled(accumulator, m.mantissa, m.exponent, m.negative) + output_zero_point(channel));
}
