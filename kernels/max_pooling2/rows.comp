#version 460

// MAX_POOLING2 by rows: the columns are packed in the input and in the output.
//
// Maths: the maximum of the taps inside the input. Each element is compared in the upper bits of a word, where the elements
// below it do not matter.
//
// Loops: one invocation makes one word of each of ROWS rows of the output, one below the other:
//     for each row of the input that these rows need: the words of its segment (windows/rows.glsl)
//         for each output of the word: the maximum of its taps in the row, one shift and one maximum for each
//     for each of the rows: the maximum of its rows of taps
// In place of a row outside the input, the nearest row inside counts twice. Where outputs or rows share two taps, the two are
// compared once: every other one takes its taps from the last to the first. Windows with depth or dilation, and tall ones,
// are read in a loop, for one row of the output.
//
// Layout: neighbouring invocations have neighbouring words of a row, then the next rows, so that a workgroup reads and writes
// whole planes at a time: an invocation that walked down a plane would take a part of many planes, and memory opens a page
// for each. Caches serve the overlap between windows.
//
// Preconditions: windows/window.glsl and windows/rows.glsl. Elements of 1 or 2 bytes. Rows of the output begin and end with
// words; ROWS divides their number. If ROWS is not 1, windows have neither depth nor dilation
// along H.
//
// Driver bugs avoided: none.

#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

#include "windows/window.glsl"

layout(constant_id = FIRST_OWN_CONSTANT) const uint ELEMENT_SIZE = 1;
layout(constant_id = FIRST_OWN_CONSTANT + 1) const uint IS_SIGNED = 0;
layout(constant_id = FIRST_OWN_CONSTANT + 2) const uint IS_ALIGNED = 0;
layout(constant_id = FIRST_OWN_CONSTANT + 3) const uint FIRST_W_OF_PAIR = 0;
layout(constant_id = FIRST_OWN_CONSTANT + 4) const uint ROWS = 1;
layout(constant_id = FIRST_OWN_CONSTANT + 5) const uint HAS_PAIRS = 0;

#include "maximum.glsl"
#include "windows/rows.glsl"
const uint MOST_ROWS = 4;
const uint MOST_TAP_ROWS = 12;
#include "windows/strips.glsl"

// The largest of each output's taps in one row, in the upper bits.
uvec4 largest_of_row(Segment segment) {
    uvec4 largest = uvec4(0);
    [[unroll]] for (uint k = 0; k < MOST_COLUMNS; ++k) {
        [[unroll]] for (uint i = 0; i < 4; ++i) {
            if (k < WINDOW_W && i < PER_WORD) {
                uint at = place_in_segment(i, i % 2 == 0 ? WINDOW_W - 1 - k : k);
                uint value = segment.words[at / PER_WORD] << (PER_WORD - 1 - at % PER_WORD) * ELEMENT_BITS;
                largest[i] = k == 0 ? value : max(largest[i], value);
            }
        }
    }
    return largest;
}

void store(uint at, uvec4 largest) {
    uint packed = 0;
    [[unroll]] for (uint k = 0; k < 4; ++k)
        if (k < PER_WORD)
            packed |= largest[k] >> (32 - ELEMENT_BITS) << k * ELEMENT_BITS;
    output_words[at] = packed ^ FLIP;
}

void main() {
    uint index = invocation_index();
    if (index >= push.count)
        return;
    Place place = place_of(index);
    place.h *= ROWS;
    Place first = place;
    first.w *= PER_WORD;
    Columns columns = columns_of(first.w);
    int top = push.first_h + int(place.h * STRIDE_H);
    uint source = input_offset(first) - uint(columns.position);
    uint at = output_offset(place);
    if (HAS_STRIPS) {
        uvec4 rows[MOST_TAP_ROWS];
        [[unroll]] for (uint row = 0; row < MOST_TAP_ROWS; ++row)
            if (row < TAP_ROWS)
                rows[row] = largest_of_row(load_segment(source + row_distance(top, row), columns));
        [[unroll]] for (uint i = 0; i < MOST_ROWS; ++i) {
            if (i < ROWS) {
                uvec4 largest = rows[tap_row(i, 0)];
                [[unroll]] for (uint k = 1; k < MOST_TAP_ROWS; ++k)
                    if (k < WINDOW_H)
                        largest = max(largest, rows[tap_row(i, k)]);
                store(at + i * push.output_stride_h, largest);
            }
        }
        return;
    }
    Taps taps = taps_of(first);
    uvec4 largest = uvec4(0);
    for (uint d = taps.low.x; d < taps.high.x; ++d) {
        for (uint h = taps.low.y; h < taps.high.y; ++h) {
            uint row = source + d * DILATION_D * push.input_stride_d + h * DILATION_H * push.input_stride_h;
            largest = max(largest, largest_of_row(load_segment(row, columns)));
        }
    }
    store(at, largest);
}
