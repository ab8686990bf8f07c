// QUANTIZED_LINEAR_AVERAGE_POOLING by vectors of channels: the channels are packed in the input and in the output.
//
// Maths: mean.glsl. Sums of bytes as they are, for UINT8, or with the top bit changed, for INT8; the zero point is
// subtracted once. Two sums of 16 bits share a word: 257 bytes fit.
//
// Loops: one invocation makes 16 bytes, or 4 if channels do not fill vectors of 16 of the output:
//     for each tap inside the input: one load, and for each word two masks and two additions
//     for each byte: the estimate
//     for each byte whose estimate is not certain: its taps once more
// or, with thresholds: for each tap, for each byte one addition of floats; then one comparison for each byte.
// The last loop takes as many rounds as the invocation with most such bytes in a subgroup, not one for each byte.
//
// Layout: neighbouring invocations have neighbouring vectors of a pixel, then the next pixel of a row. All loads and stores
// are whole vectors. Caches serve the overlap between windows.
//
// Preconditions: windows/window.glsl. At most 257 taps. Channels, strides and starts are multiples of a vector. Six storage
// buffers.
//
// Driver bugs avoided: the last loop tests its condition before each round (SwiftShader).

#define MORE_PUSH_CONSTANTS                                                                                            \
    uint input_scale_start;                                                                                            \
    uint input_zero_point_start;                                                                                       \
    uint output_scale_start;                                                                                           \
    uint output_zero_point_start;
#include "windows/window.glsl"

layout(constant_id = FIRST_OWN_CONSTANT) const uint IS_GLOBAL = 0;
layout(constant_id = FIRST_OWN_CONSTANT + 1) const uint VECTOR_WORDS = 4;
#define FIRST_PARAMETER_CONSTANT 17
#define FIRST_PARAMETER_BINDING 2

#include "windows/vectors.glsl"
#include "parameters.glsl"
#define SUMS_ARE_SMALL  // below 2^22
#include "mean.glsl"
#include "again.glsl"
#ifdef ROUNDS_TO_NEAREST_EVEN
#include "thresholds.glsl"
#else
const bool HAS_THRESHOLDS = false;
#endif

const uint FLIP = (UNSIGNED_TYPES & 1) != 0 ? 0 : 0x80808080u;
const int FLIPPED_ZERO = (UNSIGNED_TYPES & 1) != 0 ? 0 : 128;

uvec4 means_of_vector(Place place, bool are_compared, Parameters p) {
    Taps taps = taps_of(place);
    uint source = input_offset(place);
    uint first_channel = place.c * 4 * VECTOR_WORDS;
    uvec4 packed = uvec4(0);
#ifdef ROUNDS_TO_NEAREST_EVEN
    if (HAS_THRESHOLDS && are_compared && number_of(taps) == WINDOW_TAPS) {
        vec4 totals[4];
        [[unroll]] for (uint word = 0; word < 4; ++word)
            totals[word] = vec4(0.0);
        [[unroll]] for (uint tap = 0; tap < MOST_SMALL_TAPS; ++tap) {
            if (tap < WINDOW_TAPS) {
                uint row = tap / WINDOW_W;
                uvec4 vector =
                    load_vector(source + tap_distance(row / WINDOW_H, row % WINDOW_H, tap % WINDOW_W)) ^ FLIP;
                [[unroll]] for (uint word = 0; word < 4; ++word) [[unroll]]
                    for (uint i = 0; i < 4; ++i)
                        if (word < VECTOR_WORDS)
                            totals[word][i] = with_byte(totals[word][i], vector[word] >> 8 * i & 0xFF, p);
            }
        }
        [[unroll]] for (uint word = 0; word < 4; ++word) [[unroll]]
            for (uint i = 0; i < 4; ++i)
                if (word < VECTOR_WORDS)
                    packed[word] |= compared_mean(totals[word][i], p) << 8 * i;
        return packed ^ OUTPUT_FLIP;
    }
#endif
    uvec2 sums[4];
    [[unroll]] for (uint word = 0; word < 4; ++word)
        sums[word] = uvec2(0);
#define TAKE_VECTOR(value)                                                                                             \
    uvec4 vector = value;                                                                                              \
    [[unroll]] for (uint word = 0; word < 4; ++word)                                                                   \
        if (word < VECTOR_WORDS)                                                                                       \
            sums[word] += ((uvec2(vector[word]) ^ FLIP) >> uvec2(0, 8)) & 0x00FF00FFu;
    FOR_EACH_TAP(taps, source)

    uint taps_inside = number_of(taps);
    uint n = TAPS_OF_MEAN != 0 ? TAPS_OF_MEAN : taps_inside;
    float reciprocal = 1.0 / float(n);
    uint uncertain = 0;
    [[unroll]] for (uint word = 0; word < 4; ++word) {
        if (word < VECTOR_WORDS) {
            [[unroll]] for (uint i = 0; i < 4; ++i) {
                if (IS_PER_CHANNEL)
                    p = parameters_of(first_channel + 4 * word + i);
                int sum = int(sums[word][i & 1] >> 8 * (i & 2) & 0xFFFF);
                sum -= (p.input_zero_point + FLIPPED_ZERO) * int(taps_inside);
                bool is_certain;
                packed[word] |= estimated_mean(sum, reciprocal, p, is_certain) << 8 * i;
                uncertain |= is_certain ? 0 : 1u << 4 * word + i;
            }
        }
    }
    uvec3 strides = uvec3(DILATION_D, DILATION_H, DILATION_W)
        * uvec3(push.input_stride_d, push.input_stride_h, push.input_stride_w) * (4 * VECTOR_WORDS);
    while (uncertain != 0) {
        uint byte = findLSB(uncertain);
        uncertain &= uncertain - 1;
        if (IS_PER_CHANNEL)
            p = parameters_of(first_channel + byte);
        uint word = byte / 4, shift = byte % 4 * 8;
        uvec2 pair = word < 2 ? (word == 0 ? sums[0] : sums[1]) : (word == 2 ? sums[2] : sums[3]);
        int sum = int(((byte & 1) != 0 ? pair.y : pair.x) >> 8 * (byte & 2) & 0xFFFF);
        sum -= (p.input_zero_point + FLIPPED_ZERO) * int(taps_inside);
        uint exact = exact_mean(sum, source * (4 * VECTOR_WORDS) + byte, strides, taps, n, p);
        bvec4 is_word = equal(uvec4(word), uvec4(0, 1, 2, 3));
        packed = mix(packed, (packed & ~(0xFFu << shift)) | exact << shift, is_word);
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
    Parameters p = parameters_of(place.c * 4 * VECTOR_WORDS);
    bool are_compared = false;
#ifdef ROUNDS_TO_NEAREST_EVEN
    if (HAS_THRESHOLDS) {
        are_compared = find_thresholds(p);
        if (!is_used)
            return;
    }
#endif
    store_vector(output_offset(place), means_of_vector(place, are_compared, p));
}
