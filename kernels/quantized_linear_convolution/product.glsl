// Shared by the product kernels of QUANTIZED_LINEAR_CONVOLUTION: memory, the place of a pixel, and the last step.
//
// The convolution is a matrix product: (output channels x K) times (K x pixels). K counts the taps under the filter in
// all channels of the group, taken as words of four channels. Word k holds quad i of the channels under tap row r and
// tap column s, in the order k = (i * filter height + r) * filter width + s. A pixel is a position of the output in an
// image. Both operands are packed before (see the pack kernels), so the product depends on no strides, types or
// padding of the tensors.
//
//     acc = sum(x'w') - zw sum(x') + (bias + zx (K zw - sum(w')))
//
// x' and w' are signed bytes. The first sum is exact in 32 bits: |x'w'| <= 2^14, and the planner sends at most 131,071
// taps here. The products with zero points fit 32 bits too. The whole sum, with the bias, takes 64 bits.
//
// Each kernel has its own specialization constants from 5 on.

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint FILTER_HEIGHT = 1;
layout(constant_id = 2) const uint FILTER_WIDTH = 1;
layout(constant_id = 3) const uint OUTPUT_UNSIGNED = 0;
// 0: a word of the output holds four neighbouring pixels. 1: it holds four neighbouring channels.
layout(constant_id = 4) const uint STORE_CHANNELS = 0;

layout(set = 0, binding = 0) readonly buffer Input { uint input_words[]; };
layout(set = 0, binding = 1) readonly buffer Filter { uint filter_words[]; };
layout(set = 0, binding = 1) readonly buffer FilterVectors { uvec4 filter_vectors[]; };
layout(set = 0, binding = 2) readonly buffer Table { uint table[]; };
layout(set = 0, binding = 3) buffer Output { uint output_words[]; };

layout(push_constant) uniform PushConstants {
    uint input_start;   // words
    uint filter_start;  // words, a multiple of 4
    uint table_start;   // words
    uint output_start;  // bytes
    uint pixels;        // of this dispatch: images x rows x columns
    uint rows;
    uint columns;
    uint words;               // K / 4, rounded up for each tap's channels
    uint taps;                // channels per group x filter height x filter width
    uint channels;            // end of the output channels to be stored, in each group
    uint channels_of_group;   // output channels from one group to the next
    uint panel_stride;        // words from one panel of the filter to the next
    uint panels_of_group;
    uint input_stride_n;      // words from one image to the next
    uint input_stride_group;
    uint input_stride_quad;   // words from four channels to the next four
    uint input_stride_h;      // words from one output pixel to the one below
    uint input_stride_w;      // words from one output pixel to the one to its right
    uint tap_stride_h;        // words from one tap to the one below
    uint tap_stride_w;
    uint output_stride_n;     // bytes
    uint output_stride_c;
    uint output_stride_h;
    uint output_stride_w;
    uint first_channel;       // the first to be stored, if a panel is not stored from its beginning
} push;

#include "arithmetic.glsl"
#include "parameters.glsl"
#include "store.glsl"

struct Pixel {
    uint source;       // word of its first tap
    uint destination;  // byte of its channel 0
};

Pixel pixel_at(uint index) {
    uint line = index / push.columns;
    uint column = index - line * push.columns;
    uint image = line / push.rows;
    uint row = line - image * push.rows;
    return Pixel(
        push.input_start + image * push.input_stride_n + row * push.input_stride_h + column * push.input_stride_w,
        push.output_start + image * push.output_stride_n + row * push.output_stride_h + column * push.output_stride_w);
}

// Words from a pixel's first tap to the k-th word under the filter.
uint tap_offset(uint k) {
    uint row = k / FILTER_WIDTH;
    uint quad = row / FILTER_HEIGHT;
    return quad * push.input_stride_quad + (row - quad * FILTER_HEIGHT) * push.tap_stride_h
        + (k - row * FILTER_WIDTH) * push.tap_stride_w;
}

// The parameters of one output channel for the last step.
struct Channel {
    Wide constant;  // bias + zx (K zw - sum(w'))
    int filter_zero_point;
    int output_zero_point;
    uint mantissa;
    int exponent;
};

Channel channel_at(uint channel, int filter_sum) {
    uint record = push.table_start + channel * PARAMETER_WORDS;
    Channel result;
    result.mantissa = table[record + PARAMETER_MANTISSA];
    result.exponent = int(table[record + PARAMETER_EXPONENT]);
    result.filter_zero_point = int(table[record + PARAMETER_FILTER_ZERO_POINT]);
    result.output_zero_point = int(table[record + PARAMETER_OUTPUT_ZERO_POINT]);
    int input_zero_point = int(table[record + PARAMETER_INPUT_ZERO_POINT]);
    result.constant = add(widened(int(table[record + PARAMETER_BIAS])),
        product(input_zero_point, int(push.taps) * result.filter_zero_point - filter_sum));
    return result;
}

uint output_byte(int products, int input_sum, Channel channel) {
    Wide accumulator = add(channel.constant, widened(products));
    accumulator = add(accumulator, widened(-channel.filter_zero_point * input_sum));
    int value = scaled(accumulator, channel.mantissa, channel.exponent >> 1, (channel.exponent & 1) != 0);
    return clamped_byte(value + channel.output_zero_point);
}

// Whether an output channel is to be stored. Channels are counted in their group, from the dispatch's first panel.
bool is_stored(uint channel) {
    return channel >= push.first_channel && channel < push.channels;
}

#include "dot_add.glsl"

const uint ONES = 0x01010101;
