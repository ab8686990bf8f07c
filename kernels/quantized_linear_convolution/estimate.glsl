// The last step of QUANTIZED_LINEAR_CONVOLUTION by estimate, with the integers of arithmetic.glsl in reserve.
//
// y is an integer next to v = f32(f32(acc) m). Float units differ in how they round, but products are correctly rounded
// in some direction everywhere, and sums of up to 24 bits are floats as they are: where no clamp hides it, |v| < 256,
// the estimate is off by less than 2^-15 (2^-16 for its own rounding, 2^-17 for v's). So an estimate that is 2^-15 or
// more away from the middle between two integers says y for certain, on every device. One in 16,000 is not, and is done
// again with integers. Channels whose sums may have more bits, or whose multiplier is not of ordinary size, always take
// the integers.
//
// To be included after parameter_table.glsl.

const float CERTAIN = 0.5 - 1.0 / 32768.0;
const int LARGEST_EXPONENT = 90;
const int LARGEST_SUM = 1 << 24;
const int LARGEST_PRODUCT = 128 * 255;  // of x' and w - zw

// What the last step needs of an output channel: the multiplier as a float's bits, the constant part of the sum (64
// bits, low word first), and 1 where the estimate must not be used. The rest of the sum is that of `taps` products.
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

// The output's range less its zero point, and what turns an integer in a float into a byte in its lowest bits.
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

// y of a whole sum, and how far v is from it at most, of this and earlier ones.
uint estimate(int accumulator, float multiplier, Range range, inout float distance_to_integer) {
    float value = clamp(float(accumulator) * multiplier, range.low, range.high);
    float rounded = roundEven(value);
    distance_to_integer = max(distance_to_integer, abs(value - rounded));
    return floatBitsToUint(rounded + range.to_byte) & 0xFF;
}

// y of a whole sum in integers alone.
uint exact_byte(Wide accumulator, uint channel) {
    Binary32 m = exact_multiplier_of(channel);
    return clamped_byte(scaled(accumulator, m.mantissa, m.exponent, m.negative) + output_zero_point(channel));
}
