// The mean of one window whose estimate is not certain: see thresholds.glsl and again.glsl, after which this file is included.

// The byte of a window; `is_compared` says that the workgroup has thresholds for sums of all taps.
uint again(int sum, uint source, uvec3 strides, Taps taps, uint n, bool is_compared, Parameters p) {
#ifdef ROUNDS_TO_NEAREST_EVEN
    if (is_compared && n == ALL_TAPS)
        return compared_mean(sum, sum_in_floats(0.0, source, strides, taps, p), p);
#endif
    return exact_mean(sum, source, strides, taps, n, p);
}
