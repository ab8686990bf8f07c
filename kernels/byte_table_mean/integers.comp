#version 460

// BYTE_TABLE_MEAN in integers: y = f32(sum(table[x]) / n) over a plane
//
// Maths in full: mean.glsl. Sums of binary32 numbers are rounded in integers, on any device.
//
// Loops, layout, preconditions and driver bugs avoided: mean.glsl.
#extension GL_GOOGLE_include_directive : require
#include "mean.glsl"
