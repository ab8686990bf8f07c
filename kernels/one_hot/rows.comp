#version 460

// ONE_HOT: output = (index == coordinate along the axis) ? on : off, for an output that runs along the axis.
//
// Loops: a workgroup takes some consecutive rows. Its invocations load the indices of all these rows at once, and keep
// the hot coordinates in shared memory. After a barrier they only write, block after block in the order of memory.
// Why apart: few reads among many writes cost far more than their bytes. Here a workgroup reads once, as few lines as
// possible, and then writes for long.
// Layout: rows are the only other dimension. Preconditions: rows begin and end with blocks. Further preconditions, and
// the maths in full: element.glsl.

#extension GL_GOOGLE_include_directive : require
#include "element.glsl"

layout(constant_id = 10) const uint MOST_ROWS = 256;  // of a workgroup

shared uint hot_coordinates[MOST_ROWS];

// The hot coordinates of the workgroup's rows. Indices that follow each other are loaded as vectors: word by word, each
// load of a subgroup would touch twice as many lines.
void load_indices(uint first, uint count) {
    const uint INDICES_PER_VECTOR = 4 / INDEX_WORDS;
    uint index = push.source_start + first * push.source_strides[1];
    if (push.source_strides[1] == 1 && index % INDICES_PER_VECTOR == 0) {
        for (uint i = gl_LocalInvocationID.x; i * INDICES_PER_VECTOR < count; i += gl_WorkGroupSize.x) {
            uvec4 vector = index_vectors[index / INDICES_PER_VECTOR + i];
            [[unroll]] for (uint j = 0; j < INDICES_PER_VECTOR; ++j) {
                uint row = i * INDICES_PER_VECTOR + j;
                if (row < count)
                    hot_coordinates[row] = hot_coordinate(vector[j * INDEX_WORDS], vector[(j + 1) * INDEX_WORDS - 1]);
            }
        }
    } else {
        for (uint row = gl_LocalInvocationID.x; row < count; row += gl_WorkGroupSize.x)
            hot_coordinates[row] = hot_coordinate(index + row * push.source_strides[1]);
    }
}

void main() {
    uint group = workgroup_index();
    if (group >= push.block_count)
        return;
    uint row_count = RANK > 1 ? push.sizes[1] : 1;
    uint first = group * push.grouping;
    uint count = min(push.grouping, row_count - first);
    uvec4 off_block = repeat_element(value_word(false, 0), value_word(false, WORDS_PER_ELEMENT - 1));
    uvec4 on_block = repeat_element(value_word(true, 0), value_word(true, WORDS_PER_ELEMENT - 1));
    load_indices(first, count);
    barrier();
    uint blocks_of_row = push.sizes[0] / ELEMENTS_PER_BLOCK;
    for (uint i = gl_LocalInvocationID.x; i < count * blocks_of_row; i += gl_WorkGroupSize.x) {
        uint row = divide_by_first(i, blocks_of_row);
        uint block = i - row * blocks_of_row;
        // The distance is unsigned: a hot coordinate before the block is far away. So is NOWHERE, past every size.
        uint distance = hot_coordinates[row] - AXIS_START - block * ELEMENTS_PER_BLOCK;
        uvec4 value = off_block;
        if (distance < ELEMENTS_PER_BLOCK) {
            uvec4 mask = slot_mask(distance);
            value = (off_block & ~mask) | (on_block & mask);
        }
        uint start = push.output_start + (first + row) * push.output_strides[1];
        output_vectors[start / ELEMENTS_PER_BLOCK + block] = value;
    }
}
