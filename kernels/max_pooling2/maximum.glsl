// The largest of several words, element by element, for elements of 1, 2 and 4 bytes.
//
// An element is compared in the upper bits of a word, where the elements below it do not matter: among equal ones, any of
// the words will do. So an element takes one shift and one maximum. Signed integers become unsigned ones in the same order
// by their top bit.
//
// The kernel defines ELEMENT_SIZE and IS_SIGNED before it includes this file.

const uint FLIP = IS_SIGNED == 0 ? 0 : ELEMENT_SIZE == 1 ? 0x80808080u : ELEMENT_SIZE == 2 ? 0x80008000u : 0x80000000u;

// Each element of a word in the upper bits of a number of its own.
void take_word(inout uvec4 largest, uint word) {
    word ^= FLIP;
    if (ELEMENT_SIZE == 1)
        largest = max(largest, uvec4(word << 24, word << 16, word << 8, word));
    else if (ELEMENT_SIZE == 2)
        largest.xy = max(largest.xy, uvec2(word << 16, word));
    else
        largest.x = max(largest.x, word);
}

uint word_of(uvec4 largest) {
    uint word = largest.x;
    if (ELEMENT_SIZE == 1) {
        uvec4 bytes = largest >> 24;
        word = bytes.x | bytes.y << 8 | bytes.z << 16 | bytes.w << 24;
    } else if (ELEMENT_SIZE == 2) {
        word = largest.x >> 16 | largest.y & 0xFFFF0000u;
    }
    return word ^ FLIP;
}
