#version 450

// QUANTIZED_LINEAR_CONVOLUTION, the product: tiles in registers, for drivers that run on a CPU, by 32-bit
// multiplications.
//
// Maths, memory and preconditions: product.glsl. Loops and layout: registers.glsl.
//
// This kernel needs only what Vulkan requires of every device. A byte is taken out of its word by a signed bit field
// extraction and multiplied in 32 bits.

#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "product.glsl"
#include "registers.glsl"
