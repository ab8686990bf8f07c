// SLICE1 with blocks taken by rows (include/loop_nest.glsl): see include/slice1.glsl.
#version 460
#extension GL_GOOGLE_include_directive : require
#define BY_ROWS
#include "slice1.glsl"
