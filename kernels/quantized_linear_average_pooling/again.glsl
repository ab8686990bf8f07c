// The mean of one window, computed operation by operation: see mean.glsl. Include this file after it and window.glsl.
//
// Driver bugs avoided: none. It is a function of bytes' addresses, so that it takes the same form in all kernels.

#ifdef ROUNDS_TO_NEAREST_EVEN
const uint MOST_TAPS_AT_ONCE = 16;
const bool ARE_AT_ONCE = WINDOW_TAPS <= MOST_TAPS_AT_ONCE;

// total with a tap, whose byte's top bit is changed if bytes are signed. Its bits as those of an integer above 2^23 are a
// conversion.
float with_byte(float total, uint byte, Parameters p) {
    float origin = ((UNSIGNED_TYPES & 1) != 0 ? 8388608.0 : 8388736.0) + float(p.input_zero_point);
    precise float number = uintBitsToFloat(0x4B000000 | byte) - origin;
    precise float operand = uintBitsToFloat(p.input_scale) * number;
    precise float sum = total + operand;
    return sum;
}

float with_tap_in_floats(float total, uint at, Parameters p) {
    return with_byte(total, byte_of(input_words[at >> 2], at) ^ ((UNSIGNED_TYPES & 1) != 0 ? 0 : 0x80), p);
}

// The sum of a window's taps, for scales of ordinary size. Few taps are on their way together.
float sum_in_floats(float total, uint source, uvec3 strides, Taps taps, Parameters p) {
    if (ARE_AT_ONCE && number_of(taps) == WINDOW_TAPS) {
        [[unroll]] for (uint tap = 0; tap < MOST_TAPS_AT_ONCE; ++tap) {
            if (tap < WINDOW_TAPS) {
                uint row = tap / WINDOW_W;
                uvec3 place = uvec3(row / WINDOW_H, row % WINDOW_H, tap % WINDOW_W) * strides;
                total = with_tap_in_floats(total, source + place.x + place.y + place.z, p);
            }
        }
        return total;
    }
    for (uint d = taps.low.x; d < taps.high.x; ++d)
        for (uint h = taps.low.y; h < taps.high.y; ++h)
            for (uint w = taps.low.z; w < taps.high.z; ++w)
                total = with_tap_in_floats(total, source + d * strides.x + h * strides.y + w * strides.z, p);
    return total;
}
#endif

// The sum t of a window's taps, further to `t`. `source` is the address of its first tap, strides are in bytes.
Binary32 sum_of_taps(Binary32 t, uint source, uvec3 strides, Taps taps, Parameters p) {
#ifdef ROUNDS_TO_NEAREST_EVEN
    if (p.is_ordinary)
        return from_bits(floatBitsToUint(sum_in_floats(uintBitsToFloat(to_bits(t)), source, strides, taps, p)));
#endif
    for (uint d = taps.low.x; d < taps.high.x; ++d)
        for (uint h = taps.low.y; h < taps.high.y; ++h)
            for (uint w = taps.low.z; w < taps.high.z; ++w) {
                uint at = source + d * strides.x + h * strides.y + w * strides.z;
                t = with_tap(t, input_number(byte_of(input_words[at >> 2], at)) - p.input_zero_point, p);
            }
    return t;
}

// The sum of a window's taps as integers, without the zero point.
int sum_of_integers(uint source, uvec3 strides, Taps taps) {
    int sum = 0;
    for (uint d = taps.low.x; d < taps.high.x; ++d)
        for (uint h = taps.low.y; h < taps.high.y; ++h)
            for (uint w = taps.low.z; w < taps.high.z; ++w) {
                uint at = source + d * strides.x + h * strides.y + w * strides.z;
                sum += input_number(byte_of(input_words[at >> 2], at));
            }
    return sum;
}

// The byte of a window that has all its taps in this dispatch.
uint exact_mean(uint source, uvec3 strides, Taps taps, Parameters p) {
    uint count = number_of(taps);
    if (IS_GLOBAL != 0)
        return exact_plane(sum_of_integers(source, strides, taps) - p.input_zero_point * int(count), p);
    if (!is_usable(p.input_scale) || !is_usable(p.output_scale))
        return uint(LOWEST) & 0xFF;
    Binary32 t = sum_of_taps(Binary32(0, 0, false), source, strides, taps, p);
    return finished_mean(t, TAPS_OF_MEAN != 0 ? TAPS_OF_MEAN : count, p);
}
