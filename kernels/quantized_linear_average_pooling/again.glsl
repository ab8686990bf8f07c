// The mean of one window, computed operation by operation: see mean.glsl. Include this file after it and window.glsl.
//
// Driver bugs avoided: none. It is a function of bytes' addresses, so that it takes the same form in all kernels.

// The sum t of a window's taps, further to `t`. `source` is the address of its first tap, strides are in bytes.
Binary32 sum_of_taps(Binary32 t, uint source, uvec3 strides, Taps taps, Parameters p) {
#ifdef ROUNDS_TO_NEAREST_EVEN
    if (p.is_ordinary) {
        precise float total = uintBitsToFloat(to_bits(t));
        float scale = uintBitsToFloat(p.input_scale);
        for (uint d = taps.low.x; d < taps.high.x; ++d)
            for (uint h = taps.low.y; h < taps.high.y; ++h)
                for (uint w = taps.low.z; w < taps.high.z; ++w) {
                    uint at = source + d * strides.x + h * strides.y + w * strides.z;
                    int number = input_number(byte_of(input_words[at >> 2], at)) - p.input_zero_point;
                    precise float operand = scale * float(number);
                    total = total + operand;
                }
        return from_bits(floatBitsToUint(total));
    }
#endif
    for (uint d = taps.low.x; d < taps.high.x; ++d)
        for (uint h = taps.low.y; h < taps.high.y; ++h)
            for (uint w = taps.low.z; w < taps.high.z; ++w) {
                uint at = source + d * strides.x + h * strides.y + w * strides.z;
                t = with_tap(t, input_number(byte_of(input_words[at >> 2], at)) - p.input_zero_point, p);
            }
    return t;
}

// The byte of a window that has all its taps in this dispatch, whose sum of integers is known.
uint exact_mean(int sum, uint source, uvec3 strides, Taps taps, uint n, Parameters p) {
    if (IS_GLOBAL != 0)
        return exact_plane(sum, p);
    if (!is_usable(p.input_scale) || !is_usable(p.output_scale))
        return uint(LOWEST) & 0xFF;
    return finished_mean(sum_of_taps(Binary32(0, 0, false), source, strides, taps, p), n, p);
}
