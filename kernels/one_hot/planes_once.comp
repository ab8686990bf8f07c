#version 460

// ONE_HOT: output = (index == coordinate along the axis) ? on : off, for an output that runs along the indices.
//
// Loops: as in chunks.comp, but an invocation writes up to 32,767 coordinates along the axis, so that each index is read
// once where the axis is not longer. It can write several blocks at each coordinate, a workgroup's width apart.
// Why apart: few reads among many writes cost far more than their bytes. Here an invocation reads once, and then writes
// for long.
// Layout: the distances of 8-bit elements have 16 bits, those of even and odd elements apart. A workgroup writes
// neighbouring blocks of one row. Rows are counted along all other dimensions; the outermost one counts chunks.
// Preconditions: AXIS_CHUNK may be larger here. All rows begin and end with blocks. Further preconditions, and the maths
// in full: element.glsl.

#extension GL_GOOGLE_include_directive : require
#define IN_CHUNKS
#include "element.glsl"

layout(constant_id = 11) const uint WIDTH = 1;  // blocks that an invocation writes at each coordinate

const uint OWN_WORDS = ELEMENTS_PER_BLOCK * INDEX_WORDS;
// For elements smaller than a word.
const uint HIGHEST_BITS = 0x80008000u;
const uint LARGEST_DISTANCE = 0x7FFF;

// The distances from the chunk's first coordinate to the hot coordinates of a block's elements. For 8-bit elements,
// those of the even elements and those of the odd ones; for 16-bit elements the even ones are all there are. For smaller
// elements than a word, the highest bit is set.
struct Distances {
    uvec4 even;
    uvec4 odd;
};

Distances load_distances(uint index, uint begin) {
    uint words[OWN_WORDS];
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
    Distances distances = Distances(uvec4(HIGHEST_BITS), uvec4(HIGHEST_BITS));
    [[unroll]] for (uint i = 0; i < ELEMENTS_PER_BLOCK; ++i) {
        uint distance = hot_coordinate(words[i * INDEX_WORDS], words[i * INDEX_WORDS + INDEX_WORDS - 1]) - begin;
        if (ELEMENT_SIZE >= 4) {
            [[unroll]] for (uint part = 0; part < WORDS_PER_ELEMENT; ++part)
                distances.even[min(i * WORDS_PER_ELEMENT + part, 3)] = distance;
        } else {
            uint word = i / ELEMENTS_PER_WORD;
            uint slot = i % ELEMENTS_PER_WORD;
            uint bits = min(distance, LARGEST_DISTANCE);
            if (ELEMENT_SIZE == 2)
                distances.even[word] |= bits << (slot * 16);
            else if (slot % 2 == 0)
                distances.even[word] |= bits << (slot * 8);
            else
                distances.odd[word] |= bits << (slot * 8 - 8);
        }
    }
    return distances;
}

// The elements of 16 bits whose distance is 0, as 1; all distances become less by one. No element borrows from another.
uvec4 passed(inout uvec4 distances) {
    uvec4 next = distances - 0x00010001;
    uvec4 bits = distances & ~next & HIGHEST_BITS;
    distances = next;
    return bits >> 15;
}

void main() {
    uint group = workgroup_index();
    if (group >= push.block_count)
        return;
    uint blocks_of_row = push.sizes[0] / ELEMENTS_PER_BLOCK;
    uint width = WIDTH * gl_WorkGroupSize.x;
    uint pieces_of_row = (blocks_of_row + width - 1) / width;
    uint row = divide_by_first(group, pieces_of_row);
    uint first = (group - row * pieces_of_row) * width + gl_LocalInvocationID.x;
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
    uint vectors_apart = push.output_strides[RANK - 1] / ELEMENTS_PER_BLOCK / AXIS_CHUNK;
    uvec4 off_block = repeat_element(value_word(false, 0), value_word(false, WORDS_PER_ELEMENT - 1));
    uvec4 on_block = repeat_element(value_word(true, 0), value_word(true, WORDS_PER_ELEMENT - 1));
    uint difference = (off_block.x ^ on_block.x) & ELEMENT_MASK;

    Distances distances[WIDTH];
    [[unroll]] for (uint w = 0; w < WIDTH; ++w) {
        uint block = min(first + w * gl_WorkGroupSize.x, blocks_of_row - 1);
        distances[w] = load_distances(source + block * ELEMENTS_PER_BLOCK * push.source_strides[0], begin);
    }
    uint vector = row_start / ELEMENTS_PER_BLOCK + first;
    for (uint i = 0; i < count; ++i, vector += vectors_apart) {
        [[unroll]] for (uint w = 0; w < WIDTH; ++w) {
            uvec4 value;
            if (ELEMENT_SIZE >= 4) {
                value = mix(off_block, on_block, equal(distances[w].even, uvec4(i)));
            } else {
                uvec4 ones = passed(distances[w].even);
                if (ELEMENT_SIZE == 1)
                    ones |= passed(distances[w].odd) << 8;
                value = off_block ^ ones * difference;
            }
            if (first + w * gl_WorkGroupSize.x < blocks_of_row)
                output_vectors[vector + w * gl_WorkGroupSize.x] = value;
        }
    }
}
