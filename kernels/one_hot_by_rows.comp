// ONE_HOT with blocks taken by rows (include/loop_nest.glsl): see include/one_hot.glsl.
#version 460
#extension GL_GOOGLE_include_directive : require
#define BY_ROWS
#include "one_hot.glsl"
