#version 460

// ONE_HOT: output = (index == coordinate along the axis) ? on : off, for long rows.
//
// Loops: one invocation loads a row's index, and then writes several 16-byte blocks of this row.
// Why apart: some drivers take long to compile code that they then leave out, so each order of blocks has a module.
// Maths in full, layout and preconditions: element.glsl. Blocks and their order: blocks.glsl,
// data_movement/loop_nest.glsl.

#extension GL_GOOGLE_include_directive : require
#define BY_ROWS
#include "blocks.glsl"
