// The last step of QUANTIZED_LINEAR_CONVOLUTION_ADD: four bytes of the convolution's output become four bytes of the sum.
//
// Maths: element_wise_quantized_linear_add/table.glsl. The addend's elements lie in its memory as those of the output do,
// so an address in the output is one in the addend, counted from another start.
//
// The record before the table is loaded with the first operands, by all invocations, and waits in shared memory until the
// last step: in registers it would lie there during all products.

layout(constant_id = LAST_STEP_CONSTANT) const uint SUM_UNSIGNED_TYPES = 0;  // bits 0 to 2: A, B, output

layout(set = 0, binding = 11) readonly buffer Addend { uint addend_words[]; };
layout(set = 0, binding = 11) readonly buffer AddendVectors { uvec4 addend_vectors[]; };
#ifdef MATRIX_UNITS
layout(set = 0, binding = 11) readonly buffer AddendBytes { uint8_t addend_bytes[]; };
#endif
layout(set = 0, binding = 12) readonly buffer SumTable { uint sum_table_words[]; };
layout(set = 0, binding = 12) readonly buffer SumRecord { uvec4 sum_records[]; };

// The highest bit of the push constant tells whether the addend is A, so that convolutions whose output is A or B share
// a pipeline: the first dispatch of each one waits for its code.
bool addend_comes_first() {
    return push.sum_table_start >> 31 != 0;
}

uint sum_record_place() {
    return push.sum_table_start & 0x7FFFFFFF;
}

uint sum_table_start() {
    return 16 * sum_record_place();
}

#include "element_wise_quantized_linear_add/sums.glsl"

shared uvec4 sum_record;
uvec4 fetched_sum_record;

void fetch_sum_record() {
    fetched_sum_record = sum_records[sum_record_place()];
}

// A barrier has to follow before the last step.
void begin_sum_record() {
    if (gl_LocalInvocationID.x == 0)
        sum_record = fetched_sum_record;
}

uint addend_address(uint address) {
    return address - push.output_start + push.addend_start;
}

// Whether the last step takes sums in floats. After a barrier.
bool takes_floats() {
    return uintBitsToFloat(sum_record.w) != 0.0;
}

// The sums of four bytes. `in_floats` is a constant: see sums.glsl.
uint added(uint word, uint addends, bool in_floats) {
    uint first = addend_comes_first() ? addends : word;
    uint second = addend_comes_first() ? word : addends;
    return in_floats ? sums_in_floats(first, second, uintBitsToFloat(sum_record)) : sums_from_table(first, second);
}

// A word whose bytes lie side by side, from an address in the output that is a multiple of 4.
#define WITH_ADDENDS(word, address, in_floats) added(word, addend_words[addend_address(address) / 4], in_floats)

// A word whose bytes lie at four addresses of the output.
uint with_addends_at(uint word, uvec4 address, bvec4 valid, bool in_floats) {
    uint addends = 0;
    [[unroll]] for (uint i = 0; i < 4; ++i) {
        uint at = addend_address(address[i]);
        if (valid[i])
            addends |= (addend_words[at / 4] >> (8 * (at % 4)) & 0xFF) << (8 * i);
    }
    return added(word, addends, in_floats);
}
