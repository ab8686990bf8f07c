#version 460

// QUANTIZED_LINEAR_AVERAGE_POOLING by vectors of channels.
//
// Maths, loops, layout, preconditions and driver bugs avoided: vectors.glsl.

#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

#include "vectors.glsl"
