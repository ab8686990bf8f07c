// Stores bytes of the output and changes no other byte. The kernel declares `output_words`.

uint clamped_byte(int value) {
    return uint(OUTPUT_UNSIGNED != 0 ? clamp(value, 0, 255) : clamp(value, -128, 127)) & 0xFF;
}

// Words are shared with other invocations, and with gaps that keep their value. So a word is changed by two atomics,
// each of which leaves all other bytes alone, whatever happens to the word in between.
void store_masked(uint word, uint mask, uint bits) {
    atomicAnd(output_words[word], ~mask);
    if (bits != 0)
        atomicOr(output_words[word], bits);
}

void store_byte(uint address, uint value) {
    uint shift = 8 * (address & 3);
    store_masked(address >> 2, 0xFFu << shift, value << shift);
}

// Stores four bytes, from the lowest, at four addresses, except those that are not valid. Consecutive addresses, which
// ordinary layouts have, are one whole word or lie across two words.
void store_four(uint packed, uvec4 address, bvec4 valid) {
    if (all(valid) && address.y == address.x + 1 && address.z == address.x + 2 && address.w == address.x + 3) {
        uint shift = 8 * (address.x & 3);
        if (shift == 0) {
            output_words[address.x >> 2] = packed;
        } else {
            store_masked(address.x >> 2, 0xFFFFFFFFu << shift, packed << shift);
            store_masked((address.x >> 2) + 1, 0xFFFFFFFFu >> (32 - shift), packed >> (32 - shift));
        }
        return;
    }
    for (uint i = 0; i < 4; ++i) {
        if (valid[i])
            store_byte(address[i], (packed >> (8 * i)) & 0xFF);
    }
}
