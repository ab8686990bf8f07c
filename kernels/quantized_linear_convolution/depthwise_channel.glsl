// What the depthwise kernels need to know of the bytes of a filter; and, with DOT4, what they need to know of an output
// channel: its weights, four taps to a word, and the parameters of its last step.
//
// With DOT4, and if all tensors but the input are OWNED_BY_DML, depthwise_prepare.comp works it out once, for all channels.
// It puts the channels in panels of PANEL channels. A panel has a row for each word, so that one load takes the words of
// four channels, and neighbouring invocations load neighbouring vectors:
//     the multipliers; the lower and then, two rows on, the upper halves of the constants; between them the properties
//     TAP_ROWS * CHUNKS rows of weights, tap row by tap row
//     as many rows of second words, if the filter's zero points may be other than 0
// Without, each workgroup works it out for its own channels.
//
// What holds for all channels is in each one's word of properties. So an invocation has all of it after one wait, for loads
// that do not depend on each other: each further wait takes longer than the loads together.
//
// Include this file after parameter_sources.glsl and float32.glsl, or their counterparts without DOT4. These are constants
// or macros: FILTER_FLIP; with DOT4 also TAP_ROWS, TAP_COLUMNS, DILATION_W, REACH, CHUNKS, FILTER_STRIDE_H,
// FILTER_STRIDE_W and FILTER_ZERO_POINT.

int filter_byte(uint address) {
    return bitfieldExtract(int((filter_words[address >> 2] >> (8 * (address & 3))) ^ FILTER_FLIP), 0, 8);
}

// The constant that the last step adds to the products of a channel.
Wide constant_of(uint channel, int weight_sum) {
    return add(widened(bias_of(channel)), product(input_zero_point(channel), -weight_sum));
}

#ifdef DOT4

const uint PANEL = 64;  // channels
const uint MULTIPLIER_ROW = 0, CONSTANT_ROW = 1, PROPERTY_ROW = 2, UPPER_CONSTANT_ROW = 3, WEIGHT_ROWS = 4;

// A channel's word of properties: a sum of these two; the input's zero point in bits 8 to 15; and the output's above them.
const uint HAS_SECOND = 1;  // a second word of weights that is not 0
const uint NEEDS_INTEGERS = 2;  // its sums may not fit 32 bits

// The place of a channel's word in a row, among the words of panels of so many rows.
uint panel_word(uint rows, uint row, uint channel) {
    return (channel / PANEL * rows + row) * PANEL + channel % PANEL;
}

// Four weights of a row of taps, from the address of its first one, as the difference of two words of signed bytes. Adds
// them to the sum of the channel's weights.
uvec2 weight_words(uint address, uint chunk, int filter_zero, inout int sum) {
    uvec2 words = uvec2(0);
    for (uint b = 0; b < 4; ++b) {
        uint offset = 4 * chunk + b;
        if (offset < REACH && offset % DILATION_W == 0) {
            int weight = filter_byte(address + offset / DILATION_W * FILTER_STRIDE_W) - filter_zero;
            int low = clamp(weight, -128, 127);
            words.x |= (uint(low) & 0xFF) << (8 * b);
            words.y |= (uint(low - weight) & 0xFF) << (8 * b);
            sum += weight;
        }
    }
    return words;
}

#endif
