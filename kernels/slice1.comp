// SLICE1: output[c] = input[start + stride * c]
//
// Maths. The window's offsets, sizes and strides are folded into a start and a signed source stride for each dimension by
// the planner, together with the tensors' own strides; what is left is a strided copy of bits.
//
// Loop structure. See loop_nest.glsl: one invocation writes one 16-byte block of the output.
//   - Where rows are consecutive in the input, forwards or backwards, a block is read as up to five words a row and shifted
//     into place: this is the way of windows and reversals at any misalignment.
//   - Every second element of 8 or 16 bits: twice as many bytes are read likewise, and every second element picked out.
//   - Other strides: element by element inside a row, without a thought for its end; carrying from row to row elsewhere.
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
    bool is_plain = is_whole(block) && is_in_one_row(block);
    uint source = block.cursor.source;
    uvec4 value;
    if (stride == 1 || ELEMENTS_PER_BLOCK == 1)
        value = is_plain ? load_consecutive(source) : load_rows(block, false);
    else if (stride == 0xFFFFFFFFu)
        value = is_plain ? reverse_elements(load_consecutive(source - (ELEMENTS_PER_BLOCK - 1))) : load_rows(block, true);
    else if (!is_plain)
        value = gather(block);
    else if (ELEMENT_SIZE < 4 && stride == 2)
        value = load_every_second(source);
    else if (ELEMENT_SIZE < 4 && stride == 0xFFFFFFFEu)
        value = reverse_elements(load_every_second(source - 2 * (ELEMENTS_PER_BLOCK - 1)));
    else
        value = load_strided(source, stride);
    store_block(block, value);
}
