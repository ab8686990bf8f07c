#version 460

// DIAGONAL_MATRIX1: output = filled(x - y) ? value : input, for long rows.
//
// Loops: one invocation writes one 16-byte block. Blocks inside rows come first, apart from blocks across rows.
// Why apart: some drivers take long to compile code that they then leave out, so each order of blocks has a module.
// Maths in full, layout and preconditions: fill.glsl. The order of blocks: data_movement/loop_nest.glsl.

#extension GL_GOOGLE_include_directive : require
#define BY_ROWS
#include "fill.glsl"
