#version 460

// ONE_HOT: output = (index == coordinate along the axis) ? on : off, where the output runs along the indices.
//
// Loops: one invocation loads a block's indices, all before it looks at the first, then writes a block for each
// coordinate of a chunk of the axis.
// Why apart: SwiftShader runs what a specialization constant rules out, and is 10% slower with this than with the module
// that looks at each index as it comes (one_hot_in_chunks.comp). Every other device takes this one.
// Maths in full, layout and preconditions: include/one_hot.glsl; the order of blocks: include/loop_nest.glsl.

#extension GL_GOOGLE_include_directive : require
#define BY_ROWS
#define IN_CHUNKS
#define LOADS_AHEAD
#include "one_hot.glsl"
