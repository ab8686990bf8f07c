#version 460

// QUANTIZED_LINEAR_AVERAGE_POOLING in any layout.
//
// Maths, loops, layout, preconditions and driver bugs avoided: elements.glsl. Seven storage buffers.

#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

#include "elements.glsl"
