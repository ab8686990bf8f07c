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
