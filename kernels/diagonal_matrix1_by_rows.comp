// DIAGONAL_MATRIX1 with blocks taken by rows (include/loop_nest.glsl): see include/diagonal_matrix1.glsl.
#version 460
#extension GL_GOOGLE_include_directive : require
#define BY_ROWS
#include "diagonal_matrix1.glsl"
