#version 460

// BYTE_SOFTMAX in integers: y = nearest_even(steps * e(x) / sum of e(x)) + zero point over a row
//
// Maths in full: softmax.glsl. Sums of binary32 numbers are rounded in integers, on any device.
//
// Loops, layout, preconditions and driver bugs avoided: softmax.glsl.
#extension GL_GOOGLE_include_directive : require
#include "softmax.glsl"
