#version 460

// QUANTIZED_LINEAR_AVERAGE_POOLING by vectors of channels.
//
// Loops: one invocation makes a vector of channels: all sums first, then the bytes.
// Why apart: devices that promise no rounding need no capability for it.
//
// Maths, loops in full, layout, preconditions and driver bugs avoided: vectors.glsl.

#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

#include "vectors.glsl"
