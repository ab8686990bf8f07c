#version 460

// ONE_HOT: output = (index == coordinate along the axis) ? on : off, where rows are short, few, or not packed.
//
// Loops: one invocation writes one 16-byte block of the output, in the order of memory; a block may lie across rows.
// Why apart: one module for each order of blocks, since some drivers take long to compile what they then leave out.
// Maths in full, layout and preconditions: element.glsl; blocks and their order: blocks.glsl, data_movement/loop_nest.glsl.

#extension GL_GOOGLE_include_directive : require
#include "blocks.glsl"
