#version 450

// QUANTIZED_LINEAR_CONVOLUTION, preparation for matrix units: the parameters of each output channel, for layers whose
// parameters never change.
//
// Maths: float32.glsl and prepared_channel.glsl.
//
// Layout: after the words and the sums of a panel of the filter (matrix_pack_filter.comp), three rows of width words:
// multipliers, constants, and the rest.
//
// Loops: one invocation prepares one channel.
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
    uint count;
    uint words;              // words of an output channel
    uint channels_of_group;  // output channels of a group of panels
    uint first_of_group;     // the first channel's place in its group
    uint taps;               // products of a sum
    uint width;              // channels of a panel
} push;

#include "arithmetic.glsl"
#define FIRST_PARAMETER_CONSTANT 1
#define FIRST_PARAMETER_BINDING 1
#include "parameter_sources.glsl"
#include "float32.glsl"
#include "prepared_channel.glsl"

void main() {
    uint channel =
        (gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x) * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (channel >= push.count)
        return;
    uint place = push.first_of_group + channel;
    uint group = place / push.channels_of_group;
    uint channel_of_group = place - group * push.channels_of_group;
    // Panels are counted from the one that holds the first channel.
    uint panels_of_group = (push.channels_of_group + push.width - 1) / push.width;
    uint panel = group * panels_of_group + channel_of_group / push.width - push.first_of_group / push.width;
    uint row = push.panels_start + panel * (push.words + PANEL_ROWS) * push.width + push.words * push.width
        + channel_of_group % push.width;
    Wide constant = exact_constant(channel, int(panel_words[row]));
    panel_words[row + push.width] = floatBitsToUint(multiplier_of(channel));
    panel_words[row + 2 * push.width] = constant.low;
    panel_words[row + 3 * push.width] =
        (uint(filter_zero_point(channel)) & 0xFFFF) | (is_narrow(constant, push.taps) ? 0 : 1u << 16);
}
