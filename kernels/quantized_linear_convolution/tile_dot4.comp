#version 450

// QUANTIZED_LINEAR_CONVOLUTION, the product: tiles in shared memory, for GPUs, by packed dot products.
//
// Maths, memory and preconditions: product.glsl; loops and layout: tile.glsl. Here
// four products and their sum are one instruction, signed x signed, of VK_KHR_shader_integer_dot_product. The plain
// form is used and added to the sum, not the accumulating one, which saturates; compilers join the two where the device
// can.

#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_integer_dot_product : require
#define DOT_PRODUCT
#include "product.glsl"
#include "tile.glsl"
