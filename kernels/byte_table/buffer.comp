#version 460

// BYTE_TABLE with tables that are read where they lie: output = table[input], or table[256 input + second input].
//
// Maths. An input's byte is an index from 0 to 255 by its bits: -1 in INT8 is 255, the last one. So any function of one
// or two bytes is exact by construction. With an axis, each index along it has a table of its own.
//
// Loops: an invocation writes a unit of 16 bytes: element_wise/loop_nest.glsl.
//
// Layout: a table is packed, and tables follow each other. They are the third tensor of the nest: its offset is where
// an element's table begins, and steps along the axis by a whole table. Tables stay in the cache, if they are small: 64
// KiB more than shared memory has on most devices.
//
// Preconditions: output elements do not overlap.
#extension GL_GOOGLE_include_directive : require
#define UNIT 16
#include "element_wise/loop_nest.glsl"
layout(constant_id = FIRST_OWN_CONSTANT) const bool HAS_SECOND = false;
#include "element_wise/output_bytes.glsl"
#define OPERAND first
#define BINDING 1
#define STEP FIRST_STEP
#define STRIDE push.strides[0].y
#include "element_wise/bytes.glsl"
#define OPERAND second
#define BINDING 2
#define STEP SECOND_STEP
#define STRIDE push.strides[0].z
#include "element_wise/bytes.glsl"

layout(set = 0, binding = 3) readonly buffer Table { uint table_words[]; };

void prepare() {
}

uint combine(uint first, uint second, uvec4 third) {
    uint value = 0;
    [[unroll]] for (uint slot = 0; slot < 4; ++slot) {
        uint place = third[slot] + (first >> (8 * slot) & 0xFF);
        if (HAS_SECOND)
            place = third[slot] + ((first >> (8 * slot) & 0xFF) << 8 | (second >> (8 * slot) & 0xFF));
        value |= (table_words[place / 4] >> (place % 4 * 8) & 0xFF) << (8 * slot);
    }
    return value;
}

#include "element_wise/bytes_to_bytes.glsl"
