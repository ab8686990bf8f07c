#version 450

// QUANTIZED_LINEAR_CONVOLUTION, the product: tiles in registers, for drivers that run on a CPU, by packed dot products.
//
// Maths, memory and preconditions: product.glsl. Loops and layout: registers.glsl.
//
// Four products and their sum are one instruction, signed x signed, of VK_KHR_shader_integer_dot_product. The kernel
// uses the plain form and adds its result to the sum, because the accumulating form saturates. Compilers join the two
// if the device can.

#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_integer_dot_product : require
#define DOT_PRODUCT
#include "product.glsl"
#include "registers.glsl"
