// Outputs of depthwise.glsl that the last step is not certain of, computed in integers.

#ifdef DOT4

// Computes and stores one output in integers, from the bytes of the input and the filter. The channel is number i of the
// workgroup's channels.
void store_exactly(uint channel, uint i, uint image, uint row, uint column) {
    uvec4 parameters;  // as in shared memory
    int input_zero, filter_zero, output_zero;
    if (PREPARED != 0) {
        parameters = uvec4(prepared_word(MULTIPLIER_ROW, channel), prepared_word(CONSTANT_ROW, channel),
            prepared_word(UPPER_CONSTANT_ROW, channel), 0);
        int properties = int(prepared_word(PROPERTY_ROW, channel));
        input_zero = bitfieldExtract(properties, 8, 8);
        filter_zero = 0;
        output_zero = properties >> 16;
    } else {
        parameters = shared_parameters[i];
        input_zero = input_zero_point(channel);
        filter_zero = filter_zero_point(channel);
        output_zero = output_zero_point(channel);
    }
    uint top = push.first_row + row * STRIDE_H;
    uint left = push.first_column + SHIFT + column * STRIDE_W;
    uint source = push.input_start + image * push.input_stride_n
        + (push.first_channel + channel) / CHANNELS_OF_GROUP * push.input_stride_c
        + row * STRIDE_H * push.input_stride_h + (SHIFT + column * STRIDE_W) * push.input_stride_w;
    uint weight_address = push.filter_start + channel * FILTER_STRIDE_M;
    int sum = int(parameters.y);
    [[dont_unroll]] for (uint k = 0; k < TAP_ROWS; ++k) {
        [[dont_unroll]] for (uint s = 0; s < TAP_COLUMNS; ++s) {
            int value = input_zero;
            if (top + k * DILATION_H < SIZE(ROW_LIMIT, row_limit)
                && left + s * DILATION_W < SIZE(COLUMN_LIMIT, column_limit)) {
                uint address = source + k * DILATION_H * push.input_stride_h + s * DILATION_W * push.input_stride_w;
                value = bitfieldExtract(int((input_words[address >> 2] ^ INPUT_FLIP) >> (8 * (address & 3))), 0, 8);
            }
            int weight;
            if (PREPARED != 0)
                weight = prepared_weight(channel, k, s * DILATION_W);
            else
                weight = filter_byte(weight_address + k * FILTER_STRIDE_H + s * FILTER_STRIDE_W) - filter_zero;
            sum += value * weight;
        }
    }
    Wide accumulator = add(Wide(parameters.y, parameters.z), widened(sum - int(parameters.y)));
    uint value = exact_byte(accumulator, uintBitsToFloat(parameters.x), output_zero);
    store_byte(push.output_start + image * push.output_stride_n + channel * push.output_stride_c
            + row * push.output_stride_h + column * push.output_stride_w,
        looked_up_byte(value));
}

// Whether the batch's rows share the code that stores exactly: it is long, and each copy takes the compiler's time.
const bool ONE_COPY = CHANNELS_LAST != 0;

// Stores the outputs of words exactly: a bit for each word, beginning with those of `first_row`.
void store_uncertain(uint uncertain, uint channel, uint unit, uint image, uint first_row, uint column) {
    [[dont_unroll]] while (uncertain != 0) {
        uint bit = findLSB(uncertain);
        uncertain &= uncertain - 1;
        uint row = first_row + bit / OUTPUT_WORDS;
        uint w = bit % OUTPUT_WORDS;
        [[dont_unroll]] for (uint b = 0; b < 4; ++b) {
            uint c = CHANNELS_LAST != 0 ? b : 0;
            uint j = CHANNELS_LAST != 0 ? w : 4 * w + b;
            if (channel + c < push.channels && column + j < push.columns)
                store_exactly(channel + c, unit * CHANNELS + c, image, row, column + j);
        }
    }
}

#else

// Computes and stores one output in integers, from its sum of products, which may have wrapped.
void store_exactly(uint channel, int sum, uint address, uvec4 parameters) {
    Wide accumulator = add(Wide(parameters.y, parameters.z), widened(sum - int(parameters.y)));
    store_byte(address, exact_byte(accumulator, channel));
}

#endif
