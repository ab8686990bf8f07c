// Stores words of four bytes of the output: four channels of a pixel, or four pixels of a channel. Include this file after
// matrix_workgroup.glsl.

// Whether an output channel is to be stored. Channels are counted in their group, from the dispatch's first panel.
bool is_stored(uint channel) {
    return channel >= push.first_channel && channel < push.channels;
}

#include "store.glsl"

#ifdef WITH_SUM
#define STORE_FOUR(word, address, valid) store_four(with_addends_at(word, address, valid, !is_exact), address, valid)
#else
#define STORE_FOUR(word, address, valid) store_four(word, address, valid)
#define WITH_ADDENDS(word, address, in_floats) word
#endif

// Stores a word whose place is counted from the tile's first pixel and channel. `is_exact` tells the form of a sum that
// follows: see quantized_linear_convolution_add/sum.glsl.
void store_word(uint word, uint first_pixel, uint pixel, uint tile_channel, bool is_exact) {
    uint channel = first_channel + tile_channel;
    uint stride = SIZE(OUTPUT_STRIDE_C, output_stride_c);
    uint address = destinations[pixel] + channel * stride;
    bool is_seen = first_pixel + pixel < push.pixels;
    if (STORE_UNIT >= 4) {
        // The four are all valid, or none.
        if (is_seen && is_stored(channel))
            output_words[address >> 2] = WITH_ADDENDS(word, address, !is_exact);
    } else if (STORE_CHANNELS != 0) {
        STORE_FOUR(word, address + uvec4(0, 1, 2, 3) * stride,
            bvec4(is_seen && is_stored(channel), is_seen && is_stored(channel + 1), is_seen && is_stored(channel + 2),
                is_seen && is_stored(channel + 3)));
    } else if (is_stored(channel)) {
        uvec4 first =
            uvec4(destinations[pixel], destinations[pixel + 1], destinations[pixel + 2], destinations[pixel + 3]);
        STORE_FOUR(
            word, first + channel * stride, lessThan(first_pixel + pixel + uvec4(0, 1, 2, 3), uvec4(push.pixels)));
    }
}
