#version 460

// MAX_POOLING2 by rows: the columns are packed in the input and in the output.
//
// Maths: the maximum of the taps inside the input. Each element is compared in the upper bits of a word, where the elements
// below it do not matter.
//
// Loops: one invocation makes one word of each of ROWS rows of the output, one below the other:
//     for each row of the input that they need: the words of its segment (windows/rows.glsl)
//         for each output of the word: the maximum of its taps in the row, one shift and one maximum for each
//         for each row of the output that has it as a row of taps: one more maximum
//
// Layout: neighbouring invocations have neighbouring words of a row. Caches serve the overlap between windows.
//
// Preconditions: windows/window.glsl and windows/rows.glsl. Elements of 1 or 2 bytes. Rows of the output begin and end with
// words; ROWS divides their number. Where ROWS > 1, it is with the rows of a window at most MOST_INPUT_ROWS.
//
// Driver bugs avoided: none.

#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

#include "windows/window.glsl"

layout(constant_id = FIRST_OWN_CONSTANT) const uint ELEMENT_SIZE = 1;
layout(constant_id = FIRST_OWN_CONSTANT + 1) const uint IS_SIGNED = 0;
layout(constant_id = FIRST_OWN_CONSTANT + 2) const uint IS_ALIGNED = 0;
layout(constant_id = FIRST_OWN_CONSTANT + 3) const uint FIRST_W_OF_WORD = 0;
layout(constant_id = FIRST_OWN_CONSTANT + 4) const uint ROWS = 1;

#include "maximum.glsl"
#include "windows/rows.glsl"

const uint MOST_ROWS = 4;
const uint MOST_INPUT_ROWS = 12;
const uint INPUT_ROWS = (ROWS - 1) * STRIDE_H + (WINDOW_H - 1) * DILATION_H + 1;

// The largest of each output's taps in one row, in the upper bits.
uvec4 largest_of_row(Segment segment) {
    uvec4 largest = uvec4(0);
    [[unroll]] for (uint tap = 0; tap < MOST_COLUMNS; ++tap) {
        [[unroll]] for (uint i = 0; i < 4; ++i) {
            if (tap < WINDOW_W && i < PER_WORD) {
                uint at = place_in_segment(i, tap);
                uint value = segment.words[at / PER_WORD] << (PER_WORD - 1 - at % PER_WORD) * ELEMENT_BITS;
                largest[i] = tap == 0 ? value : max(largest[i], value);
            }
        }
    }
    return largest;
}

bool is_tap(uint row, uint output_row) {
    uint distance = row - output_row * STRIDE_H;
    return row >= output_row * STRIDE_H && distance % DILATION_H == 0 && distance / DILATION_H < WINDOW_H;
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
    Taps taps = taps_of(first);
    uint source = input_offset(first) - uint(columns.position);
    int top = push.first_h + int(place.h * STRIDE_H);
    uvec4 largest[MOST_ROWS];
    [[unroll]] for (uint i = 0; i < MOST_ROWS; ++i)
        largest[i] = uvec4(0);
    for (uint d = taps.low.x; d < taps.high.x; ++d) {
        uint plane = source + d * DILATION_D * push.input_stride_d;
        if (INPUT_ROWS <= MOST_INPUT_ROWS) {
            [[unroll]] for (uint row = 0; row < MOST_INPUT_ROWS; ++row) {
                if (row < INPUT_ROWS) {
                    int position = clamp(top + int(row), 0, push.limit_h - 1);
                    Segment segment = load_segment(
                        plane + uint(position - top) * push.input_stride_h, columns, position == top + int(row));
                    uvec4 of_row = largest_of_row(segment);
                    [[unroll]] for (uint i = 0; i < MOST_ROWS; ++i)
                        if (i < ROWS && is_tap(row, i))
                            largest[i] = max(largest[i], of_row);
                }
            }
        } else {
            for (uint h = taps.low.y; h < taps.high.y; ++h) {
                Segment segment = load_segment(plane + h * DILATION_H * push.input_stride_h, columns, true);
                largest[0] = max(largest[0], largest_of_row(segment));
            }
        }
    }
    uint at = output_offset(place);
    [[unroll]] for (uint i = 0; i < MOST_ROWS; ++i) {
        if (i < ROWS) {
            uint packed = 0;
            [[unroll]] for (uint k = 0; k < 4; ++k)
                if (k < PER_WORD)
                    packed |= largest[i][k] >> (32 - ELEMENT_BITS) << k * ELEMENT_BITS;
            output_words[at + i * push.output_stride_h] = packed ^ FLIP;
        }
    }
}
