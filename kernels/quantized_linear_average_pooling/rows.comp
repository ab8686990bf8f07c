#version 460

// QUANTIZED_LINEAR_AVERAGE_POOLING by rows.
//
// Loops: one invocation makes one word of a row: all sums first, then the bytes.
// Why apart: devices that promise no rounding need no capability for it.
//
// Maths, loops in full, layout, preconditions and driver bugs avoided: rows.glsl.

#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

#include "rows.glsl"
