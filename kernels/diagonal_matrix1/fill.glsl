// DIAGONAL_MATRIX1: output[.., y, x] = filled(x - y) ? value : input[.., y, x], or zero if there is no input
//
// Maths. filled(t) = (End >= Begin) ^ (t >= Begin) ^ (t < End). If Begin <= End, this is the band Begin <= t < End.
// Otherwise it is everything except the band End <= t < Begin. The planner subtracts the smallest t of the dispatch
// from t, which makes it unsigned, and clips the band to the dispatch, in exact arithmetic. Here, one subtraction and
// one comparison decide. So 32 bits are enough for the full range of 32-bit sizes, and for INT32_MIN and INT32_MAX as
// open ends.
//
// Loop structure. See data_movement/loop_nest.glsl: one invocation writes one 16-byte block of the output. In a whole
// block inside a row, the elements in the band are consecutive. The block is read as in slice1/blocks.comp, and the
// filled elements are replaced under a mask. A block that is filled from end to end reads nothing. Other blocks are
// built element by element.
//
// Layout. Dimensions are sorted by output stride. Each of x and y may be any of them, or none if its size is 1.
//
// Preconditions. Output elements do not overlap. Input and output have equal sizes (strides of 0 broadcast an input).
#include "data_movement/loop_nest.glsl"
#define OUTPUT_BINDING 0
#include "data_movement/output_block.glsl"
#define SOURCE_BINDING 1
#include "data_movement/source_elements.glsl"
#include "data_movement/gather.glsl"

layout(constant_id = 7) const uint X_DIMENSION = NO_DIMENSION;
layout(constant_id = 8) const uint Y_DIMENSION = NO_DIMENSION;
layout(constant_id = 9) const bool FILL_OUTSIDE = false;  // Begin > End: everything except the band is filled
layout(constant_id = 10) const bool HAS_INPUT = true;
layout(constant_id = 11) const bool IS_CONSECUTIVE = true;  // whether rows are consecutive in the source

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

// a - b, but at least 0 and at most `most`.
uint excess(uint a, uint b, uint most) {
    return a > b ? min(a - b, most) : 0;
}

// A whole block inside a row.
uvec4 row_block(Cursor cursor) {
    // The block's elements in the band: from `begin` up to, but excluding, `end`. In a row, t steps by one or not at
    // all.
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
