// ONE_HOT: output[c] = (index(c without its axis) == c[axis]) ? on value : off value
//
// Maths. All 32 or 64 bits of an index count. If the type is signed and the index negative, the depth, which is the
// output's size along the axis, is added once. An index that is then outside [0, depth) matches no coordinate. Only 32
// bits are compared, after the upper word was found to be zero, so that 2^32 + 1 is out of range and not 1.
//
// Loop structure. See data_movement/loop_nest.glsl. An element waits long for its index from memory, so each index is
// loaded as few times as possible. Each kernel that includes this file does so in its own way.
//
// Layout. Dimensions are sorted by output stride. Source strides are those of the indices, 0 along the axis. OnValue
// and OffValue have a window each, because any distance may lie between them. In kernels that define IN_CHUNKS, the
// outermost dimension counts chunks of AXIS_CHUNK coordinates along the axis, and push.grouping is the size of the
// axis.
//
// Preconditions. Output elements do not overlap. AXIS_CHUNK is at most 127. Only the last chunk may be shorter.
#include "data_movement/loop_nest.glsl"
#define OUTPUT_BINDING 0
#include "data_movement/output_block.glsl"

layout(set = 0, binding = 1) readonly buffer Indices { uint index_words[]; };
layout(set = 0, binding = 1) readonly buffer IndexVectors { uvec4 index_vectors[]; };
layout(set = 0, binding = 2) readonly buffer OffValue { uint off_value_words[]; };
layout(set = 0, binding = 3) readonly buffer OnValue { uint on_value_words[]; };

layout(constant_id = 7) const uint AXIS_DIMENSION = NO_DIMENSION;
layout(constant_id = 8) const uint INDEX_WORDS = 1;  // 32-bit words of an index: 1 or 2
layout(constant_id = 9) const bool INDEX_IS_SIGNED = false;
#ifdef IN_CHUNKS
layout(constant_id = 10) const uint AXIS_CHUNK = 1;  // coordinates along the axis that an invocation writes
#endif

#define OFF_VALUE_START push.arguments[0]
#define ON_VALUE_START push.arguments[1]
#define AXIS_START push.arguments[2]  // coordinate along the axis where this dispatch begins
#define DEPTH push.arguments[3]

const uint NOWHERE = 0xFFFFFFFFu;  // no coordinate: sizes are at most 2^32 - 1

// The coordinate along the axis that an index selects, or NOWHERE. The second word is ignored if an index has only one.
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

// A mask with ones in the bytes of element number `slot` of a block.
uvec4 slot_mask(uint slot) {
    uvec4 word = uvec4(0, 1, 2, 3);
    if (ELEMENT_SIZE >= 4)
        return mix(uvec4(0), uvec4(0xFFFFFFFFu), equal(word / WORDS_PER_ELEMENT, uvec4(slot)));
    uint mask = ELEMENT_MASK << (slot % ELEMENTS_PER_WORD * ELEMENT_BITS);
    return mix(uvec4(0), uvec4(mask), equal(word, uvec4(slot / ELEMENTS_PER_WORD)));
}
