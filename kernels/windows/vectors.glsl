// Vectors of one word or of four along the channels, which are packed in the input and in the output. Offsets and strides
// count vectors. Include this file after window.glsl; the kernel defines VECTOR_WORDS.
//
// A window that lies inside the input and has few taps is read in an unrolled loop, so that its loads are on their way
// together. The kernel defines TAKE_VECTOR(value, tap), a statement.

layout(set = 0, binding = 0) readonly buffer InputWords { uint input_words[]; };
layout(set = 0, binding = 0) readonly buffer InputVectors { uvec4 input_vectors[]; };
layout(set = 0, binding = 1) buffer OutputWords { uint output_words[]; };
layout(set = 0, binding = 1) buffer OutputVectors { uvec4 output_vectors[]; };

const uint MOST_SMALL_TAPS = 16;
const bool IS_SMALL = WINDOW_TAPS <= MOST_SMALL_TAPS;

uvec4 load_vector(uint vector) {
    return VECTOR_WORDS == 4 ? input_vectors[vector] : uvec4(input_words[vector], 0, 0, 0);
}

void store_vector(uint vector, uvec4 value) {
    if (VECTOR_WORDS == 4)
        output_vectors[vector] = value;
    else
        output_words[vector] = value.x;
}

uint tap_distance(uint d, uint h, uint w) {
    return d * DILATION_D * push.input_stride_d + h * DILATION_H * push.input_stride_h
        + w * DILATION_W * push.input_stride_w;
}

#define FOR_EACH_TAP(taps, source)                                                                                     \
    if (IS_SMALL && number_of(taps) == WINDOW_TAPS) {                                                                  \
        [[unroll]] for (uint tap = 0; tap < WINDOW_TAPS; ++tap) {                                                      \
            uint row = tap / WINDOW_W;                                                                                 \
            uint distance = tap_distance(row / WINDOW_H, row % WINDOW_H, tap % WINDOW_W);                              \
            TAKE_VECTOR(load_vector(source + distance))                                                                \
        }                                                                                                              \
    } else {                                                                                                           \
        for (uint d = taps.low.x; d < taps.high.x; ++d)                                                                \
            for (uint h = taps.low.y; h < taps.high.y; ++h)                                                            \
                for (uint w = taps.low.z; w < taps.high.z; ++w) {                                                      \
                    TAKE_VECTOR(load_vector(source + tap_distance(d, h, w)))                                           \
                }                                                                                                      \
    }
