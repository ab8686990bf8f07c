#version 450

// QUANTIZED_LINEAR_CONVOLUTION, the last step alone: from 64-bit accumulators in memory to the output.
//
// Maths: y = clamp(nearest_even(f32(f32(acc + bias) * m)) + zy), in integers (arithmetic.glsl).
//
// Loops: one invocation an output. Only outputs whose taps take several dispatches of the direct kernel need it.
//
// Layout: the accumulators are as the direct kernel leaves them, 8 bytes each, [image][channel][row][column] of the
// box. The output may have any strides.
//
// Preconditions: the accumulators hold the sums of all taps.

#extension GL_GOOGLE_include_directive : require

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint OUTPUT_UNSIGNED = 0;

layout(set = 0, binding = 0) readonly buffer Accumulators { uint accumulators[]; };
layout(set = 0, binding = 1) readonly buffer Table { uint table[]; };
layout(set = 0, binding = 2) buffer Output { uint output_words[]; };

layout(push_constant) uniform PushConstants {
    uint accumulator_start;  // accumulators of 8 bytes
    uint table_start;        // words
    uint output_start;       // bytes
    uint count;
    uint channels;
    uint rows;
    uint columns;
    uint output_stride_n;
    uint output_stride_c;
    uint output_stride_h;
    uint output_stride_w;
} push;

#include "arithmetic.glsl"
#include "parameters.glsl"
#include "store.glsl"

void main() {
    uint workgroup = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    uint index = workgroup * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (index >= push.count)
        return;
    uint line = index / push.columns;
    uint column = index - line * push.columns;
    uint outer = line / push.rows;
    uint row = line - outer * push.rows;
    uint image = outer / push.channels;
    uint channel = outer - image * push.channels;

    uint record = push.table_start + channel * PARAMETER_WORDS;
    uint first = 2 * (push.accumulator_start + index);
    Wide sum = add(Wide(accumulators[first], accumulators[first + 1]), widened(int(table[record + PARAMETER_BIAS])));
    int exponent = int(table[record + PARAMETER_EXPONENT]);
    int value = scaled(sum, table[record + PARAMETER_MANTISSA], exponent >> 1, (exponent & 1) != 0);
    store_byte(push.output_start + image * push.output_stride_n + channel * push.output_stride_c
            + row * push.output_stride_h + column * push.output_stride_w,
        clamped_byte(value + int(table[record + PARAMETER_OUTPUT_ZERO_POINT])));
}
