#version 460

// SLICE1: output[c] = input[start + stride * c], for rows that are short, few, or not packed.
//
// Loops: one invocation writes one 16-byte block of the output, in the order of memory. A block may lie across rows.
// Why apart: some drivers take long to compile code that they then leave out, so each order of blocks has a module.
// Maths in full, layout and preconditions: copy.glsl. The order of blocks: data_movement/loop_nest.glsl.

#extension GL_GOOGLE_include_directive : require
#include "copy.glsl"
