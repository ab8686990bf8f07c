#version 460

// ELEMENT_WISE_QUANTIZED_LINEAR_ADD, preparation: the table, from the tensors of scales and zero points.
//
// Maths, loops and layout: table.glsl.
//
// Preconditions: starts are in elements: words of scales, bytes of zero points. The device allows seven storage buffers
// in a stage.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

layout(local_size_x_id = 0) in;

layout(set = 0, binding = 1) readonly buffer AScale { uint a_scales[]; };
layout(set = 0, binding = 2) readonly buffer BScale { uint b_scales[]; };
layout(set = 0, binding = 3) readonly buffer OutputScale { uint output_scales[]; };
layout(set = 0, binding = 4) readonly buffer AZeroPoint { uint a_zero_points[]; };
layout(set = 0, binding = 5) readonly buffer BZeroPoint { uint b_zero_points[]; };
layout(set = 0, binding = 6) readonly buffer OutputZeroPoint { uint output_zero_points[]; };

layout(push_constant) uniform PushConstants {
    uint present;  // bits 0 to 2: there are zero points of A, B and the output
    uint unsigned_types;  // bits 0 to 2: A, B and the output are UINT8
    uint table_start;  // in vectors of 16 bytes
    uint starts[6];
} push;

uint parameter(uint number) {
    uint start = push.starts[number];
    switch (number) {
    case 0:
        return a_scales[start];
    case 1:
        return b_scales[start];
    case 2:
        return output_scales[start];
    case 3:
        return a_zero_points[start / 4] >> (start % 4 * 8);
    case 4:
        return b_zero_points[start / 4] >> (start % 4 * 8);
    default:
        return output_zero_points[start / 4] >> (start % 4 * 8);
    }
}

#include "table.glsl"
