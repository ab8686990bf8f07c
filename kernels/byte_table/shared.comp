#version 460

// BYTE_TABLE with one table of 256 bytes: output = table[input].
//
// Maths. An input's byte is an index from 0 to 255 by its bits: -1 in INT8 is 255, the table's last element. So any
// function of a byte is exact by construction.
//
// Loops: an invocation writes a unit of 16 bytes: element_wise/loop_nest.glsl. First the workgroup loads the table into
// shared memory, one element a word: an element is then one load without a shift, and a copy is not faster.
//
// Layout: the table is packed, the third tensor of the nest.
//
// Preconditions: output elements do not overlap. A workgroup has at most 256 invocations, or any number: they share the
// loads.
#extension GL_GOOGLE_include_directive : require
#define UNIT 16
#include "element_wise/loop_nest.glsl"
#include "element_wise/output_bytes.glsl"
const bool HAS_SECOND = false;
#define OPERAND first
#define BINDING 1
#define STEP FIRST_STEP
#define STRIDE push.strides[0].y
#include "element_wise/bytes.glsl"

layout(set = 0, binding = 2) readonly buffer Table { uint table_words[]; };

shared uint table[256];

uvec4 second_unit(uint offset) {
    return uvec4(0);
}

uint second_byte(uint offset) {
    return 0;
}

void prepare() {
    for (uint i = gl_LocalInvocationID.x; i < 256; i += gl_WorkGroupSize.x) {
        uint place = push.starts.w + i;
        table[i] = table_words[place / 4] >> (place % 4 * 8) & 0xFF;
    }
    barrier();
}

uint combine(uint first, uint second, uvec4 third) {
    return table[first & 0xFF] | table[first >> 8 & 0xFF] << 8 | table[first >> 16 & 0xFF] << 16
        | table[first >> 24] << 24;
}

#include "element_wise/bytes_to_bytes.glsl"
