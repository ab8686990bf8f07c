// Packed dot products, if the kernel defines DOT_PRODUCT, or multiplications of 32 bits, which every device has.

// The dot product of four signed bytes and four signed bytes, added to a sum.
int dot_add(uint a, uint b, int sum) {
#ifdef DOT_PRODUCT
    return sum + dotPacked4x8EXT(int(a), int(b));
#else
    return sum + bitfieldExtract(int(a), 0, 8) * bitfieldExtract(int(b), 0, 8)
        + bitfieldExtract(int(a), 8, 8) * bitfieldExtract(int(b), 8, 8)
        + bitfieldExtract(int(a), 16, 8) * bitfieldExtract(int(b), 16, 8) + (int(a) >> 24) * (int(b) >> 24);
#endif
}
