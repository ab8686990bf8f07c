// The weights and parameters of a workgroup's channels, which depthwise.glsl keeps in shared memory; or those that were
// prepared once, which it loads.

// Prepares the weights and parameters of a channel, as number i of the workgroup's channels.
void prepare(uint i, uint channel) {
    int filter_zero = FILTER_ZERO_POINT != 0 ? filter_zero_point(channel) : 0;
    uint plane = push.filter_start + channel * FILTER_STRIDE_M;
    int sum = 0;
#ifdef DOT4
    [[dont_unroll]] for (uint k = 0; k < TAP_ROWS; ++k) {
        [[dont_unroll]] for (uint chunk = 0; chunk < CHUNKS; ++chunk) {
            uint place = (k * CHUNKS + chunk) * BLOCK_CHANNELS + i;
            uvec2 words = weight_words(plane + k * FILTER_STRIDE_H, chunk, filter_zero, sum);
            shared_weights[place] = words.x;
            if (FILTER_ZERO_POINT != 0) {
                shared_weights[WEIGHTS * BLOCK_CHANNELS + place] = words.y;
                if (words.y != 0)
                    atomicOr(has_second, 1);
            }
        }
    }
    Wide constant = constant_of(channel, sum);
    shared_parameters[i] = uvec4(floatBitsToUint(multiplier_of(channel)), constant.low, constant.high,
        is_narrow(constant, TAP_ROWS * TAP_COLUMNS) ? 0 : NEEDS_INTEGERS);
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
    Wide constant = constant_of(channel, sum);
    shared_parameters[i] = estimate_parameters(channel, constant, TAP_ROWS * TAP_COLUMNS);
#endif
}

// Prepares the workgroup's channels, after which no invocation may rely on what others have not stored yet.
void prepare_channels(uint first_channel, uint block) {
    uint invocation = gl_LocalInvocationID.x;
    if (invocation == 0)
        has_second = 0;
    barrier();
    [[dont_unroll]] for (uint i = invocation; i < block * CHANNELS; i += gl_WorkGroupSize.x) {
        // Outputs of channels past the last one are computed and not stored.
        prepare(i, min(first_channel + i, push.channels - 1));
    }
    barrier();
}

#ifdef DOT4

// The prepared words of a row, at one channel, or at an invocation's channels, of which the given one is the first.
uint prepared_word(uint row, uint channel) {
    uint place = panel_word(PANEL_ROWS, 0, push.first_channel + channel);
    return filter_words[4 * push.filter_start + place + row * PANEL];
}

uvec4 prepared_words(uint row, uint channel) {
    if (CHANNELS_LAST == 0)
        return uvec4(prepared_word(row, channel));
    uint place = panel_word(PANEL_ROWS, 0, push.first_channel + channel);
    return filter_vectors[push.filter_start + place / 4 + row * (PANEL / 4)];
}

// A prepared weight, at a place of the dilated row of taps.
int prepared_weight(uint channel, uint tap_row, uint place) {
    uint row = WEIGHT_ROWS + tap_row * CHUNKS + place / 4;
    int first_bit = int(8 * (place % 4));
    int weight = bitfieldExtract(int(prepared_word(row, channel)), first_bit, 8);
    if (FILTER_ZERO_POINT != 0)
        weight -= bitfieldExtract(int(prepared_word(row + WEIGHTS, channel)), first_bit, 8);
    return weight;
}

// Copies the prepared weights of the workgroup's channels to shared memory.
void copy_weights(uint first_channel, uint block) {
    uint last_channel = (push.channels - 1) / CHANNELS * CHANNELS;
    [[dont_unroll]] for (uint i = gl_LocalInvocationID.x; i < WEIGHTS * block; i += gl_WorkGroupSize.x) {
        uint row = i / block;
        uint place = (i - row * block) * CHANNELS;
        uvec4 words = prepared_words(WEIGHT_ROWS + row, min(first_channel + place, last_channel));
        [[unroll]] for (uint c = 0; c < CHANNELS; ++c)
            shared_weights[row * BLOCK_CHANNELS + place + c] = words[c];
    }
}

#endif

// What an invocation knows of its channels together.
struct Facts {
    uint border;  // the input's zero point, four times
    Range range;  // of the output
    uint exact;  // a bit for each of a row's words of outputs: whether the last step is computed in integers
    bool has_second;  // a second word of weights that is not 0
};

// Takes the weights and parameters of an invocation's channels out of shared memory.
Facts channels_from_shared(uint unit, inout uint weights[OWN_WEIGHTS], out uvec4 parameters[CHANNELS]) {
    Facts facts;
    facts.border = (uint(input_zero_point(0)) & 0xFF) * 0x01010101;
    facts.range = range_of(output_zero_point(0));
    facts.exact = 0;
    facts.has_second = FILTER_ZERO_POINT != 0 && has_second != 0;
    [[unroll]] for (uint c = 0; c < CHANNELS; ++c) {
        parameters[c] = shared_parameters[unit * CHANNELS + c];
        facts.exact |= parameters[c].w != 0 ? (1u << OUTPUT_WORDS) - 1 : 0;
#ifdef DOT4
        if (HELD != 0) {
            [[unroll]] for (uint i = 0; i < WEIGHTS; ++i)
                weights[c * WEIGHTS + i] = shared_weights[i * BLOCK_CHANNELS + unit * CHANNELS + c];
        }
#else
        [[unroll]] for (uint i = 0; i < WEIGHTS; ++i) {
            int word = int(shared_weights[i / 3 * BLOCK_CHANNELS + unit * CHANNELS + c]);
            weights[c * WEIGHTS + i] = uint(bitfieldExtract(word, int(10 * (i % 3)), 10));
        }
#endif
    }
    return facts;
}

#ifdef DOT4

// Loads what is prepared of an invocation's channels, of which the given one is the first. If it is past the last one,
// the last ones are loaded.
Facts prepared_channels(uint channel, inout uint weights[OWN_WEIGHTS], out uvec4 parameters[CHANNELS]) {
    channel = min(channel, (push.channels - 1) / CHANNELS * CHANNELS);
    uvec4 multipliers = prepared_words(MULTIPLIER_ROW, channel);
    uvec4 constants = prepared_words(CONSTANT_ROW, channel);
    uvec4 each = prepared_words(PROPERTY_ROW, channel);
    if (HELD != 0) {
        [[unroll]] for (uint i = 0; i < WEIGHTS; ++i) {
            uvec4 words = prepared_words(WEIGHT_ROWS + i, channel);
            [[unroll]] for (uint c = 0; c < CHANNELS; ++c)
                weights[c * WEIGHTS + i] = words[c];
        }
    }
    [[unroll]] for (uint c = 0; c < CHANNELS; ++c)
        parameters[c] = uvec4(multipliers[c], constants[c], 0, 0);
    // The channels have the same zero points.
    uint properties = each.x | each.y | each.z | each.w;
    Facts facts;
    facts.border = (properties >> 8 & 0xFF) * 0x01010101;
    facts.range = range_of(int(properties) >> 16);
    facts.exact = (properties & NEEDS_INTEGERS) != 0 ? (1u << OUTPUT_WORDS) - 1 : 0;
    facts.has_second = FILTER_ZERO_POINT != 0 && (properties & HAS_SECOND) != 0;
    return facts;
}

// The second words of weights of an invocation's channels: few layers have any, so registers do not hold them.
uvec4 second_words(uint row, uint unit, uint channel) {
    if (PREPARED != 0)
        return prepared_words(WEIGHT_ROWS + row, channel);
    uvec4 words = uvec4(0);
    [[unroll]] for (uint c = 0; c < CHANNELS; ++c)
        words[c] = shared_weights[row * BLOCK_CHANNELS + unit * CHANNELS + c];
    return words;
}

#endif
