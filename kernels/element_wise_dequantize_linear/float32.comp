#version 460

// ELEMENT_WISE_DEQUANTIZE_LINEAR in float32: y = f32(f32(x - z) * s)
//
// Maths in full: dequantize.glsl. Only for devices that round float32 to nearest even if they are asked to.
//
// Loops: an invocation writes a unit of 16 bytes, from 4 bytes: element_wise/loop_nest.glsl.
//
// Layout: the scale and the zero point step along like the input, with strides of 0 where they are shared.
//
// Preconditions: output elements do not overlap. Scales may have any bits. The device has shaderRoundingModeRTEFloat32.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_spirv_intrinsics : require
spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4467], 4462, 32);  // RoundingModeRTE 32
#define ROUNDS_TO_NEAREST
#include "dequantize.glsl"
