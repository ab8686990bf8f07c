#version 460

// ONE_HOT: output = (index == coordinate along the axis) ? on : off, where the output runs along the indices.
//
// Loops: one invocation loads a block's indices, all before it looks at the first, then writes a block for each
// coordinate of a chunk of the axis.
// Why apart: one module for each order of blocks, since some drivers take long to compile what they then leave out.
// Maths in full, layout and preconditions: include/one_hot.glsl; the order of blocks: include/loop_nest.glsl.

#extension GL_GOOGLE_include_directive : require
#define BY_ROWS
#define IN_CHUNKS
#include "one_hot.glsl"
