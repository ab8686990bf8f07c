// The input of depthwise.glsl: the words of rows as they lie in memory, and arranged for its products.

// A mask of the bytes of a word of columns that lie inside the input. `column` is the word's first column.
uint inside_mask(uint column) {
    int low = clamp(-int(column), 0, 4);
    int high = clamp(int(SIZE(COLUMN_LIMIT, column_limit)) - int(column), 0, 4);
    uint below_high = high == 4 ? 0xFFFFFFFF : (1u << (8 * high)) - 1;
    uint below_low = low == 4 ? 0xFFFFFFFF : (1u << (8 * low)) - 1;
    return below_high & ~below_low;
}

// Four bytes at any address. Bytes in the mask are inside the input; the others may have any value. Reads only words
// that hold bytes in the mask.
uint bytes_at(uint address, uint mask) {
    uint first = (address + uint(findLSB(mask)) / 8) >> 2;
    uint last = (address + uint(findMSB(mask)) / 8) >> 2;
    uint shift = 8 * (address & 3);
    uint low = input_words[first];
    if (shift == 0)
        return low;
    uint high = last == first ? low : input_words[last];
    // If both ends of the mask lie in one word, this is either the first of the two words or the second.
    if (last == first && int(first) != int(address) >> 2)
        low = 0;
    return low >> shift | high << (32 - shift);
}

// The same without a branch: no load waits for another one. If `is_inside` is false, words at the start of the memory are
// read in place of those.
uint loaded_bytes(uint address, uint mask, bool is_inside) {
    uint first = (address + uint(findLSB(mask)) / 8) >> 2;
    uint last = (address + uint(findMSB(mask)) / 8) >> 2;
    uint shift = 8 * (address & 3);
    uint low = input_words[is_inside ? first : 0];
    uint high = input_words[is_inside ? last : 0];
    if (last == first && int(first) != int(address) >> 2)
        low = 0;
    return low >> shift | (high << 1) << (31 - shift);
}

// Fetches the words of a batch of input rows, unchanged: an operation on a fetched word would wait for it at once.
// `masks` has a mask of each word's bytes. Words outside the input have the border. With `without_branch`, in which case
// the border need not be known yet, they have any value: that of a word at the start of the memory.
void fetch(uint row, uint row_limit, uint address, uint masks[FETCHED], uint border, bool without_branch,
    out uint words[FETCHED_ROWS]) {
    [[unroll]] for (uint s = 0; s < BATCH * STRIDE_H; ++s) {
        bool inside = row + s < row_limit;
        [[unroll]] for (uint n = 0; n < FETCHED; ++n) {
            bool is_inside = inside && masks[n] != 0;
            uint place = CHANNELS_LAST != 0 ? (address + n * push.input_stride_w) >> 2 : (address >> 2) + n;
            uint word = border ^ INPUT_FLIP;
            if (without_branch) {
                if (CHANNELS_LAST != 0 || ALIGNED != 0)
                    word = input_words[is_inside ? place : 0];
                else
                    word = loaded_bytes(address + 4 * n, masks[n], is_inside);
            } else if (is_inside) {
                if (CHANNELS_LAST != 0 || ALIGNED != 0)
                    word = input_words[place];
                else
                    word = bytes_at(address + 4 * n, masks[n]);
            }
            words[s * FETCHED + n] = word;
        }
        address += push.input_stride_h;
    }
}

// A fetched word as signed bytes, with the border in the bytes outside the input.
uint finished(uint word, uint mask, uint border) {
    word ^= INPUT_FLIP;
    return CHANNELS_LAST != 0 && PREPARED == 0 ? word : (word & mask) | (border & ~mask);
}

#ifdef DOT4

// Arranges a fetched row as words of four columns, channel by channel.
void arrange(uint words[FETCHED_ROWS], uint fetched, uint s, inout uint arranged[ARRANGED_ROWS]) {
    uint first = fetched * FETCHED;
    uint place = s * ARRANGED;
    if (CHANNELS_LAST == 0) {
        [[unroll]] for (uint n = 0; n < FETCHED; ++n)
            arranged[min(place + n, ARRANGED_ROWS - 1)] = words[first + n];
        return;
    }
    [[unroll]] for (uint n = 0; n < WORDS; ++n) {
        uint a = words[first + min(4 * n, FETCHED - 1)];
        uint b = words[first + min(4 * n + 1, FETCHED - 1)];
        uint c = words[first + min(4 * n + 2, FETCHED - 1)];
        uint d = words[first + min(4 * n + 3, FETCHED - 1)];
        uint even_ab = (a & 0x00FF00FF) | ((b << 8) & 0xFF00FF00);
        uint odd_ab = ((a >> 8) & 0x00FF00FF) | (b & 0xFF00FF00);
        uint even_cd = (c & 0x00FF00FF) | ((d << 8) & 0xFF00FF00);
        uint odd_cd = ((c >> 8) & 0x00FF00FF) | (d & 0xFF00FF00);
        arranged[place + n] = (even_ab & 0xFFFF) | (even_cd << 16);
        arranged[place + min(WORDS + n, ARRANGED - 1)] = (odd_ab & 0xFFFF) | (odd_cd << 16);
        arranged[place + min(2 * WORDS + n, ARRANGED - 1)] = (even_ab >> 16) | (even_cd & 0xFFFF0000);
        arranged[place + min(3 * WORDS + n, ARRANGED - 1)] = (odd_ab >> 16) | (odd_cd & 0xFFFF0000);
    }
}

// Four columns of a channel, from a place in row s on. Columns past the row's end are multiplied by weights of 0.
int window(uint arranged[ARRANGED_ROWS], uint s, uint channel, uint offset) {
    uint n = s * ARRANGED + channel * WORDS + offset / 4;
    uint shift = 8 * (offset % 4);
    if (shift == 0)
        return int(arranged[n]);
    uint next = offset / 4 + 1 < WORDS ? arranged[min(n + 1, ARRANGED_ROWS - 1)] : 0;
    return int(arranged[n] >> shift | next << (32 - shift));
}

#else

// Arranges a fetched row as bytes, channel by channel.
void arrange(uint words[FETCHED_ROWS], uint fetched, uint s, inout uint arranged[ARRANGED_ROWS]) {
    [[unroll]] for (uint channel = 0; channel < CHANNELS; ++channel) {
        [[unroll]] for (uint i = 0; i < SPAN; ++i) {
            uint offset = SHIFT + i;
            int word = int(words[fetched * FETCHED + (CHANNELS_LAST != 0 ? i : offset / 4)]);
            arranged[s * ARRANGED + channel * SPAN + i] =
                uint(bitfieldExtract(word, int(8 * (CHANNELS_LAST != 0 ? channel : offset % 4)), 8));
        }
    }
}

#endif
