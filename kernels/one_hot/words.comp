#version 460

// ONE_HOT: output = (index == coordinate along the axis) ? on : off, for an output that runs along the indices in rows
// that begin anywhere in a 16-byte block.
//
// Loops: as in chunks.comp, but an invocation writes a word in place of a block, or an element if it is larger than a
// word. Rows of 8-bit or 16-bit elements begin anywhere in a word, at another place for each coordinate along the
// axis, so that a word holds other elements each time. An invocation loads the indices of all elements that can come
// into its word. They give two words of values for each coordinate; the word to be written is shifted out of these
// two.
// Layout: words are counted along rows. Rows are counted along all other dimensions; the outermost one counts chunks.
// Preconditions: a row is at least a word long. Further preconditions, and the maths in full: element.glsl.

#extension GL_GOOGLE_include_directive : require
#define IN_CHUNKS
#include "element.glsl"

layout(set = 0, binding = OUTPUT_BINDING) buffer OutputPairs { uvec2 output_pairs[]; };

const uint HIGHEST_BITS = ELEMENT_SIZE == 1 ? 0x80808080u : 0x80008000u;

// The distances from `begin` to the hot coordinates of the row's elements from `first` on, each with the highest bit
// of the element set. Past the row's end, the last element is repeated, and its distance is not used.
uvec2 load_distances(uint source, uint first, uint begin) {
    uvec2 distances = uvec2(HIGHEST_BITS);
    [[unroll]] for (uint i = 0; i < 2 * ELEMENTS_PER_WORD - 1; ++i) {
        uint element = min(first + i, push.sizes[0] - 1);
        uint distance = hot_coordinate(source + element * push.source_strides[0]) - begin;
        distances[i / ELEMENTS_PER_WORD] |= min(distance, ELEMENT_MASK >> 1) << (i % ELEMENTS_PER_WORD * ELEMENT_BITS);
    }
    return distances;
}

// For elements of one or two words.
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

// For 8-bit and 16-bit elements.
void write_parts(uint row_start, uint place, uvec2 distances, uint count, uint rows_apart) {
    uint first = place * ELEMENTS_PER_WORD;
    uint off = value_word(false, 0);
    uint difference = off ^ value_word(true, 0);
    uint off_word = repeat_element(off, 0).x;
    for (uint i = 0; i < count; ++i, row_start += rows_apart) {
        // An element's highest bit is cleared when its distance falls below 0. No element borrows from another.
        uvec2 next = distances - repeat_element(1, 0).x;
        uvec2 passed = (distances & ~next & HIGHEST_BITS) >> (ELEMENT_BITS - 1);
        distances = next;
        uvec2 values = off_word ^ passed * difference;
        // Elements of the row before its first whole word.
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
            // The outermost dimension needs no division: its coordinate is the rest.
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
