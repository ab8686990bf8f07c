#version 460

// ELEMENT_WISE_QUANTIZED_LINEAR_ADD: y = saturated(nearest_even(fma(a, ra, fma(b, rb, k))))
//
// Maths in full, and the bound of the estimate: table.glsl, which makes a table of the output for each pair of bytes,
// and ra, rb and k. The table is exact, but reading it takes 1.4 times as long as a copy on an NVIDIA H100. So the sum
// is computed in plain floats, and the nearest integer is taken where it is certain. If an element's estimate lies
// too near to the middle between two integers, it and its three neighbours are read from the table: of ordinary scales,
// one element in a thousand does. CPU drivers take every branch for each group of lanes, so there the table alone is
// faster.
//
// Loops: an invocation writes a unit of 16 bytes: element_wise/loop_nest.glsl.
//
// Layout: the table with what precedes it is the third tensor of the nest, which does not step.
//
// Preconditions: output elements do not overlap.
#extension GL_GOOGLE_include_directive : require
#define UNIT 16
#include "element_wise/loop_nest.glsl"
layout(constant_id = FIRST_OWN_CONSTANT) const bool HAS_ESTIMATE = false;
layout(constant_id = FIRST_OWN_CONSTANT + 1) const uint UNSIGNED_TYPES = 0;  // bits 0 to 2: A, B, output
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

layout(set = 0, binding = 3) readonly buffer Table { uint table_words[]; };
layout(set = 0, binding = 3) readonly buffer Record { vec4 factors[]; };

// Adding 1.5 * 2^23 leaves an integer in the lowest bits of a float. Not used to round, as in (sum + TO_INTEGER) -
// TO_INTEGER: SwiftShader makes `sum` of that in a loop that it unrolls, where it forgets that `precise` forbids it.
const float TO_INTEGER = 12582912.0;
const float LEAST = (UNSIGNED_TYPES & 4) != 0 ? 0.0 : -128.0;

float ra, rb, k, certain;

void prepare() {
    vec4 record = factors[push.starts.w / 16];
    ra = record.x;
    rb = record.y;
    k = record.z;
    certain = record.w;
}

float number(uint word, int first_bit, uint tensor) {
    return (UNSIGNED_TYPES >> tensor & 1) != 0 ? float(bitfieldExtract(word, first_bit, 8))
                                               : float(bitfieldExtract(int(word), first_bit, 8));
}

uint from_table(uint first, uint second) {
    uint value = 0;
    [[unroll]] for (uint slot = 0; slot < 32; slot += 8) {
        uint place = push.starts.w + 16 + ((first >> slot & 0xFF) << 8 | (second >> slot & 0xFF));
        value |= (table_words[place / 4] >> (place % 4 * 8) & 0xFF) << slot;
    }
    return value;
}

uint combine(uint first, uint second, uvec4 third) {
    if (!HAS_ESTIMATE)
        return from_table(first, second);
    float distance = 0.0;
    uint value = 0;
    [[unroll]] for (int slot = 0; slot < 32; slot += 8) {
        float sum = number(first, slot, 0) * ra + (number(second, slot, 1) * rb + k);
        sum = clamp(sum, LEAST, LEAST + 255.0);
        float integer = roundEven(sum);
        distance = max(distance, abs(sum - integer));
        value |= (floatBitsToUint(integer + TO_INTEGER) & 0xFF) << slot;
    }
    return distance < certain ? value : from_table(first, second);
}

#include "element_wise/bytes_to_bytes.glsl"
