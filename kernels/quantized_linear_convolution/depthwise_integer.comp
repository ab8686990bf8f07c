#version 450

// QUANTIZED_LINEAR_CONVOLUTION, depthwise, with 32-bit multiplications.
//
// Maths, loops, layout, preconditions: depthwise.glsl. This kernel needs only what Vulkan requires of every device. A
// byte is taken out of its word by a signed bit field extraction. The last step is an estimate that holds however
// float32 rounds (estimate.glsl).

#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

#include "depthwise.glsl"
