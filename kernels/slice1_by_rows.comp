// SLICE1: output[c] = input[start + stride * c]
//
// Maths, loops, layout and preconditions: include/slice1.glsl and include/loop_nest.glsl. Here invocations take
// the blocks inside rows first and those across rows after them, by groups of rows.
//
// A precondition of its own: rows are at least a block long.
#version 460
#extension GL_GOOGLE_include_directive : require
#define BY_ROWS
#include "slice1.glsl"
