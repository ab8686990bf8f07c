#version 460

// BYTE_RESAMPLE in float32, on devices that round to nearest even if they are asked to.
//
// Why apart: a kernel that relies on the rounding has to declare it.
//
// Maths, loops, layout and driver bugs avoided: resample.glsl.
//
// Preconditions: those of resample.glsl. The device has shaderRoundingModeRTEFloat32.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_spirv_intrinsics : require
spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4467], 4462, 32);  // RoundingModeRTE 32
#define ROUNDS_TO_NEAREST
#include "resample.glsl"
