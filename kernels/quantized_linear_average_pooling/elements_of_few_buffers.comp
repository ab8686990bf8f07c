#version 460

// QUANTIZED_LINEAR_AVERAGE_POOLING in any layout, on devices with four storage buffers a stage.
//
// Loops: one invocation makes the elements of one word of the output, one after the other.
// Why apart: a kernel with seven storage buffers could not be compiled there.
//
// Maths, loops in full, layout, preconditions and driver bugs avoided: elements.glsl. Scales and zero points are in one buffer.

#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

#define PARAMETERS_IN_ONE_BUFFER
#include "elements.glsl"
