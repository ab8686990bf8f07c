// SLICE1: output[c] = input[start + stride * c]
//
// Maths. The window's offsets, sizes and strides are folded into a start and a signed source stride for each dimension by
// the planner, together with the tensors' own strides; what is left is a strided copy of bits.
//
// Loop structure. See loop_nest.glsl: one invocation writes one 16-byte block of the output.
//   - Where rows are consecutive in the input, forwards or backwards, a block is read as up to five words a row and shifted
//     into place: this is the way of windows and reversals at any misalignment.
//   - Otherwise elements are gathered one by one, carrying from row to row.
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
    if (!find_block(block_index(), block))
        return;
    uint stride = innermost_source_stride();
    bool forwards = stride == 1 || ELEMENTS_PER_BLOCK == 1;
    bool backwards = stride == 0xFFFFFFFFu;
    uvec4 value;
    if (!forwards && !backwards)
        value = gather(block);
    else if (!is_whole(block) || !is_in_one_row(block))
        value = load_rows(block, !forwards);
    else if (forwards)
        value = load_consecutive(block.cursor.source);
    else
        value = reverse_elements(load_consecutive(block.cursor.source - (ELEMENTS_PER_BLOCK - 1)));
    store_block(block, value);
}
