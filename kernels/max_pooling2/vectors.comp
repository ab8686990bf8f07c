#version 460

// MAX_POOLING2 by vectors of channels: the channels are packed in the input and in the output.
//
// Maths: the maximum of the taps inside the input; see maximum.glsl.
//
// Loops: one invocation makes 16 bytes of the output, or 4 if channels do not fill vectors of 16:
//     for each tap inside the input: one load, and for each element one shift and one maximum
//
// Layout: neighbouring invocations have neighbouring vectors of a pixel, then the next pixel of a row. All loads and stores
// are whole vectors. Caches serve the overlap between windows.
//
// Preconditions: windows/window.glsl. Elements of 1, 2 or 4 bytes. Channels, strides and starts are multiples of a vector.
//
// Driver bugs avoided: none.

#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

#include "windows/window.glsl"

layout(constant_id = FIRST_OWN_CONSTANT) const uint ELEMENT_SIZE = 1;
layout(constant_id = FIRST_OWN_CONSTANT + 1) const uint IS_SIGNED = 0;
layout(constant_id = FIRST_OWN_CONSTANT + 2) const uint VECTOR_WORDS = 4;

#include "maximum.glsl"
#include "windows/vectors.glsl"

void main() {
    uint index = invocation_index();
    if (index >= push.count)
        return;
    Place place = place_of(index);
    Taps taps = taps_of(place);
    uint source = input_offset(place);
    uvec4 largest[4];
    [[unroll]] for (uint word = 0; word < 4; ++word)
        largest[word] = uvec4(0);
#define TAKE_VECTOR(value)                                                                                             \
    uvec4 vector = value;                                                                                              \
    [[unroll]] for (uint word = 0; word < 4; ++word)                                                                   \
        if (word < VECTOR_WORDS)                                                                                       \
            take_word(largest[word], vector[word]);
    FOR_EACH_TAP(taps, source)
    store_vector(output_offset(place),
        uvec4(word_of(largest[0]), word_of(largest[1]), word_of(largest[2]), word_of(largest[3])));
}
