#version 450

// QUANTIZED_LINEAR_CONVOLUTION, the product: tiles in shared memory, for GPUs, by 32-bit multiplications.
//
// The floor, which needs nothing that Vulkan does not require of every device. Maths, memory and preconditions:
// product.glsl; loops and layout: tile.glsl. A byte is taken out of its word by a
// signed bit field extraction and multiplied in 32 bits.

#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "product.glsl"
#include "tile.glsl"
