#version 460

// ELEMENT_WISE_DEQUANTIZE_LINEAR in float32, for devices that round it to nearest even. Maths, loops, layout and preconditions: dequantize.glsl.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_spirv_intrinsics : require
spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4467], 4462, 32);  // RoundingModeRTE 32
#define ROUNDS_TO_NEAREST
#include "dequantize.glsl"
