#version 450

// QUANTIZED_LINEAR_CONVOLUTION, depthwise, with 32-bit multiplications: runs on every device.
//
// Maths, loops, layout, preconditions: include/quantized_depthwise.glsl.

#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

#include "quantized_depthwise.glsl"
