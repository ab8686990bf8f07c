// The output window of the data-movement kernels, written one 16-byte block at a time. The kernel defines
// OUTPUT_BINDING. The window has two views with one binding: words, and vectors of four words.

layout(set = 0, binding = OUTPUT_BINDING) buffer OutputWords { uint output_words[]; };
layout(set = 0, binding = OUTPUT_BINDING) buffer OutputVectors { uvec4 output_vectors[]; };

// A block of equal elements, from the words of the element.
uvec4 repeat_element(uint low, uint high) {
    if (ELEMENT_SIZE == 8)
        return uvec4(low, high, low, high);
    return uvec4(low * (ELEMENT_SIZE == 1 ? 0x01010101u : ELEMENT_SIZE == 2 ? 0x00010001u : 1u));
}

// Replaces the bits of a word that are set in the mask. The other bits may belong to another run, to another dispatch,
// or to a gap that has to keep its value. Two atomics leave them alone, whatever other invocations do to the word in
// between.
void store_bits(uint word, uint mask, uint bits) {
    atomicAnd(output_words[word], ~mask);
    atomicOr(output_words[word], bits & mask);
}

// Writes the elements first <= element < last and no other byte.
void store_block(Block block, uvec4 value) {
    if (is_whole(block)) {
        output_vectors[block.start / ELEMENTS_PER_BLOCK] = value;
        return;
    }
    uint first_byte = (block.first - block.start) * ELEMENT_SIZE;
    uint last_byte = (block.last - block.start) * ELEMENT_SIZE;
    uint word_index = block.start / ELEMENTS_PER_BLOCK * 4;
    [[unroll]] for (uint word = 0; word < 4; ++word) {
        uint begin = clamp(first_byte, word * 4, word * 4 + 4) - word * 4;
        uint end = clamp(last_byte, word * 4, word * 4 + 4) - word * 4;
        if (begin == 0 && end == 4) {
            output_words[word_index + word] = value[word];
        } else if (ELEMENT_SIZE < 4 && begin < end) {
            store_bits(word_index + word, ((1u << (8 * (end - begin))) - 1) << (8 * begin), value[word]);
        }
    }
}
