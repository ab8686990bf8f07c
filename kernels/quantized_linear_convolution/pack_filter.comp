#version 450

// QUANTIZED_LINEAR_CONVOLUTION, preparation: the filter as words of four channels, in panels that the product reads in
// order.
//
// Maths: the bytes of each output channel are copied and added up. UINT8 is taken as INT8 by flipping the top bit.
//
// Layout: word k of an output channel holds four signed bytes: input channels 4 i to 4 i + 3 of one tap, where k = (i
// * height + r) * width + s, or, with CHANNELS_LAST, k = (r * width + s) * quads + i. Channels past the last one are
// 0. A panel holds WIDTH output channels of one group as words[k][channel of the panel], so that neighbouring
// invocations read neighbouring words. One more row follows: the sum of each channel's bytes, which the zero points
// need.
//
// Loops: one workgroup packs one output channel. Each invocation takes every gl_WorkGroupSize-th word, with four byte
// loads each. The sums of the invocations are added up in shared memory.
//
// With JOINED, a group of panels is several groups of the filter side by side. In the channels of the other groups a
// channel has the zero point, which is a real zero. Bytes that only fill a word up stay 0.
//
// Preconditions: there are `count` channels, and the first is the first of a group or of a panel. Channels of a panel
// past the last of its group are not written: results for them are never stored. K is at most 131,071 bytes, so sums
// fit 32 bits.

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint WIDTH = 8;
layout(constant_id = 2) const uint FLIP = 0;  // 0x80 for UINT8
layout(constant_id = 3) const uint FILTER_HEIGHT = 1;
layout(constant_id = 4) const uint FILTER_WIDTH = 1;
layout(constant_id = 5) const uint CHANNELS_LAST = 0;
layout(constant_id = 6) const uint JOINED = 1;  // groups of the filter that make one group of panels
// Whether the zero point that stands between joined groups is read; otherwise it is 0.
layout(constant_id = 7) const uint HAS_ZERO_POINT = 0;
layout(constant_id = 8) const uint ZERO_POINT_STRIDE = 0;
layout(constant_id = 9) const uint ROWS_AFTER = 1;  // rows of a panel after its words

layout(set = 0, binding = 0) readonly buffer Filter { uint filter_words[]; };
layout(set = 0, binding = 1) buffer Packed { uint packed_words[]; };
layout(set = 0, binding = 2) readonly buffer ZeroPoint { uint zero_point_words[]; };

layout(push_constant) uniform PushConstants {
    uint filter_start;  // bytes
    uint packed_start;  // words
    uint zero_point_start;  // bytes, of the first channel
    uint count;
    uint channels;           // input channels of one of the filter's groups
    uint words;              // words of an output channel
    uint channels_of_group;  // output channels of a group of panels
    uint first_of_group;     // the first channel's place in its group
    uint stride_m;           // bytes
    uint stride_c;
    uint stride_h;
    uint stride_w;
} push;

shared int sums[gl_WorkGroupSize.x];

void main() {
    uint channel = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    // The whole workgroup leaves, or none of it, so that all its invocations reach the barrier.
    if (channel >= push.count)
        return;
    uint place = push.first_of_group + channel;
    uint group = place / push.channels_of_group;
    uint channel_of_group = place - group * push.channels_of_group;
    // Panels are counted from the one that holds the first channel.
    uint panels_of_group = (push.channels_of_group + WIDTH - 1) / WIDTH;
    uint panel = group * panels_of_group + channel_of_group / WIDTH - push.first_of_group / WIDTH;
    uint base = push.packed_start + panel * (push.words + ROWS_AFTER) * WIDTH + channel_of_group % WIDTH;

    // Its own group's first input channel, and what it has in the channels of the groups that are joined to its own.
    uint first_own = JOINED == 1 ? 0 : channel_of_group / (push.channels_of_group / JOINED) * push.channels;
    uint zero_point = FLIP;
    if (HAS_ZERO_POINT != 0) {
        uint address = push.zero_point_start + channel * ZERO_POINT_STRIDE;
        zero_point ^= (zero_point_words[address >> 2] >> (8 * (address & 3))) & 0xFF;
    }
    int sum = 0;
    for (uint k = gl_LocalInvocationID.x; k < push.words; k += gl_WorkGroupSize.x) {
        uint taps = FILTER_HEIGHT * FILTER_WIDTH;
        uint quads = push.words / taps;
        uint tap = CHANNELS_LAST != 0 ? k / quads : k % taps;
        uint quad = CHANNELS_LAST != 0 ? k % quads : k / taps;
        uint address = push.filter_start + channel * push.stride_m + (4 * quad - first_own) * push.stride_c
            + tap / FILTER_WIDTH * push.stride_h + tap % FILTER_WIDTH * push.stride_w;
        uint word = 0;
        for (uint i = 0; i < 4 && 4 * quad + i < JOINED * push.channels; ++i, address += push.stride_c) {
            uint value = zero_point;
            if (JOINED == 1 || 4 * quad + i - first_own < push.channels)
                value = ((filter_words[address >> 2] >> (8 * (address & 3))) & 0xFF) ^ FLIP;
            word |= value << (8 * i);
            sum += bitfieldExtract(int(value), 0, 8);
        }
        packed_words[base + k * WIDTH] = word;
    }
    sums[gl_LocalInvocationID.x] = sum;
    barrier();
    if (gl_LocalInvocationID.x == 0) {
        for (uint i = 1; i < gl_WorkGroupSize.x; ++i)
            sum += sums[i];
        packed_words[base + push.words * WIDTH] = uint(sum);
    }
}
