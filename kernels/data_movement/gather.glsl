// A block put together element by element: the way that takes any layout.

// The kernel's own: one 32-bit word of the element at a cursor, in the low bits where an element is smaller than a word.
uint element_word(Cursor cursor, uint part);

// A GPU is up to a third faster with all elements one after the other, each with its place in the block a constant. A CPU
// driver, which goes every way under a mask, is up to five times faster with a loop that ends where no lane has elements.
uvec4 gather(Block block) {
    uvec4 value = uvec4(0);
    uint begin = GATHERS_IN_LOOP ? block.first - block.start : 0;
    uint end = GATHERS_IN_LOOP ? block.last - block.start : ELEMENTS_PER_BLOCK;
    [[unroll]] for (uint slot = begin; slot < end; ++slot) {
        uint element = block.start + slot;
        if (GATHERS_IN_LOOP || (element >= block.first && element < block.last)) {
            [[unroll]] for (uint part = 0; part < WORDS_PER_ELEMENT; ++part) {
                uint bits = element_word(block.cursor, part) << (slot % ELEMENTS_PER_WORD * ELEMENT_BITS & 31);
                // Not value[word] = bits: an index known only at run time sends the vector to memory on some compilers.
                uint word = slot / ELEMENTS_PER_WORD * WORDS_PER_ELEMENT + part;
                value |= mix(uvec4(0), uvec4(bits), equal(uvec4(0, 1, 2, 3), uvec4(word)));
            }
            advance(block.cursor, 1);
        }
    }
    return value;
}
