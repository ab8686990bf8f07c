#version 450

// QUANTIZED_LINEAR_CONVOLUTION, depthwise, with packed dot products.
//
// Maths, loops, layout, preconditions: include/quantized_depthwise.glsl.

#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_integer_dot_product : require

#define DOT4
#include "quantized_depthwise.glsl"
