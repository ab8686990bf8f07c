// DIAGONAL_MATRIX1: output[.., y, x] = filled(x - y) ? value : input[.., y, x], or zero where there is no input
//
// Maths. filled(t) = (End >= Begin) ^ (t >= Begin) ^ (t < End). For Begin <= End that is Begin <= t < End, otherwise all
// but End <= t < Begin: a band, or everything except a band. The planner shifts t by the smallest t of the dispatch, which
// makes it unsigned, and clips the band to the dispatch, in exact arithmetic; here, one subtraction and one comparison
// decide. Neither the full range of 32-bit sizes nor INT32_MIN and INT32_MAX as open ends need more than 32 bits then.
//
// Loop structure. See loop_nest.glsl: one invocation writes one 16-byte block of the output. Blocks wholly outside the
// filled part are a copy of 16 consecutive bytes where the input's layout allows it, blocks wholly inside read nothing.
//
// Layout. Dimensions are sorted by output stride; x and y may be any of them, or none where their size is 1.
//
// Preconditions. Output elements do not overlap; input and output have equal sizes (an input broadcasts by strides of 0).
#version 460
#extension GL_GOOGLE_include_directive : require
#include "loop_nest.glsl"
#define OUTPUT_BINDING 0
#include "output_block.glsl"
#define SOURCE_BINDING 1
#include "source_elements.glsl"
#include "gather.glsl"

layout(constant_id = 4) const uint X_DIMENSION = NO_DIMENSION;
layout(constant_id = 5) const uint Y_DIMENSION = NO_DIMENSION;
layout(constant_id = 6) const bool FILL_OUTSIDE = false;  // Begin > End: all but the band
layout(constant_id = 7) const bool HAS_INPUT = true;

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

void main() {
    Block block;
    if (!find_block(block_index(), block))
        return;
    uvec4 value;
    bool decided = false;
    if (is_in_one_row(block)) {
        // Along a row t is constant or steps by one: the block's smallest and largest t are at its ends.
        uint t = diagonal(block.cursor);
        uint steps = block.last - block.first - 1;
        uint lowest = t;
        if (Y_DIMENSION == 0)
            lowest -= steps;
        bool varies = X_DIMENSION == 0 || Y_DIMENSION == 0;
        uint highest = varies ? lowest + steps : lowest;
        uint band_end = BAND_BEGIN + BAND_LENGTH;
        bool meets_band = highest >= BAND_BEGIN && lowest < band_end;
        bool within_band = lowest >= BAND_BEGIN && highest < band_end;
        if (FILL_OUTSIDE ? !meets_band : within_band) {
            value = repeat_element(VALUE_LOW, VALUE_HIGH);
            decided = true;
        } else if (FILL_OUTSIDE ? within_band : !meets_band) {
            if (!HAS_INPUT) {
                value = uvec4(0);
                decided = true;
            } else if (is_whole(block) && innermost_source_stride() == 1) {
                value = load_consecutive(block.cursor.source);
                decided = true;
            }
        }
    }
    if (!decided)
        value = gather(block);
    store_block(block, value);
}
