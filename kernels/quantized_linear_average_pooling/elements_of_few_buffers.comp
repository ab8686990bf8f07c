#version 460

// QUANTIZED_LINEAR_AVERAGE_POOLING in any layout, on devices with four storage buffers a stage.
//
// Maths, loops, layout, preconditions and driver bugs avoided: elements.glsl. Scales and zero points are in one buffer.

#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

#define PARAMETERS_IN_ONE_BUFFER
#include "elements.glsl"
