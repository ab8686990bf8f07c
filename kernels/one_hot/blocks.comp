#version 460

// ONE_HOT: output = (index == coordinate along the axis) ? on : off, for rows that are short, few, or not packed.
//
// Loops: one invocation writes one 16-byte block of the output, in the order of memory. A block may lie across rows.
// Why apart: some drivers take long to compile code that they then leave out, so each order of blocks has a module.
// Maths in full, layout and preconditions: element.glsl. Blocks and their order: blocks.glsl,
// data_movement/loop_nest.glsl.

#extension GL_GOOGLE_include_directive : require
#include "blocks.glsl"
