#version 450

// QUANTIZED_LINEAR_CONVOLUTION_ADD: quantized_linear_convolution/vectors_float32.comp, whose last step adds a tensor to the output.
//
// Maths, loops, layout, preconditions and compiler bugs avoided: quantized_linear_convolution/vectors_float32.comp, and sum.glsl for the
// sum. The addend has the strides of the output.

#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_spirv_intrinsics : require
#extension GL_KHR_memory_scope_semantics : require
#pragma use_vulkan_memory_model
spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4467], 4462, 32);  // RoundingModeRTE 32

#define WITH_SUM
#define FLOAT32_PRODUCTS
#define ROUNDS_TO_NEAREST_EVEN
#include "quantized_linear_convolution/vectors.glsl"
