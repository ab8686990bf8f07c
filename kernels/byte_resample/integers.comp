#version 460

// BYTE_RESAMPLE in integers: y = least number + how many thresholds the weighted sum of four numbers reaches
//
// Maths in full: resample.glsl. Products and sums of binary32 numbers are rounded in integers, on any device.
//
// Loops, layout, preconditions and driver bugs avoided: resample.glsl.
#extension GL_GOOGLE_include_directive : require
#include "resample.glsl"
