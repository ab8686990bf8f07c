// SLICE1: output[c] = input[start + stride * c]
//
// Maths. The window's offsets, sizes and strides are folded into a start and a signed source stride for each dimension by
// the planner, together with the tensors' own strides; what is left is a strided copy of bits.
//
// Loop structure. See loop_nest.glsl: one invocation writes one 16-byte block of the output.
//   - Where the block's elements are consecutive in the input, forwards or backwards, they are read as up to five words
//     and shifted into place: this is the way of windows and reversals at any misalignment.
//   - Otherwise they are gathered one by one, carrying from row to row where a block spans several short rows.
//
// Layout. Dimensions are sorted by output stride, so that neighbouring invocations write neighbouring blocks. The planner
// merges dimensions that step together and widens elements (up to 16 bytes) where a run allows it.
//
// Preconditions. Output elements do not overlap; the source window holds every element that is read.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "loop_nest.glsl"
#define OUTPUT_BINDING 0
#include "output_block.glsl"
#define SOURCE_BINDING 1
#include "source_elements.glsl"
#include "gather.glsl"

uint element_word(Cursor cursor, uint part) {
    return load_element_word(cursor.source, part);
}

void main() {
    Block block;
    if (!find_block(block))
        return;
    uint stride = innermost_source_stride();
    uvec4 value;
    if (is_whole(block) && is_in_one_row(block) && stride == 1)
        value = load_consecutive(block.cursor.source);
    else if (is_whole(block) && is_in_one_row(block) && stride == 0xFFFFFFFFu)
        value = reverse_elements(load_consecutive(block.cursor.source - (ELEMENTS_PER_BLOCK - 1)));
    else
        value = gather(block);
    store_block(block, value);
}
