// ONE_HOT: output[c] = (index(c without its axis) == c[axis]) ? on value : off value
//
// Maths. An index counts with all of its 64 bits (or 32, as its type has them). A negative one of a signed type has the
// depth, the output's size along the axis, added once; what is not in [0, depth) then matches nothing. The comparison is
// made on 32 bits after the upper word has been seen to be zero, so that 2^32 + 1 is out of range and not 1.
//
// Loop structure. See loop_nest.glsl. The index that decides about a block comes after a long wait for memory, so that each
// index is loaded as seldom as can be:
//   - Where the axis is innermost a block has one index, and at most one hot element. An invocation writes several blocks
//     of one row after it has loaded the row's index.
//   - Where the output runs along the indices (IN_CHUNKS), an invocation loads a block's indices, keeps how far
//     each one's hot coordinate lies from the chunk's first, and then writes a block for each of AXIS_CHUNK coordinates
//     along the axis. Bytes and 16-bit elements are compared four or two at a time. All these indices are asked for before
//     anything is done with the first.
//   - In other layouts, and across rows, each element loads its own.
//
// Layout. Dimensions are sorted by output stride; source strides are those of the indices, 0 along the axis. OnValue and
// OffValue are bound as windows of their own, because any distance may lie between them. With chunks, the outermost
// dimension counts chunks of the axis, and push.grouping is the axis's size.
//
// Preconditions. Output elements do not overlap. With chunks, all rows begin and end with blocks, AXIS_CHUNK is at most
// 127, and no chunk but the last is short.
#include "loop_nest.glsl"
#define OUTPUT_BINDING 0
#include "output_block.glsl"
#include "gather.glsl"

layout(set = 0, binding = 1) readonly buffer Indices { uint index_words[]; };
layout(set = 0, binding = 1) readonly buffer IndexVectors { uvec4 index_vectors[]; };
layout(set = 0, binding = 2) readonly buffer OffValue { uint off_value_words[]; };
layout(set = 0, binding = 3) readonly buffer OnValue { uint on_value_words[]; };

layout(constant_id = 7) const uint AXIS_DIMENSION = NO_DIMENSION;
layout(constant_id = 8) const uint INDEX_WORDS = 1;  // 32-bit words an index: 1 or 2
layout(constant_id = 9) const bool INDEX_IS_SIGNED = false;
layout(constant_id = 10) const uint AXIS_CHUNK = 1;  // IN_CHUNKS: coordinates along the axis an invocation

#define OFF_VALUE_START push.arguments[0]
#define ON_VALUE_START push.arguments[1]
#define AXIS_START push.arguments[2]  // coordinate along the axis where this dispatch begins
#define DEPTH push.arguments[3]

const uint NOWHERE = 0xFFFFFFFFu;  // no coordinate: sizes are at most 2^32 - 1

// The coordinate along the axis that an index stands for, from its words, or NOWHERE. The second word counts where an
// index has one.
uint hot_coordinate(uint low, uint second) {
    uint high = INDEX_WORDS == 2 ? second : (INDEX_IS_SIGNED && int(low) < 0 ? 0xFFFFFFFFu : 0);
    if (INDEX_IS_SIGNED && int(high) < 0) {
        uint carry;
        low = uaddCarry(low, DEPTH, carry);
        high += carry;
    }
    return high == 0 && low < DEPTH ? low : NOWHERE;
}

uint hot_coordinate(uint index) {
    return hot_coordinate(
        index_words[index * INDEX_WORDS], INDEX_WORDS == 2 ? index_words[index * INDEX_WORDS + INDEX_WORDS - 1] : 0);
}

uint axis_coordinate(Cursor cursor) {
    uint coordinate = AXIS_START;
    [[unroll]] for (uint dimension = 0; dimension < 8; ++dimension)
        if (dimension == AXIS_DIMENSION)
            coordinate += cursor.coordinates[dimension];
    return coordinate;
}

// One word of OffValue or OnValue.
uint value_word(bool hot, uint part) {
    uint start = hot ? ON_VALUE_START : OFF_VALUE_START;
    uint word = ELEMENT_SIZE < 4 ? start / ELEMENTS_PER_WORD : start * WORDS_PER_ELEMENT + part;
    uint bits = hot ? on_value_words[word] : off_value_words[word];
    return ELEMENT_SIZE < 4 ? bits >> (start % ELEMENTS_PER_WORD * ELEMENT_BITS) & ELEMENT_MASK : bits;
}

uint element_word(Cursor cursor, uint part) {
    return value_word(hot_coordinate(cursor.source) == axis_coordinate(cursor), part);
}

#ifdef IN_CHUNKS
const uint OWN_WORDS = ELEMENTS_PER_BLOCK * INDEX_WORDS;

// The indices of a block's elements, in vectors where they lie side by side: word by word, each load of a subgroup touches
// as many lines of memory as it has invocations.
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

void write_blocks(Block block, uvec4 off_block) {
    // The loops' outermost dimension counts the chunks.
    uint chunk = RANK == 0 ? 0 : block.cursor.coordinates[RANK - 1];
    uint chunk_stride = RANK == 0 ? 0 : push.output_strides[RANK - 1] / ELEMENTS_PER_BLOCK;
    uint begin = AXIS_START + chunk * AXIS_CHUNK;
    uint count = min(push.grouping - chunk * AXIS_CHUNK, AXIS_CHUNK);
    // Elements smaller than a word: the distance, with the element's highest bit set.
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
            distances[i / ELEMENTS_PER_WORD] |=
                min(distance, ELEMENT_MASK >> 1) << (i % ELEMENTS_PER_WORD * ELEMENT_BITS);
        }
    }
    uvec4 on_block = repeat_element(value_word(true, 0), value_word(true, WORDS_PER_ELEMENT - 1));
    uvec4 difference = off_block ^ on_block;
    uint vector = block.start / ELEMENTS_PER_BLOCK;
    uint vectors_apart = chunk_stride / AXIS_CHUNK;
    for (uint i = 0; i < count; ++i, vector += vectors_apart) {
        if (ELEMENT_SIZE >= 4) {
            output_vectors[vector] = mix(off_block, on_block, equal(distances, uvec4(i)));
        } else {
            // An element's highest bit goes where its distance passes below 0; no element borrows from another one.
            uvec4 next = distances - repeat_element(1, 0);
            uvec4 passed = (distances & ~next & HIGHEST_BITS) >> (ELEMENT_BITS - 1);
            output_vectors[vector] = off_block ^ passed * (difference.x & ELEMENT_MASK);
            distances = next;
        }
    }
}
#else
// All ones in the bytes of a block's element number `slot`.
uvec4 slot_mask(uint slot) {
    uvec4 word = uvec4(0, 1, 2, 3);
    if (ELEMENT_SIZE >= 4)
        return mix(uvec4(0), uvec4(0xFFFFFFFFu), equal(word / WORDS_PER_ELEMENT, uvec4(slot)));
    uint mask = ELEMENT_MASK << (slot % ELEMENTS_PER_WORD * ELEMENT_BITS);
    return mix(uvec4(0), uvec4(mask), equal(word, uvec4(slot / ELEMENTS_PER_WORD)));
}

void write_blocks(Block block, uvec4 off_block) {
    if (AXIS_DIMENSION != 0 || !is_in_one_row(block)) {
        store_block(block, gather(block));
        return;
    }
    uint hot = hot_coordinate(block.cursor.source);
    do {
        uvec4 value = off_block;
        // An unsigned distance: a hot coordinate before the block is far away, and so is NOWHERE, past every size.
        uint distance = hot - axis_coordinate(block.cursor);
        if (distance < block.last - block.first) {
            uvec4 mask = slot_mask(block.first - block.start + distance);
            uvec4 on_block = repeat_element(value_word(true, 0), value_word(true, WORDS_PER_ELEMENT - 1));
            value = (value & ~mask) | (on_block & mask);
        }
        store_block(block, value);
    } while (find_next_block(block));
}
#endif

void main() {
    Block block;
    if (!find_block(block_index(), block))
        return;
    uvec4 off_block = repeat_element(value_word(false, 0), value_word(false, WORDS_PER_ELEMENT - 1));
    write_blocks(block, off_block);
}
