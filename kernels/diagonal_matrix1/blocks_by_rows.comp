#version 460

// DIAGONAL_MATRIX1: output = filled(x - y) ? value : input, where rows are long.
//
// Loops: one invocation writes one 16-byte block; blocks inside rows come first, those across rows apart from them.
// Why apart: one module for each order of blocks, since some drivers take long to compile what they then leave out.
// Maths in full, layout and preconditions: fill.glsl; the order of blocks: data_movement/loop_nest.glsl.

#extension GL_GOOGLE_include_directive : require
#define BY_ROWS
#include "fill.glsl"
