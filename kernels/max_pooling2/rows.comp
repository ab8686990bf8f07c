#version 460

// MAX_POOLING2 by rows: the columns are packed in the input and in the output.
//
// Maths: the maximum of the taps inside the input. Each element is compared in the upper bits of a word, where the elements
// below it do not matter.
//
// Loops: one invocation makes one word of the output:
//     for each tap row inside the input: the words of its segment (windows/rows.glsl)
//         for each tap column, for each output of the word: one shift and one maximum
//
// Layout: neighbouring invocations have neighbouring words of a row. Caches serve the overlap between windows.
//
// Preconditions: windows/window.glsl and windows/rows.glsl. Elements of 1 or 2 bytes. Rows of the output begin and end with
// words.
//
// Driver bugs avoided: none.

#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

#include "windows/window.glsl"

layout(constant_id = FIRST_OWN_CONSTANT) const uint ELEMENT_SIZE = 1;
layout(constant_id = FIRST_OWN_CONSTANT + 1) const uint IS_SIGNED = 0;

#include "maximum.glsl"
#include "windows/rows.glsl"

void main() {
    uint index = invocation_index();
    if (index >= push.count)
        return;
    Place place = place_of(index);
    Place first = place;
    first.w *= PER_WORD;
    Inside inside = inside_of(place);
    Taps taps = taps_of(first);
    uint source = input_offset(first);
    uint largest[4];
    [[unroll]] for (uint i = 0; i < 4; ++i)
        largest[i] = 0;
    for (uint d = taps.low.x; d < taps.high.x; ++d) {
        for (uint h = taps.low.y; h < taps.high.y; ++h) {
            uint row = source + d * DILATION_D * push.input_stride_d + h * DILATION_H * push.input_stride_h;
            Segment segment = load_segment(row, inside);
            [[unroll]] for (uint tap = 0; tap < MOST_COLUMNS; ++tap) {
                [[unroll]] for (uint i = 0; i < 4; ++i) {
                    if (tap < WINDOW_W && i < PER_WORD) {
                        uint at = place_in_segment(i, tap);
                        uint above = (PER_WORD - 1 - at % PER_WORD) * ELEMENT_BITS;
                        largest[i] = max(largest[i], segment.words[at / PER_WORD] << above);
                    }
                }
            }
        }
    }
    uint packed = 0;
    [[unroll]] for (uint i = 0; i < 4; ++i)
        if (i < PER_WORD)
            packed |= largest[i] >> (32 - ELEMENT_BITS) << i * ELEMENT_BITS;
    output_words[output_offset(place)] = packed ^ FLIP;
}
