// Elements of a tensor in words: reading one, and storing the elements of a word and no other byte. The kernel declares
// `input_words` and `output_words`, and defines ELEMENT_SIZE (1, 2, 4 or 8 bytes).

// Elements of a word, which an invocation stores together. A larger element is stored by itself.
const uint PER_WORD = ELEMENT_SIZE < 4 ? 4 / ELEMENT_SIZE : 1;
const uint ELEMENT_BITS = ELEMENT_SIZE < 4 ? 8 * ELEMENT_SIZE : 32;
const uint ELEMENT_MASK = ELEMENT_SIZE < 4 ? (1u << (ELEMENT_SIZE < 4 ? 8 * ELEMENT_SIZE : 0)) - 1 : 0xFFFFFFFFu;

// An element in the low bits; of one of 8 bytes, y is the upper word.
uvec2 load_element(uint element) {
    if (ELEMENT_SIZE == 8)
        return uvec2(input_words[2 * element], input_words[2 * element + 1]);
    if (ELEMENT_SIZE == 4)
        return uvec2(input_words[element], 0);
    return uvec2(input_words[element / PER_WORD] >> element % PER_WORD * ELEMENT_BITS & ELEMENT_MASK, 0);
}

// A word may be shared with other invocations, and with gaps that keep their value. Two atomics leave them alone.
void store_masked(uint word, uint mask, uint bits) {
    if (mask == 0xFFFFFFFFu) {
        output_words[word] = bits;
        return;
    }
    atomicAnd(output_words[word], ~mask);
    atomicOr(output_words[word], bits & mask);
}

// Stores elements smaller than a word, which are packed in a word, at their places, those that are valid.
void store_elements(uint packed, uvec4 places, bvec4 valid) {
    // Where they would lie if they were the elements of one word.
    uint word = 0;
    bool is_one_word = true;
    uint mask = 0;
    for (uint i = 0; i < PER_WORD; ++i) {
        if (valid[i]) {
            is_one_word = is_one_word && places[i] % PER_WORD == i && (mask == 0 || places[i] / PER_WORD == word);
            word = places[i] / PER_WORD;
            mask |= ELEMENT_MASK << i * ELEMENT_BITS;
        }
    }
    if (is_one_word) {
        if (mask != 0)
            store_masked(word, mask, packed);
        return;
    }
    for (uint i = 0; i < PER_WORD; ++i) {
        uint shift = places[i] % PER_WORD * ELEMENT_BITS;
        if (valid[i])
            store_masked(
                places[i] / PER_WORD, ELEMENT_MASK << shift, (packed >> i * ELEMENT_BITS & ELEMENT_MASK) << shift);
    }
}
