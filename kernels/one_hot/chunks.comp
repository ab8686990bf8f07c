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

// With 1 or DISTANCE_WORDS, the workgroup loads the indices of all of its blocks together, by way of shared memory. Its
// invocations then load vectors that follow each other. Those of 16 indices of 64 bits lie a line apart for each
// invocation: a load of a subgroup touches 32 lines, and by the time of the next load other subgroups have taken their
// places in the cache. With more than 1, so many invocations share a block: each loads fewer indices, and writes a part
// of the block's chunk. With 0, each invocation loads the indices of its own block.
layout(constant_id = 11) const uint PARTS = 0;

const uint DISTANCES = ELEMENTS_PER_WORD;  // in a word: the smaller of the elements' and the word's size
const uint DISTANCE_WORDS = ELEMENTS_PER_BLOCK / DISTANCES;  // of a block
const uint LOADED_WORDS = DISTANCES * INDEX_WORDS;  // of the indices for a word of distances
// For elements smaller than a word: the distance, with the highest bit of the element set.
const uint HIGHEST_BITS = ELEMENT_SIZE == 1 ? 0x80808080u : ELEMENT_SIZE == 2 ? 0x80008000u : 0;

const bool SHARES_INDICES = PARTS != 0;
const uint BLOCKS = PARTS > 1 ? gl_WorkGroupSize.x / PARTS : gl_WorkGroupSize.x;  // of a workgroup
const uint WORDS = PARTS > 1 ? DISTANCE_WORDS / PARTS : DISTANCE_WORDS;  // of distances for an invocation to load
// Of each block: its first index, or NOWHERE, and its first coordinate along the axis.
shared uvec2 blocks[SHARES_INDICES ? BLOCKS : 1];
shared uint shared_distances[SHARES_INDICES ? BLOCKS * DISTANCE_WORDS : 1];

// Loads the indices for a word of distances, as vectors if they are contiguous.
void load_indices(uint index, out uint words[LOADED_WORDS]) {
    uint first = index * INDEX_WORDS;
    if (LOADED_WORDS % 4 == 0 && push.source_strides[0] == 1 && first % 4 == 0) {
        [[unroll]] for (uint i = 0; i < LOADED_WORDS / 4; ++i) {
            uvec4 vector = index_vectors[first / 4 + i];
            [[unroll]] for (uint j = 0; j < 4; ++j)
                words[min(4 * i + j, LOADED_WORDS - 1)] = vector[j];
        }
    } else {
        [[unroll]] for (uint i = 0; i < LOADED_WORDS; ++i)
            words[i] = index_words[first + i / INDEX_WORDS * push.source_strides[0] * INDEX_WORDS + i % INDEX_WORDS];
    }
}

// The distances from `begin` to the hot coordinates of some indices, in a word.
uint packed_distances(uint words[LOADED_WORDS], uint begin) {
    uint packed = HIGHEST_BITS;
    [[unroll]] for (uint i = 0; i < DISTANCES; ++i) {
        uint hot = hot_coordinate(words[i * INDEX_WORDS], words[i * INDEX_WORDS + INDEX_WORDS - 1]);
        uint distance = hot - begin;
        if (ELEMENT_SIZE >= 4)
            return distance;
        packed |= min(distance, ELEMENT_MASK >> 1) << (i * ELEMENT_BITS & 31);
    }
    return packed;
}

// With one part there is nothing to compute: with a remainder and a branch, 256 MiB took 11% longer (H200).
uint block_of_workgroup() {
    return PARTS > 1 ? gl_LocalInvocationID.x % BLOCKS : gl_LocalInvocationID.x;
}

// Words of distances whose indices an invocation loads at a time. With more, the indices would take so many registers
// that fewer subgroups find room beside each other.
const uint TOGETHER = WORDS * LOADED_WORDS > 16 ? 16 / LOADED_WORDS : WORDS;

// The words of distances of an invocation's block, which is as in blocks[].
void load_distances(uvec2 block, out uint distances[DISTANCE_WORDS]) {
    uint indices[TOGETHER][LOADED_WORDS];
    if (!SHARES_INDICES) {
        [[unroll]] for (uint first = 0; first < DISTANCE_WORDS; first += TOGETHER) {
            [[unroll]] for (uint i = 0; i < TOGETHER; ++i)
                load_indices(block.x + (first + i) * DISTANCES * push.source_strides[0], indices[i]);
            [[unroll]] for (uint i = 0; i < TOGETHER; ++i)
                distances[first + i] = packed_distances(indices[i], block.y);
        }
        return;
    }
    if (PARTS == 1 || gl_LocalInvocationID.x < BLOCKS)
        blocks[gl_LocalInvocationID.x] = block;
    barrier();
    [[dont_unroll]] for (uint first = 0; first < WORDS; first += TOGETHER) {
        [[unroll]] for (uint i = 0; i < TOGETHER; ++i) {
            uint word = (first + i) * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
            uint index = blocks[word / DISTANCE_WORDS].x;
            if (index != NOWHERE)
                load_indices(index + word % DISTANCE_WORDS * DISTANCES * push.source_strides[0], indices[i]);
        }
        [[unroll]] for (uint i = 0; i < TOGETHER; ++i) {
            uint word = (first + i) * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
            shared_distances[word] = packed_distances(indices[i], blocks[word / DISTANCE_WORDS].y);
        }
    }
    barrier();
    [[unroll]] for (uint i = 0; i < DISTANCE_WORDS; ++i)
        distances[i] = shared_distances[block_of_workgroup() * DISTANCE_WORDS + i];
}

void main() {
    Block block;
    bool has_block = find_block(workgroup_index() * BLOCKS + block_of_workgroup(), block);
    if (!SHARES_INDICES && !has_block)
        return;
    uint chunk = RANK == 0 ? 0 : block.cursor.coordinates[RANK - 1];
    uint vectors_apart = RANK == 0 ? 0 : push.output_strides[RANK - 1] / ELEMENTS_PER_BLOCK / AXIS_CHUNK;
    uint begin = AXIS_START + chunk * AXIS_CHUNK;
    uint count = min(push.grouping - chunk * AXIS_CHUNK, AXIS_CHUNK);
    uint words[DISTANCE_WORDS];
    load_distances(uvec2(has_block ? block.cursor.source : NOWHERE, begin), words);
    if (!has_block)
        return;
    uvec4 distances;
    [[unroll]] for (uint i = 0; i < 4; ++i)
        distances[i] = words[i * DISTANCE_WORDS / 4];
    uvec4 off_block = repeat_element(value_word(false, 0), value_word(false, WORDS_PER_ELEMENT - 1));
    uvec4 on_block = repeat_element(value_word(true, 0), value_word(true, WORDS_PER_ELEMENT - 1));
    uvec4 difference = off_block ^ on_block;
    uint first = 0;
    uint last = count;
    if (PARTS > 1) {
        const uint of_part = (AXIS_CHUNK + PARTS - 1) / PARTS;
        first = gl_LocalInvocationID.x / BLOCKS * of_part;
        last = min(first + of_part, count);
        // The highest bit of an element that comes before the part is cleared, and it is never hot.
        distances -= repeat_element(first, 0);
    }
    uint vector = block.start / ELEMENTS_PER_BLOCK + first * vectors_apart;
    for (uint i = first; i < last; ++i, vector += vectors_apart) {
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
