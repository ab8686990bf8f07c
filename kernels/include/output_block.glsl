// The output window of the data-movement kernels, written a 16-byte block at a time. OUTPUT_BINDING comes from the kernel.
//
// The window is seen both as words and as vectors of four: two views of one binding.

layout(set = 0, binding = OUTPUT_BINDING) buffer OutputWords { uint output_words[]; };
layout(set = 0, binding = OUTPUT_BINDING) buffer OutputVectors { uvec4 output_vectors[]; };

// Writes the elements first <= element < last and no other byte. A word that the run covers only in part may be shared with
// another run, another dispatch or a gap that has to keep its value: its bytes are replaced by two atomics, each of which
// leaves the other bytes alone, whatever others do to the word in between.
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
            uint mask = ((1u << (8 * (end - begin))) - 1) << (8 * begin);
            atomicAnd(output_words[word_index + word], ~mask);
            atomicOr(output_words[word_index + word], value[word] & mask);
        }
    }
}
