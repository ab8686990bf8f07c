#version 460

// ONE_HOT: output = (index == coordinate along the axis) ? on : off, for an output that runs along the indices.
//
// Loops: one invocation loads the indices of a block's elements, all of them before it uses the first. For each index
// it computes the distance from the chunk's first coordinate to the hot coordinate. Then it writes a 16-byte block for
// each of AXIS_CHUNK coordinates along the axis. 8-bit elements are compared four at a time, 16-bit elements two at a
// time.
// Layout: blocks are counted by rows (data_movement/loop_nest.glsl). The outermost dimension counts chunks.
// Preconditions: all rows begin and end with blocks. Further preconditions, and the maths in full: element.glsl.

#extension GL_GOOGLE_include_directive : require
#define BY_ROWS
#define IN_CHUNKS
#include "element.glsl"

const uint OWN_WORDS = ELEMENTS_PER_BLOCK * INDEX_WORDS;

// Loads the indices of a block's elements, as vectors if they are contiguous. Word by word, each load of a subgroup
// would touch as many cache lines as the subgroup has invocations.
void load_indices(uint index, out uint words[OWN_WORDS]) {
    uint first = index * INDEX_WORDS;
    if (OWN_WORDS % 4 == 0 && push.source_strides[0] == 1 && first % 4 == 0) {
        [[unroll]] for (uint i = 0; i < OWN_WORDS / 4; ++i) {
            uvec4 vector = index_vectors[first / 4 + i];
            [[unroll]] for (uint j = 0; j < 4; ++j)
                words[min(4 * i + j, OWN_WORDS - 1)] = vector[j];
        }
    } else {
        [[unroll]] for (uint i = 0; i < OWN_WORDS; ++i)
            words[i] = index_words[first + i / INDEX_WORDS * push.source_strides[0] * INDEX_WORDS + i % INDEX_WORDS];
    }
}

void main() {
    Block block;
    if (!find_block(block_index(), block))
        return;
    uint chunk = RANK == 0 ? 0 : block.cursor.coordinates[RANK - 1];
    uint vectors_apart = RANK == 0 ? 0 : push.output_strides[RANK - 1] / ELEMENTS_PER_BLOCK / AXIS_CHUNK;
    uint begin = AXIS_START + chunk * AXIS_CHUNK;
    uint count = min(push.grouping - chunk * AXIS_CHUNK, AXIS_CHUNK);
    // For elements smaller than a word: the distance, with the highest bit of the element set.
    const uint HIGHEST_BITS = ELEMENT_SIZE == 1 ? 0x80808080u : ELEMENT_SIZE == 2 ? 0x80008000u : 0;
    uvec4 distances = uvec4(HIGHEST_BITS);
    uint indices[OWN_WORDS];
    load_indices(block.cursor.source, indices);
    [[unroll]] for (uint i = 0; i < ELEMENTS_PER_BLOCK; ++i) {
        uint hot = hot_coordinate(indices[i * INDEX_WORDS], indices[i * INDEX_WORDS + INDEX_WORDS - 1]);
        uint distance = hot - begin;
        if (ELEMENT_SIZE >= 4) {
            [[unroll]] for (uint part = 0; part < WORDS_PER_ELEMENT; ++part)
                distances[min(i * WORDS_PER_ELEMENT + part, 3)] = distance;
        } else {
            distances[i / ELEMENTS_PER_WORD] |= min(distance, ELEMENT_MASK >> 1)
                << (i % ELEMENTS_PER_WORD * ELEMENT_BITS);
        }
    }
    uvec4 off_block = repeat_element(value_word(false, 0), value_word(false, WORDS_PER_ELEMENT - 1));
    uvec4 on_block = repeat_element(value_word(true, 0), value_word(true, WORDS_PER_ELEMENT - 1));
    uvec4 difference = off_block ^ on_block;
    uint vector = block.start / ELEMENTS_PER_BLOCK;
    for (uint i = 0; i < count; ++i, vector += vectors_apart) {
        if (ELEMENT_SIZE >= 4) {
            output_vectors[vector] = mix(off_block, on_block, equal(distances, uvec4(i)));
        } else {
            // An element's highest bit is cleared when its distance falls below 0. No element borrows from another.
            uvec4 next = distances - repeat_element(1, 0);
            uvec4 passed = (distances & ~next & HIGHEST_BITS) >> (ELEMENT_BITS - 1);
            output_vectors[vector] = off_block ^ passed * (difference.x & ELEMENT_MASK);
            distances = next;
        }
    }
}
