#version 450

// QUANTIZED_LINEAR_CONVOLUTION, the product for layers of few tiles: on matrix units, through VK_KHR_cooperative_matrix,
// with the K of each tile split over the subgroups of a workgroup, and if need be over workgroups.
//
// Maths and memory: matrix.glsl.
//
// Loops:
//     for each step of its part of K, each subgroup by itself:
//         each invocation stores the step of both operands to the subgroup's region of shared memory, and fetches the next
//         the subgroup loads the matrices of the step, and multiplies all pairs
//     each subgroup stores its sums to its region; one barrier
//     each invocation adds up the subgroups' sums of some words of the output, and takes their last step
//
// Why: a layer of one picture has so few tiles that a multiprocessor has one or none, and so little to multiply that each
// waits for memory, step by step. A subgroup that has a part of K waits for its part alone, and all parts are under way
// at a time. No barrier stands between their steps. The last step is spread over all invocations too: each has one to
// four words, where a subgroup that holds a tile's sums in its matrices has eight for each invocation.
//
// Layout: a region has rows of K, one for each pixel and channel of the tile, as in matrix.comp; then the sums, as rows
// of channels (or of pixels, for outputs in planes), with two vectors of padding behind each, so that eight rows of a
// matrix that is stored lie in different banks.
//
// With PARTS, several workgroups share the K of a tile: see parts.glsl. All subgroups of a dispatch have the same number
// of steps. Those past the end of K multiply zeros.
//
// Preconditions: filter panels are TILE_CHANNELS wide. There are SUBGROUPS subgroups of LANES invocations, and LANES is a
// multiple of STEP. A subgroup fetches both operands evenly. Planes are read by bytes. The tile's sizes are multiples of
// the matrices', and K of a step is too. WHOLE_STEPS is 0 if some steps lie past the end of K. The device rounds to
// nearest even (shaderRoundingModeRTEFloat32). Grid: x channels, y tiles of pixels, z the parts of each group. No
// invocation leaves before the last barrier.
//
// Compiler bugs avoided: as in matrix.comp. All subgroups go through the same subgroup barriers; otherwise lavapipe
// (Mesa 26) leaves the work of the later subgroups undone.

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

#include "split_k.glsl"
