// SLICE1: output[c] = input[start + stride * c]
//
// Maths. The planner folds the window's offsets, sizes and strides, and the tensors' own strides, into a start and a
// signed source stride for each dimension. What remains is a strided copy of bits.
//
// Loop structure. See data_movement/loop_nest.glsl: one invocation writes one 16-byte block of the output.
//   - Rows that are consecutive in the input, forwards or backwards: a block is read as up to five words a row and
//     shifted into place. Windows and reversals are copied in this way at any misalignment.
//   - Every second element of 8 or 16 bits: twice as many bytes are read in the same way, and every second element is
//     kept.
//   - Other strides: a block inside a row is read element by element, without a test for the row's end. In other
//     blocks, coordinates carry from row to row.
//
// Layout. Dimensions are sorted by output stride, so that neighbouring invocations write neighbouring blocks. The
// planner merges dimensions that step together, and widens elements (up to 16 bytes) if a run allows it.
//
// Preconditions. Output elements do not overlap. The source window holds every element that is read.
//
// Compiler bugs avoided. The loop over the rows of a block tests its condition before each round (SwiftShader): see
// load_rows in data_movement/source_elements.glsl.
#include "data_movement/loop_nest.glsl"
#define OUTPUT_BINDING 0
#include "data_movement/output_block.glsl"
#define SOURCE_BINDING 1
#include "data_movement/source_elements.glsl"
#include "data_movement/gather.glsl"

uint element_word(Cursor cursor, uint part) {
    return load_element_word(cursor.source, part);
}

// The source's step from one element of a row to the next: 1 or 2, negative if it is backwards; 0 for any other step.
// It is a constant, because a CPU driver takes every branch that there is, under a mask.
layout(constant_id = 7) const int ROW_STEP = 0;

const bool IS_BACKWARDS = ROW_STEP < 0;
const uint DISTANCE = ROW_STEP < 0 ? -ROW_STEP : ROW_STEP;

void main() {
    Block block;
    uint index = block_index();
    bool has_block = index < push.block_count;
    // Where all blocks are whole, invocations without one load the last, so that no branch keeps the loads back.
    if (HAS_ONLY_BLOCKS_IN_ROWS)
        index = min(index, push.block_count - 1);
    if (!find_block(index, block) && !HAS_ONLY_BLOCKS_IN_ROWS)
        return;
    uvec4 value;
    if (!is_inside_row(block)) {
        value = DISTANCE == 1 ? load_rows(block, IS_BACKWARDS) : gather(block);
    } else if (DISTANCE == 0) {
        value = load_strided(block.cursor.source, innermost_source_stride());
    } else {
        uint source = block.cursor.source - (IS_BACKWARDS ? DISTANCE * (ELEMENTS_PER_BLOCK - 1) : 0);
        value = DISTANCE == 1 ? load_consecutive(source) : load_every_second(source);
        value = IS_BACKWARDS ? reverse_elements(value) : value;
    }
    if (has_block)
        store_block(block, value);
}
