#version 460

// ELEMENT_WISE_QUANTIZED_LINEAR_ADD, preparation: holds the sums in floats of all pairs of bytes against the table.
//
// Maths: sums.glsl.
//
// Loops: an invocation looks at four neighbouring bytes of the table, in either place of a word.
//
// Layout: the last word of the record before the table becomes 0 if a sum differs.
//
// Preconditions: the table is there, and that word is not 0.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint SUM_UNSIGNED_TYPES = 0;  // bits 0 to 2: A, B, output
const bool HAS_FLOATS = true;

layout(set = 0, binding = 0) buffer Table { uint sum_table_words[]; };
layout(set = 0, binding = 0) buffer Record { vec4 sum_records[]; };

layout(push_constant) uniform PushConstants {
    uint table_start;  // in vectors of 16 bytes
} push;

uint sum_table_start() {
    return 16 * push.table_start;
}

#include "sums.glsl"

const uint TABLE_WORDS = 16384;

// A word with its first two bytes exchanged, and its last two.
uint in_other_places(uint word) {
    return (word & 0x00FF00FF) << 8 | word >> 8 & 0x00FF00FF;
}

void main() {
    uint workgroup = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    uint index = workgroup * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (index >= TABLE_WORDS)
        return;
    uint second = (index << 2 & 0xFF) * 0x01010101u + 0x03020100u;
    uint first = (index >> 6) * 0x01010101u;
    vec4 record = sum_records[push.table_start];
    uint word = sum_table_words[4 * (push.table_start + 1) + index];
    if (sums_in_floats(first, second, record) != word
        || sums_in_floats(first, in_other_places(second), record) != in_other_places(word))
        sum_table_words[4 * push.table_start + 3] = 0;
}
