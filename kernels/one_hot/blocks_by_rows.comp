#version 460

// ONE_HOT: output = (index == coordinate along the axis) ? on : off, where rows are long.
//
// Loops: one invocation writes several 16-byte blocks of one row after it has loaded the row's index.
// Why apart: one module for each order of blocks, since some drivers take long to compile what they then leave out.
// Maths in full, layout and preconditions: element.glsl; blocks and their order: blocks.glsl, data_movement/loop_nest.glsl.

#extension GL_GOOGLE_include_directive : require
#define BY_ROWS
#include "blocks.glsl"
