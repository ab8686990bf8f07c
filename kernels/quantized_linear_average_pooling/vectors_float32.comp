#version 460

// QUANTIZED_LINEAR_AVERAGE_POOLING by vectors of channels, on devices that round to nearest even
// (shaderRoundingModeRTEFloat32).
//
// Loops: one invocation makes a vector of channels: all sums first, then the bytes.
// Why apart: a kernel that relies on the rounding has to declare it.
//
// Maths, loops in full, layout, preconditions and driver bugs avoided: vectors.glsl.

#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_spirv_intrinsics : require

spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4467], 4462, 32);  // RoundingModeRTE 32

#define ROUNDS_TO_NEAREST_EVEN
#include "vectors.glsl"
