#version 460

// MAX_POOLING2 by vectors of channels: the channels are packed in the input and in the output.
//
// Maths: the maximum of the taps inside the input; see maximum.glsl.
//
// Loops: one invocation makes 16 bytes, or 4 if channels do not fill vectors of 16, of each of ROWS rows of the output, one
// below the other:
//     for each row of taps that they need:
//         for each tap of the row: one load, and for each element one shift and one maximum
//         for each row of the output that has it as a row of taps: one more maximum for each element
// In place of a tap outside the input, the nearest tap inside counts twice: so invocations at the border do what all others
// do, and no subgroup runs two forms of the code. Windows of many taps are read in a loop, for one row of the output.
//
// Layout: neighbouring invocations have neighbouring vectors of a pixel, then the next pixel of a row. All loads and stores
// are whole vectors. Caches serve the overlap between windows.
//
// Preconditions: windows/window.glsl. Elements of 1, 2 or 4 bytes. Channels, strides and starts are multiples of a vector.
// ROWS divides the rows of the output; if it is not 1, the windows have no depth, no dilation, and few taps.
//
// Driver bugs avoided: none.

#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

#include "windows/window.glsl"

layout(constant_id = FIRST_OWN_CONSTANT) const uint ELEMENT_SIZE = 1;
layout(constant_id = FIRST_OWN_CONSTANT + 1) const uint IS_SIGNED = 0;
layout(constant_id = FIRST_OWN_CONSTANT + 2) const uint VECTOR_WORDS = 4;
layout(constant_id = FIRST_OWN_CONSTANT + 3) const uint ROWS = 1;

#include "maximum.glsl"
#include "windows/vectors.glsl"

const uint MOST_ROWS = 4;
const uint MOST_COLUMNS = 4;
const uint MOST_TAP_ROWS = 8;
// Rows of taps of all ROWS outputs.
const uint TAP_ROWS = (ROWS - 1) * STRIDE_H + WINDOW_H;
const bool IS_UNROLLED = WINDOW_D == 1 && WINDOW_W <= MOST_COLUMNS && TAP_ROWS <= MOST_TAP_ROWS;

void store_largest(uint at, uvec4 largest[4]) {
    store_vector(at, uvec4(word_of(largest[0]), word_of(largest[1]), word_of(largest[2]), word_of(largest[3])));
}

void take_vector(inout uvec4 largest[4], uvec4 vector) {
    [[unroll]] for (uint word = 0; word < 4; ++word)
        if (word < VECTOR_WORDS)
            take_word(largest[word], vector[word]);
}

void main() {
    uint index = invocation_index();
    if (index >= push.count)
        return;
    Place place = place_of(index);
    place.h *= ROWS;
    Taps taps = taps_of(place);
    uint source = input_offset(place);
    uint at = output_offset(place);
    if (IS_UNROLLED) {
        uvec2 rows = taps_along(push.first_h + int(place.h * STRIDE_H), push.limit_h, TAP_ROWS, DILATION_H);
        uint columns[MOST_COLUMNS];
        [[unroll]] for (uint w = 0; w < MOST_COLUMNS; ++w)
            columns[w] = source + clamp(w, taps.low.z, taps.high.z - 1) * DILATION_W * push.input_stride_w;
        uvec4 largest[MOST_ROWS][4];
        [[unroll]] for (uint row = 0; row < MOST_TAP_ROWS; ++row) {
            if (row < TAP_ROWS) {
                uint distance = clamp(row, rows.x, rows.y - 1) * DILATION_H * push.input_stride_h;
                uvec4 of_row[4];
                [[unroll]] for (uint word = 0; word < 4; ++word)
                    of_row[word] = uvec4(0);
                [[unroll]] for (uint w = 0; w < MOST_COLUMNS; ++w)
                    if (w < WINDOW_W)
                        take_vector(of_row, load_vector(columns[w] + distance));
                [[unroll]] for (uint i = 0; i < MOST_ROWS; ++i) {
                    uint first = i * STRIDE_H;
                    if (i < ROWS && row >= first && row - first < WINDOW_H) {
                        [[unroll]] for (uint word = 0; word < 4; ++word)
                            largest[i][word] = row == first ? of_row[word] : max(largest[i][word], of_row[word]);
                        if (row - first == WINDOW_H - 1)
                            store_largest(at + i * push.output_stride_h, largest[i]);
                    }
                }
            }
        }
        return;
    }
    uvec4 largest[4];
    [[unroll]] for (uint word = 0; word < 4; ++word)
        largest[word] = uvec4(0);
#define TAKE_VECTOR(value) take_vector(largest, value);
    FOR_EACH_TAP(taps, source)
    store_largest(at, largest);
}
