// QUANTIZED_LINEAR_AVERAGE_POOLING by rows: the columns are packed in the input and in the output.
//
// Maths: mean.glsl. Bytes on padding are cleared, and not counted.
//
// Loops: one invocation makes one word of the output in each of push.planes planes:
//     for each tap row inside the input: the words of its segment (windows/rows.glsl)
//         for each word: two masks and two additions
//     for each pair of outputs, for each tap column: the columns' sums are added
//     for each output: the estimate; for each that is not certain: its taps once more
// or, with thresholds: for each tap, for each output one addition of floats; then one comparison for each output.
//
// Layout: neighbouring invocations have neighbouring words of a row. Caches serve the overlap between windows.
//
// Preconditions: windows/window.glsl and windows/rows.glsl. Rows of the output begin and end with words;
// push.planes divides the channels. At most 257 taps, whose sum fits 16 bits. Six storage buffers.
//
// Driver bugs avoided: the last loop tests its condition before each round (SwiftShader).

#define MORE_PUSH_CONSTANTS                                                                                            \
    uint input_scale_start;                                                                                            \
    uint input_zero_point_start;                                                                                       \
    uint output_scale_start;                                                                                           \
    uint output_zero_point_start;                                                                                      \
    uint planes;
#include "windows/window.glsl"

const uint ELEMENT_SIZE = 1;
layout(constant_id = FIRST_OWN_CONSTANT) const uint IS_GLOBAL = 0;
layout(constant_id = FIRST_OWN_CONSTANT + 1) const uint IS_ALIGNED = 0;
layout(constant_id = FIRST_OWN_CONSTANT + 2) const uint FIRST_W_OF_WORD = 0;
#define FIRST_PARAMETER_CONSTANT 18
#define FIRST_PARAMETER_BINDING 2

#include "parameters.glsl"
const uint FLIP = (UNSIGNED_TYPES & 1) != 0 ? 0 : 0x80808080u;
const int FLIPPED_ZERO = (UNSIGNED_TYPES & 1) != 0 ? 0 : 128;
#include "windows/rows.glsl"
const uint WINDOW_TAPS = WINDOW_D * WINDOW_H * WINDOW_W;
#define SUMS_ARE_SMALL  // below 2^22
#include "mean.glsl"
#include "again.glsl"
#ifdef ROUNDS_TO_NEAREST_EVEN
#include "thresholds.glsl"
#else
const bool HAS_THRESHOLDS = false;
#endif

// The sums of two outputs of a word, from those of even and odd columns: in the lower bits that of the output `first`, above
// it that of the output `second`.
uint sums_of_pair(uint even[MOST_WORDS], uint odd[MOST_WORDS], uint first, uint second) {
    uint sums = 0;
    [[unroll]] for (uint tap = 0; tap < MOST_COLUMNS; ++tap) {
        if (tap < WINDOW_W) {
            uint low = place_in_segment(first, tap), high = place_in_segment(second, tap);
            uint word = low / 4, next = high / 4;
            uint pair = low % 2 == 0 ? even[word] : odd[word];
            uint other = high % 2 == 0 ? even[next] : odd[next];
            // Two columns from one to the other, they often lie in one word.
            if (low % 4 >= 2 || high - low != 2)
                pair = (low % 4 < 2 ? pair & 0xFFFF : pair >> 16) | (high % 4 < 2 ? other << 16 : other & 0xFFFF0000u);
            sums += pair;
        }
    }
    return sums;
}

#ifdef ROUNDS_TO_NEAREST_EVEN
// The outputs of a word whose windows have all taps, from sums of floats.
uint compared_means(uint source, Columns columns, Parameters p) {
    vec4 totals = vec4(0.0);
    for (uint d = 0; d < WINDOW_D; ++d) {
        for (uint h = 0; h < WINDOW_H; ++h) {
            uint row = source + d * DILATION_D * push.input_stride_d + h * DILATION_H * push.input_stride_h;
            Segment segment = load_segment(row - uint(columns.position), columns);
            [[unroll]] for (uint tap = 0; tap < MOST_COLUMNS; ++tap) {
                [[unroll]] for (uint i = 0; i < 4; ++i) {
                    if (tap < WINDOW_W) {
                        uint at = place_in_segment(i, tap);
                        totals[i] = with_byte(totals[i], segment.words[at / 4] >> 8 * (at % 4) & 0xFF, p);
                    }
                }
            }
        }
    }
    uint packed = 0;
    [[unroll]] for (uint i = 0; i < 4; ++i)
        packed |= compared_mean(totals[i], p) << 8 * i;
    return packed ^ OUTPUT_FLIP;
}
#endif

// The outputs of a word. `columns_inside` are each output's columns of taps inside the input.
uint means_of_word(Place place, Columns columns, uvec4 columns_inside, bool are_compared, Parameters p) {
    Place first = place;
    first.w *= PER_WORD;
    uint source = input_offset(first);
    uvec2 slices = taps_along(push.first_d + int(place.d * STRIDE_D), push.limit_d, WINDOW_D, DILATION_D);
    uvec2 rows = taps_along(push.first_h + int(place.h * STRIDE_H), push.limit_h, WINDOW_H, DILATION_H);
    uvec4 counts = (slices.y - slices.x) * (rows.y - rows.x) * columns_inside;
    bool have_all_taps = all(equal(counts, uvec4(WINDOW_TAPS)));
#ifdef ROUNDS_TO_NEAREST_EVEN
    if (HAS_THRESHOLDS && are_compared && have_all_taps)
        return compared_means(source, columns, p);
#endif
    // The sums of each column of the segment, two in a word.
    uint even[MOST_WORDS], odd[MOST_WORDS];
    [[unroll]] for (uint i = 0; i < MOST_WORDS; ++i)
        even[i] = odd[i] = 0;
    for (uint d = slices.x; d < slices.y; ++d) {
        for (uint h = rows.x; h < rows.y; ++h) {
            uint row = source + d * DILATION_D * push.input_stride_d + h * DILATION_H * push.input_stride_h;
            Segment segment = load_segment(row - uint(columns.position), columns);
            [[unroll]] for (uint i = 0; i < MOST_WORDS; ++i) {
                even[i] += segment.words[i] & 0x00FF00FFu;
                odd[i] += segment.words[i] >> 8 & 0x00FF00FFu;
            }
        }
    }
    // Outputs whose columns lie two apart are a pair.
    const bool IS_DENSE = STRIDE_W == 1;
    uint low = sums_of_pair(even, odd, 0, IS_DENSE ? 2 : 1), high = sums_of_pair(even, odd, IS_DENSE ? 1 : 2, 3);
    uvec4 sums = uvec4(low & 0xFFFF, low >> 16, high & 0xFFFF, high >> 16);
    if (IS_DENSE)
        sums = sums.xzyw;
    uvec4 divisors = TAPS_OF_MEAN != 0 ? uvec4(TAPS_OF_MEAN) : counts;
    vec4 reciprocals = vec4(1.0 / float(TAPS_OF_MEAN != 0 ? TAPS_OF_MEAN : WINDOW_TAPS));
    if (TAPS_OF_MEAN == 0 && !have_all_taps)
        reciprocals = 1.0 / vec4(divisors);
    ivec4 numbers = ivec4(sums) - (p.input_zero_point + FLIPPED_ZERO) * ivec4(counts);
    uint packed = 0, uncertain = 0;
    [[unroll]] for (uint i = 0; i < 4; ++i) {
        bool is_certain;
        packed |= estimated_mean(numbers[i], reciprocals[i], p, is_certain) << 8 * i;
        uncertain |= is_certain ? 0 : 1u << i;
    }
    uvec3 strides = uvec3(DILATION_D, DILATION_H, DILATION_W)
        * uvec3(push.input_stride_d, push.input_stride_h, push.input_stride_w);
    while (uncertain != 0) {
        uint i = findLSB(uncertain);
        uncertain &= uncertain - 1;
        Place one = first;
        one.w += i;
        int sum = i < 2 ? (i == 0 ? numbers.x : numbers.y) : (i == 2 ? numbers.z : numbers.w);
        uint n = i < 2 ? (i == 0 ? divisors.x : divisors.y) : (i == 2 ? divisors.z : divisors.w);
        uint exact = exact_mean(sum, input_offset(one), strides, taps_of(one), n, p);
        packed = packed & ~(0xFFu << 8 * i) | exact << 8 * i;
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
    place.c *= push.planes;
    Place first = place;
    first.w *= PER_WORD;
    Columns columns = columns_of(first.w);
    Parameters p = parameters_of(place.c);
    bool are_compared = false;
#ifdef ROUNDS_TO_NEAREST_EVEN
    if (HAS_THRESHOLDS) {
        are_compared = find_thresholds(p);
        if (!is_used)
            return;
    }
#endif
    uvec4 columns_inside = uvec4(WINDOW_W);
    if (!columns.is_all) {
        [[unroll]] for (uint i = 0; i < 4; ++i) {
            uvec2 inside = taps_along(push.first_w + int((first.w + i) * STRIDE_W), push.limit_w, WINDOW_W, DILATION_W);
            columns_inside[i] = inside.y - inside.x;
        }
    }
    for (uint plane = 0; plane < push.planes; ++plane) {
        if (IS_PER_CHANNEL)
            p = parameters_of(place.c);
        output_words[output_offset(place)] = means_of_word(place, columns, columns_inside, are_compared, p);
        ++place.c;
    }
}
