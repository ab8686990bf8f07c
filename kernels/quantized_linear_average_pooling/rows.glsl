// QUANTIZED_LINEAR_AVERAGE_POOLING by rows: the columns are packed in the input and in the output.
//
// Maths: mean.glsl. Bytes on padding are cleared, and not counted.
//
// Loops: one invocation makes one word of each of ROWS rows of the output, one below the other (windows/strips.glsl), in each
// of push.planes planes:
//     for each row of the input that these rows need: the words of its segment (windows/rows.glsl)
//         for each word: two masks; for each pair of outputs, for each tap column: one addition
//     for each of the rows: the sums of its rows of taps, for each output the estimate
//         for each output that is not certain: its taps once more
// or, with thresholds: for each tap, for each output one addition of floats; then one comparison for each output. Windows with
// depth or dilation, and tall ones, are read in a loop, for one row of the output.
//
// Layout: neighbouring invocations have neighbouring words of a row. Caches serve the overlap between windows.
//
// Preconditions: windows/window.glsl and windows/rows.glsl. Rows of the output begin and end with words; ROWS divides their
// number, and push.planes the channels. If ROWS is not 1, windows have neither depth nor dilation along H. At most 257 taps,
// whose sum fits 16 bits. Six storage buffers.
//
// Driver bugs avoided: the last loop tests its condition before each round (SwiftShader).

#define MORE_PARAMETERS uint planes;
#include "window_parameters.glsl"

const uint ELEMENT_SIZE = 1;
layout(constant_id = FIRST_OWN_CONSTANT + 1) const uint IS_ALIGNED = 0;
layout(constant_id = FIRST_OWN_CONSTANT + 2) const uint FIRST_W_OF_PAIR = 0;
layout(constant_id = FIRST_OWN_CONSTANT + 3) const uint ROWS = 1;
layout(constant_id = FIRST_OWN_CONSTANT + 4) const uint HAS_PAIRS = 0;
#define FIRST_PARAMETER_CONSTANT 20
#define FIRST_PARAMETER_BINDING 2

#include "parameters.glsl"
#include "windows/rows.glsl"
const uint MOST_ROWS = 4;
const uint MOST_TAP_ROWS = 12;
#include "windows/strips.glsl"
const bool IS_UNROLLED = HAS_STRIPS;
#include "mean.glsl"
#include "again.glsl"
#include "thresholds.glsl"

// Outputs whose columns lie two apart are a pair: with a stride of one the first and the third.
const uint PARTNER = STRIDE_W == 1 ? 2 : 1;

// The sums of a row's taps of two outputs, from its even and odd columns: in the lower bits that of the output `first`, above
// it that of its partner.
uint sums_of_pair(uint even[MOST_WORDS], uint odd[MOST_WORDS], uint first) {
    uint sums = 0;
    [[unroll]] for (uint tap = 0; tap < MOST_COLUMNS; ++tap) {
        if (tap < WINDOW_W) {
            uint low = place_in_segment(first, tap), high = place_in_segment(first + PARTNER, tap);
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

uvec2 sums_of_row(Segment segment) {
    uint even[MOST_WORDS], odd[MOST_WORDS];
    [[unroll]] for (uint i = 0; i < MOST_WORDS; ++i) {
        even[i] = segment.words[i] & 0x00FF00FFu;
        odd[i] = segment.words[i] >> 8 & 0x00FF00FFu;
    }
    return uvec2(sums_of_pair(even, odd, 0), sums_of_pair(even, odd, 3 - PARTNER));
}

// What outputs of a word have in common with those below them.
struct Word {
    ivec4 zero_points;  // of a row of taps
    vec4 factors;  // by which the sums of rows are multiplied
};

Word word_of(uint first_w, bool is_all, Parameters p) {
    uvec4 inside = uvec4(WINDOW_W);
    if (!is_all) {
        [[unroll]] for (uint i = 0; i < 4; ++i) {
            uvec2 taps = taps_along(push.first_w + int((first_w + i) * STRIDE_W), push.limit_w, WINDOW_W, DILATION_W);
            inside[i] = taps.y - taps.x;
        }
    }
    return Word((p.input_zero_point + FLIPPED_ZERO) * ivec4(inside),
        vec4(p.ratio) / (TAPS_OF_MEAN != 0 ? vec4(TAPS_OF_MEAN) : vec4(inside)));
}

#ifdef ROUNDS_TO_NEAREST_EVEN
// The outputs of a word whose windows have all taps, from sums of floats.
uint compared_word(Segment rows[MOST_TAP_ROWS], uint row, Parameters p) {
    vec4 totals = vec4(0.0);
    [[unroll]] for (uint h = 0; h < MOST_TAP_ROWS; ++h) [[unroll]]
        for (uint tap = 0; tap < MOST_COLUMNS; ++tap) [[unroll]]
            for (uint i = 0; i < 4; ++i) {
                if (h < WINDOW_H && tap < WINDOW_W) {
                    uint at = place_in_segment(i, tap);
                    totals[i] = with_byte(totals[i], rows[row + h].words[at / 4] >> 8 * (at % 4) & 0xFF, p);
                }
            }
    return compared_means(totals, p);
}
#endif

// The outputs of a word from sums of two pairs of them, and from the number of their rows of taps inside the input. The lowest
// bits of `uncertain` are those of outputs that have to be computed once more.
uint means_of_word(uvec2 pairs, uint rows_inside, Word word, Parameters p, out uint uncertain) {
    uvec4 sums = uvec4(pairs.x & 0xFFFF, pairs.x >> 16, pairs.y & 0xFFFF, pairs.y >> 16);
    if (PARTNER == 2)
        sums = sums.xzyw;
    ivec4 numbers = ivec4(sums) - word.zero_points * int(rows_inside);
    vec4 factors = word.factors * (TAPS_OF_MEAN != 0 ? 1.0 : 1.0 / float(rows_inside));
    uvec4 bytes;
    vec4 deviations;
    [[unroll]] for (uint i = 0; i < 4; ++i)
        bytes[i] = estimated(numbers[i], factors[i], p.output_zero_point, deviations[i]);
    bvec4 are_certain = lessThanEqual(deviations, vec4(p.certainty));
    uncertain = all(are_certain) ? 0 : uint(dot(vec4(not(are_certain)), vec4(1, 2, 4, 8)));
    return word_of_estimates(bytes);
}

void main() {
    uint index = invocation_index();
    bool is_used = index < push.count;
    // Workgroups find thresholds together: those behind the last output do its work, and leave it out.
    if (HAS_THRESHOLDS)
        index = min(index, push.count - 1);
    else if (!is_used)
        return;
    Place first = place_of(index);
    first.c *= push.planes;
    first.h *= ROWS;
    uint at = output_offset(first);
    first.w *= PER_WORD;
    Columns columns = columns_of(first.w);
    uvec3 strides = uvec3(DILATION_D, DILATION_H, DILATION_W)
        * uvec3(push.input_stride_d, push.input_stride_h, push.input_stride_w);
    Parameters p;
    bool are_compared = false;
#ifdef ROUNDS_TO_NEAREST_EVEN
    if (HAS_THRESHOLDS) {
        p = parameters_of(first.c);
        are_compared = find_thresholds(p);
        if (!is_used)
            return;
    }
#endif
    for (uint plane = 0; plane < push.planes; ++plane) {
        uint source = input_offset(first) - uint(columns.position);
        uint uncertain = 0;  // four bits for each row
        if (IS_UNROLLED) {
            // All loads are on their way before the parameters are looked at.
            int top = push.first_h + int(first.h * STRIDE_H);
            Segment rows[MOST_TAP_ROWS];
            [[unroll]] for (uint row = 0; row < MOST_TAP_ROWS; ++row)
                if (row < TAP_ROWS)
                    rows[row] = load_segment(source + row_distance(top, row), columns);
            if (!HAS_THRESHOLDS)
                p = parameters_of(first.c);
            bool has_all_taps = columns.is_all && top >= 0 && top + int(TAP_ROWS) <= push.limit_h;
#ifdef ROUNDS_TO_NEAREST_EVEN
            if (HAS_THRESHOLDS && are_compared && has_all_taps) {
                [[unroll]] for (uint i = 0; i < MOST_ROWS; ++i)
                    if (i < ROWS)
                        output_words[at + i * push.output_stride_h] = compared_word(rows, i * STRIDE_H, p);
            } else
#endif
            {
                uvec2 sums[MOST_TAP_ROWS];
                [[unroll]] for (uint row = 0; row < MOST_TAP_ROWS; ++row)
                    if (row < TAP_ROWS)
                        sums[row] = uint(top + int(row)) < uint(push.limit_h) ? sums_of_row(rows[row]) : uvec2(0);
                Word word = word_of(first.w, columns.is_all, p);
                [[unroll]] for (uint i = 0; i < MOST_ROWS; ++i) {
                    if (i < ROWS) {
                        uvec2 inside = taps_along(top + int(i * STRIDE_H), push.limit_h, WINDOW_H, DILATION_H);
                        uvec2 pairs = uvec2(0);
                        [[unroll]] for (uint k = 0; k < MOST_TAP_ROWS; ++k)
                            if (k < WINDOW_H)
                                pairs += sums[i * STRIDE_H + k];
                        uint bits;
                        output_words[at + i * push.output_stride_h] =
                            means_of_word(pairs, inside.y - inside.x, word, p, bits);
                        uncertain |= bits << 4 * i;
                    }
                }
            }
        } else {
            Taps taps = taps_of(first);
            uvec2 sums = uvec2(0);
            for (uint d = taps.low.x; d < taps.high.x; ++d)
                for (uint h = taps.low.y; h < taps.high.y; ++h) {
                    uint row = source + d * DILATION_D * push.input_stride_d + h * DILATION_H * push.input_stride_h;
                    sums += sums_of_row(load_segment(row, columns));
                }
            p = parameters_of(first.c);
            uvec3 inside = taps.high - taps.low;
            output_words[at] =
                means_of_word(sums, inside.x * inside.y, word_of(first.w, columns.is_all, p), p, uncertain);
        }
        while (uncertain != 0) {
            uint i = findLSB(uncertain), shift = 8 * (i % 4), word = at + i / 4 * push.output_stride_h;
            uncertain &= uncertain - 1;
            Place one = first;
            one.h += i / 4;
            one.w += i % 4;
            uint exact = exact_mean(input_offset(one), strides, taps_of(one), p);
            output_words[word] = output_words[word] & ~(0xFFu << shift) | exact << shift;
        }
        ++first.c;
        at += push.output_stride_c;
    }
}
