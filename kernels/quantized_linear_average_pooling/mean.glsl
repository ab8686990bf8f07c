// The arithmetic of QUANTIZED_LINEAR_AVERAGE_POOLING, the same bits on every device.
//
// Maths, of windows: d = f32(sx * (x - zx)), t = f32 sum of these in the order of the taps, and
// y = clamp(nearest_even(f32(f32(f32(t / n) / sy) + zy))); what no INT32 holds becomes the least value. Of a whole plane
// (IS_GLOBAL): y = clamp(nearest_even(f32(f32(sum(x - zx)) * m)) + zy) with m = f32(sx / f32(sy * n)).
//
// Vulkan promises neither a rounding mode nor a correct division. So y is found in two steps:
//
// - An estimate, for every output: v = sum(x - zx) * sx / (sy * n) + zy from the exact sum of integers. If v is not close to
//   the middle between two integers, y is the integer next to it, on every device. The bound: with X = max |x - zx|, the
//   k-th operand rounds to within 2^-24 * sx * X, and the k-th sum to within 2^-24 * sx * X * k. So t is within
//   2^-24 * sx * X * taps * (taps + 3) / 2 of sx * sum(x - zx), and each of the two divisions adds 2^-24 of a quotient. In
//   all, that is 2^-24 * sx / sy * X * (taps + 7) / 2. The estimate itself is at most three divisions (2.5 units in the last
//   place of 24 bits each) and two products (1 unit): 10 * 2^-23 of |v - zy|, which is below Y = max |y - zy| + 1/2 where it
//   matters. Two sums with zy, below 256, round to within 2^-16 and 2^-17.
// - The others are computed once more, operation by operation, in integers (Binary32). These are few, except where the
//   scales are equal and n is even: then a quarter of the means of 2 x 2 lie in the middle. A device that rounds to nearest
//   even (ROUNDS_TO_NEAREST_EVEN) adds up the taps in float32, and compares the sum: thresholds.glsl.
//
// Scales that are 0, infinite or not a number give the least value.
//
// Include this file after parameters.glsl. The kernel declares `input_words` and defines WINDOW_TAPS and IS_GLOBAL.

#include "quantized_linear_convolution/arithmetic.glsl"
#include "quantized_linear_convolution/multiplier.glsl"
#include "windows/sum.glsl"

const int LOWEST = (UNSIGNED_TYPES & 2) != 0 ? 0 : -128;
const int HIGHEST = LOWEST + 255;

const uint LEAST_EXPONENT = 127 - 60;
const uint LARGEST_EXPONENT = 127 + 60;

struct Parameters {
    uint input_scale;
    uint output_scale;
    int input_zero_point;
    int output_zero_point;
    float ratio;  // of the scales
    float certainty;  // the largest distance from an integer at which the estimate is that integer
    bool is_ordinary;  // whether the estimate holds, and float32 holds all intermediate results as normal numbers
};

bool is_of_ordinary_size(uint scale) {
    uint exponent = scale >> 23 & 0xFF;
    return exponent >= LEAST_EXPONENT && exponent <= LARGEST_EXPONENT;
}

Parameters parameters_of(uint channel) {
    Parameters p;
    p.input_scale = input_scale(channel);
    p.output_scale = output_scale(channel);
    p.input_zero_point = input_zero_point(channel);
    p.output_zero_point = output_zero_point(channel);
    p.ratio = 0.0;
    p.certainty = -1.0;
    p.is_ordinary = is_of_ordinary_size(p.input_scale) && is_of_ordinary_size(p.output_scale);
    if (p.is_ordinary) {
        p.ratio = uintBitsToFloat(p.input_scale) / uintBitsToFloat(p.output_scale);
        // Of a whole plane, a product of integers, the error is 7 units of the estimate, one of its sum, and 2 of the product.
        float error = 1.0 / 2048.0;
        if (IS_GLOBAL == 0) {
            int least = (UNSIGNED_TYPES & 1) != 0 ? 0 : -128;
            float input_distance = float(max(p.input_zero_point - least, least + 255 - p.input_zero_point));
            float output_distance = float(max(p.output_zero_point - LOWEST, HIGHEST - p.output_zero_point)) + 0.5;
            error = abs(p.ratio) * input_distance * (float(WINDOW_TAPS + 7) / 32000000.0);
            error += output_distance / 800000.0 + 1.0 / 32768.0;
        }
        if (error < 0.2 && abs(p.ratio) < 65536.0)
            p.certainty = 0.5 - error;
    }
    return p;
}

// A mean of numbers with a sum, as a byte's bits in the lower ones of a word, whose upper bits are ESTIMATE: the estimate is
// sum * factor, and the output's zero point. `deviation` is its distance from an integer. Conversions are slow on GPUs: small
// integers become floats, and floats integers, by way of the lowest bits of 1.5 * 2^23.
const uint ESTIMATE = 0x4B400000u;

uint estimated(int sum, float factor, int zero_point, out float deviation) {
#ifdef SUMS_ARE_SMALL
    float number = uintBitsToFloat(ESTIMATE + uint(sum)) - 12582912.0;
#else
    float number = float(sum);
#endif
    float value = number * factor;
    if (IS_GLOBAL == 0)
        value += float(zero_point);
    float rounded = roundEven(value);
    deviation = abs(value - rounded);
    float low = float(LOWEST - (IS_GLOBAL != 0 ? zero_point : 0));
    return floatBitsToUint(clamp(rounded, low, low + 255.0) + (12582912.0 - low));
}

// Four of them as a word.
uint word_of_estimates(uvec4 bytes) {
    return (bytes.x + (bytes.y << 8) + (bytes.z << 16) + (bytes.w << 24) - ESTIMATE * 0x01010101u)
        ^ (LOWEST == 0 ? 0 : 0x80808080u);
}

// One mean. `is_certain` is false if it has to be computed once more.
uint estimated_mean(int sum, float reciprocal_of_taps, Parameters p, out bool is_certain) {
    float deviation;
    uint byte = estimated(sum, p.ratio * reciprocal_of_taps, p.output_zero_point, deviation);
    is_certain = deviation <= p.certainty;
    return (byte + uint(LOWEST)) & 0xFF;
}

Binary32 from_integer(int value) {
    if (value == 0)
        return Binary32(0, 0, false);
    uint magnitude = uint(abs(value));
    int top = findMSB(magnitude);
    return Binary32(magnitude << (31 - top), top, value < 0);
}

// from_bits knows finite numbers alone.
Binary32 loaded(uint bits) {
    return kind_of(bits) < INFINITE ? from_bits(bits) : infinity(false);
}

bool is_usable(uint scale) {
    return kind_of(scale) == FINITE;
}

bool is_number_beside_0(Binary32 value) {
    return value.mantissa != 0 && value.exponent != INFINITE_EXPONENT;
}

// The byte of a window's sum t, which has n taps.
uint finished_mean(Binary32 t, uint n, Parameters p) {
    Binary32 value = t;
    if (is_number_beside_0(value))
        value = divide(value, from_count(n));
    if (is_number_beside_0(value))
        value = divide(value, from_bits(p.output_scale));
    value = sum_of(value, from_integer(p.output_zero_point));
    if (value.mantissa == 0 || value.exponent < -1)
        return uint(clamp(0, LOWEST, HIGHEST)) & 0xFF;
    if (value.exponent > 30)
        return uint(LOWEST) & 0xFF;
    // The whole number, and the rest as a fraction of 2^32.
    uint whole = value.exponent < 0 ? 0 : value.mantissa >> (31 - value.exponent);
    uint rest = value.mantissa << (value.exponent + 1);
    whole += rest > 1u << 31 || rest == 1u << 31 && (whole & 1) != 0 ? 1 : 0;
    int number = int(min(whole, 1024));
    return uint(clamp(value.negative ? -number : number, LOWEST, HIGHEST)) & 0xFF;
}

// The byte of a whole plane's sum.
uint finished_plane(Wide sum, Parameters p) {
    Binary32 divisor = multiply(from_bits(p.output_scale), from_count(TAPS_OF_MEAN));
    Binary32 m = Binary32(0, 0, false);
    if (divisor.mantissa == 0)
        m = infinity(int(p.input_scale ^ p.output_scale) < 0);
    else if (divisor.exponent != INFINITE_EXPONENT)
        m = divide(from_bits(p.input_scale), divisor);
    int number = scaled(sum, m.mantissa, m.exponent, m.negative) + p.output_zero_point;
    return uint(clamp(number, LOWEST, HIGHEST)) & 0xFF;
}

// The same, where its scales may be 0, infinite or not a number.
uint exact_plane(int sum, Parameters p) {
    return is_usable(p.input_scale) && is_usable(p.output_scale) ? finished_plane(widened(sum), p)
                                                                 : uint(LOWEST) & 0xFF;
}

// t with a further tap.
Binary32 with_tap(Binary32 t, int number, Parameters p) {
    return number == 0 ? t : sum_of(t, multiply(from_bits(p.input_scale), from_integer(number)));
}
