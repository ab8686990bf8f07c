#version 450

// QUANTIZED_LINEAR_CONVOLUTION, the product by vectors of K, with 32-bit multiplications, and the last step in integers:
// for devices that lack dot products or do not round to nearest even.
//
// Maths: matrix.glsl. Loops, layout and preconditions: vectors.glsl.

#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_memory_scope_semantics : require
#pragma use_vulkan_memory_model

#include "vectors.glsl"
