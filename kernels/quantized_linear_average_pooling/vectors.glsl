// QUANTIZED_LINEAR_AVERAGE_POOLING by vectors of channels: the channels are packed in the input and in the output.
//
// Maths: mean.glsl. Sums of bytes as they are, for UINT8, or with the top bit changed, for INT8; the zero point is
// subtracted once. Two sums of 16 bits share a word: 257 bytes fit.
//
// Loops: one invocation makes 16 bytes, or 4 if channels do not fill vectors of 16, of the output:
//     for each tap: one load; then for each tap, for each word two masks and two additions
//     for each byte: the estimate
//     for each byte whose estimate is not certain: its taps once more
// or, with thresholds: for each tap, for each byte one addition of floats; then one comparison for each byte.
// In place of a tap outside the input, the nearest tap inside is loaded, and cleared. Windows with depth or dilation, and wide
// or tall ones, are read in a loop.
//
// Layout: neighbouring invocations have neighbouring vectors of a pixel, then the next pixel of a row. All loads and stores
// are whole vectors. Caches serve the overlap between windows.
//
// Preconditions: windows/window.glsl. At most 257 taps. Channels, strides and starts are multiples of a vector. Six storage
// buffers.
//
// Driver bugs avoided: the last loop tests its condition before each round (SwiftShader).

#include "window_parameters.glsl"

layout(constant_id = FIRST_OWN_CONSTANT + 1) const uint VECTOR_WORDS = 4;
#define FIRST_PARAMETER_CONSTANT 17
#define FIRST_PARAMETER_BINDING 2

#include "windows/vectors.glsl"
const uint ROWS = 1;
const uint MOST_COLUMNS = 4;
const uint MOST_TAP_ROWS = 6;
#include "windows/strips.glsl"
const bool IS_UNROLLED = HAS_STRIPS && WINDOW_W <= MOST_COLUMNS;
#include "parameters.glsl"
#include "mean.glsl"
#include "again.glsl"
#include "thresholds.glsl"

// The sums of a vector's bytes: of a word's even bytes, and of its odd ones.
struct Sums { uvec2 words[4]; };

// `mask` is 0x00FF00FF, or 0 in place of a tap outside the input.
void add(inout Sums sums, uvec4 vector, uint mask) {
    [[unroll]] for (uint word = 0; word < 4; ++word)
        if (word < VECTOR_WORDS)
            sums.words[word] += ((uvec2(vector[word]) ^ FLIP) >> uvec2(0, 8)) & mask;
}

Sums no_sums() {
    return Sums(uvec2[4](uvec2(0), uvec2(0), uvec2(0), uvec2(0)));
}

#ifdef ROUNDS_TO_NEAREST_EVEN
// The outputs of windows with all taps, from sums of floats.
uvec4 compared_vector(uvec4 vectors[MOST_TAP_ROWS * MOST_COLUMNS], Parameters p) {
    uvec4 packed = uvec4(0);
    [[unroll]] for (uint word = 0; word < 4; ++word) {
        if (word < VECTOR_WORDS) {
            vec4 totals = vec4(0.0);
            [[unroll]] for (uint h = 0; h < MOST_TAP_ROWS; ++h) [[unroll]]
                for (uint w = 0; w < MOST_COLUMNS; ++w) [[unroll]]
                    for (uint i = 0; i < 4; ++i) {
                        if (h < WINDOW_H && w < WINDOW_W) {
                            uint bytes = vectors[h * MOST_COLUMNS + w][word] ^ FLIP;
                            totals[i] = with_byte(totals[i], bytes >> 8 * i & 0xFF, p);
                        }
                    }
            packed[word] = compared_means(totals, p);
        }
    }
    return packed;
}
#endif

// The outputs of a vector from its sums. The lowest bits of `uncertain` are those of bytes to be computed once more.
uvec4 means_of_vector(Sums sums, uint first_channel, uint taps_inside, Parameters p, out uint uncertain) {
    float reciprocal = 1.0 / float(TAPS_OF_MEAN != 0 ? TAPS_OF_MEAN : taps_inside);
    uvec4 packed = uvec4(0);
    uncertain = 0;
    [[unroll]] for (uint word = 0; word < 4; ++word) {
        if (word < VECTOR_WORDS) {
            uvec4 bytes;
            [[unroll]] for (uint i = 0; i < 4; ++i) {
                if (IS_PER_CHANNEL)
                    p = parameters_of(first_channel + 4 * word + i);
                int sum = int(sums.words[word][i & 1] >> 8 * (i & 2) & 0xFFFF);
                sum -= (p.input_zero_point + FLIPPED_ZERO) * int(taps_inside);
                float deviation;
                bytes[i] = estimated(sum, p.ratio * reciprocal, p.output_zero_point, deviation);
                uncertain |= deviation <= p.certainty ? 0 : 1u << 4 * word + i;
            }
            packed[word] = word_of_estimates(bytes);
        }
    }
    return packed;
}

void main() {
    uint index = invocation_index();
    bool is_used = index < push.count;
    // Workgroups find thresholds together: those behind the last output do its work, and leave it out.
    if (HAS_THRESHOLDS)
        index = min(index, push.count - 1);
    else if (!is_used)
        return;
    Place place = place_of(index);
    Taps taps = taps_of(place);
    uint source = input_offset(place), at = output_offset(place), first_channel = place.c * 4 * VECTOR_WORDS;
    Parameters p;
    Sums sums = no_sums();
    if (IS_UNROLLED) {
        // All loads are on their way before the parameters are looked at.
        int top = push.first_h + int(place.h * STRIDE_H);
        uvec4 vectors[MOST_TAP_ROWS * MOST_COLUMNS];
        [[unroll]] for (uint h = 0; h < MOST_TAP_ROWS; ++h) [[unroll]]
            for (uint w = 0; w < MOST_COLUMNS; ++w)
                if (h < WINDOW_H && w < WINDOW_W)
                    vectors[h * MOST_COLUMNS + w] = load_vector(source + row_distance(top, h)
                        + clamp(w, taps.low.z, taps.high.z - 1) * DILATION_W * push.input_stride_w);
        p = parameters_of(first_channel);
#ifdef ROUNDS_TO_NEAREST_EVEN
        if (HAS_THRESHOLDS) {
            bool are_compared = find_thresholds(p);
            if (!is_used)
                return;
            if (are_compared && number_of(taps) == WINDOW_TAPS) {
                store_vector(at, compared_vector(vectors, p));
                return;
            }
        }
#endif
        [[unroll]] for (uint h = 0; h < MOST_TAP_ROWS; ++h) [[unroll]]
            for (uint w = 0; w < MOST_COLUMNS; ++w)
                if (h < WINDOW_H && w < WINDOW_W) {
                    bool is_inside = h >= taps.low.y && h < taps.high.y && w >= taps.low.z && w < taps.high.z;
                    add(sums, vectors[h * MOST_COLUMNS + w], is_inside ? 0x00FF00FFu : 0);
                }
    } else {
        for (uint d = taps.low.x; d < taps.high.x; ++d)
            for (uint h = taps.low.y; h < taps.high.y; ++h)
                for (uint w = taps.low.z; w < taps.high.z; ++w)
                    add(sums, load_vector(source + tap_distance(d, h, w)), 0x00FF00FFu);
        p = parameters_of(first_channel);
    }
    uint uncertain;
    store_vector(at, means_of_vector(sums, first_channel, number_of(taps), p, uncertain));
    uvec3 strides = uvec3(DILATION_D, DILATION_H, DILATION_W)
        * uvec3(push.input_stride_d, push.input_stride_h, push.input_stride_w) * (4 * VECTOR_WORDS);
    while (uncertain != 0) {
        uint byte = findLSB(uncertain);
        uncertain &= uncertain - 1;
        if (IS_PER_CHANNEL)
            p = parameters_of(first_channel + byte);
        uint exact = exact_mean(source * (4 * VECTOR_WORDS) + byte, strides, taps, p) << byte % 4 * 8;
        uint mask = 0xFFu << byte % 4 * 8;
        // Of each kind of words that the output is declared as, one is written and read.
        if (VECTOR_WORDS == 4)
            output_vectors[at][byte / 4] = output_vectors[at][byte / 4] & ~mask | exact;
        else
            output_words[at] = output_words[at] & ~mask | exact;
    }
}
