#version 460

// ELEMENT_WISE_QUANTIZED_LINEAR_ADD: y = saturated(nearest_even(fma(a, ra, fma(b, rb, k))))
//
// Maths: table.glsl, which makes a table of the output for each pair of bytes, and sums.glsl. The table is exact, but
// reading it takes 1.4 times as long as a copy on an NVIDIA H100. CPU drivers take both branches for each group of lanes,
// so there the table alone is faster.
//
// Loops: an invocation writes a unit of 16 bytes: element_wise/loop_nest.glsl.
//
// Layout: the table with what precedes it is the third tensor of the nest, which does not step.
//
// Preconditions: output elements do not overlap.
#extension GL_GOOGLE_include_directive : require
#define UNIT 16
#include "element_wise/loop_nest.glsl"
layout(constant_id = FIRST_OWN_CONSTANT) const bool HAS_FLOATS = false;
layout(constant_id = FIRST_OWN_CONSTANT + 1) const uint SUM_UNSIGNED_TYPES = 0;  // bits 0 to 2: A, B, output
const bool HAS_SECOND = true;
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

layout(set = 0, binding = 3) readonly buffer Table { uint sum_table_words[]; };
layout(set = 0, binding = 3) readonly buffer Record { vec4 sum_records[]; };

uint sum_table_start() {
    return push.starts.w;
}

#include "sums.glsl"

vec4 record;

void prepare() {
    record = sum_records[push.starts.w / 16];
}

#define IS_QUICK (!HAS_FLOATS || record.w != 0.0)

uint combine_quickly(uint first, uint second, uvec4 third) {
    return HAS_FLOATS ? sums_in_floats(first, second, record) : sums_from_table(first, second);
}

uint combine(uint first, uint second, uvec4 third) {
    return sums_from_table(first, second);
}

#include "element_wise/bytes_to_bytes.glsl"
