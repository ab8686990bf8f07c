// ONE_HOT: output[c] = (index(c without its axis) == c[axis]) ? on value : off value
//
// Maths, loops, layout and preconditions: include/one_hot.glsl and include/loop_nest.glsl. Here the output runs
// along the indices, and an invocation writes blocks for many coordinates along the axis from indices loaded once.
//
// A precondition of its own: all rows begin and end with blocks.
#version 460
#extension GL_GOOGLE_include_directive : require
#define BY_ROWS
#define IN_CHUNKS
#include "one_hot.glsl"
