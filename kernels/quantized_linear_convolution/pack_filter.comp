#version 450

// QUANTIZED_LINEAR_CONVOLUTION, preparation: the filter as words of four channels, in panels that the product reads in
// order.
//
// Maths: the bytes of each output channel are copied and added up. UINT8 is taken as INT8 by flipping the top bit.
//
// Layout: K is divided into runs, as matrix.glsl says. Word k of an output channel belongs to run k / run_words, whose
// tap row is run / runs_w. In the run, it belongs to tap column run % runs_w + (k % run_words) / quads and to quad (k
// % run_words) % quads of the input channels. With 0 quads, each run is all taps of a quad. Bytes of no tap or channel
// are 0. A panel holds width output channels of one group as words[step][channel of the panel][step_words]: steps of
// one word let neighbouring invocations of the product read neighbouring words. One more row follows: the sum of each
// channel's bytes, which the zero points need. Room for more rows may follow it.
//
// With in_order, the channels of a step have the order in which matrix.glsl stores them to shared memory, so that
// neighbouring invocations read neighbouring vectors. Row i is for the position `stored_row(i)`. If four matrices of
// interleaved channels are interleaved, position and channel differ.
//
// Loops: one workgroup packs one output channel. Each invocation takes every gl_WorkGroupSize-th word, with four byte
// loads each. The sums of the invocations are added up in shared memory, in two steps: few barriers, which are slow on
// CPU drivers, and few loads one after the other.
//
// With JOINED, a group of panels is several groups of the filter side by side. In the channels of the other groups a
// channel has the zero point, which is a real zero. Bytes that only fill a word up stay 0.
//
// Preconditions: there are `count` channels, and the first is the first of a group or of a panel. Channels of a panel
// past the last of its group are not written: results for them are never stored. K is at most 131,071 bytes, so sums
// fit 32 bits.

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint FLIP = 0;  // 0x80 for UINT8
layout(constant_id = 2) const uint JOINED = 1;  // groups of the filter that make one group of panels
// Whether the zero point that stands between joined groups is read; otherwise it is 0.
layout(constant_id = 3) const uint HAS_ZERO_POINT = 0;

layout(set = 0, binding = 0) readonly buffer Filter { uint filter_words[]; };
layout(set = 0, binding = 1) buffer Packed { uint packed_words[]; };
layout(set = 0, binding = 2) readonly buffer ZeroPoint { uint zero_point_words[]; };

layout(push_constant) uniform PushConstants {
    uint filter_start;  // bytes
    uint packed_start;  // words
    uint zero_point_start;  // bytes, of the first channel
    uint count;
    uint channels;           // input channels of one of the filter's groups
    uint words;              // words of an output channel, in whole steps
    uint channels_of_group;  // output channels of a group of panels
    uint first_of_group;     // the first channel's place in its group
    uint stride_m;           // bytes
    uint stride_c;
    uint stride_h;
    uint stride_w;
    // Sizes: one pipeline serves the filters of all layers.
    uint width;
    uint filter_height;
    uint filter_width;
    uint step_words;
    uint run_words;  // words of a run, including those that fill its last vector
    uint runs_w;
    uint quads;
    uint in_order;  // 0 or 1
    uint interleaved;  // 0 if no matrices are interleaved
    uint zero_point_stride;
    uint rows_after;  // rows of a panel after its words: the sums, and parameters
} push;

shared int sums[gl_WorkGroupSize.x];

const uint ADDERS = 8;  // invocations that add up the others' sums

// The row of a channel of a panel.
uint row_of(uint channel) {
    if (push.in_order == 0)
        return channel;
    uint position = channel;
    if (push.interleaved != 0) {
        uint in_block = channel % (4 * push.interleaved);
        position = channel - in_block + in_block % 4 * push.interleaved + in_block / 4;
    }
    // The inverse of stored_row.
    return (position & ~7u) | (position & 3) << 1 | (position >> 2 & 1);
}

void main() {
    uint channel = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    // The whole workgroup leaves, or none of it, so that all its invocations reach the barriers.
    if (channel >= push.count)
        return;
    uint place = push.first_of_group + channel;
    uint group = place / push.channels_of_group;
    uint channel_of_group = place - group * push.channels_of_group;
    // Panels are counted from the one that holds the first channel.
    uint panels_of_group = (push.channels_of_group + push.width - 1) / push.width;
    uint panel = group * panels_of_group + channel_of_group / push.width - push.first_of_group / push.width;
    uint base = push.packed_start + panel * (push.words + push.rows_after) * push.width;
    uint channel_of_panel = channel_of_group % push.width;

    uint row = row_of(channel_of_panel);
    // Its own group's first input channel, and what it has in the channels of the groups that are joined to its own.
    uint first_own = JOINED == 1 ? 0 : channel_of_group / (push.channels_of_group / JOINED) * push.channels;
    uint zero_point = FLIP;
    if (HAS_ZERO_POINT != 0) {
        uint address = push.zero_point_start + channel * push.zero_point_stride;
        zero_point ^= (zero_point_words[address >> 2] >> (8 * (address & 3))) & 0xFF;
    }
    int sum = 0;
    for (uint k = gl_LocalInvocationID.x; k < push.words; k += gl_WorkGroupSize.x) {
        uint run = k / push.run_words;
        uint in_run = k - run * push.run_words;
        uint tap_row, tap_column, quad;
        if (push.quads == 0) {
            quad = run;
            tap_row = in_run / push.filter_width;
            tap_column = in_run - tap_row * push.filter_width;
        } else {
            tap_row = run / push.runs_w;
            uint in_row = in_run / push.quads;
            tap_column = run - tap_row * push.runs_w + in_row;
            quad = in_run - in_row * push.quads;
        }
        uint word = 0;
        if (tap_row < push.filter_height && tap_column < push.filter_width) {
            uint address = push.filter_start + channel * push.stride_m + (4 * quad - first_own) * push.stride_c
                + tap_row * push.stride_h + tap_column * push.stride_w;
            for (uint i = 0; i < 4 && 4 * quad + i < JOINED * push.channels; ++i, address += push.stride_c) {
                uint value = zero_point;
                if (JOINED == 1 || 4 * quad + i - first_own < push.channels)
                    value = ((filter_words[address >> 2] >> (8 * (address & 3))) & 0xFF) ^ FLIP;
                word |= value << (8 * i);
                sum += bitfieldExtract(int(value), 0, 8);
            }
        }
        uint step = k, in_step = 0;
        if (push.step_words > 1) {
            step = k / push.step_words;
            in_step = k - step * push.step_words;
        }
        packed_words[base + (step * push.width + row) * push.step_words + in_step] = word;
    }
    sums[gl_LocalInvocationID.x] = sum;
    barrier();
    if (gl_LocalInvocationID.x < ADDERS) {
        for (uint i = gl_LocalInvocationID.x + ADDERS; i < gl_WorkGroupSize.x; i += ADDERS)
            sum += sums[i];
        sums[gl_LocalInvocationID.x] = sum;
    }
    barrier();
    if (gl_LocalInvocationID.x == 0) {
        for (uint i = 1; i < ADDERS; ++i)
            sum += sums[i];
        packed_words[base + push.words * push.width + channel_of_panel] = uint(sum);
    }
}
