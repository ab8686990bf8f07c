// Packed dot products, if the kernel defines DOT_PRODUCT, or multiplications of 32 bits, which every device has.

// With MIXED_SIGNS, the bytes of the first operand are stored as unsigned ones: 128 more than they are.
#ifdef MIXED_SIGNS
#define STORED(bytes) ((bytes) ^ 0x80808080)
#else
#define STORED(bytes) (bytes)
#endif

// The dot product of four signed bytes and four signed bytes, added to a sum; with MIXED_SIGNS, of stored bytes.
int dot_add(uint a, uint b, int sum) {
#if defined(MIXED_SIGNS)
    return sum + dotPacked4x8EXT(int(b), a);
#elif defined(DOT_PRODUCT)
    return sum + dotPacked4x8EXT(int(a), int(b));
#else
    return sum + bitfieldExtract(int(a), 0, 8) * bitfieldExtract(int(b), 0, 8)
        + bitfieldExtract(int(a), 8, 8) * bitfieldExtract(int(b), 8, 8)
        + bitfieldExtract(int(a), 16, 8) * bitfieldExtract(int(b), 16, 8) + (int(a) >> 24) * (int(b) >> 24);
#endif
}
