#version 460

// QUANTIZED_LINEAR_AVERAGE_POOLING by rows.
//
// Maths, loops, layout, preconditions and driver bugs avoided: rows.glsl.

#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

#include "rows.glsl"
