#version 450

// QUANTIZED_LINEAR_CONVOLUTION, preparation for depthwise_dot4: the weights and parameters of each output channel, for
// layers in which nothing but the input changes.
//
// Maths and layout: depthwise_channel.glsl.
//
// Loops: each invocation prepares one channel. Those that fill up the last four channels are like the last one, because
// a vector of four channels is loaded as a whole.
//
// Preconditions: no rounding of float32 is needed: the multiplier is computed in integers. All sizes are push constants,
// so that the layers of a network share a pipeline.

#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint FILTER_ZERO_POINT = 1;  // 0 if it is known to be 0
const uint OUTPUT_UNSIGNED = 0;  // for functions that are not called here

layout(set = 0, binding = 0) writeonly buffer Panels { uint panel_words[]; };
layout(set = 0, binding = 1) readonly buffer Filter { uint filter_words[]; };

layout(push_constant) uniform PushConstants {
    uint panels_start;  // words
    uint filter_start;  // bytes
    uint input_scale_start;  // elements, like those that follow, at the first channel
    uint filter_scale_start;
    uint output_scale_start;
    uint input_zero_point_start;
    uint filter_zero_point_start;
    uint output_zero_point_start;
    uint bias_start;
    uint channels;
    uint tap_rows;
    uint tap_columns;
    uint dilation_w;
    uint filter_stride_m;  // bytes
    uint filter_stride_h;
    uint filter_stride_w;
} push;

#include "arithmetic.glsl"
#define FIRST_PARAMETER_CONSTANT 2
#define FIRST_PARAMETER_BINDING 2
#include "parameter_sources.glsl"
#include "float32.glsl"

#define DOT4
#define TAP_ROWS push.tap_rows
#define TAP_COLUMNS push.tap_columns
#define DILATION_W push.dilation_w
#define REACH ((TAP_COLUMNS - 1) * DILATION_W + 1)
#define CHUNKS ((REACH + 3) / 4)
#define FILTER_FLIP flip_of(1)
#define FILTER_STRIDE_H push.filter_stride_h
#define FILTER_STRIDE_W push.filter_stride_w
#include "depthwise_channel.glsl"

void main() {
    uint place =
        (gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x) * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (place >= (push.channels + 3) / 4 * 4)
        return;
    uint channel = min(place, push.channels - 1);
    uint weights = TAP_ROWS * CHUNKS;
    uint rows = WEIGHT_ROWS + (FILTER_ZERO_POINT != 0 ? 2 : 1) * weights;
    uint first = push.panels_start + panel_word(rows, 0, place);
    int filter_zero = FILTER_ZERO_POINT != 0 ? filter_zero_point(channel) : 0;
    int sum = 0;
    uint properties = 0;
    [[dont_unroll]] for (uint n = 0; n < weights; ++n) {
        uint k = n / CHUNKS;
        uint address = push.filter_start + channel * push.filter_stride_m + k * FILTER_STRIDE_H;
        uvec2 words = weight_words(address, n - k * CHUNKS, filter_zero, sum);
        panel_words[first + (WEIGHT_ROWS + n) * PANEL] = words.x;
        if (FILTER_ZERO_POINT != 0)
            panel_words[first + (WEIGHT_ROWS + weights + n) * PANEL] = words.y;
        properties |= words.y != 0 ? HAS_SECOND : 0;
    }
    Wide constant = constant_of(channel, sum);
    properties |= is_narrow(constant, TAP_ROWS * TAP_COLUMNS) ? 0 : NEEDS_INTEGERS;
    properties |= (uint(input_zero_point(channel)) & 0xFF) << 8 | uint(output_zero_point(channel)) << 16;
    panel_words[first + MULTIPLIER_ROW * PANEL] = floatBitsToUint(multiplier_of(channel));
    panel_words[first + CONSTANT_ROW * PANEL] = constant.low;
    panel_words[first + PROPERTY_ROW * PANEL] = properties;
    panel_words[first + UPPER_CONSTANT_ROW * PANEL] = constant.high;
}
