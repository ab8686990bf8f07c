#version 460

// ACTIVATION_RELU: y = x < 0 ? 0 : x
//
// Maths. A number is below 0 if its bits, as an integer, lie behind those of -0.0 and not behind those of -infinity. So
// no device's way with denormals or NaN matters, and all that is not below 0 keeps its bits.
//
// Loops and layout: element_wise/word_operation.glsl.
//
// Preconditions: output elements do not overlap.
#extension GL_GOOGLE_include_directive : require

uvec4 operation(uvec4 x, uvec4 none) {
    return mix(x, uvec4(0), lessThan(x - 0x80000001u, uvec4(0x7F800000)));
}

#include "element_wise/word_operation.glsl"
