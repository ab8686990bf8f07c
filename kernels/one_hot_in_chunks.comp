// ONE_HOT where the output runs along the indices: see include/one_hot.glsl.
#version 460
#extension GL_GOOGLE_include_directive : require
#define BY_ROWS
#define IN_CHUNKS
#include "one_hot.glsl"
