// DIAGONAL_MATRIX1: output[.., y, x] = filled(x - y) ? value : input[.., y, x], or zero where there is no input
//
// Maths, loops, layout and preconditions: include/diagonal_matrix1.glsl and include/loop_nest.glsl. Here invocations take
// the blocks run by run: where rows are short or few, or nothing is packed.
//
// Each order of blocks is a module of its own, and not a constant's: SwiftShader takes two to three times as long over a
// module that holds them all.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "diagonal_matrix1.glsl"
