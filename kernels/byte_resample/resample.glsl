// BYTE_RESAMPLE: y = least number + how many thresholds f32(sum of weight * v) reaches, v = f32(scale * (x - zero point))
//
// Maths. A coordinate c of a row lies between the elements i = trunc(c) and j = i + 1, whose weights are f32(j - c) and c - i;
// in the last row both are 1/2, and j = i. The same holds for columns. Each of the four weights is a product of two, each term a
// product of a weight and v, and the terms are added one after the other: (i, i), (i, j), (j, i), (j, j), the row first. Each
// step rounds to binary32, nearest even.
//     integers.comp computes in integers, which are exact on every device.
//     float32.comp, which defines ROUNDS_TO_NEAREST, is for devices that promise to round to nearest even. With a scale from
//         2^-40 to 2^40, and coordinates that are 0 or 2^-30 at least, no step is denormal or infinite.
// Thresholds of a scale are nearly even: each is less than 0.6 steps away from where a straight line has it. Then all but two are
// certain, and these are compared as floats. Whether they are even, each workgroup finds out. Others are found by bisection, and
// compared by their bits, as integers in the same order.
//
// Loops: an invocation makes the words of some rows, one below the other.
//     the thresholds come into shared memory
//     the places and weights of its columns
//     for each row: its place and weights; where it has other rows of the input than the one before, their numbers v; the sums
//
// Layout. An invocation makes a word's elements along the lane: the channels or the columns, whichever is packed in the output,
// or single elements. With READS_WORDS the channels of a word are words of the input as well. Columns of at most five elements
// that follow each other are read as two words.
//
// Preconditions: four storage buffers; 1 KiB of shared memory. The input's window shows rows and columns from first_taps to
// end_taps, and those behind them: only outputs that lie there are made. Output elements do not overlap.
//
// Driver bugs avoided: none. SwiftShader takes seconds for the loops of integers.comp if they are unrolled.
#extension GL_EXT_control_flow_attributes : require

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint LANE_IS_CHANNELS = 0;
layout(constant_id = 2) const uint PER_UNIT = 1;  // elements that are made together: those of a word, or one
layout(constant_id = 3) const uint READS_WORDS = 0;
layout(constant_id = 4) const uint UNSIGNED_TYPES = 0;  // bits 0 and 1: input, output

layout(push_constant) uniform PushConstants {
    uint input_start;  // bytes; of the element in row and column 0, which may lie outside
    uint coordinate_start;
    uint threshold_start;
    uint output_start;  // bytes
    uint count;  // invocations
    uint turns;  // rows of an invocation
    uint rows;  // of the dispatch
    uint extents[3];  // units along the lane; then columns and groups of rows, or groups of rows and channels
    uint lane_extent;  // elements
    uint sides[2];  // rows and columns of the input
    uint first_taps[2];
    uint end_taps[2];
    uint coordinates[2];  // where those of the first row and of the first column lie
    uint input_strides[4];
    uint output_strides[4];
    uint scale;
    uint zero_point;  // as a distance from the type's least number
} push;

layout(set = 0, binding = 0) readonly buffer Input { uint input_words[]; };
layout(set = 0, binding = 1) readonly buffer Coordinates { uint coordinates[]; };
layout(set = 0, binding = 2) readonly buffer Thresholds { uint all_thresholds[]; };
layout(set = 0, binding = 3) buffer Output { uint output_words[]; };

const uint ELEMENT_SIZE = 1;
#include "windows/words.glsl"

#ifdef ROUNDS_TO_NEAREST
#define NUMBER float
#define EACH [[unroll]]
float loaded(uint bits) {
    return uintBitsToFloat(bits);
}
// A conversion is slow on GPUs: a small number is the lowest bits of one from 2^23 on.
float difference(uint a, uint b) {
    return uintBitsToFloat(0x4B000000 | a) - uintBitsToFloat(0x4B000000 | b);
}
float times(float a, float b) {
    precise float rounded = a * b;
    return rounded;
}
float plus(float a, float b) {
    precise float rounded = a + b;
    return rounded;
}
uint bits_of(float value) {
    return floatBitsToUint(value);
}
#else
#include "quantized_linear_convolution/arithmetic.glsl"
#include "quantized_linear_convolution/multiplier.glsl"
#include "windows/sum.glsl"
#define NUMBER Binary32
#define EACH [[dont_unroll]]  // the code is long
#define loaded from_bits
#define times multiply
#define plus sum_of
#define bits_of to_bits
Binary32 difference(uint a, uint b) {
    if (a == b)
        return Binary32(0, 0, false);
    Binary32 number = from_count(uint(abs(int(a - b))));
    number.negative = a < b;
    return number;
}
#endif

const uint LEAST_COORDINATE = (127 - 30) << 23, LARGEST_ORDINARY = (127 + 100) << 23, LEAST_NORMAL = 1 << 23;
const uint ONE = 127 << 23, HALF = 126 << 23, INFINITY = 0x7F800000;
const uint COUNT = 255;
const uint FLIP = (UNSIGNED_TYPES & 1) != 0 ? 0 : 0x80;

shared uint thresholds[COUNT + 2];  // no sum reaches the last two
shared uint are_uneven;

// An integer in the order of numbers: -0 is 0, and a NaN lies beyond infinity.
uint key_of(uint bits) {
    uint magnitude = bits & 0x7FFFFFFF;
    return int(bits) < 0 ? (1u << 31) - magnitude : (1u << 31) + magnitude;
}

// A number, or 0, that a device neither takes for 0 nor for infinity.
bool is_ordinary(uint bits) {
    uint magnitude = bits & 0x7FFFFFFF;
    return magnitude == 0 || magnitude - LEAST_NORMAL < LARGEST_ORDINARY - LEAST_NORMAL;
}

// A straight line through the first and the last threshold: the factor and the summand that give a sum's place. The factor is
// 0 if the others do not lie near it. All invocations of a workgroup call it.
vec2 load_thresholds() {
    uint local = gl_LocalInvocationID.x;
    if (local == 0)
        are_uneven = 0;
    for (uint i = local; i < COUNT + 2; i += gl_WorkGroupSize.x)
        thresholds[i] = i < COUNT ? all_thresholds[push.threshold_start + i] : INFINITY;
    barrier();
    uint first = thresholds[0], last = thresholds[COUNT - 1];
    float factor = 0.0, origin = uintBitsToFloat(first);
    if (is_ordinary(first) && is_ordinary(last) && key_of(first) < key_of(last)) {
        float room = uintBitsToFloat(last) - origin;
        factor = room > uintBitsToFloat((127 - 100) << 23) ? float(COUNT - 1) / room : 0.0;
    }
    for (uint i = local; i < COUNT; i += gl_WorkGroupSize.x) {
        uint bits = thresholds[i];
        bool is_even = factor != 0.0 && is_ordinary(bits) && key_of(bits) <= key_of(thresholds[i + 1]);
        if (is_even)
            is_even = abs((uintBitsToFloat(bits) - origin) * factor - float(i)) < 0.6;
        if (!is_even)
            atomicOr(are_uneven, 1);
    }
    barrier();
    return are_uneven != 0 ? vec2(0.0) : vec2(factor, -origin * factor);
}

// How many thresholds a sum reaches.
uint reached(uint bits, vec2 line) {
    if (line.x != 0.0) {
        float sum = uintBitsToFloat(bits);
        // A quarter of a step below its place, and rounded in whichever way: all below that are reached.
        float place = clamp(sum * line.x + (line.y - 0.25), 0.0, float(COUNT));
        uint least = floatBitsToUint(place + 8388608.0) & 0x1FF;
        return least + (sum >= uintBitsToFloat(thresholds[least]) ? 1 : 0)
            + (sum >= uintBitsToFloat(thresholds[least + 1]) ? 1 : 0);
    }
    uint key = key_of(bits), found = 0;
    for (uint step = 128; step != 0; step >>= 1)
        found += key_of(thresholds[found + step - 1]) <= key ? step : 0;
    return found;
}

// The elements between which an output lies, and their weights.
struct Taps {
    uint low;
    uint high;
    NUMBER before;  // of the lower element
    NUMBER behind;
};

Taps taps_at(uint place, uint side) {
    uint last = floatBitsToUint(float(push.sides[side] - 1));
    uint bits = coordinates[push.coordinate_start + push.coordinates[side] + place];
    bits = int(bits) < 0 ? 0 : min(bits, last);
    bits = bits < LEAST_COORDINATE ? 0 : bits;
    Taps taps;
    taps.low = uint(uintBitsToFloat(bits));
    taps.high = taps.low;
    taps.before = loaded(HALF);
    taps.behind = taps.before;
    if (bits < last) {
        ++taps.high;
        taps.behind = plus(loaded(bits), difference(0, taps.low));
        taps.before = plus(loaded(ONE), plus(difference(taps.low, 0), loaded(bits | 1u << 31)));
    }
    return taps;
}

bool are_here(Taps taps, uint side) {
    return taps.low >= push.first_taps[side] && taps.low < push.end_taps[side];
}

// The number for which the lowest byte of a word stands.
NUMBER value_of(uint word) {
    return times(loaded(push.scale), difference(word & 0xFF ^ FLIP, push.zero_point));
}

uint taken(inout uint rest, uint extent) {
    uint quotient = rest / extent;
    uint remainder = rest - quotient * extent;
    rest = quotient;
    return remainder;
}

void make(uint unit, vec2 line) {
    const uint LANE = LANE_IS_CHANNELS != 0 ? 1 : 3;
    uint lane = taken(unit, push.extents[0]);
    uint place_w = LANE_IS_CHANNELS != 0 ? taken(unit, push.extents[1]) : 0;
    uint group = taken(unit, push.extents[LANE_IS_CHANNELS != 0 ? 2 : 1]);
    uint channel = LANE_IS_CHANNELS != 0 ? 0 : taken(unit, push.extents[2]);
    uint source = push.input_start + unit * push.input_strides[0] + channel * push.input_strides[1];
    uint target = push.output_start + unit * push.output_strides[0] + channel * push.output_strides[1]
        + place_w * push.output_strides[3];

    // Of the elements of a unit, and of the taps of each, the row first.
    Taps columns[4];
    uvec4 low, high;
    NUMBER values[4][4];
    uint mask = 0, reach = 0, lead = 4, row_of_values = 0xFFFFFFFF;
    for (uint place_h = group * push.turns; place_h < min((group + 1) * push.turns, push.rows); ++place_h) {
        Taps row = taps_at(place_h, 0);
        if (!are_here(row, 0))
            continue;
        uint at = target + place_h * push.output_strides[2];
        uint before = PER_UNIT != 1 ? at & 3 : 0;  // bytes of the first word before the lane
        if (before != lead) {
            lead = before;
            row_of_values = 0xFFFFFFFF;
            mask = 0;
            EACH for (uint i = 0; i < 4; ++i) if (i < PER_UNIT) {
                uint element = lane * PER_UNIT + i - before;
                bool is_used = element < push.lane_extent;
                element = is_used ? element : 0;
                columns[i] = taps_at(LANE_IS_CHANNELS != 0 ? place_w : element, 1);
                is_used = is_used && are_here(columns[i], 1);
                uvec2 taps = is_used ? uvec2(columns[i].low, columns[i].high) : uvec2(push.first_taps[1]);
                taps = taps * push.input_strides[3] + (LANE_IS_CHANNELS != 0 ? element * push.input_strides[1] : 0);
                low[i] = taps.x;
                high[i] = taps.y;
                mask |= is_used ? 0xFF << 8 * i : 0;
            }
            reach = 0;
            EACH for (uint i = 0; i < 4; ++i) if (i < PER_UNIT) reach =
                max(reach, max(low[i] - low[0], high[i] - low[0]));
        }
        if (row.low != row_of_values) {
            row_of_values = row.low;
            EACH for (uint r = 0; r < 2; ++r) {
                uint start = source + (r == 0 ? row.low : row.high) * push.input_strides[2];
                uint first = start + low[0];
                if (READS_WORDS != 0) {
                    uint words[2] = {input_words[first >> 2], input_words[start + high[0] >> 2]};
                    EACH for (uint i = 0; i < 4; ++i) [[unroll]]
                    for (uint k = 0; k < 2; ++k) values[i][2 * r + k] = value_of(words[k] >> 8 * i);
                } else if (PER_UNIT != 1 && reach <= 4) {
                    uint words[2] = {input_words[first >> 2], input_words[first + reach >> 2]};
                    EACH for (uint i = 0; i < 4; ++i) [[unroll]]
                    for (uint k = 0; k < 2; ++k) {
                        uint place = (first & 3) + (k == 0 ? low[i] : high[i]) - low[0];
                        values[i][2 * r + k] = value_of((place < 4 ? words[0] : words[1]) >> 8 * (place & 3));
                    }
                } else {
                    EACH for (uint i = 0; i < 4; ++i) if (i < PER_UNIT) [[unroll]]
                    for (uint k = 0; k < 2; ++k) values[i][2 * r + k] =
                        value_of(load_element(start + (k == 0 ? low[i] : high[i])).x);
                }
            }
        }
        uint word = 0;
        EACH for (uint i = 0; i < 4; ++i) if (i < PER_UNIT) {
            NUMBER sum = times(times(columns[i].before, row.before), values[i][0]);
            sum = plus(sum, times(times(columns[i].behind, row.before), values[i][1]));
            sum = plus(sum, times(times(columns[i].before, row.behind), values[i][2]));
            sum = plus(sum, times(times(columns[i].behind, row.behind), values[i][3]));
            word |= reached(bits_of(sum), line) << 8 * i;
        }
        word ^= (UNSIGNED_TYPES & 2) != 0 ? 0 : 0x80808080;
        uint place = PER_UNIT != 1 ? at - before + 4 * lane : at + lane * push.output_strides[LANE];
        uint shift = 8 * (place & 3);
        if (mask != 0)
            store_masked(place >> 2, mask << shift, word << shift);
    }
}

void main() {
    vec2 line = load_thresholds();
    uint unit =
        (gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x) * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (unit < push.count)
        make(unit, line);
}
