// The mean of a window from its sum t of binary32 numbers, by comparing t with one number: for devices that round to nearest
// even; others have none. Where both scales are equal and n is even, many means lie in the middle between two integers.
//
// Maths. y = clamp(nearest_even(f32(f32(f32(t / n) / sy) + zy))) grows with t, for a positive sy. So the output is at least k
// from some least t on, which is found backwards:
// - v, the least number with nearest_even(f32(v + zy)) >= k, lies beside the half-integer k - 1/2 - zy, and is found by
//   bisection, of at most 2^12 numbers;
// - the least q with f32(q / d) >= v is the least number above c * d, if c is the middle between v and the number before it.
//   c * d is no binary32 number: without its factors of two, c has 25 bits. So it is cut off or rounded up, never equal;
// - first with d = sy, then with d = n.
//
// A workgroup finds thresholds if many means can lie in the middle, and then adds up all windows in floats: where the outputs
// that need it are not neighbours, a subgroup would take a turn for each of them. Otherwise few means need it.
//
// Include this file after again.glsl. The kernel defines IS_UNROLLED, whether it has all taps in registers. The scales and zero
// points are the same for all channels.

#ifndef ROUNDS_TO_NEAREST_EVEN
const bool HAS_THRESHOLDS = false;
#else
shared uint thresholds[256];  // bits of numbers, by the output's distance from LOWEST

const uint ALL_TAPS = TAPS_OF_MEAN != 0 ? TAPS_OF_MEAN : WINDOW_TAPS;
// Windows with more taps have few such means, and so have those with an odd number.
const bool IS_EVEN = (WINDOW_TAPS & 1) == 0;
const bool HAS_THRESHOLDS = IS_UNROLLED && IS_EVEN && !IS_PER_CHANNEL && IS_GLOBAL == 0 && WINDOW_TAPS <= 16;
const int STEPS = 12;
// Sums with a mean below 256 then miss the middle by no more than an estimate does.
const float TOLERANCE = 1.0 / 262144.0;

// The least q with f32(q / divisor) >= v, as bits. v is not 0; the divisor is positive.
uint least_dividend(uint v, uint divisor) {
    uint mantissa = v & 0x7FFFFF | 1u << 23;
    bool is_negative = int(v) < 0;
    // The middle, in quarters of the last place. Below a power of two, numbers lie closer.
    uint middle = 4 * mantissa + (is_negative ? 2 : mantissa == 1u << 23 ? -1 : -2);
    uint high, low;
    umulExtended(middle, divisor & 0x7FFFFF | 1u << 23, high, low);
    int shift = findMSB(high) + 32 - 23;
    uint kept = high << (32 - shift) | low >> shift;
    uint exponent = (v >> 23 & 0xFF) + (divisor >> 23 & 0xFF) + uint(shift) - 152;
    uint magnitude = exponent << 23 | kept & 0x7FFFFF;
    return is_negative ? magnitude | 1u << 31 : magnitude + 1;
}

uint threshold(int output_number, Parameters p) {
    float origin = float(p.output_zero_point), middle = float(output_number) - 0.5 - origin;
    uint below = floatBitsToUint(middle - 1.0 / 16384.0), above = floatBitsToUint(middle + 1.0 / 16384.0);
    for (int step = 0; step < STEPS; ++step) {
        uint between = below + uint(int(above - below) / 2);
        precise float number = uintBitsToFloat(between) + origin;
        if (roundEven(number) >= float(output_number))
            above = between;
        else
            below = between;
    }
    return least_dividend(least_dividend(above, p.output_scale), floatBitsToUint(float(ALL_TAPS)));
}

// Whether some multiples of a ratio are whole numbers.
bool is_whole(float multiple) {
    return multiple > 0.5 && abs(multiple - roundEven(multiple)) <= multiple * TOLERANCE;
}

// Whether many sums of integers may give a mean in the middle between two integers: whether 12 or 16 steps of the mean, from
// one sum to the next, are a whole number. So are 2, 4, 6 or 8 steps then, if any of these are.
bool are_many_uncertain(Parameters p) {
    float step_of_sum = p.ratio / float(ALL_TAPS);
    return is_whole(12.0 * step_of_sum) || is_whole(16.0 * step_of_sum);
}

// All invocations of a workgroup call it. Returns whether there are thresholds.
bool find_thresholds(Parameters p) {
    if (p.certainty < 0.0 || int(p.output_scale) < 0 || !are_many_uncertain(p))
        return false;
    for (uint i = gl_LocalInvocationID.x; i < 256; i += gl_WorkGroupSize.x)
        thresholds[i] = i == 0 ? 0 : threshold(LOWEST + int(i), p);
    barrier();
    return true;
}

// The outputs of four windows with all taps, and their sums t. The mean lies between `below` and the next integer, whichever
// way half of a step less than it is rounded.
uint compared_means(vec4 totals, Parameters p) {
    float factor = 1.0 / (uintBitsToFloat(p.output_scale) * float(ALL_TAPS));
    float origin = float(p.output_zero_point - LOWEST) - 0.5;
    uvec4 bytes;
    [[unroll]] for (uint i = 0; i < 4; ++i) {
        uint below = floatBitsToUint(clamp(totals[i] * factor + origin, 0.0, 254.0) + 12582912.0);
        bytes[i] = below + (totals[i] >= uintBitsToFloat(thresholds[(below & 0xFF) + 1]) ? 1 : 0);
    }
    return word_of_estimates(bytes);
}
#endif
