// The source window of the data-movement kernels, read an element or a 16-byte run at a time. SOURCE_BINDING comes from the
// kernel.

layout(set = 0, binding = SOURCE_BINDING) readonly buffer SourceWords { uint source_words[]; };
layout(set = 0, binding = SOURCE_BINDING) readonly buffer SourceVectors { uvec4 source_vectors[]; };

// One word of an element, in the low bits: the element itself where it is smaller than a word.
uint load_element_word(uint element, uint word_of_element) {
    if (ELEMENT_SIZE >= 4)
        return source_words[element * WORDS_PER_ELEMENT + word_of_element];
    uint shift = element % ELEMENTS_PER_WORD * ELEMENT_BITS;
    return source_words[element / ELEMENTS_PER_WORD] >> shift & ELEMENT_MASK;
}

// The 16 bytes that start at an element, wherever that lies in its word. Reads no word that holds none of these bytes.
uvec4 load_consecutive(uint element) {
    // Windows are at most 2^31 bytes, so that byte addresses fit.
    uint address = element * ELEMENT_SIZE;
    if (address % BLOCK_SIZE == 0)
        return source_vectors[address / BLOCK_SIZE];
    uint word = address / 4;
    uvec4 low = uvec4(source_words[word], source_words[word + 1], source_words[word + 2], source_words[word + 3]);
    uint shift = address % 4 * 8;
    if (ELEMENT_SIZE >= 4 || shift == 0)
        return low;
    uvec4 high = uvec4(low.yzw, source_words[word + 4]);
    return low >> shift | high << (32 - shift);
}

// Some consecutive elements in the place that a block has for them, zero elsewhere: `count` elements from `element` on go to
// the slots from `slot` on. Reads no word that holds none of their bytes.
uvec4 load_part(uint element, uint slot, uint count) {
    int begin = int(element * ELEMENT_SIZE);
    int end = begin + int(count * ELEMENT_SIZE);
    // Where the block's first byte would come from; before the window's start if the slots before have other sources.
    int address = begin - int(slot * ELEMENT_SIZE);
    int word = address >> 2;
    uint words[5];
    [[unroll]] for (int i = 0; i < 5; ++i)
        words[i] = (word + i) * 4 + 4 > begin && (word + i) * 4 < end ? source_words[word + i] : 0;
    uvec4 value = uvec4(words[0], words[1], words[2], words[3]);
    uint shift = uint(address & 3) * 8;
    if (ELEMENT_SIZE < 4 && shift != 0)
        value = value >> shift | uvec4(value.yzw, words[4]) << (32 - shift);
    // Bytes of the same words that are not meant.
    ivec4 first = clamp(ivec4(int(slot * ELEMENT_SIZE)) - ivec4(0, 4, 8, 12), 0, 4);
    ivec4 last = clamp(ivec4(int((slot + count) * ELEMENT_SIZE)) - ivec4(0, 4, 8, 12), 0, 4);
    uvec4 from_first = mix(uvec4(0xFFFFFFFFu) << (first * 8), uvec4(0), equal(first, ivec4(4)));
    uvec4 from_last = mix(uvec4(0xFFFFFFFFu) << (last * 8), uvec4(0), equal(last, ivec4(4)));
    return value & from_first & ~from_last;
}

// The same elements in the opposite order.
uvec4 reverse_elements(uvec4 value) {
    if (ELEMENT_SIZE == 16)
        return value;
    if (ELEMENT_SIZE == 8)
        return value.zwxy;
    value = value.wzyx;
    if (ELEMENT_SIZE == 2)
        return value << 16 | value >> 16;
    if (ELEMENT_SIZE == 1)
        return value << 24 | (value & 0xFF00u) << 8 | (value >> 8 & 0xFF00u) | value >> 24;
    return value;
}

// A block whose source runs forwards (stride 1) or backwards (stride -1) along each row, put together row by row.
uvec4 load_rows(Block block, bool backwards) {
    uvec4 value = uvec4(0);
    uint element = block.first;
    while (element < block.last) {
        uint count = min(block.last - element, rest_of_row(block.cursor));
        uint slot = element - block.start;
        // Backwards: read forwards into the mirrored slots; the block is reversed at the end.
        value |= backwards ? load_part(block.cursor.source - (count - 1), ELEMENTS_PER_BLOCK - slot - count, count)
                           : load_part(block.cursor.source, slot, count);
        element += count;
        advance(block.cursor, count);
    }
    return backwards ? reverse_elements(value) : value;
}
