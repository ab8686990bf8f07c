// Builds a block element by element. This works for any layout.

// The kernel defines this: one 32-bit word of the element at a cursor. A smaller element is in the low bits.
uint element_word(Cursor cursor, uint part);

// A GPU is up to a third faster if it takes all elements one after the other, so that each has a constant place in the
// block. A CPU driver takes every branch under a mask. It is up to five times faster with a loop that ends when no
// lane has elements left.
uvec4 gather(Block block) {
    uvec4 value = uvec4(0);
    uint begin = GATHERS_IN_LOOP ? block.first - block.start : 0;
    uint end = GATHERS_IN_LOOP ? block.last - block.start : ELEMENTS_PER_BLOCK;
    [[unroll]] for (uint slot = begin; slot < end; ++slot) {
        uint element = block.start + slot;
        if (GATHERS_IN_LOOP || (element >= block.first && element < block.last)) {
            [[unroll]] for (uint part = 0; part < WORDS_PER_ELEMENT; ++part) {
                uint bits = element_word(block.cursor, part) << (slot % ELEMENTS_PER_WORD * ELEMENT_BITS & 31);
                // Not value[word] = bits: some compilers move a vector to memory if its index is not a constant.
                uint word = slot / ELEMENTS_PER_WORD * WORDS_PER_ELEMENT + part;
                value |= mix(uvec4(0), uvec4(bits), equal(uvec4(0, 1, 2, 3), uvec4(word)));
            }
            advance(block.cursor, 1);
        }
    }
    return value;
}
