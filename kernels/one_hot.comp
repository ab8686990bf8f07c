// ONE_HOT where rows are short, few, or not packed at all: see include/one_hot.glsl.
//
// One module for each order of blocks (include/loop_nest.glsl): some drivers take long to compile what they then leave out.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "one_hot.glsl"
