#version 450

// QUANTIZED_LINEAR_CONVOLUTION, depthwise, with packed dot products, on devices that round to nearest even
// (shaderRoundingModeRTEFloat32).
//
// Maths, loops, layout, preconditions: depthwise.glsl. Four products and their sum are one instruction, signed x
// signed, of VK_KHR_shader_integer_dot_product. The last step is in float32 (float32.glsl).

#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_integer_dot_product : require
#extension GL_EXT_spirv_intrinsics : require

spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4467], 4462, 32);  // RoundingModeRTE 32

#define DOT4
#include "depthwise.glsl"
