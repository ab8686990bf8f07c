#version 460

// SLICE1: output[c] = input[start + stride * c], for long rows.
//
// Loops: one invocation writes one 16-byte block. Blocks inside rows come first, apart from blocks across rows.
// Why apart: some drivers take long to compile code that they then leave out, so each order of blocks has a module.
// Maths in full, layout and preconditions: copy.glsl. The order of blocks: data_movement/loop_nest.glsl.

#extension GL_GOOGLE_include_directive : require
#define BY_ROWS
#include "copy.glsl"
