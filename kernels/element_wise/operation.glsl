// A whole kernel of an element-wise operator on one or two tensors of bytes: its own file is a comment and an operation.
//
// The kernel defines, before it includes this file, OPERATION(first, second): four elements of the output in a word, from
// those of the two tensors; of one tensor, the second is 0. An operation without carries from one byte into the next is
// an expression; any other calls a function of the kernel.
//
// Loops: an invocation writes a unit of 16 bytes: element_wise/loop_nest.glsl.
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

void prepare() {
}

uint combine(uint first, uint second, uvec4 third) {
    return OPERATION(first, second);
}

#include "element_wise/bytes_to_bytes.glsl"
