#version 460

// ELEMENT_WISE_QUANTIZED_LINEAR_ADD, preparation: the table, from parameters that were gathered.
// For devices with few storage buffers in a stage.
//
// Maths, loops and layout: table.glsl.
//
// Preconditions: each parameter begins a vector of 16 bytes.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

layout(local_size_x_id = 0) in;

layout(set = 0, binding = 1) readonly buffer Parameters { uvec4 parameters[]; };

layout(push_constant) uniform PushConstants {
    uint present;  // bits 0 to 2: there are zero points of A, B and the output
    uint unsigned_types;  // bits 0 to 2: A, B and the output are UINT8
    uint table_start;  // in vectors of 16 bytes, like the next one
    uint parameters_start;
} push;

uint parameter(uint number) {
    return parameters[push.parameters_start + number].x;
}

#include "table.glsl"
