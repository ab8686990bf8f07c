#version 460

// DIAGONAL_MATRIX1: output = filled(x - y) ? value : input, where rows are short, few, or not packed at all.
//
// Loops: one invocation writes one 16-byte block of the output, in the order of memory; a block may lie across rows.
// Why apart: one module for each order of blocks, since some drivers take long to compile what they then leave out.
// Maths in full, layout and preconditions: fill.glsl; the order of blocks: data_movement/loop_nest.glsl.

#extension GL_GOOGLE_include_directive : require
#include "fill.glsl"
