#version 460

// QUANTIZED_LINEAR_AVERAGE_POOLING in any layout.
//
// Loops: one invocation makes the elements of one word of the output, one after the other.
// Why apart: devices that promise no rounding need no capability for it.
//
// Maths, loops in full, layout, preconditions and driver bugs avoided: elements.glsl. Seven storage buffers.

#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

#include "elements.glsl"
