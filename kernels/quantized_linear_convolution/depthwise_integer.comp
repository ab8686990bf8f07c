#version 450

// QUANTIZED_LINEAR_CONVOLUTION, depthwise, with 32-bit multiplications.
//
// The floor, which needs nothing that Vulkan does not require of every device. Maths, loops, layout, preconditions:
// depthwise.glsl. A byte is taken out of its word by a signed bit field extraction; the last step is an
// estimate that holds however float32 rounds (estimate.glsl).

#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

#include "depthwise.glsl"
