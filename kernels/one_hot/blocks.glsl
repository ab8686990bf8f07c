// ONE_HOT in 16-byte blocks of the output. Maths, layout and preconditions: element.glsl.
//
// Loop structure. If the axis is the innermost dimension, a block inside a row has one index and at most one hot
// element. An invocation loads the index of a row and then writes several blocks of this row. In other layouts, and in
// blocks across rows, each element loads its own index.
#include "element.glsl"
#include "data_movement/gather.glsl"

uint axis_coordinate(Cursor cursor) {
    uint coordinate = AXIS_START;
    [[unroll]] for (uint dimension = 0; dimension < 8; ++dimension)
        if (dimension == AXIS_DIMENSION)
            coordinate += cursor.coordinates[dimension];
    return coordinate;
}

uint element_word(Cursor cursor, uint part) {
    return value_word(hot_coordinate(cursor.source) == axis_coordinate(cursor), part);
}

void write_blocks(Block block, uvec4 off_block) {
    if (AXIS_DIMENSION != 0 || !is_in_one_row(block)) {
        store_block(block, gather(block));
        return;
    }
    uint hot = hot_coordinate(block.cursor.source);
    do {
        uvec4 value = off_block;
        // The distance is unsigned: a hot coordinate before the block is far away. So is NOWHERE, past every size.
        uint distance = hot - axis_coordinate(block.cursor);
        if (distance < block.last - block.first) {
            uvec4 mask = slot_mask(block.first - block.start + distance);
            uvec4 on_block = repeat_element(value_word(true, 0), value_word(true, WORDS_PER_ELEMENT - 1));
            value = (value & ~mask) | (on_block & mask);
        }
        store_block(block, value);
    } while (find_next_block(block));
}

void main() {
    Block block;
    if (!find_block(block_index(), block))
        return;
    uvec4 off_block = repeat_element(value_word(false, 0), value_word(false, WORDS_PER_ELEMENT - 1));
    write_blocks(block, off_block);
}
