#version 450

// QUANTIZED_LINEAR_CONVOLUTION, preparation: the input as words of four channels, with its border.
//
// Maths: the bytes are copied. UINT8 is taken as INT8 by flipping the top bit.
//
// Layout: words[image][group][i][row][column] or, for products that need the bytes of K to be contiguous,
// words[image][group][row][column][i], by the strides, each with four signed bytes: channels 4 i to 4 i + 3 of the group
// at one position. Channels past the group's last one are 0. Rows and columns are those that the output needs, including
// the padding, which holds the input's zero point. So every tap is a plain load, and the sum of (x - zx)(w - zw) over
// all taps is sum(xw) - zw sum(x) - zx sum(w) + K zx zw, without a special case at the edges.
//
// Loops: one invocation packs WORDS words (4, a 16-byte vector, or 1) of a box of the layout, with four byte loads a
// word. Neighbouring invocations have neighbouring columns, so that an NCHW input is read along memory.
//
// Preconditions: the size of the box is in words along image, quad (group and i in one), row and column. With WORDS 4,
// its first quad and the quads of a group are multiples of 4, and a stride of quads is 1. `row_limit` and `column_limit`
// tell which positions are outside the input. Because of such positions, a start may lie before its window (it wraps).

#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint FLIP = 0;         // 0x80 for UINT8
layout(constant_id = 2) const uint HAS_ZERO_POINT = 0;
layout(constant_id = 3) const uint WORDS = 1;

layout(set = 0, binding = 0) readonly buffer Input { uint input_words[]; };
layout(set = 0, binding = 1) readonly buffer ZeroPoint { uint zero_point_words[]; };
layout(set = 0, binding = 2) buffer Packed { uint packed_words[]; };
layout(set = 0, binding = 2) buffer PackedVectors { uvec4 packed_vectors[]; };

layout(push_constant) uniform PushConstants {
    uint input_start;  // bytes
    uint zero_point_start;
    uint packed_start;  // words, where the first group of the box begins
    uint count;         // invocations
    uint rows;          // of the box
    uint columns;
    uint quads;
    uint first_quad;       // counted from the box's first group
    uint quads_of_group;
    uint channels;         // per group
    uint first_row;        // of the box, in the input; negative in the upper border
    uint first_column;
    uint row_limit;        // rows of the input
    uint column_limit;
    uint stride_n;  // bytes
    uint stride_c;
    uint stride_h;
    uint stride_w;
    uint packed_stride_n;  // words
    uint packed_stride_group;
    uint packed_stride_quad;
    uint packed_stride_h;
    uint packed_stride_w;
    uint first_channel;    // the channel at input_start, counted from the first group's first
    uint first_lane;       // which of a word's four channels: all, or some if no window shows all
    uint end_lane;
} push;

void main() {
    uint workgroup = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    uint index = workgroup * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (index >= push.count)
        return;
    uint units = push.quads / WORDS;
    uint rest = index / push.columns;
    uint column = index - rest * push.columns;
    uint outer = rest / push.rows;
    uint row = rest - outer * push.rows;
    uint image = outer / units;
    uint box_quad = WORDS * (outer - image * units);

    uint quad = push.first_quad + box_quad;
    uint group = quad / push.quads_of_group;
    uint quad_of_group = quad - group * push.quads_of_group;
    uint first = 4 * quad_of_group;
    uint source_row = push.first_row + row;
    uint source_column = push.first_column + column;
    bool inside = source_row < push.row_limit && source_column < push.column_limit;
    uint zero_point = FLIP;
    if (HAS_ZERO_POINT != 0 && !inside)
        zero_point ^= (zero_point_words[push.zero_point_start >> 2] >> (8 * (push.zero_point_start & 3))) & 0xFF;

    uint address = push.input_start + image * push.stride_n
        + (group * push.channels + first + push.first_lane - push.first_channel) * push.stride_c + row * push.stride_h
        + column * push.stride_w;
    uint place = push.packed_start + image * push.packed_stride_n + group * push.packed_stride_group
        + quad_of_group * push.packed_stride_quad + row * push.packed_stride_h + column * push.packed_stride_w;
    if (WORDS == 4) {
        uvec4 words = uvec4(0);
        [[unroll]] for (uint i = 0; i < 16; ++i) {
            uint value = 0;
            if (first + i < push.channels) {
                value = zero_point;
                if (inside)
                    value = ((input_words[address >> 2] >> (8 * (address & 3))) & 0xFF) ^ FLIP;
            }
            words[i / 4] |= value << (8 * (i % 4));
            address += push.stride_c;
        }
        packed_vectors[place / 4] = words;
        return;
    }
    uint word = 0;
    for (uint i = push.first_lane; i < push.end_lane && first + i < push.channels; ++i, address += push.stride_c) {
        uint value = zero_point;
        if (inside)
            value = ((input_words[address >> 2] >> (8 * (address & 3))) & 0xFF) ^ FLIP;
        word |= value << (8 * i);
    }
    uint lanes = push.end_lane - push.first_lane;
    if (lanes == 4) {
        packed_words[place] = word;
    } else {
        // Another dispatch writes the other bytes, maybe at the same time.
        atomicAnd(packed_words[place], ~(((1u << (8 * lanes)) - 1) << (8 * push.first_lane)));
        atomicOr(packed_words[place], word);
    }
}
