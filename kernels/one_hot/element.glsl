// ONE_HOT: output[c] = (index(c without its axis) == c[axis]) ? on value : off value
//
// Maths. An index counts with all of its 64 bits (or 32, as its type has them). A negative one of a signed type has the
// depth, the output's size along the axis, added once; what is not in [0, depth) then matches nothing. The comparison is
// made on 32 bits after the upper word has been seen to be zero, so that 2^32 + 1 is out of range and not 1.
//
// Loop structure. See data_movement/loop_nest.glsl. The index that decides about an element comes after a long wait for memory, so that
// each index is loaded as seldom as can be: each kernel that includes this has a way of its own.
//
// Layout. Dimensions are sorted by output stride; source strides are those of the indices, 0 along the axis. OnValue and
// OffValue are bound as windows of their own, because any distance may lie between them. In kernels that define IN_CHUNKS,
// the outermost dimension counts chunks of AXIS_CHUNK coordinates along the axis, and push.grouping is the axis's size.
//
// Preconditions. Output elements do not overlap. AXIS_CHUNK is at most 127, and no chunk but the last is short.
#include "data_movement/loop_nest.glsl"
#define OUTPUT_BINDING 0
#include "data_movement/output_block.glsl"

layout(set = 0, binding = 1) readonly buffer Indices { uint index_words[]; };
layout(set = 0, binding = 1) readonly buffer IndexVectors { uvec4 index_vectors[]; };
layout(set = 0, binding = 2) readonly buffer OffValue { uint off_value_words[]; };
layout(set = 0, binding = 3) readonly buffer OnValue { uint on_value_words[]; };

layout(constant_id = 7) const uint AXIS_DIMENSION = NO_DIMENSION;
layout(constant_id = 8) const uint INDEX_WORDS = 1;  // 32-bit words an index: 1 or 2
layout(constant_id = 9) const bool INDEX_IS_SIGNED = false;
#ifdef IN_CHUNKS
layout(constant_id = 10) const uint AXIS_CHUNK = 1;  // coordinates along the axis that an invocation writes
#endif

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

// One word of OffValue or OnValue.
uint value_word(bool hot, uint part) {
    uint start = hot ? ON_VALUE_START : OFF_VALUE_START;
    uint word = ELEMENT_SIZE < 4 ? start / ELEMENTS_PER_WORD : start * WORDS_PER_ELEMENT + part;
    uint bits = hot ? on_value_words[word] : off_value_words[word];
    return ELEMENT_SIZE < 4 ? bits >> (start % ELEMENTS_PER_WORD * ELEMENT_BITS) & ELEMENT_MASK : bits;
}
