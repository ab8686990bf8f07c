// The loop nest that the data-movement kernels share.
//
// An output is a set of dimensions sorted by output stride; dimension 0 is the innermost. The RUN_RANK innermost ones are
// packed in memory, so that they form runs of consecutive elements; the others may have any strides. One invocation owns one
// 16-byte block of the output window (or the part of it that lies in one run), so that a whole block is one store.
//
//     for each run (one for each coordinate of the outer dimensions)
//         for each 16-byte block that the run touches          <- one invocation
//             for each element of the run in that block
//
// All offsets count elements from the start of their window. Windows are at most 2^31 bytes, and negative strides are
// two's complement: sums wrap modulo 2^32 to the right non-negative offset.
//
// Only 32-bit words are read and written: no 8-bit, 16-bit or 64-bit feature is needed, and elements are never
// interpreted, so that NaN payloads, -0.0 and denormals arrive unchanged.
//
// Loops over dimensions run to a plain 8 with a guard inside, so that any compiler unrolls them and keeps the arrays that they
// index in registers.

#extension GL_EXT_control_flow_attributes : require

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint ELEMENT_SIZE = 4;  // bytes: 1, 2, 4, 8 or 16
layout(constant_id = 2) const uint RANK = 1;          // dimensions in use, 0 to 8
layout(constant_id = 3) const uint RUN_RANK = 1;      // how many of the innermost ones are packed in the output

// 128 bytes, which every Vulkan device has.
layout(push_constant) uniform PushConstants {
    uint output_start;
    uint source_start;
    uint blocks_per_run;
    uint block_count;
    uint arguments[4];  // the operator's own
    uint sizes[8];  // innermost first
    uint output_strides[8];
    uint source_strides[8];
} push;

const uint BLOCK_SIZE = 16;
const uint ELEMENTS_PER_BLOCK = BLOCK_SIZE / ELEMENT_SIZE;
// An element is a part of a word (1, 2 bytes) or some whole words (4, 8, 16 bytes).
const uint ELEMENTS_PER_WORD = ELEMENT_SIZE < 4 ? 4 / ELEMENT_SIZE : 1;
const uint WORDS_PER_ELEMENT = ELEMENT_SIZE < 4 ? 1 : ELEMENT_SIZE / 4;
const uint ELEMENT_BITS = ELEMENT_SIZE < 4 ? 8 * ELEMENT_SIZE : 32;
const uint ELEMENT_MASK = ELEMENT_SIZE < 4 ? (1u << (8 * ELEMENT_SIZE)) - 1 : 0xFFFFFFFFu;
const uint NO_DIMENSION = 0xFFFFFFFFu;

struct Cursor {
    uint coordinates[8];
    uint source;  // element offset in the source window
};

// The elements first <= element < last of the output window, all in one block and one run, with the cursor at the first.
struct Block {
    uint start;  // the block's own first element, a multiple of ELEMENTS_PER_BLOCK
    uint first;
    uint last;
    Cursor cursor;
};

// Grids are folded along y below the 65,535 workgroups an axis that every device has.
uint workgroup_index() {
    return gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
}

// The block of an invocation that has one only.
uint block_index() {
    return workgroup_index() * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
}

// Finds a block by its number; false where there is none.
bool find_block(uint index, out Block block) {
    block.start = 0;
    block.first = 0;
    block.last = 0;
    block.cursor.source = push.source_start;
    [[unroll]] for (uint dimension = 0; dimension < 8; ++dimension)
        block.cursor.coordinates[dimension] = 0;
    if (index >= push.block_count)
        return false;

    uint run = index / push.blocks_per_run;
    uint block_of_run = index - run * push.blocks_per_run;
    uint run_start = push.output_start;
    uint run_length = 1;
    [[unroll]] for (uint dimension = 0; dimension < 8; ++dimension) {
        if (dimension < RUN_RANK) {
            run_length *= push.sizes[dimension];
        } else if (dimension < RANK) {
            // What is left for the outermost dimension is its coordinate.
            uint rest = dimension + 1 < RANK ? run / push.sizes[dimension] : 0;
            uint coordinate = run - rest * push.sizes[dimension];
            run = rest;
            block.cursor.coordinates[dimension] = coordinate;
            block.cursor.source += coordinate * push.source_strides[dimension];
            run_start += coordinate * push.output_strides[dimension];
        }
    }

    block.start = (run_start / ELEMENTS_PER_BLOCK + block_of_run) * ELEMENTS_PER_BLOCK;
    block.first = max(block.start, run_start);
    block.last = min(block.start + ELEMENTS_PER_BLOCK, run_start + run_length);
    if (block.first >= block.last)
        return false;

    uint position = block.first - run_start;
    [[unroll]] for (uint dimension = 0; dimension < 8; ++dimension) {
        if (dimension < RUN_RANK) {
            uint rest = dimension + 1 < RUN_RANK ? position / push.sizes[dimension] : 0;
            uint coordinate = position - rest * push.sizes[dimension];
            position = rest;
            block.cursor.coordinates[dimension] = coordinate;
            block.cursor.source += coordinate * push.source_strides[dimension];
        }
    }
    return true;
}

// Steps `count` elements on in the innermost dimension, which must not go past its end, and carries.
void advance(inout Cursor cursor, uint count) {
    uint steps = count;
    [[unroll]] for (uint dimension = 0; dimension < 8; ++dimension) {
        if (dimension < RUN_RANK && steps != 0) {
            cursor.source += steps * push.source_strides[dimension];
            cursor.coordinates[dimension] += steps;
            steps = 0;
            if (cursor.coordinates[dimension] == push.sizes[dimension]) {
                cursor.coordinates[dimension] = 0;
                cursor.source -= push.sizes[dimension] * push.source_strides[dimension];
                steps = 1;
            }
        }
    }
}

bool is_whole(Block block) {
    return block.last - block.first == ELEMENTS_PER_BLOCK;
}

// Elements from the cursor to the end of its row, the innermost dimension; a run of no dimensions is one element.
uint rest_of_row(Cursor cursor) {
    return RUN_RANK == 0 ? 1 : push.sizes[0] - cursor.coordinates[0];
}

// Whether all of the block's elements lie along the innermost dimension, so that no coordinate carries.
bool is_in_one_row(Block block) {
    return block.last - block.first <= rest_of_row(block.cursor);
}

uint innermost_source_stride() {
    return RUN_RANK == 0 ? 0 : push.source_strides[0];
}
