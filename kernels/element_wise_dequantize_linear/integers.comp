#version 460

// ELEMENT_WISE_DEQUANTIZE_LINEAR in integers: y = f32(f32(x - z) * s)
//
// Maths in full: dequantize.glsl. A product of 32 bits is rounded in integers, on any device.
//
// Loops: an invocation writes a unit of 16 bytes, from 4 bytes: element_wise/loop_nest.glsl.
//
// Layout: the scale and the zero point step along like the input, with strides of 0 where they are shared.
//
// Preconditions: output elements do not overlap. Scales may have any bits.
#extension GL_GOOGLE_include_directive : require
#include "dequantize.glsl"
