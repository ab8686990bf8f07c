// ONE_HOT: output[c] = (index(c without its axis) == c[axis]) ? on value : off value
//
// Maths. An index counts with all of its 64 bits (or 32, as its type has them). A negative one of a signed type has the
// depth, the output's size along the axis, added once; what is not in [0, depth) then matches nothing. The comparison is
// made on 32 bits after the upper word has been seen to be zero, so that 2^32 + 1 is out of range and not 1.
//
// Loop structure. See loop_nest.glsl; an invocation writes BLOCKS_PER_INVOCATION 16-byte blocks of the output, a workgroup's
// width apart, because the index that decides about a block comes after a long wait for memory: several waits overlap, and
// blocks of one row share one. Where the axis is innermost a block has one index, and at most one hot element; otherwise
// each element loads its own.
//
// Layout. Dimensions are sorted by output stride; source strides are those of the indices, 0 along the axis. OnValue and
// OffValue are bound as windows of their own, because any distance may lie between them.
//
// Preconditions. Output elements do not overlap.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "loop_nest.glsl"
#define OUTPUT_BINDING 0
#include "output_block.glsl"
#include "gather.glsl"

layout(set = 0, binding = 1) readonly buffer Indices { uint index_words[]; };
layout(set = 0, binding = 2) readonly buffer OffValue { uint off_value_words[]; };
layout(set = 0, binding = 3) readonly buffer OnValue { uint on_value_words[]; };

layout(constant_id = 4) const uint AXIS_DIMENSION = NO_DIMENSION;
layout(constant_id = 5) const uint INDEX_WORDS = 1;  // 32-bit words an index: 1 or 2
layout(constant_id = 6) const bool INDEX_IS_SIGNED = false;
layout(constant_id = 7) const uint BLOCKS_PER_INVOCATION = 1;

#define OFF_VALUE_START push.arguments[0]
#define ON_VALUE_START push.arguments[1]
#define AXIS_START push.arguments[2]  // coordinate along the axis where this dispatch begins
#define DEPTH push.arguments[3]

const uint NOWHERE = 0xFFFFFFFFu;  // no coordinate: sizes are at most 2^32 - 1

// The coordinate along the axis that an index stands for, or NOWHERE.
uint hot_coordinate(uint index) {
    uint low = index_words[index * INDEX_WORDS];
    uint high = INDEX_WORDS == 2 ? index_words[index * 2 + 1] : (INDEX_IS_SIGNED && int(low) < 0 ? 0xFFFFFFFFu : 0);
    if (INDEX_IS_SIGNED && int(high) < 0) {
        uint carry;
        low = uaddCarry(low, DEPTH, carry);
        high += carry;
    }
    return high == 0 && low < DEPTH ? low : NOWHERE;
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

// All ones in the bytes of a block's element number `slot`.
uvec4 slot_mask(uint slot) {
    uvec4 word = uvec4(0, 1, 2, 3);
    if (ELEMENT_SIZE >= 4)
        return mix(uvec4(0), uvec4(0xFFFFFFFFu), equal(word / WORDS_PER_ELEMENT, uvec4(slot)));
    uint mask = ELEMENT_MASK << (slot % ELEMENTS_PER_WORD * ELEMENT_BITS);
    return mix(uvec4(0), uvec4(mask), equal(word, uvec4(slot / ELEMENTS_PER_WORD)));
}

void main() {
    uvec4 off_block = repeat_element(value_word(false, 0), value_word(false, WORDS_PER_ELEMENT - 1));
    uint source = NOWHERE;  // of the index that `hot` stands for
    uint hot = NOWHERE;
    uint index = workgroup_index() * gl_WorkGroupSize.x * BLOCKS_PER_INVOCATION + gl_LocalInvocationID.x;
    for (uint i = 0; i < BLOCKS_PER_INVOCATION; ++i, index += gl_WorkGroupSize.x) {
        Block block;
        if (!find_block(index, block))
            continue;
        uvec4 value = off_block;
        if (AXIS_DIMENSION == 0 && is_in_one_row(block)) {
            if (block.cursor.source != source) {
                source = block.cursor.source;
                hot = hot_coordinate(source);
            }
            // An unsigned distance: a hot coordinate before the block is far away, and so is NOWHERE, past every size.
            uint distance = hot - axis_coordinate(block.cursor);
            if (distance < block.last - block.first) {
                uvec4 mask = slot_mask(block.first - block.start + distance);
                uvec4 on_block = repeat_element(value_word(true, 0), value_word(true, WORDS_PER_ELEMENT - 1));
                value = (value & ~mask) | (on_block & mask);
            }
        } else {
            value = gather(block);
        }
        store_block(block, value);
    }
}
