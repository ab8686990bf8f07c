#version 450

// QUANTIZED_LINEAR_CONVOLUTION, the product: on matrix units, through VK_KHR_cooperative_matrix.
//
// Maths and memory: matrix.glsl.
//
// Loops:
//     for each step of K:
//         each invocation stores the next step of both operands, fetched a step before, to the other half of shared
//         memory, and fetches the step after it into registers
//         each subgroup, for each K of a matrix:
//             loads a column of input matrices and a row of filter matrices from shared memory, multiplies all pairs
//         one barrier, before the last of these products
//     four matrices of sums at a time become one matrix of words, which is stored directly; at the output's ends, or if
//     its strides do not allow that, all of these go to shared memory as strips; for each strip, the invocations load
//     vectors, words or bytes from there and write them
//
// Layout: in shared memory, both operands are rows of K, one row for each pixel or channel, which matrix units load
// fastest (A by rows, B by columns). A vector of padding between rows keeps eight rows in different banks. Rows
// consist of 16-byte vectors for the sake of the stores. The vectors that an invocation fetches keep their place in
// the step, so that it computes the pixels' addresses once. The order of pixels or channels that the last step needs
// costs nothing there. Planes of an NCHW input are transposed 4 x 4 bytes at a time on the way. Channel tiles run
// fastest, so that workgroups that share pixels run at the same time.
//
// Sums begin with the constant that the bias and the zero points add to a channel. sum(x') is added up in shared
// memory while the input is stored there, and only if a filter zero point of the tile is not 0. In registers it would
// take the place of a third workgroup (NVIDIA: more than 168 registers, a fifth more time). A tile with a channel
// whose sums may not fit 32 bits takes all its last steps in integers. Only the driver knows how matrices lie in
// registers, so only elements with the same index are combined.
//
// Preconditions: filter panels are TILE_CHANNELS wide. A step is an even number of the K of a matrix. There are
// INVOCATIONS invocations, in whole subgroups of LANES. The tile sizes are multiples of the subgroups' sizes, and
// these are multiples of the matrices' sizes. Along the words of the output, a subgroup has a multiple of four
// matrices. With PLANES: one tap, no border, and planes of whole words that all tiles see whole. The device rounds to
// nearest even (shaderRoundingModeRTEFloat32). Grid: x channels, y TURNS tiles of pixels, z groups. No invocation
// leaves before the last barrier. PARTS is 1.
//
// Compiler bugs avoided: strides of matrix instructions and bounds of the loops around them can be specialization
// constants, for Samsung's compiler, which miscompiles them from buffers. No optimizer has run (spirv-opt breaks matrix
// kernels). Shared variables are arrays or whole vectors (NVIDIA's matrix loads, see matrix.glsl).

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

#include "matrix_product.glsl"
