// QUANTIZED_LINEAR_AVERAGE_POOLING by rows: the columns are packed in the input and in the output.
//
// Maths: mean.glsl. Bytes on padding are cleared, and not counted.
//
// Loops: one invocation makes one word of the output:
//     for each tap row inside the input: the words of its segment (windows/rows.glsl)
//         for each word: two masks and two additions
//     for each output, for each tap column: the column's sum is added
//     for each output: the estimate; for each that is not certain: its taps once more
//
// Layout: neighbouring invocations have neighbouring words of a row. Caches serve the overlap between windows.
//
// Preconditions: windows/window.glsl and windows/rows.glsl. Rows of the output begin and end with words. Six storage
// buffers.
//
// Driver bugs avoided: the last loop tests its condition before each round (SwiftShader).

#define MORE_PUSH_CONSTANTS                                                                                            \
    uint input_scale_start;                                                                                            \
    uint input_zero_point_start;                                                                                       \
    uint output_scale_start;                                                                                           \
    uint output_zero_point_start;
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
#ifdef ROUNDS_TO_NEAREST_EVEN
#include "thresholds.glsl"
const bool HAS_THRESHOLDS = !IS_PER_CHANNEL && IS_GLOBAL == 0;
#else
const bool HAS_THRESHOLDS = false;
#endif
#include "again.glsl"
#include "compared.glsl"

void main() {
    uint index = invocation_index();
    bool is_used = index < push.count;
    // Workgroups find thresholds together: those behind the last output do its work, and leave it out.
    if (HAS_THRESHOLDS)
        index = min(index, push.count - 1);
    else if (!is_used)
        return;
    Place place = place_of(index);
    Place first = place;
    first.w *= PER_WORD;
    Columns columns = columns_of(first.w);
    Taps taps = taps_of(first);
    uint source = input_offset(first);
    // The sums of each column of the segment, two in a word.
    uint even[MOST_WORDS], odd[MOST_WORDS];
    [[unroll]] for (uint i = 0; i < MOST_WORDS; ++i)
        even[i] = odd[i] = 0;
    for (uint d = taps.low.x; d < taps.high.x; ++d) {
        for (uint h = taps.low.y; h < taps.high.y; ++h) {
            uint row = source + d * DILATION_D * push.input_stride_d + h * DILATION_H * push.input_stride_h;
            Segment segment = load_segment(row - uint(columns.position), columns, true);
            [[unroll]] for (uint i = 0; i < MOST_WORDS; ++i) {
                even[i] += segment.words[i] & 0x00FF00FFu;
                odd[i] += segment.words[i] >> 8 & 0x00FF00FFu;
            }
        }
    }
    uvec4 sums = uvec4(0);
    [[unroll]] for (uint tap = 0; tap < MOST_COLUMNS; ++tap) {
        [[unroll]] for (uint i = 0; i < 4; ++i) {
            if (tap < WINDOW_W) {
                uint at = place_in_segment(i, tap);
                uint pair = at % 2 == 0 ? even[at / 4] : odd[at / 4];
                sums[i] += at % 4 < 2 ? pair & 0xFFFF : pair >> 16;
            }
        }
    }
    Parameters p = parameters_of(place.c);
    bool are_compared = false;
#ifdef ROUNDS_TO_NEAREST_EVEN
    if (HAS_THRESHOLDS) {
        are_compared = find_thresholds(p);
        if (!is_used)
            return;
    }
#endif
    uvec4 counts = uvec4(number_of(taps));
    if (!columns.is_all) {
        uint rows = (taps.high.x - taps.low.x) * (taps.high.y - taps.low.y);
        [[unroll]] for (uint i = 0; i < 4; ++i) {
            uvec2 columns =
                taps_along(push.first_w + int((first.w + i) * STRIDE_W), push.limit_w, WINDOW_W, DILATION_W);
            counts[i] = rows * (columns.y - columns.x);
        }
    }
    uvec4 divisors = TAPS_OF_MEAN != 0 ? uvec4(TAPS_OF_MEAN) : counts;
    vec4 reciprocals = vec4(1.0 / float(divisors.x));
    if (TAPS_OF_MEAN == 0 && !columns.is_all)
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
        uint exact = again(sum, input_offset(one), strides, taps_of(one), n, are_compared, p);
        packed = packed & ~(0xFFu << 8 * i) | exact << 8 * i;
    }
    output_words[output_offset(place)] = packed;
}
