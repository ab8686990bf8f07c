// SLICE1 where rows of the output are columns of the input: output[.., b, .., a] = input[start + b + stride * a + ..]
//
// Maths. As in slice1.comp: a strided copy of bits. Here the output runs along one dimension, a, and the input along
// another one, b (NHWC to NCHW, a transpose): whichever of them consecutive invocations follow, the other tensor is
// touched 32 bytes for an element.
//
// Loop structure. A workgroup moves a tile of TILE_ROWS x TILE_COLUMNS elements: it reads rows along b as 16-byte vectors into shared
// memory, and after a barrier puts 16-byte blocks along a together from there. Rows of the output may begin anywhere in a
// block, each elsewhere: a tile holds whole blocks of each row, so that only the ends of rows are ragged, and reads
// EXTRA_ROWS more of the input where the rows' leads differ.
//
// Layout. Shared rows are a word longer than the tile, so that the elements of a column lie in different banks.
//
// Preconditions. Dimension 0 is a, with output stride 1; ACROSS is b, with source stride 1. No element is larger than 8
// bytes. Output elements do not overlap.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "loop_nest.glsl"
#define OUTPUT_BINDING 0
#include "output_block.glsl"
#define SOURCE_BINDING 1
#include "source_elements.glsl"

layout(constant_id = 6) const uint ACROSS = 1;         // the dimension along which the source is consecutive
layout(constant_id = 7) const uint TILE_ROWS = 32;     // elements along dimension 0, a multiple of ELEMENTS_PER_BLOCK
layout(constant_id = 8) const uint TILE_COLUMNS = 32;  // elements across, likewise
layout(constant_id = 9) const uint EXTRA_ROWS = 0;     // 0 where all rows of the output begin alike in their blocks

#define TILES_ALONG push.arguments[0]   // tiles along dimension 0
#define TILES_ACROSS push.arguments[1]
#define LARGEST_LEAD push.arguments[2]  // elements of a row's first block that lie before the row, at most

const uint PITCH = TILE_COLUMNS * ELEMENT_SIZE / 4 + 1;
const uint VECTORS_READ = TILE_COLUMNS / ELEMENTS_PER_BLOCK;  // along a row of the input
const uint BLOCKS_WRITTEN = TILE_ROWS / ELEMENTS_PER_BLOCK;   // along a row of the output

shared uint tile_words[(TILE_ROWS + EXTRA_ROWS) * PITCH];

uint tile_word(uint row, uint column, uint part) {
    if (ELEMENT_SIZE >= 4)
        return tile_words[row * PITCH + column * WORDS_PER_ELEMENT + part];
    uint word = tile_words[row * PITCH + column / ELEMENTS_PER_WORD];
    return word >> (column % ELEMENTS_PER_WORD * ELEMENT_BITS) & ELEMENT_MASK;
}

void main() {
    uint tile = workgroup_index();
    if (tile >= push.block_count)
        return;
    uint outer = divide_by_first(tile, TILES_ACROSS);
    uint column_start = (tile - outer * TILES_ACROSS) * TILE_COLUMNS;
    uint rest = divide_by_second(outer, TILES_ALONG);
    uint position_start = (outer - rest * TILES_ALONG) * TILE_ROWS;  // in a row of the output, from its first block on

    uint output_start = push.output_start;
    uint source_start = push.source_start;
    uint columns = 1;
    uint output_across = 0;
    [[unroll]] for (uint dimension = 1; dimension < 8; ++dimension) {
        if (dimension == ACROSS) {
            columns = push.sizes[dimension];
            output_across = push.output_strides[dimension];
        } else if (dimension < RANK) {
            uint next = divide_by_size(rest, dimension);
            uint coordinate = rest - next * push.sizes[dimension];
            rest = next;
            output_start += coordinate * push.output_strides[dimension];
            source_start += coordinate * push.source_strides[dimension];
        }
    }

    // Row r of the tile is element first_element + r along dimension 0; before the first one in some tiles.
    int first_element = int(position_start) - int(LARGEST_LEAD);
    for (uint i = gl_LocalInvocationID.x; i < (TILE_ROWS + EXTRA_ROWS) * VECTORS_READ; i += gl_WorkGroupSize.x) {
        uint row = i / VECTORS_READ;
        uint vector = i % VECTORS_READ;
        int element = first_element + int(row);
        uint column = column_start + vector * ELEMENTS_PER_BLOCK;
        if (element >= 0 && element < int(push.sizes[0]) && column < columns) {
            uint source = source_start + uint(element) * push.source_strides[0] + column;
            uvec4 value = column + ELEMENTS_PER_BLOCK <= columns ? load_consecutive(source)
                                                                 : load_clamped(int(source * ELEMENT_SIZE));
            uint word = row * PITCH + vector * 4;
            tile_words[word] = value.x;
            tile_words[word + 1] = value.y;
            tile_words[word + 2] = value.z;
            tile_words[word + 3] = value.w;
        }
    }
    barrier();

    for (uint i = gl_LocalInvocationID.x; i < TILE_COLUMNS * BLOCKS_WRITTEN; i += gl_WorkGroupSize.x) {
        uint column = i / BLOCKS_WRITTEN;
        uint position = position_start + i % BLOCKS_WRITTEN * ELEMENTS_PER_BLOCK;
        if (column_start + column >= columns)
            continue;
        uint row_start = output_start + (column_start + column) * output_across;
        uint lead = row_start % ELEMENTS_PER_BLOCK;
        Block block;
        block.start = row_start - lead + position;
        block.first = max(block.start, row_start);
        block.last = min(block.start + ELEMENTS_PER_BLOCK, row_start + push.sizes[0]);
        if (block.first >= block.last)
            continue;
        uint row = position - position_start + LARGEST_LEAD - lead;
        uvec4 value = uvec4(0);
        [[unroll]] for (uint word = 0; word < 4; ++word) {
            if (ELEMENT_SIZE >= 4) {
                value[word] = tile_word(row + word / WORDS_PER_ELEMENT, column, word % WORDS_PER_ELEMENT);
            } else {
                [[unroll]] for (uint slot = 0; slot < ELEMENTS_PER_WORD; ++slot)
                    value[word] |= tile_word(row + word * ELEMENTS_PER_WORD + slot, column, 0) << (slot * ELEMENT_BITS);
            }
        }
        store_block(block, value);
    }
}
