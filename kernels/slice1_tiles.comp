// SLICE1 where rows of the output are columns of the input: output[.., b, .., a] = input[start + b + stride * a + ..]
//
// Maths. As in slice1.comp: a strided copy of bits. Here the output runs along one dimension, a, and the input along
// another one, b (NHWC to NCHW, a transpose): whichever of them consecutive invocations follow, the other tensor is
// touched 32 bytes for an element.
//
// Loop structure. A workgroup moves a tile of TILE_ROWS x TILE_COLUMNS elements. An invocation reads 16-byte vectors along b,
// of as many rows as there are elements in a word, turns them over in its registers, and puts words that run along a into
// shared memory. After a barrier each takes 16-byte blocks along a from there, four words, or parts of five. Rows of the
// output may begin anywhere in a block, each elsewhere: a tile holds whole blocks of each row, so that only the ends of rows
// are ragged, and reads EXTRA_ROWS more of the input where the rows' leads differ.
//
// Layout. Shared memory holds the tile's columns one after another, each a word longer than needed, so that the same place
// of neighbouring columns lies in different banks.
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

layout(constant_id = 7) const uint ACROSS = 1;         // the dimension along which the source is consecutive
layout(constant_id = 8) const uint TILE_ROWS = 32;     // elements along dimension 0, a multiple of ELEMENTS_PER_BLOCK
layout(constant_id = 9) const uint TILE_COLUMNS = 32;  // elements across, likewise
layout(constant_id = 10) const uint EXTRA_ROWS = 0;     // 0 where all rows of the output begin alike in their blocks

#define TILES_ALONG push.arguments[0]   // tiles along dimension 0
#define TILES_ACROSS push.arguments[1]
#define LARGEST_LEAD push.arguments[2]  // elements of a row's first block that lie before the row, at most

const uint PITCH = (TILE_ROWS + EXTRA_ROWS) * ELEMENT_SIZE / 4 + 1;  // words a column
const uint VECTORS_READ = TILE_COLUMNS / ELEMENTS_PER_BLOCK;  // along a row of the input
const uint BLOCKS_WRITTEN = TILE_ROWS / ELEMENTS_PER_BLOCK;   // along a row of the output
const uint READS = (TILE_ROWS + EXTRA_ROWS) / ELEMENTS_PER_WORD * VECTORS_READ;

shared uint tile_words[TILE_COLUMNS * PITCH];

// Puts ELEMENTS_PER_WORD vectors, one of each row from `row` on, where their columns are.
void put_vectors(uint row, uint column, uvec4 vectors[4]) {
    uint word = column * PITCH + row * ELEMENT_SIZE / 4;
    [[unroll]] for (uint i = 0; i < 4; ++i) {
        uint a = vectors[0][i], b = vectors[1][i], c = vectors[2][i], d = vectors[3][i];
        if (ELEMENT_SIZE == 1) {
            uint even_ab = a & 0x00FF00FFu | (b & 0x00FF00FFu) << 8, odd_ab = a >> 8 & 0x00FF00FFu | b & 0xFF00FF00u;
            uint even_cd = c & 0x00FF00FFu | (d & 0x00FF00FFu) << 8, odd_cd = c >> 8 & 0x00FF00FFu | d & 0xFF00FF00u;
            tile_words[word + 4 * i * PITCH] = even_ab & 0xFFFFu | even_cd << 16;
            tile_words[word + (4 * i + 1) * PITCH] = odd_ab & 0xFFFFu | odd_cd << 16;
            tile_words[word + (4 * i + 2) * PITCH] = even_ab >> 16 | even_cd & 0xFFFF0000u;
            tile_words[word + (4 * i + 3) * PITCH] = odd_ab >> 16 | odd_cd & 0xFFFF0000u;
        } else if (ELEMENT_SIZE == 2) {
            tile_words[word + 2 * i * PITCH] = a & 0xFFFFu | b << 16;
            tile_words[word + (2 * i + 1) * PITCH] = a >> 16 | b & 0xFFFF0000u;
        } else {
            tile_words[word + i / WORDS_PER_ELEMENT * PITCH + i % WORDS_PER_ELEMENT] = a;
        }
    }
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
    // The whole tile lies in the tensor, and vectors are aligned: their loads follow each other without a branch.
    bool is_plain = first_element >= 0 && first_element + int(TILE_ROWS + EXTRA_ROWS) <= int(push.sizes[0])
        && column_start + TILE_COLUMNS <= columns && (source_start + column_start) % ELEMENTS_PER_BLOCK == 0
        && push.source_strides[0] % ELEMENTS_PER_BLOCK == 0;
    for (uint i = gl_LocalInvocationID.x; i < READS; i += gl_WorkGroupSize.x) {
        uint row = i / VECTORS_READ * ELEMENTS_PER_WORD;
        uint column = i % VECTORS_READ * ELEMENTS_PER_BLOCK;
        if (column_start + column >= columns)
            continue;
        uvec4 vectors[4];
        uint source = source_start + uint(first_element + int(row)) * push.source_strides[0] + column_start + column;
        if (is_plain) {
            [[unroll]] for (uint slot = 0; slot < 4; ++slot)
                vectors[slot] = source_vectors[(source + (slot < ELEMENTS_PER_WORD ? slot : 0) * push.source_strides[0])
                                               / ELEMENTS_PER_BLOCK];
        } else {
            bool is_whole = column_start + column + ELEMENTS_PER_BLOCK <= columns;
            [[unroll]] for (uint slot = 0; slot < 4; ++slot, source += push.source_strides[0]) {
                int element = first_element + int(row + slot);
                vectors[slot] = uvec4(0);
                if (slot < ELEMENTS_PER_WORD && element >= 0 && element < int(push.sizes[0]))
                    vectors[slot] = is_whole ? load_consecutive(source) : load_clamped(int(source * ELEMENT_SIZE));
            }
        }
        put_vectors(row, column, vectors);
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
        uint word = column * PITCH + row * ELEMENT_SIZE / 4;
        uint shift = row * ELEMENT_SIZE % 4 * 8;
        uvec4 value = uvec4(tile_words[word], tile_words[word + 1], tile_words[word + 2], tile_words[word + 3]);
        if (EXTRA_ROWS != 0 && shift != 0)
            value = value >> shift | uvec4(value.yzw, tile_words[word + 4]) << (32 - shift);
        store_block(block, value);
    }
}
