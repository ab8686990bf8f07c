// SLICE1 for outputs whose rows are columns of the input:
//     output[.., b, .., a] = input[start + b + stride * a + ..]
//
// Maths. A strided copy of bits, as in blocks.comp. Here the output runs along one dimension, a, and the input along
// another one, b, as from NHWC to NCHW or in a transpose. If consecutive invocations follow one of the two, each
// element of the other tensor takes an access of 32 bytes. If a has few elements, the dimensions that follow it in the
// output without a gap count as parts of a. Likewise, b is all dimensions that follow each other in the input.
//
// Loop structure. A workgroup moves a tile of TILE_ROWS x TILE_COLUMNS elements. It reads rows along b into shared
// memory as 16-byte vectors. After a barrier it builds 16-byte blocks along a from there. If all vectors are whole and
// aligned, an invocation starts four loads before it uses the first vector: memory is far, and a workgroup that waits
// for each vector is a third slower. Rows of the output may begin anywhere in a block, each at another place. So a
// tile holds whole blocks of each row, and only the ends of rows are ragged. If the rows begin at different places in
// their blocks, the tile reads EXTRA_ROWS more rows of the input. If they do not, an invocation builds the blocks of
// all columns that share its words and transposes them in registers, which for bytes takes a quarter of the reads of
// shared memory.
//
// Layout. In shared memory, rows are one word longer than in the tile, and one more word follows ELEMENTS_PER_BLOCK
// rows. So neither the words of neighbouring rows nor those of neighbouring blocks lie in the same bank.
//
// Preconditions. The first ROW_RANK dimensions are a, packed in the output. COLUMN_DIMENSIONS are b, packed in the
// source. No dimension is both. Elements have at most 8 bytes. Output elements do not overlap.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "data_movement/loop_nest.glsl"
#define OUTPUT_BINDING 0
#include "data_movement/output_block.glsl"
#define SOURCE_BINDING 1
#include "data_movement/source_elements.glsl"
#include "data_movement/byte_matrices.glsl"

layout(constant_id = 7) const uint COLUMN_DIMENSIONS = 1;  // those of b, 4 bits each, the innermost in the lowest bits
layout(constant_id = 8) const uint TILE_ROWS = 32;  // elements along a, a multiple of ELEMENTS_PER_BLOCK
layout(constant_id = 9) const uint TILE_COLUMNS = 32;  // elements along b, likewise
layout(constant_id = 10) const uint EXTRA_ROWS = 0;  // 0 if all rows of the output begin at one place in their blocks
layout(constant_id = 11) const uint ROW_RANK = 1;  // dimensions of a

#define TILES_ALONG push.arguments[0]  // tiles along a
#define TILES_ACROSS push.arguments[1]  // tiles along b
#define LARGEST_LEAD push.arguments[2]  // at most this many elements of a row's first block lie before the row

const uint PITCH = TILE_COLUMNS * ELEMENT_SIZE / 4 + 1;
const uint VECTORS_READ = TILE_COLUMNS / ELEMENTS_PER_BLOCK;  // along a row of the input
const uint BLOCKS_WRITTEN = TILE_ROWS / ELEMENTS_PER_BLOCK;  // along a row of the output
const uint READS = (TILE_ROWS + EXTRA_ROWS) * VECTORS_READ;
const uint TOGETHER = 4;  // vectors that an invocation loads at a time
const bool TURNED = EXTRA_ROWS == 0 && ELEMENT_SIZE < 4;

shared uint tile_words[(TILE_ROWS + EXTRA_ROWS) * PITCH + (TILE_ROWS + EXTRA_ROWS) / ELEMENTS_PER_BLOCK + 1];

// The dimension of b at a place, counted from its innermost; 0 if b has fewer.
uint column_dimension(uint place) {
    return COLUMN_DIMENSIONS >> (4 * place) & 15;
}

bool is_column_dimension(uint dimension) {
    bool is_one = false;
    [[unroll]] for (uint place = 0; place < 7; ++place)
        is_one = is_one || column_dimension(place) == dimension;
    return is_one;
}

// Offset in the source of an element along a.
uint source_of_row(uint element) {
    uint offset = 0;
    [[unroll]] for (uint dimension = 0; dimension < 8; ++dimension) {
        if (dimension < ROW_RANK) {
            uint rest = dimension + 1 < ROW_RANK ? divide_by_size(element, dimension) : 0;
            offset += (element - rest * push.sizes[dimension]) * push.source_strides[dimension];
            element = rest;
        }
    }
    return offset;
}

// Offset in the output of an element along b.
uint output_of_column(uint element) {
    uint offset = 0;
    [[unroll]] for (uint place = 0; place < 7; ++place) {
        uint dimension = column_dimension(place);
        if (dimension != 0) {
            uint rest = place < 6 && column_dimension(place + 1) != 0 ? divide_by_size(element, dimension) : 0;
            offset += (element - rest * push.sizes[dimension]) * push.output_strides[dimension];
            element = rest;
        }
    }
    return offset;
}

uint row_word(uint row) {
    return row * PITCH + row / ELEMENTS_PER_BLOCK;
}

void put(uint index, uvec4 value) {
    uint word = row_word(index / VECTORS_READ) + index % VECTORS_READ * 4;
    [[unroll]] for (uint i = 0; i < 4; ++i)
        tile_words[word + i] = value[i];
}

uint tile_word(uint row, uint column, uint part) {
    if (ELEMENT_SIZE >= 4)
        return tile_words[row_word(row) + column * WORDS_PER_ELEMENT + part];
    uint word = tile_words[row_word(row) + column / ELEMENTS_PER_WORD];
    return word >> (column % ELEMENTS_PER_WORD * ELEMENT_BITS) & ELEMENT_MASK;
}

// The blocks of the columns that share the tile's word `across`, from a row on. For elements of 1 or 2 bytes.
void turn(uint row, uint across, out uvec4 blocks[ELEMENTS_PER_WORD]) {
    [[unroll]] for (uint word = 0; word < 4; ++word) {
        uvec4 rows = uvec4(0);
        [[unroll]] for (uint i = 0; i < ELEMENTS_PER_WORD; ++i)
            rows[i] = tile_words[row_word(row + word * ELEMENTS_PER_WORD + i) + across];
        if (ELEMENT_SIZE == 1)
            rows = turned(rows);
        else
            rows.xy = uvec2((rows.x & 0xFFFF) | rows.y << 16, rows.x >> 16 | (rows.y & 0xFFFF0000));
        [[unroll]] for (uint i = 0; i < ELEMENTS_PER_WORD; ++i)
            blocks[i][word] = rows[i];
    }
}

void main() {
    uint tile = workgroup_index();
    if (tile >= push.block_count)
        return;
    uint outer = divide_by_first(tile, TILES_ACROSS);
    uint column_start = (tile - outer * TILES_ACROSS) * TILE_COLUMNS;
    uint rest = divide_by_second(outer, TILES_ALONG);
    uint position_start = (outer - rest * TILES_ALONG) * TILE_ROWS;  // counted from the row's first block

    uint output_start = push.output_start;
    uint source_start = push.source_start;
    uint rows = 1;
    uint columns = 1;
    [[unroll]] for (uint dimension = 0; dimension < 8; ++dimension) {
        if (dimension < ROW_RANK) {
            rows *= push.sizes[dimension];
        } else if (is_column_dimension(dimension)) {
            columns *= push.sizes[dimension];
        } else if (dimension < RANK) {
            uint next = divide_by_size(rest, dimension);
            uint coordinate = rest - next * push.sizes[dimension];
            rest = next;
            output_start += coordinate * push.output_strides[dimension];
            source_start += coordinate * push.source_strides[dimension];
        }
    }

    // Row r of the tile is element first_element + r along a. In some tiles first_element is negative.
    int first_element = int(position_start) - int(LARGEST_LEAD);
    // Whether all vectors are whole and begin at multiples of 16 bytes. This is the same in all invocations.
    uint misplaced = source_start | columns | push.source_strides[0];
    [[unroll]] for (uint dimension = 1; dimension < 8; ++dimension) {
        if (dimension < RANK && !is_column_dimension(dimension))
            misplaced |= push.source_strides[dimension];
    }
    if (misplaced % ELEMENTS_PER_BLOCK == 0) {
        [[dont_unroll]] for (uint first = 0; first < READS; first += TOGETHER * gl_WorkGroupSize.x) {
            uvec4 values[TOGETHER];
            [[unroll]] for (uint n = 0; n < TOGETHER; ++n) {
                uint i = first + n * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
                uint element = uint(first_element) + i / VECTORS_READ;
                uint column = column_start + i % VECTORS_READ * ELEMENTS_PER_BLOCK;
                values[n] = uvec4(0);
                if (i < READS && element < rows && column < columns)
                    values[n] = source_vectors[(source_start + source_of_row(element) + column) / ELEMENTS_PER_BLOCK];
            }
            [[unroll]] for (uint n = 0; n < TOGETHER; ++n) {
                uint i = first + n * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
                if (i < READS)
                    put(i, values[n]);
            }
        }
    } else {
        for (uint i = gl_LocalInvocationID.x; i < READS; i += gl_WorkGroupSize.x) {
            int element = first_element + int(i / VECTORS_READ);
            uint column = column_start + i % VECTORS_READ * ELEMENTS_PER_BLOCK;
            if (element >= 0 && element < int(rows) && column < columns) {
                uint source = source_start + source_of_row(uint(element)) + column;
                put(i,
                    column + ELEMENTS_PER_BLOCK <= columns ? load_consecutive(source)
                                                           : load_clamped(int(source * ELEMENT_SIZE)));
            }
        }
    }
    barrier();

    // Columns that an invocation builds at a time.
    const uint COLUMNS = TURNED ? ELEMENTS_PER_WORD : 1;
    for (uint i = gl_LocalInvocationID.x; i < TILE_COLUMNS / COLUMNS * BLOCKS_WRITTEN; i += gl_WorkGroupSize.x) {
        uint across = i / BLOCKS_WRITTEN;
        uint position = position_start + i % BLOCKS_WRITTEN * ELEMENTS_PER_BLOCK;
        uvec4 turned_blocks[ELEMENTS_PER_WORD];
        if (TURNED)
            turn(position - position_start, across, turned_blocks);
        [[unroll]] for (uint c = 0; c < COLUMNS; ++c) {
            uint column = across * COLUMNS + c;
            uint row_start = output_start + output_of_column(column_start + column);
            uint lead = row_start % ELEMENTS_PER_BLOCK;
            Block block;
            block.start = row_start - lead + position;
            block.first = max(block.start, row_start);
            block.last = min(block.start + ELEMENTS_PER_BLOCK, row_start + rows);
            if (column_start + column >= columns || block.first >= block.last)
                continue;
            uvec4 value = uvec4(0);
            if (TURNED) {
                value = turned_blocks[c];
            } else {
                uint row = position - position_start + LARGEST_LEAD - lead;
                [[unroll]] for (uint word = 0; word < 4; ++word) {
                    if (ELEMENT_SIZE >= 4) {
                        value[word] = tile_word(row + word / WORDS_PER_ELEMENT, column, word % WORDS_PER_ELEMENT);
                    } else {
                        [[unroll]] for (uint slot = 0; slot < ELEMENTS_PER_WORD; ++slot)
                            value[word] |= tile_word(row + word * ELEMENTS_PER_WORD + slot, column, 0)
                                << (slot * ELEMENT_BITS);
                    }
                }
            }
            store_block(block, value);
        }
    }
}
