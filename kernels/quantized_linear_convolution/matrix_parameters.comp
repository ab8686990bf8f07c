#version 450

// QUANTIZED_LINEAR_CONVOLUTION, preparation for matrix units: the parameters of each output channel, for layers whose
// parameters never change.
//
// Maths: float32.glsl and prepared_channel.glsl.
//
// Layout: after the words and the sums of a panel of the filter (pack_filter.comp), three rows of width words:
// multipliers, constants, and the filter's zero points. Then a vector of what holds for the whole panel.
//
// Loops: one workgroup prepares one panel. Each invocation takes every gl_WorkGroupSize-th channel.
//
// Preconditions: the filter is packed. The first channel is the first of a panel. No rounding of float32 is needed: the
// multiplier is computed in integers.

#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

layout(local_size_x_id = 0) in;
const uint OUTPUT_UNSIGNED = 0;  // for functions that are not called here

layout(set = 0, binding = 0) buffer Panels { uint panel_words[]; };

layout(push_constant) uniform PushConstants {
    uint panels_start;  // words
    uint input_scale_start;  // elements, like those that follow, at the first channel
    uint filter_scale_start;
    uint output_scale_start;
    uint input_zero_point_start;
    uint filter_zero_point_start;
    uint output_zero_point_start;
    uint bias_start;
    uint panels;
    uint words;              // words of an output channel
    uint channels_of_group;  // output channels of a group of panels
    uint first_panel;        // the first panel's place in its group
    uint taps;               // products of a sum
    uint width;              // channels of a panel
} push;

#include "arithmetic.glsl"
#define FIRST_PARAMETER_CONSTANT 1
#define FIRST_PARAMETER_BINDING 1
#include "parameter_sources.glsl"
#include "float32.glsl"
#include "prepared_channel.glsl"

shared uint properties;

void main() {
    uint panel = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    // The whole workgroup leaves, or none of it, so that all its invocations reach the barriers.
    if (panel >= push.panels)
        return;
    uint panels_of_group = (push.channels_of_group + push.width - 1) / push.width;
    uint group = (push.first_panel + panel) / panels_of_group;
    uint first_of_group = (push.first_panel + panel - group * panels_of_group) * push.width;
    // Channels are counted from the first panel's first.
    uint first_channel = group * push.channels_of_group + first_of_group - push.first_panel * push.width;
    uint sums = push.panels_start + panel * (push.words + PANEL_ROWS) * push.width + push.words * push.width;
    if (gl_LocalInvocationID.x == 0)
        properties = 0;
    barrier();
    for (uint i = gl_LocalInvocationID.x; i < min(push.width, push.channels_of_group - first_of_group);
        i += gl_WorkGroupSize.x) {
        uint row = sums + i;
        Wide constant = exact_constant(first_channel + i, int(panel_words[row]));
        int zero_point = filter_zero_point(first_channel + i);
        panel_words[row + push.width] = floatBitsToUint(multiplier_of(first_channel + i));
        panel_words[row + 2 * push.width] = constant.low;
        panel_words[row + 3 * push.width] = uint(zero_point);
        uint own = (zero_point != 0 ? PANEL_HAS_FILTER_ZERO_POINT : 0)
            | (is_narrow(constant, push.taps) ? 0 : PANEL_NEEDS_INTEGERS);
        if (own != 0)
            atomicOr(properties, own);
    }
    barrier();
    if (gl_LocalInvocationID.x == 0) {
        uint vector = sums + 4 * push.width;
        panel_words[vector] = properties;
        panel_words[vector + 1] = uint(output_zero_point(first_channel));
        panel_words[vector + 2] = uint(input_zero_point(first_channel));
        panel_words[vector + 3] = 0;
    }
}
