#version 460

// ONE_HOT: output = (index == coordinate along the axis) ? on : off, where the output runs along the indices in rows that
// begin anywhere in a 16-byte block.
//
// Loops: as chunks.comp, with a word in place of a block, or an element where that is larger. Rows of bytes or
// 16-bit elements begin anywhere in a word, the row of each coordinate along the axis elsewhere, so that other elements share
// a word each time: an invocation loads the indices of all that can come into its word, and of these two words of distances
// shifts out the one that is written.
// Layout: words are counted along rows, rows by all other dimensions, of which the outermost counts chunks.
// Preconditions: rows are at least a word long. Others, and the maths: element.glsl.

#extension GL_GOOGLE_include_directive : require
#define IN_CHUNKS
#include "element.glsl"

layout(set = 0, binding = OUTPUT_BINDING) buffer OutputPairs { uvec2 output_pairs[]; };

const uint HIGHEST_BITS = ELEMENT_SIZE == 1 ? 0x80808080u : 0x80008000u;

// How far the hot coordinates of the row's elements from `first` on lie from `begin`, each with the element's highest bit
// set. Past the row's end they are those of its last element, and of no use.
uvec2 load_distances(uint source, uint first, uint begin) {
    uvec2 distances = uvec2(HIGHEST_BITS);
    [[unroll]] for (uint i = 0; i < 2 * ELEMENTS_PER_WORD - 1; ++i) {
        uint element = min(first + i, push.sizes[0] - 1);
        uint distance = hot_coordinate(source + element * push.source_strides[0]) - begin;
        distances[i / ELEMENTS_PER_WORD] |= min(distance, ELEMENT_MASK >> 1) << (i % ELEMENTS_PER_WORD * ELEMENT_BITS);
    }
    return distances;
}

// Elements that are words or pairs of them.
void write_elements(uint element, uint distance, uint count, uint rows_apart) {
    uvec2 off = uvec2(value_word(false, 0), value_word(false, WORDS_PER_ELEMENT - 1));
    uvec2 on = uvec2(value_word(true, 0), value_word(true, WORDS_PER_ELEMENT - 1));
    for (uint i = 0; i < count; ++i, element += rows_apart) {
        uvec2 value = i == distance ? on : off;
        if (ELEMENT_SIZE == 4)
            output_words[element] = value.x;
        else
            output_pairs[element] = value;
    }
}

// Bytes and 16-bit elements.
void write_parts(uint row_start, uint place, uvec2 distances, uint count, uint rows_apart) {
    uint first = place * ELEMENTS_PER_WORD;
    uint off = value_word(false, 0);
    uint difference = off ^ value_word(true, 0);
    uint off_word = repeat_element(off, 0).x;
    for (uint i = 0; i < count; ++i, row_start += rows_apart) {
        // An element's highest bit goes where its distance passes below 0; no element borrows from another one.
        uvec2 next = distances - repeat_element(1, 0).x;
        uvec2 passed = (distances & ~next & HIGHEST_BITS) >> (ELEMENT_BITS - 1);
        distances = next;
        uvec2 values = off_word ^ passed * difference;
        // The row's elements before its first whole word.
        uint lead = -row_start % ELEMENTS_PER_WORD;
        uint shift = lead * ELEMENT_BITS;
        uint value = lead == 0 ? values.x : values.x >> shift | values.y << (32 - shift);
        uint word = (row_start + lead) / ELEMENTS_PER_WORD + place;
        int left = int(push.sizes[0] - lead - first);
        if (left >= int(ELEMENTS_PER_WORD))
            output_words[word] = value;
        else if (left > 0)
            store_bits(word, (1u << (uint(left) * ELEMENT_BITS)) - 1, value);
        if (place == 0 && lead != 0)
            store_bits(word - 1, 0xFFFFFFFFu << (32 - shift), values.x << (32 - shift));
    }
}

void main() {
    uint index = block_index();
    if (index >= push.block_count)
        return;
    uint places = (push.sizes[0] + ELEMENTS_PER_WORD - 1) / ELEMENTS_PER_WORD;
    uint row = divide_by_first(index, places);
    uint place = index - row * places;
    uint row_start = push.output_start;
    uint source = push.source_start;
    uint chunk = 0;
    [[unroll]] for (uint dimension = 1; dimension < 8; ++dimension) {
        if (dimension < RANK) {
            // What is left for the outermost dimension is its coordinate.
            uint rest = dimension + 1 < RANK ? divide_by_size(row, dimension) : 0;
            chunk = row - rest * push.sizes[dimension];
            row = rest;
            row_start += chunk * push.output_strides[dimension];
            source += chunk * push.source_strides[dimension];
        }
    }
    uint begin = AXIS_START + chunk * AXIS_CHUNK;
    uint count = min(push.grouping - chunk * AXIS_CHUNK, AXIS_CHUNK);
    uint rows_apart = push.output_strides[RANK - 1] / AXIS_CHUNK;
    if (ELEMENT_SIZE >= 4) {
        uint distance = hot_coordinate(source + place * push.source_strides[0]) - begin;
        write_elements(row_start + place, distance, count, rows_apart);
    } else {
        uvec2 distances = load_distances(source, place * ELEMENTS_PER_WORD, begin);
        write_parts(row_start, place, distances, count, rows_apart);
    }
}
