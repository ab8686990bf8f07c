// What a tile on matrix units needs to know of an output channel. If all its tensors are OWNED_BY_DML, it is worked out
// once, and three more rows follow the sums of a panel of the filter: the multiplier; the constant; the filter's zero
// point in the lower 16 bits, and above them whether the channel needs integers. Otherwise each workgroup works it out.
//
// Include this file after parameter_sources.glsl and float32.glsl. push.taps is the number of products of a sum.

const uint PANEL_ROWS = 4;  // of a panel after its words: the sums, and the three

// The constant that the last step adds to the products of an output channel. Channels are counted from the first
// channel of the first group.
Wide exact_constant(uint channel, int filter_sum) {
    return add(widened(bias_of(channel)),
        product(input_zero_point(channel), int(push.taps) * filter_zero_point(channel) - filter_sum));
}
