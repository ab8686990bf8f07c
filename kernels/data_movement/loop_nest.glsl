// The loop nest that the data-movement kernels share.
//
// An output is a set of dimensions sorted by output stride; dimension 0 is the innermost. The RUN_RANK innermost
// dimensions are packed in memory, so that they form runs of consecutive elements. The other dimensions may have any
// strides. One invocation owns one 16-byte block of the output window, or the part of it that lies in one run. So a
// whole block is one store.
//
//     for each run (one for each coordinate of the outer dimensions)
//         for each 16-byte block that the run touches          <- one invocation
//             for each element of the run in that block
//
// A block that lies across two rows takes several times as long as a block inside a row, and a subgroup that holds
// both kinds takes the time of both. So kernels for long rows define BY_ROWS. They take the blocks in another order,
// by groups of rows, so that nearly all subgroups have blocks of one kind:
//
//     for each group of push.grouping rows (a row is the innermost dimension)
//         for each row of the group
//             for each block that lies inside the row          <- one invocation, or BLOCKS_PER_INVOCATION of them
//         for each row of the group
//             the block in which the row begins, if that block begins before the row
//             the block in which the run ends, if the row is the run's last and that block ends after it
//
// The blocks at a row's edges are written soon after those inside it, so that both meet in the cache, not in memory.
//
// All offsets count elements from the start of their window. Windows have at most 2^31 bytes. Negative strides are in
// two's complement: sums wrap modulo 2^32 to the right non-negative offset.
//
// Only 32-bit words are read and written, so no 8-bit, 16-bit or 64-bit feature is needed. Elements are never
// interpreted, so NaN payloads, -0.0 and denormals do not change.
//
// A division by a number known only at run time takes some twenty instructions; a multiplication and a shift take two.
// With at most four dimensions, the push constants of the unused dimensions hold the multipliers and shifts.
//
// Loops over dimensions run to the constant 8 with a condition inside, so that any compiler unrolls them and keeps the
// arrays that they index in registers.

#extension GL_EXT_control_flow_attributes : require

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint ELEMENT_SIZE = 4;  // bytes: 1, 2, 4, 8 or 16
layout(constant_id = 2) const uint RANK = 1;  // dimensions in use, 0 to 8
layout(constant_id = 3) const uint RUN_RANK = 1;  // innermost dimensions that are packed in the output
#ifdef BY_ROWS
// 0 if rows begin and end with blocks; 1 if all rows form one run, which has a beginning for each row and a single
// end; otherwise 2, for a beginning and an end of each row.
layout(constant_id = 4) const uint EDGES_PER_ROW = 0;
const bool ROWS_ARE_LONG = true;
const bool HAS_ONLY_BLOCKS_IN_ROWS = EDGES_PER_ROW == 0;
#else
layout(constant_id = 4) const bool ROWS_ARE_LONG = true;  // long enough that blocks inside a row are worth a branch
const bool HAS_ONLY_BLOCKS_IN_ROWS = false;
#endif
layout(constant_id = 5) const uint BLOCKS_PER_INVOCATION = 1;  // with BY_ROWS: blocks of one row, evenly spaced
layout(constant_id = 6) const bool GATHERS_IN_LOOP = false;  // for gather.glsl

// 128 bytes, which every Vulkan device allows.
layout(push_constant) uniform PushConstants {
    uint output_start;
    uint source_start;
    uint grouping;  // the most blocks that a run touches; with BY_ROWS, rows of a group
    uint block_count;  // at most this many invocations have blocks
    uint arguments[4];  // the operator's own
    // By dimension, innermost first. With IS_QUICK, entries 4 to 7 hold what divisions need: multipliers (in sizes)
    // and shifts (in output_strides) for the four sizes, and a multiplier and a shift (in source_strides) for each of
    // two further divisors.
    uint sizes[8];
    uint output_strides[8];
    uint source_strides[8];
} push;

const bool IS_QUICK = RANK <= 4;

const uint BLOCK_SIZE = 16;
const uint ELEMENTS_PER_BLOCK = BLOCK_SIZE / ELEMENT_SIZE;
// An element is a part of a word (1 or 2 bytes) or consists of whole words (4, 8 or 16 bytes).
const uint ELEMENTS_PER_WORD = ELEMENT_SIZE < 4 ? 4 / ELEMENT_SIZE : 1;
const uint WORDS_PER_ELEMENT = ELEMENT_SIZE < 4 ? 1 : ELEMENT_SIZE / 4;
const uint ELEMENT_BITS = ELEMENT_SIZE < 4 ? 8 * ELEMENT_SIZE : 32;
const uint ELEMENT_MASK = ELEMENT_SIZE < 4 ? (1u << (8 * ELEMENT_SIZE)) - 1 : 0xFFFFFFFFu;
const uint NO_DIMENSION = 0xFFFFFFFFu;

struct Cursor {
    uint coordinates[8];
    uint source;  // element offset in the source window
};

// The elements first <= element < last of the output window, all in one block and one run. The cursor is at the first.
struct Block {
    uint start;  // the block's own first element, a multiple of ELEMENTS_PER_BLOCK
    uint first;
    uint last;
    uint step;  // elements to the invocation's next block; 0 if it has none
    Cursor cursor;
};

// dividend / divisor, for a dividend below 2^31, by the multiplier and the shift that belong to the divisor.
uint quotient(uint dividend, uint divisor, uint multiplier, uint shift) {
    if (!IS_QUICK)
        return dividend / divisor;
    uint high;
    uint low;
    umulExtended(dividend, multiplier, high, low);
    return divisor == 1 ? dividend : high >> shift;
}

uint divide_by_size(uint dividend, uint dimension) {
    return quotient(
        dividend, push.sizes[dimension], push.sizes[dimension + 4 & 7], push.output_strides[dimension + 4 & 7]);
}

// Divides by the first of two further divisors.
uint divide_by_first(uint dividend, uint divisor) {
    return quotient(dividend, divisor, push.source_strides[4], push.source_strides[5]);
}

uint divide_by_second(uint dividend, uint divisor) {
    return quotient(dividend, divisor, push.source_strides[6], push.source_strides[7]);
}

// Grids are folded along y, so that no axis has more than 65,535 workgroups, which every device allows.
uint workgroup_index() {
    return gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
}

// The invocation's number in the dispatch, by which it finds its first block.
uint block_index() {
    return workgroup_index() * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
}

// Finds the block's coordinates in its run. `position` counts elements from the run's start to the block's first.
void find_position(inout Block block, uint position) {
    [[unroll]] for (uint dimension = 0; dimension < 8; ++dimension) {
        if (dimension < RUN_RANK) {
            uint rest = dimension + 1 < RUN_RANK ? divide_by_size(position, dimension) : 0;
            uint coordinate = position - rest * push.sizes[dimension];
            position = rest;
            block.cursor.coordinates[dimension] = coordinate;
            block.cursor.source += coordinate * push.source_strides[dimension];
        }
    }
}

uint run_length() {
    uint length = 1;
    [[unroll]] for (uint dimension = 0; dimension < 8; ++dimension)
        if (dimension < RUN_RANK)
            length *= push.sizes[dimension];
    return length;
}

#ifdef BY_ROWS
bool find_numbered(uint index, inout Block block) {
    uint places = (push.sizes[0] / ELEMENTS_PER_BLOCK + BLOCKS_PER_INVOCATION - 1) / BLOCKS_PER_INVOCATION;
    uint row;
    uint place;
    bool is_edge = false;
    if (EDGES_PER_ROW == 0) {
        row = RANK == 1 ? 0 : divide_by_first(index, places);
        place = index - row * places;
    } else {
        uint inside = push.grouping * places;
        uint group_size = inside + push.grouping * EDGES_PER_ROW;
        uint group = divide_by_second(index, group_size);
        place = index - group * group_size;
        is_edge = place >= inside;
        if (is_edge) {
            place -= inside;
            row = place / EDGES_PER_ROW;
            place %= EDGES_PER_ROW;
        } else {
            row = divide_by_first(place, places);
            place -= row * places;
        }
        row += group * push.grouping;
    }

    uint row_count = 1;
    uint rest_of_index = row;
    uint run_start = push.output_start;
    uint offset_in_run = 0;
    uint source = push.source_start;
    uint source_in_run = 0;
    [[unroll]] for (uint dimension = 1; dimension < 8; ++dimension) {
        if (dimension < RANK) {
            row_count *= push.sizes[dimension];
            uint rest = dimension + 1 < RANK ? divide_by_size(rest_of_index, dimension) : 0;
            uint coordinate = rest_of_index - rest * push.sizes[dimension];
            rest_of_index = rest;
            block.cursor.coordinates[dimension] = coordinate;
            uint output_offset = coordinate * push.output_strides[dimension];
            uint source_offset = coordinate * push.source_strides[dimension];
            if (dimension < RUN_RANK) {
                offset_in_run += output_offset;
                source_in_run += source_offset;
            } else {
                run_start += output_offset;
                source += source_offset;
            }
        }
    }
    uint row_start = run_start + offset_in_run;

    if (!is_edge) {
        uint skipped = (ELEMENTS_PER_BLOCK - row_start % ELEMENTS_PER_BLOCK) % ELEMENTS_PER_BLOCK;
        uint coordinate = skipped + place * ELEMENTS_PER_BLOCK;
        block.start = row_start + coordinate;
        block.first = block.start;
        block.last = block.start + ELEMENTS_PER_BLOCK;
        block.step = BLOCKS_PER_INVOCATION == 1 ? 0 : places * ELEMENTS_PER_BLOCK;
        block.cursor.coordinates[0] = coordinate;
        block.cursor.source = source + source_in_run + coordinate * push.source_strides[0];
        return row < row_count && coordinate + ELEMENTS_PER_BLOCK <= push.sizes[0];
    }
    // The end of a single run counts as the beginning of one more row.
    if (row >= row_count + (EDGES_PER_ROW == 1 ? 1 : 0))
        return false;
    uint run_end = run_start + run_length();
    uint edge = row_start + place * push.sizes[0];
    if (edge % ELEMENTS_PER_BLOCK == 0 || place == 1 && edge != run_end)
        return false;
    block.start = edge / ELEMENTS_PER_BLOCK * ELEMENTS_PER_BLOCK;
    block.first = max(block.start, run_start);
    block.last = min(block.start + ELEMENTS_PER_BLOCK, run_end);
    block.cursor.source = source;
    find_position(block, block.first - run_start);
    return true;
}
#else
bool find_numbered(uint index, inout Block block) {
    uint run = RUN_RANK < RANK ? divide_by_first(index, push.grouping) : 0;
    uint block_of_run = index - run * push.grouping;
    uint run_start = push.output_start;
    [[unroll]] for (uint dimension = 0; dimension < 8; ++dimension) {
        if (dimension >= RUN_RANK && dimension < RANK) {
            // The outermost dimension needs no division: its coordinate is the rest.
            uint rest = dimension + 1 < RANK ? divide_by_size(run, dimension) : 0;
            uint coordinate = run - rest * push.sizes[dimension];
            run = rest;
            block.cursor.coordinates[dimension] = coordinate;
            block.cursor.source += coordinate * push.source_strides[dimension];
            run_start += coordinate * push.output_strides[dimension];
        }
    }
    block.start = (run_start / ELEMENTS_PER_BLOCK + block_of_run) * ELEMENTS_PER_BLOCK;
    block.first = max(block.start, run_start);
    block.last = min(block.start + ELEMENTS_PER_BLOCK, run_start + run_length());
    if (block.first >= block.last)
        return false;
    find_position(block, block.first - run_start);
    return true;
}
#endif

// Finds the first block of an invocation; false if it has none.
bool find_block(uint index, out Block block) {
    block.start = 0;
    block.first = 0;
    block.last = 0;
    block.step = 0;
    block.cursor.source = push.source_start;
    [[unroll]] for (uint dimension = 0; dimension < 8; ++dimension)
        block.cursor.coordinates[dimension] = 0;
    if (index >= push.block_count)
        return false;
    return find_numbered(index, block);
}

// Moves to the invocation's next block, in the same row; false if there is none.
bool find_next_block(inout Block block) {
    if (block.step == 0)
        return false;
    block.start += block.step;
    block.first += block.step;
    block.last += block.step;
    block.cursor.coordinates[0] += block.step;
    block.cursor.source += block.step * push.source_strides[0];
    return block.cursor.coordinates[0] + ELEMENTS_PER_BLOCK <= push.sizes[0];
}

// Moves the cursor on by `count` elements of the innermost dimension, at most to its end, and carries there.
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
    return HAS_ONLY_BLOCKS_IN_ROWS || block.last - block.first == ELEMENTS_PER_BLOCK;
}

// Elements from the cursor to the end of its row, the innermost dimension. A run of no dimensions is one element.
uint rest_of_row(Cursor cursor) {
    return RUN_RANK == 0 ? 1 : push.sizes[0] - cursor.coordinates[0];
}

// Whether all elements of the block lie along the innermost dimension, so that no coordinate carries.
bool is_in_one_row(Block block) {
    return HAS_ONLY_BLOCKS_IN_ROWS || block.last - block.first <= rest_of_row(block.cursor);
}

// Whether the block is whole and inside one row. The result is a constant if this holds for all blocks, or if rows are
// not long: some CPU drivers take every branch that there is, each under a mask.
bool is_inside_row(Block block) {
    return ROWS_ARE_LONG && is_whole(block) && is_in_one_row(block);
}

uint innermost_source_stride() {
    return RUN_RANK == 0 ? 0 : push.source_strides[0];
}
