// A whole kernel of an element-wise operator on one or two tensors of 32-bit words.
//
// The kernel defines, before it includes this file, uvec4 operation(uvec4 first, uvec4 second): four elements of the output
// from those of the two tensors; of one tensor, the second ones are 0.
//
// Loops: an invocation writes a unit of 16 bytes: element_wise/loop_nest.glsl.
#define UNIT 4
#include "element_wise/loop_nest.glsl"
layout(constant_id = FIRST_OWN_CONSTANT) const bool HAS_SECOND = false;
#include "element_wise/output_words.glsl"
#define OPERAND first
#define BINDING 1
#define STEP FIRST_STEP
#define STRIDE push.strides[0].y
#include "element_wise/words.glsl"
#define OPERAND second
#define BINDING 2
#define STEP SECOND_STEP
#define STRIDE push.strides[0].z
#include "element_wise/words.glsl"

void main() {
    Unit unit;
    if (!find_unit(unit))
        return;
    uvec4 first = uvec4(0);
    uvec4 second = uvec4(0);
    if (is_inside_row(unit)) {
        first = first_unit(unit.offsets.y);
        if (HAS_SECOND)
            second = second_unit(unit.offsets.z);
    } else {
        Unit next = unit;
        [[unroll]] for (uint slot = 0; slot < 4; ++slot) {
            uint element = unit.start + slot;
            if (element >= unit.first && element < unit.last) {
                first[slot] = first_words[next.offsets.y];
                if (HAS_SECOND)
                    second[slot] = second_words[next.offsets.z];
                if (element + 1 < unit.last)
                    advance(next);
            }
        }
    }
    store_unit(unit, operation(first, second));
}
