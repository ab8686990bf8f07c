// What a tile on matrix units needs to know of its output channels. If all their tensors are OWNED_BY_DML, it is worked
// out once, and four more rows follow the sums of a panel of the filter: the multipliers; the constants; the filter's
// zero points; and a vector of what holds for the panel. Otherwise each workgroup works it out.
//
// The vector saves a workgroup its waiting. It is loaded with the first operands, and no invocation has to hear from
// others, by way of a barrier, whether one of them has met such a channel.
//
// Include this file after parameter_sources.glsl and float32.glsl. push.taps is the number of products of a sum.

const uint PANEL_ROWS = 5;  // of a panel after its words: the sums, and the four

// The first word of a panel's vector is a sum of these; the second is the output's zero point, and the third the input's.
const uint PANEL_HAS_FILTER_ZERO_POINT = 1;  // one that is not 0
const uint PANEL_NEEDS_INTEGERS = 2;  // for a channel whose sums may not fit 32 bits

// The constant that the last step adds to the products of an output channel. Channels are counted from the first
// channel of the first group.
Wide exact_constant(uint channel, int filter_sum) {
    return add(widened(bias_of(channel)),
        product(input_zero_point(channel), int(push.taps) * filter_zero_point(channel) - filter_sum));
}
