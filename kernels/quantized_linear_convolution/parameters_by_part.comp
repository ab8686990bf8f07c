#version 450

// QUANTIZED_LINEAR_CONVOLUTION, preparation, a third of the work of parameters.comp, for devices with only four
// storage buffers a stage.
//
// Maths: part 0 writes the multiplier as mantissa and exponent. Part 1 writes the three zero points, and a bias of 0
// if there is none. Part 2 writes the bias.
//
// Loops: one invocation a channel.
//
// Layout: three sources and the table are the four storage buffers that every device has in a stage. So the work has
// parts.
//
// Preconditions: as in parameters.comp, except the number of storage buffers. Each part writes its own words of a
// record.

#extension GL_GOOGLE_include_directive : require

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint PRESENT = 0;         // bits 0 to 2: which zero points exist; bit 3: a bias
layout(constant_id = 2) const uint UNSIGNED_TYPES = 0;  // bits 0 to 2: input, filter, output are UINT8
layout(constant_id = 3) const uint PART = 0;

layout(set = 0, binding = 0) readonly buffer First { uint first_words[]; };
layout(set = 0, binding = 1) readonly buffer Second { uint second_words[]; };
layout(set = 0, binding = 2) readonly buffer Third { uint third_words[]; };
layout(set = 0, binding = 3) buffer Table { uint table[]; };

layout(push_constant) uniform PushConstants {
    uint start[3];     // in elements, like the strides
    uint table_start;  // in words
    uint stride[3];
    uint count;
} push;

#include "arithmetic.glsl"
#include "parameters.glsl"
#include "multiplier.glsl"

void main() {
    uint workgroup = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    uint channel = workgroup * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (channel >= push.count)
        return;
    uint first = push.start[0] + channel * push.stride[0];
    uint second = push.start[1] + channel * push.stride[1];
    uint third = push.start[2] + channel * push.stride[2];
    uint record = push.table_start + channel * PARAMETER_WORDS;
    if (PART == 0) {
        Binary32 m = multiplier(first_words[first], second_words[second], third_words[third]);
        table[record + PARAMETER_MANTISSA] = m.mantissa;
        table[record + PARAMETER_EXPONENT] = uint(m.exponent * 2 + (m.negative ? 1 : 0));
    } else if (PART == 1) {
        // An absent zero point is 0, which is -128 for UINT8 data taken as INT8.
        int zero_x = -int(flip_of(0)), zero_w = -int(flip_of(1)), zero_y = 0;
        if ((PRESENT & 1) != 0)
            zero_x = signed_byte(first_words[first >> 2], first, flip_of(0));
        if ((PRESENT & 2) != 0)
            zero_w = signed_byte(second_words[second >> 2], second, flip_of(1));
        if ((PRESENT & 4) != 0)
            zero_y = signed_byte(third_words[third >> 2], third, flip_of(2)) + int(flip_of(2));
        table[record + PARAMETER_FILTER_ZERO_POINT] = uint(zero_w);
        table[record + PARAMETER_INPUT_ZERO_POINT] = uint(zero_x);
        table[record + PARAMETER_OUTPUT_ZERO_POINT] = uint(zero_y);
        if ((PRESENT & 8) == 0)
            table[record + PARAMETER_BIAS] = 0;
    } else {
        table[record + PARAMETER_BIAS] = first_words[first];
    }
}
