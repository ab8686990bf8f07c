#version 460

// ELEMENT_WISE_ADD in integers: y = f32(a + b)
//
// Maths in full: add.glsl. A sum is rounded in integers, on any device.
//
// Loops, layout and preconditions: add.glsl.
#extension GL_GOOGLE_include_directive : require
#include "add.glsl"
