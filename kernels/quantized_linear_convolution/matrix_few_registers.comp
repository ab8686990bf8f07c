#version 450

// QUANTIZED_LINEAR_CONVOLUTION, the product on matrix units, for devices with few registers: matrix.comp without the two
// sets of operand matrices. Matrices are loaded when they are multiplied, most of them one at a time; there is one copy
// of the loop over K; and a step is fetched ahead only if an invocation fetches at most four vectors of it. On Intel's
// Xe-HPG and Xe2, where an invocation has about 128 registers, two sets spill 160 to 600 of them in the loop over K, one
// set up to 415, and this kernel none.
//
// The operand of which a subgroup has one matrix is the first one, which takes more loads there: channels, if a word holds
// four pixels. Fetches have no conditions; what lies outside the input is replaced when it is stored.
//
// Maths, loops, layout, preconditions and compiler bugs avoided: matrix.comp.

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

#define ONE_SET
#define TURNED_BY_BYTES
#include "matrix_product.glsl"
