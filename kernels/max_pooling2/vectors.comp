#version 460

// MAX_POOLING2 by vectors of channels: the channels are packed in the input and in the output.
//
// Maths: the maximum of the taps inside the input; see maximum.glsl.
//
// Loops: one invocation makes 16 bytes, or 4 if channels do not fill vectors of 16, of each row of a strip: push.blocks times
// ROWS rows of the output, one below the other (windows/strips.glsl):
//     for each row of taps that the next ROWS rows need, and that the last ones did not:
//         for each tap of the row: one load, and for each element one shift and one maximum
//     for each of the ROWS rows: the maximum of its rows of taps
// In place of a tap outside the input, the nearest tap inside counts twice: so invocations at the border do what all others
// do, and no subgroup runs two forms of the code. Windows of many taps are read in a loop, for one row of the output.
//
// Layout: neighbouring invocations have neighbouring vectors of a pixel, then the next pixel of a row. All loads and stores
// are whole vectors. Caches serve the overlap between windows.
//
// Preconditions: windows/window.glsl. Elements of 1, 2 or 4 bytes. Channels, strides and starts are multiples of a vector.
// A strip's rows divide those of the output; if they are more than one, the windows have no depth, no dilation along H, and
// few taps.
//
// Driver bugs avoided: none.

#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

#define MORE_PUSH_CONSTANTS uint blocks;
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
#include "windows/strips.glsl"
const bool IS_UNROLLED = HAS_STRIPS && WINDOW_W <= MOST_COLUMNS;

void store_largest(uint at, uvec4 largest[4]) {
    store_vector(at, uvec4(word_of(largest[0]), word_of(largest[1]), word_of(largest[2]), word_of(largest[3])));
}

void take_vector(inout uvec4 largest[4], uvec4 vector) {
    [[unroll]] for (uint word = 0; word < 4; ++word)
        if (word < VECTOR_WORDS)
            take_word(largest[word], vector[word]);
}

// The largest of the taps of one row, of each element.
struct Row { uvec4 largest[4]; };

void main() {
    uint index = invocation_index();
    if (index >= push.count)
        return;
    Place place = place_of(index);
    place.h *= ROWS * push.blocks;
    Taps taps = taps_of(place);
    uint source = input_offset(place);
    uint at = output_offset(place);
    if (IS_UNROLLED) {
        int top = push.first_h + int(place.h * STRIDE_H);
        uint columns[MOST_COLUMNS];
        [[unroll]] for (uint w = 0; w < MOST_COLUMNS; ++w)
            columns[w] = clamp(w, taps.low.z, taps.high.z - 1) * DILATION_W * push.input_stride_w;
        Row rows[MOST_TAP_ROWS];
        for (uint block = 0; block < push.blocks; ++block) {
            [[unroll]] for (uint row = 0; row < MOST_TAP_ROWS; ++row) {
                if (row < TAP_ROWS && (row >= SHARED_ROWS || block == 0)) {
                    uint of_row = source + row_distance(top, row);
                    [[unroll]] for (uint word = 0; word < 4; ++word)
                        rows[row].largest[word] = uvec4(0);
                    [[unroll]] for (uint w = 0; w < MOST_COLUMNS; ++w)
                        if (w < WINDOW_W)
                            take_vector(rows[row].largest, load_vector(of_row + columns[w]));
                }
            }
            [[unroll]] for (uint i = 0; i < MOST_ROWS; ++i) {
                if (i < ROWS) {
                    Row all = rows[tap_row(i, 0)];
                    [[unroll]] for (uint k = 1; k < MOST_TAP_ROWS; ++k) [[unroll]]
                        for (uint word = 0; word < 4; ++word)
                            if (k < WINDOW_H)
                                all.largest[word] = max(all.largest[word], rows[tap_row(i, k)].largest[word]);
                    store_largest(at + i * push.output_stride_h, all.largest);
                }
            }
            [[unroll]] for (uint row = 0; row < MOST_TAP_ROWS; ++row)
                if (row < SHARED_ROWS)
                    rows[row] = rows[row + NEW_ROWS];
            top += int(NEW_ROWS);
            source += NEW_ROWS * push.input_stride_h;
            at += ROWS * push.output_stride_h;
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
