#version 450

// QUANTIZED_LINEAR_CONVOLUTION, straight from the tensors: narrow groups, and everything else that cannot be packed.
// It is also the general kernel: one pipeline of it takes all shapes and types, and gives a new shape's first results
// while a driver compiles the kernel that is special to the shape.
//
// Maths: acc = sum over taps inside the input of (x - zx)(w - zw). |x - zx| and |w - zw| are at most 255, so 33,025
// products fit 32 bits. If there are more taps, the sum is carried over to 64 bits after each row of taps (MANY_TAPS
// 1), or after each tap if even a row has more (MANY_TAPS 2). If no window shows all operands of an output, a dispatch
// takes a box of taps. Its sums are added to 64-bit accumulators in memory (ACCUMULATE), for the requantize kernel.
//
// Loops: one invocation computes up to four neighbouring outputs of a row, which are one word if the layout allows it:
//     for each channel of the box, for each tap row inside the input, for each tap column:
//         one filter byte, four input bytes, four multiplications
//
// Most sizes are push constants. Types, tap counts, strides and dilations are specialization constants, which make some
// layers faster by a third; or push constants of 16 bits each (GENERAL), so that all layers share a pipeline.
//
// Layout: input and filter are read in place, at any strides: a word is loaded and a byte taken out of it. A depthwise
// filter meets each input byte only a few times, so packing would cost more than it saves. Caches serve the overlap
// between taps.
//
// Preconditions: sizes and strides are those of the box. Positions before the input wrap to large unsigned numbers.
// The windows begin at the box's first output, first channel and first tap. A start may lie before its window (it
// wraps).
//
// Driver bugs avoided: lavapipe ends the loops of an invocation after 65,535 iterations in all. The planner gives a
// dispatch a box of taps with fewer.

#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint MANY_TAPS = 0;
layout(constant_id = 2) const uint ACCUMULATE = 0;  // 1: begin the accumulators, 2: add to them
layout(constant_id = 3) const uint GENERAL = 0;
layout(constant_id = 4) const uint TAP_ROWS = 1;
layout(constant_id = 5) const uint TAP_COLUMNS = 1;
layout(constant_id = 6) const uint STRIDE_H = 1;
layout(constant_id = 7) const uint STRIDE_W = 1;
layout(constant_id = 8) const uint DILATION_H = 1;
layout(constant_id = 9) const uint DILATION_W = 1;
layout(constant_id = 10) const uint UNSIGNED_TYPES = 0;  // bits 0 to 2: input, filter, output are UINT8

layout(set = 0, binding = 0) readonly buffer Input { uint input_words[]; };
layout(set = 0, binding = 1) readonly buffer Filter { uint filter_words[]; };
layout(set = 0, binding = 2) readonly buffer Table { uint table[]; };
layout(set = 0, binding = 3) buffer Output { uint output_words[]; };

layout(push_constant) uniform PushConstants {
    uint input_start;   // bytes
    uint filter_start;  // bytes
    uint table_start;   // words
    uint output_start;  // bytes, or accumulators of 8 bytes
    uint count;         // invocations
    uint channels;      // of the box of outputs
    uint rows;
    uint columns;
    uint first_of_group;     // the first channel's place in its group
    uint channels_of_group;  // output channels
    uint tap_channels;       // input channels of the box
    uint first_row;          // the input row under the first output's first tap
    uint first_column;
    uint row_limit;
    uint column_limit;
    uint input_stride_n;
    uint input_stride_group;
    uint input_stride_c;
    uint input_stride_h;
    uint input_stride_w;
    uint filter_stride_m;
    uint filter_stride_c;
    uint filter_stride_h;
    uint filter_stride_w;
    uint output_stride_n;
    uint output_stride_c;
    uint output_stride_h;
    uint output_stride_w;
    uint taps;            // rows, and columns times 2^16
    uint strides;         // along rows, and along columns times 2^16
    uint dilations;       // the same
    uint unsigned_types;
} push;

// What is a specialization constant in other kernels with the same store.
#define OUTPUT_UNSIGNED (unsigned_types() & 4)

uint unsigned_types() {
    return GENERAL != 0 ? push.unsigned_types : UNSIGNED_TYPES;
}

#include "arithmetic.glsl"
#include "parameters.glsl"
#include "store.glsl"

// A number along rows and one along columns: two constants, or the halves of a push constant.
uvec2 pair(uint rows, uint columns, uint halves) {
    return GENERAL != 0 ? uvec2(halves & 0xFFFF, halves >> 16) : uvec2(rows, columns);
}

int signed_byte(uint word, uint address, uint flip) {
    return bitfieldExtract(int((word >> (8 * (address & 3))) ^ flip), 0, 8);
}

void carry_over(inout Wide wide[4], inout int sums[4]) {
    [[unroll]] for (uint j = 0; j < 4; ++j) {
        wide[j] = add(wide[j], widened(sums[j]));
        sums[j] = 0;
    }
}

void main() {
    uint workgroup = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    uint index = workgroup * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (index >= push.count)
        return;
    uint quads = (push.columns + 3) / 4;
    uint line = index / quads;
    uint column = 4 * (index - line * quads);
    uint outer = line / push.rows;
    uint row = line - outer * push.rows;
    uint image = outer / push.channels;
    uint channel = outer - image * push.channels;
    uint group = (push.first_of_group + channel) / push.channels_of_group;
    uint present = min(4, push.columns - column);

    uint record = push.table_start + channel * PARAMETER_WORDS;
    int input_zero_point = int(table[record + PARAMETER_INPUT_ZERO_POINT]);
    int filter_zero_point = int(table[record + PARAMETER_FILTER_ZERO_POINT]);

    uvec2 taps = pair(TAP_ROWS, TAP_COLUMNS, push.taps);
    uvec2 stride = pair(STRIDE_H, STRIDE_W, push.strides);
    uvec2 dilation = pair(DILATION_H, DILATION_W, push.dilations);
    uint input_flip = (unsigned_types() & 1) << 7;
    uint filter_flip = (unsigned_types() & 2) << 6;

    Wide wide[4];
    int sums[4];
    [[unroll]] for (uint j = 0; j < 4; ++j) {
        wide[j] = Wide(0, 0);
        sums[j] = 0;
    }
    uint top = push.first_row + row * stride.x;
    uint left = push.first_column + column * stride.y;
    uint plane = push.input_start + image * push.input_stride_n + group * push.input_stride_group
        + row * stride.x * push.input_stride_h + column * stride.y * push.input_stride_w;
    uint filter_plane = push.filter_start + channel * push.filter_stride_m;
    for (uint c = 0; c < push.tap_channels; ++c) {
        for (uint r = 0; r < taps.x; ++r) {
            uint y = top + r * dilation.x;
            if (y < push.row_limit) {
                uint source = plane + r * dilation.x * push.input_stride_h;
                uint weight = filter_plane + r * push.filter_stride_h;
                for (uint s = 0; s < taps.y; ++s) {
                    int w = signed_byte(filter_words[weight >> 2], weight, filter_flip) - filter_zero_point;
                    [[unroll]] for (uint j = 0; j < 4; ++j) {
                        uint x = left + s * dilation.y + j * stride.y;
                        if (x < push.column_limit && j < present) {
                            uint address = source + (s * dilation.y + j * stride.y) * push.input_stride_w;
                            int value = signed_byte(input_words[address >> 2], address, input_flip);
                            sums[j] += (value - input_zero_point) * w;
                        }
                    }
                    weight += push.filter_stride_w;
                    if (MANY_TAPS == 2)
                        carry_over(wide, sums);
                }
                if (MANY_TAPS == 1)
                    carry_over(wide, sums);
            }
        }
        plane += push.input_stride_c;
        filter_plane += push.filter_stride_c;
    }
    carry_over(wide, sums);

    if (ACCUMULATE != 0) {
        uint first = 2 * (push.output_start + line * push.columns + column);
        for (uint j = 0; j < present; ++j) {
            Wide sum = wide[j];
            if (ACCUMULATE == 2)
                sum = add(sum, Wide(output_words[first + 2 * j], output_words[first + 2 * j + 1]));
            output_words[first + 2 * j] = sum.low;
            output_words[first + 2 * j + 1] = sum.high;
        }
        return;
    }

    Wide bias = widened(int(table[record + PARAMETER_BIAS]));
    uint mantissa = table[record + PARAMETER_MANTISSA];
    int exponent = int(table[record + PARAMETER_EXPONENT]);
    int output_zero_point = int(table[record + PARAMETER_OUTPUT_ZERO_POINT]);
    uint address = push.output_start + image * push.output_stride_n + channel * push.output_stride_c
        + row * push.output_stride_h + column * push.output_stride_w;
    uint packed = 0;
    [[unroll]] for (uint j = 0; j < 4; ++j) {
        int value = scaled(add(wide[j], bias), mantissa, exponent >> 1, (exponent & 1) != 0);
        packed |= clamped_byte(value + output_zero_point) << (8 * j);
    }
    store_four(packed, address + uvec4(0, 1, 2, 3) * push.output_stride_w, lessThan(uvec4(0, 1, 2, 3), uvec4(present)));
}
