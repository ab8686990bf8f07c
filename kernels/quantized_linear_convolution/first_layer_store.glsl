// Stores vectors of first_layer.comp to the output, which may have any strides.

// Stores sixteen neighbouring bytes, except those whose place is `end` or more. `first` is the place of the first byte.
void store_sixteen(uvec4 bytes, uint address, uint stride, uint first, uint end) {
    if (WHOLE == 16) {
        if (first < end)
            output_vectors[address >> 4] = bytes;
        return;
    }
    [[unroll]] for (uint w = 0; w < 4; ++w) {
        if (first + 4 * w < end) {
            if (WHOLE == 4)
                output_words[(address >> 2) + w] = bytes[w];
            else
                store_four(bytes[w], address + (4 * w + uvec4(0, 1, 2, 3)) * stride,
                    lessThan(first + 4 * w + uvec4(0, 1, 2, 3), uvec4(end)));
        }
    }
}
