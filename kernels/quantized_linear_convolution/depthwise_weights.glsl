// The weights and parameters of a workgroup's channels, which depthwise.glsl keeps in shared memory.

int filter_byte(uint address) {
    return bitfieldExtract(int((filter_words[address >> 2] >> (8 * (address & 3))) ^ FILTER_FLIP), 0, 8);
}

// Prepares the weights and parameters of a channel, as number i of the workgroup's channels.
void prepare(uint i, uint channel) {
    int filter_zero = FILTER_ZERO_POINT != 0 ? filter_zero_point(channel) : 0;
    uint plane = push.filter_start + channel * FILTER_STRIDE_M;
    int sum = 0;
#ifdef DOT4
    [[dont_unroll]] for (uint k = 0; k < TAP_ROWS; ++k) {
        [[dont_unroll]] for (uint chunk = 0; chunk < CHUNKS; ++chunk) {
            uint place = (k * CHUNKS + chunk) * BLOCK_CHANNELS + i;
            uint first = 0, second = 0;
            for (uint b = 0; b < 4; ++b) {
                uint offset = 4 * chunk + b;
                if (offset < REACH && offset % DILATION_W == 0) {
                    uint address = plane + k * FILTER_STRIDE_H + offset / DILATION_W * FILTER_STRIDE_W;
                    int weight = filter_byte(address) - filter_zero;
                    int low = clamp(weight, -128, 127);
                    first |= (uint(low) & 0xFF) << (8 * b);
                    second |= (uint(low - weight) & 0xFF) << (8 * b);
                    sum += weight;
                }
            }
            shared_weights[place] = first;
            if (FILTER_ZERO_POINT != 0) {
                shared_weights[WEIGHTS * BLOCK_CHANNELS + place] = second;
                if (second != 0)
                    atomicOr(has_second, 1);
            }
        }
    }
#else
    [[dont_unroll]] for (uint n = 0; n < SHARED_WEIGHTS; ++n) {
        uint word = 0;
        [[dont_unroll]] for (uint tap = 3 * n; tap < min(3 * n + 3, WEIGHTS); ++tap) {
            uint address = plane + tap / TAP_COLUMNS * FILTER_STRIDE_H + tap % TAP_COLUMNS * FILTER_STRIDE_W;
            int weight = filter_byte(address) - filter_zero;
            word |= (uint(weight) & 0x3FF) << (10 * (tap - 3 * n));
            sum += weight;
        }
        shared_weights[n * BLOCK_CHANNELS + i] = word;
    }
#endif
    Wide constant = add(widened(bias_of(channel)), product(input_zero_point(channel), -sum));
#ifdef DOT4
    shared_parameters[i] = uvec4(floatBitsToUint(multiplier_of(channel)), constant.low, constant.high,
        is_narrow(constant, TAP_ROWS * TAP_COLUMNS) ? 0 : 1);
#else
    shared_parameters[i] = estimate_parameters(channel, constant, TAP_ROWS * TAP_COLUMNS);
#endif
}
