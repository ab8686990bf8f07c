#version 460

// ELEMENT_WISE_DEQUANTIZE_LINEAR in integers, for any device. Maths, loops, layout and preconditions: dequantize.glsl.
#extension GL_GOOGLE_include_directive : require
#include "dequantize.glsl"
