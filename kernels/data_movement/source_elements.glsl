// The source window of the data-movement kernels, read by elements or 16-byte runs. The kernel defines SOURCE_BINDING.

layout(set = 0, binding = SOURCE_BINDING) readonly buffer SourceWords { uint source_words[]; };
layout(set = 0, binding = SOURCE_BINDING) readonly buffer SourceVectors { uvec4 source_vectors[]; };

// One word of an element. An element smaller than a word is in the low bits.
uint load_element_word(uint element, uint word_of_element) {
    if (ELEMENT_SIZE >= 4)
        return source_words[element * WORDS_PER_ELEMENT + word_of_element];
    uint shift = element % ELEMENTS_PER_WORD * ELEMENT_BITS;
    return source_words[element / ELEMENTS_PER_WORD] >> shift & ELEMENT_MASK;
}

// The 16 bytes from an element on, which may begin anywhere in a word. Reads only words that hold some of them.
uvec4 load_consecutive(uint element) {
    // A window has at most 2^31 bytes, so byte addresses fit.
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

// A block of elements that lie `stride` elements apart.
uvec4 load_strided(uint element, uint stride) {
    uvec4 value = uvec4(0);
    [[unroll]] for (uint word = 0; word < 4; ++word) {
        if (ELEMENT_SIZE >= 4) {
            value[word] = load_element_word(element + word / WORDS_PER_ELEMENT * stride, word % WORDS_PER_ELEMENT);
        } else {
            [[unroll]] for (uint slot = 0; slot < ELEMENTS_PER_WORD; ++slot, element += stride)
                value[word] |= load_element_word(element, 0) << (slot * ELEMENT_BITS);
        }
    }
    return value;
}

// Moves the even elements of each word into its lower half and clears the upper half. For elements smaller than a word.
uvec4 even_elements(uvec4 value) {
    if (ELEMENT_SIZE == 2)
        return value & 0xFFFFu;
    value &= 0x00FF00FFu;
    return (value | value >> 8) & 0xFFFFu;
}

// A block of every second element. Reads only words that hold some of them: the second load ends with the last of
// these elements, so they have the odd places in it.
uvec4 load_every_second(uint element) {
    uvec4 first = even_elements(load_consecutive(element));
    uvec4 second = even_elements(load_consecutive(element + ELEMENTS_PER_BLOCK - 1) >> ELEMENT_BITS);
    return uvec4(first.xz, second.xz) | uvec4(first.yw, second.yw) << 16;
}

// The 16 bytes at a byte address of the source. They may begin before the window or end after it: the caller does not
// use the bytes outside the window, which are read from the nearest word inside it.
uvec4 load_clamped(int address) {
    int word = address >> 2;
    int last_word = source_words.length() - 1;
    uint words[5];
    [[unroll]] for (int i = 0; i < 5; ++i)
        words[i] = source_words[clamp(word + i, 0, last_word)];
    uvec4 value = uvec4(words[0], words[1], words[2], words[3]);
    uint shift = uint(address & 3) * 8;
    if (ELEMENT_SIZE >= 4 || shift == 0)
        return value;
    return value >> shift | uvec4(value.yzw, words[4]) << (32 - shift);
}

// A mask with ones in the bytes from `byte` on.
uvec4 bytes_from(uint byte) {
    ivec4 bits = clamp(ivec4(int(byte)) - ivec4(0, 4, 8, 12), 0, 4) * 8;
    return mix(uvec4(0xFFFFFFFFu) << bits, uvec4(0), equal(bits, ivec4(32)));
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

// Builds a block row by row. Its source runs forwards (stride 1) or backwards (stride -1) along each row.
//
// The loop tests its condition before each round, not after it. SwiftShader otherwise changes the result of lanes that
// have left the loop: they get what the other lanes' last round computes, with zeros in place of what they no longer
// load.
uvec4 load_rows(Block block, bool backwards) {
    uvec4 value = uvec4(0);
    uint element = block.first;
    while (element < block.last) {
        uint count = min(block.last - element, rest_of_row(block.cursor));
        uint slot = element - block.start;
        // Backwards: the elements are read forwards into the mirrored slots, and then reversed.
        uint mirrored = backwards ? ELEMENTS_PER_BLOCK - slot - count : slot;
        uint source = backwards ? block.cursor.source - (count - 1) : block.cursor.source;
        uvec4 part = load_clamped(int(source * ELEMENT_SIZE) - int(mirrored * ELEMENT_SIZE));
        part = backwards ? reverse_elements(part) : part;
        // Each row replaces what was read past the end of the row before.
        uvec4 mask = bytes_from(slot * ELEMENT_SIZE);
        value = (value & ~mask) | (part & mask);
        element += count;
        advance(block.cursor, count);
    }
    return value;
}
