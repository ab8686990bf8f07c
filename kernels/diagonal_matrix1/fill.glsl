// DIAGONAL_MATRIX1: output[.., y, x] = filled(x - y) ? value : input[.., y, x], or zero where there is no input
//
// Maths. filled(t) = (End >= Begin) ^ (t >= Begin) ^ (t < End). For Begin <= End that is Begin <= t < End, otherwise all
// but End <= t < Begin: a band, or everything except a band. The planner shifts t by the smallest t of the dispatch, which
// makes it unsigned, and clips the band to the dispatch, in exact arithmetic; here, one subtraction and one comparison
// decide. Neither the full range of 32-bit sizes nor INT32_MIN and INT32_MAX as open ends need more than 32 bits then.
//
// Loop structure. See data_movement/loop_nest.glsl: one invocation writes one 16-byte block of the output. Of a whole block inside a row,
// one stretch lies in the band: it is read as in slice1/blocks.comp and the stretch replaced under a mask. A block that is filled
// from end to end reads nothing. Other blocks are put together element by element.
//
// Layout. Dimensions are sorted by output stride; x and y may be any of them, or none where their size is 1.
//
// Preconditions. Output elements do not overlap; input and output have equal sizes (an input broadcasts by strides of 0).
#include "data_movement/loop_nest.glsl"
#define OUTPUT_BINDING 0
#include "data_movement/output_block.glsl"
#define SOURCE_BINDING 1
#include "data_movement/source_elements.glsl"
#include "data_movement/gather.glsl"

layout(constant_id = 7) const uint X_DIMENSION = NO_DIMENSION;
layout(constant_id = 8) const uint Y_DIMENSION = NO_DIMENSION;
layout(constant_id = 9) const bool FILL_OUTSIDE = false;  // Begin > End: all but the band
layout(constant_id = 10) const bool HAS_INPUT = true;
layout(constant_id = 11) const bool IS_CONSECUTIVE = true;  // along rows, in the source

#define BAND_BEGIN push.arguments[0]
#define BAND_LENGTH push.arguments[1]
#define VALUE_LOW push.arguments[2]
#define VALUE_HIGH push.arguments[3]

// t = x - y + (y's size - 1), which is never negative.
uint diagonal(Cursor cursor) {
    uint t = 0;
    [[unroll]] for (uint dimension = 0; dimension < 8; ++dimension) {
        if (dimension == X_DIMENSION)
            t += cursor.coordinates[dimension];
        if (dimension == Y_DIMENSION)
            t += push.sizes[dimension] - 1 - cursor.coordinates[dimension];
    }
    return t;
}

bool is_filled(uint t) {
    return (t - BAND_BEGIN < BAND_LENGTH) != FILL_OUTSIDE;
}

uint element_word(Cursor cursor, uint part) {
    if (is_filled(diagonal(cursor)))
        return part == 0 ? VALUE_LOW : VALUE_HIGH;
    return HAS_INPUT ? load_element_word(cursor.source, part) : 0;
}

// How far a lies above b, and `most` where it is more.
uint excess(uint a, uint b, uint most) {
    return a > b ? min(a - b, most) : 0;
}

// A whole block inside a row.
uvec4 row_block(Cursor cursor) {
    // The block's elements in the band, from the one numbered `begin` up to `end`: along a row t steps by one or not at all.
    uint t = diagonal(cursor);
    uint band_end = BAND_BEGIN + BAND_LENGTH;
    uint begin = 0;
    uint end = ELEMENTS_PER_BLOCK;
    if (X_DIMENSION == 0) {
        begin = excess(BAND_BEGIN, t, ELEMENTS_PER_BLOCK);
        end = excess(band_end, t, ELEMENTS_PER_BLOCK);
    } else if (Y_DIMENSION == 0) {
        begin = excess(t + 1, band_end, ELEMENTS_PER_BLOCK);
        end = excess(t + 1, BAND_BEGIN, ELEMENTS_PER_BLOCK);
    } else if (t - BAND_BEGIN >= BAND_LENGTH) {
        end = 0;
    }
    uint length = end - begin;
    uvec4 value = uvec4(0);
    if (HAS_INPUT && length != (FILL_OUTSIDE ? 0 : ELEMENTS_PER_BLOCK)) {
        value =
            IS_CONSECUTIVE ? load_consecutive(cursor.source) : load_strided(cursor.source, innermost_source_stride());
    }
    if (length != (FILL_OUTSIDE ? ELEMENTS_PER_BLOCK : 0)) {
        uvec4 mask = bytes_from(begin * ELEMENT_SIZE) & ~bytes_from(end * ELEMENT_SIZE);
        mask = FILL_OUTSIDE ? ~mask : mask;
        value = (value & ~mask) | (repeat_element(VALUE_LOW, VALUE_HIGH) & mask);
    }
    return value;
}

void main() {
    Block block;
    if (!find_block(block_index(), block))
        return;
    store_block(block, is_inside_row(block) ? row_block(block.cursor) : gather(block));
}
