// ONE_HOT: output[c] = (index(c without its axis) == c[axis]) ? on value : off value
//
// Maths, loops, layout and preconditions: include/one_hot.glsl and include/loop_nest.glsl. Here invocations take
// the blocks run by run: where rows are short or few, or nothing is packed.
//
// Each order of blocks is a module of its own, and not a constant's: SwiftShader takes two to three times as long over a
// module that holds them all.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "one_hot.glsl"
