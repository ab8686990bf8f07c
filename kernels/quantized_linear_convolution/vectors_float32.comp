#version 450

// QUANTIZED_LINEAR_CONVOLUTION, the product by vectors of K, with float32 multiplications, on devices that round to
// nearest even (shaderRoundingModeRTEFloat32).
//
// Maths: matrix.glsl. Loops, layout and preconditions: vectors.glsl. Sums of products of bytes are exact in float32 up to
// 2^24, that is over 1,024 of them; then they are added to integers. The last step is in float32 (float32.glsl).

#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_spirv_intrinsics : require
#extension GL_KHR_memory_scope_semantics : require
#pragma use_vulkan_memory_model

spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4467], 4462, 32);  // RoundingModeRTE 32

#define FLOAT32_PRODUCTS
#define ROUNDS_TO_NEAREST_EVEN
#include "vectors.glsl"
