#version 450

// QUANTIZED_LINEAR_CONVOLUTION_ADD: quantized_linear_convolution/matrix.comp, whose last step adds a tensor to the output.
//
// Maths, loops, layout, preconditions and compiler bugs avoided: quantized_linear_convolution/matrix.comp, and sum.glsl for the
// sum. The addend has the strides of the output.

#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_integer_dot_product : require
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require
#extension GL_EXT_spirv_intrinsics : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#pragma use_vulkan_memory_model
spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4467], 4462, 32);  // RoundingModeRTE 32

#define WITH_SUM
#include "quantized_linear_convolution/matrix_product.glsl"
