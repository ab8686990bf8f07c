#version 450

// QUANTIZED_LINEAR_CONVOLUTION, the product by vectors of K, with packed dot products of signed by unsigned bytes, on
// devices that have an instruction for these and none for signed by signed, which their compilers emulate in five times
// as many. They round to nearest even (shaderRoundingModeRTEFloat32).
//
// Maths: matrix.glsl, with x' + 128 in place of x': sum(x' w) = sum((x' + 128) w) - 128 sum(w), modulo 2^32. Sums begin
// with -128 sum(w), which stands behind the packed filter. Loops, layout and preconditions: vectors.glsl. Four products
// and their sum are one instruction of VK_KHR_shader_integer_dot_product. The last step is in float32 (float32.glsl).

#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_integer_dot_product : require
#extension GL_EXT_spirv_intrinsics : require
#extension GL_KHR_memory_scope_semantics : require
#pragma use_vulkan_memory_model

spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4467], 4462, 32);  // RoundingModeRTE 32

#define DOT_PRODUCT
#define MIXED_SIGNS
#define ROUNDS_TO_NEAREST_EVEN
#include "vectors.glsl"
