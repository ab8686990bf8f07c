// A block put together element by element: the way that takes any layout.

// The kernel's own: one 32-bit word of the element at a cursor, in the low bits where an element is smaller than a word.
uint element_word(Cursor cursor, uint part);

uvec4 gather(Block block) {
    uvec4 value = uvec4(0);
    uint element = block.start;
    for (uint word = 0; word < 4; ++word) {
        uint bits = 0;
        if (ELEMENT_SIZE >= 4) {
            uint part = word % WORDS_PER_ELEMENT;
            if (element >= block.first && element < block.last) {
                bits = element_word(block.cursor, part);
                if (part + 1 == WORDS_PER_ELEMENT)
                    advance(block.cursor, 1);
            }
            if (part + 1 == WORDS_PER_ELEMENT)
                ++element;
        } else {
            for (uint slot = 0; slot < ELEMENTS_PER_WORD; ++slot, ++element) {
                if (element >= block.first && element < block.last) {
                    bits |= element_word(block.cursor, 0) << (slot * ELEMENT_BITS);
                    advance(block.cursor, 1);
                }
            }
        }
        // Not value[word] = bits: an index known only at run time sends the vector to memory on some compilers.
        value = mix(value, uvec4(bits), equal(uvec4(0, 1, 2, 3), uvec4(word)));
    }
    return value;
}

// A block of equal elements, from the element's words.
uvec4 repeat_element(uint low, uint high) {
    if (ELEMENT_SIZE == 8)
        return uvec4(low, high, low, high);
    return uvec4(low * (ELEMENT_SIZE == 1 ? 0x01010101u : ELEMENT_SIZE == 2 ? 0x00010001u : 1u));
}
