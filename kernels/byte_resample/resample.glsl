// BYTE_RESAMPLE: y = least number + how many thresholds f32(sum of weight * v) reaches, v = f32(scale * (x - zero point))
//
// Maths. A coordinate c of a row lies between the elements i = trunc(c) and j = i + 1, whose weights are f32(j - c) and c - i;
// in the last row both are 1/2, and j = i. The same holds for columns. Each of the four weights is a product of two, each term a
// product of a weight and v, and the terms are added one after the other: (i, i), (i, j), (j, i), (j, j), the row first. Each
// step rounds to binary32, nearest even.
//     integers.comp computes in integers, which are exact on every device.
//     float32.comp, which defines ROUNDS_TO_NEAREST, is for devices that promise to round to nearest even. With a scale from
//         2^-40 to 2^40, and coordinates that are 0 or 2^-30 at least, no step is denormal or infinite.
// Thresholds of a scale are nearly even: they lie on a straight line, but for a margin that each workgroup finds out. A sum's
// place on this line, as a float from 256 on, has its bits in units of 2^-15. If the eight bits above are the same a margin
// below and above it, they are the output; else a threshold is compared, as a float, or two if the margin is half a step or
// more. Where it is a step or more, bisection finds the threshold, by the bits as integers in the same order.
//
// Loops: an invocation makes the words of some rows, one below the other.
//     the thresholds come into shared memory, and the places and weights of the workgroup's rows, if they are few
//     the places and weights of its columns
//     for each row: where it has other rows of the input than the one before, their numbers v; the sums
//
// Layout. An invocation makes a word's elements along the lane: the channels or the columns, whichever is packed in the output,
// or single elements. With READS_WORDS the channels of one or two words are words of the input as well. Columns of at most five elements
// that follow each other are read as two words.
//
// Preconditions: four storage buffers; 1 KiB of shared memory. The input's window shows rows and columns from first_taps to
// end_taps, and those behind them: only outputs that lie there are made. Output elements do not overlap.
//
// Driver bugs avoided: none. SwiftShader takes seconds for the loops of integers.comp if they are unrolled.
#extension GL_EXT_control_flow_attributes : require

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint LANE_IS_CHANNELS = 0;
layout(constant_id = 2) const uint PER_UNIT = 1;  // elements that are made together: those of one or two words, or one
layout(constant_id = 3) const uint READS_WORDS = 0;  // those of a unit, if its elements are words of the input as well
layout(constant_id = 4) const uint UNSIGNED_TYPES = 0;  // bits 0 and 1: input, output
layout(constant_id = 5) const uint SHARES_ROWS = 0;  // whether a workgroup has no more rows than invocations

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
const uint COUNT = 255, NONE = 0xFFFFFFFFu;
const uint FLIP = (UNSIGNED_TYPES & 1) != 0 ? 0 : 0x80;

shared uint thresholds[COUNT + 2];  // no sum reaches the last two
shared uint deviation;  // of a threshold from the line, in units of PLACE_BITS

const uint PLACE_BITS = 15, STEP = 1 << PLACE_BITS;
// Vulkan may round a product of at most LARGEST_SUMMAND + 256, and a sum, either way: for a threshold and for a number that is
// less than SLACK units.
const float LARGEST_SUMMAND = 2048.0;
const uint SLACK = 32;
// That of thresholds between steps of a scale, which are rounded. No invocation has to tell it to the others.
const uint USUAL_DEVIATION = 16;

// A number's place is factor * number + summand. All thresholds that lie less than a margin beside it may be reached or not.
struct Line {
    float factor;
    float summand;
    float upper_summand;  // for a place that is a margin above it
    float least;  // the least such place
    uint margin;
    bool is_even;  // whether the margin is less than a step; else no place is certain
};

float place_of(float number, Line line) {
    return fma(number, line.factor, line.summand);
}

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

// A straight line through the first and the last threshold. All invocations of a workgroup call it.
Line load_thresholds() {
    uint local = gl_LocalInvocationID.x;
    if (local == 0)
        deviation = USUAL_DEVIATION;
    for (uint i = local; i < COUNT + 2; i += gl_WorkGroupSize.x)
        thresholds[i] = i < COUNT ? all_thresholds[push.threshold_start + i] : INFINITY;
    barrier();
    uint first = thresholds[0], last = thresholds[COUNT - 1];
    Line line = Line(0.0, 0.0, 0.0, 0.0, 0, false);
    if (is_ordinary(first) && is_ordinary(last) && key_of(first) < key_of(last)) {
        float origin = uintBitsToFloat(first), room = uintBitsToFloat(last) - origin;
        line.factor = room > uintBitsToFloat((127 - 100) << 23) ? float(COUNT - 1) / room : 0.0;
        line.summand = 257.0 - origin * line.factor;
    }
    for (uint i = local; i < COUNT; i += gl_WorkGroupSize.x) {
        uint bits = thresholds[i];
        float distance = 1.0;
        if (line.factor != 0.0 && abs(line.summand) < LARGEST_SUMMAND && is_ordinary(bits)
            && key_of(bits) <= key_of(thresholds[i + 1]))
            distance = abs(place_of(uintBitsToFloat(bits), line) - float(257 + i));
        if (distance * float(STEP) > float(USUAL_DEVIATION))
            atomicMax(deviation, uint(min(distance, 1.0) * float(STEP)));
    }
    barrier();
    line.is_even = deviation + SLACK < STEP;
    line.margin = line.is_even ? deviation + SLACK : STEP / 2;
    line.upper_summand = line.summand + float(line.margin) / float(STEP);
    line.least = 256.0 + 2.0 * float(line.margin) / float(STEP);
    return line;
}

// A margin above the place of a sum.
uint place_of_sum(uint bits, Line line) {
    return floatBitsToUint(clamp(fma(uintBitsToFloat(bits), line.factor, line.upper_summand), line.least, 511.5));
}

// How many thresholds a sum reaches, of which at most one lies within two margins below its upper place.
uint reached_of_one(uint bits, uint place, Line line) {
    uint least = place - 2 * line.margin >> PLACE_BITS & 0xFF;
    return least + (uintBitsToFloat(bits) >= uintBitsToFloat(thresholds[least]) ? 1 : 0);
}

// How many thresholds a sum reaches.
uint reached(uint bits, Line line) {
    if (line.is_even) {
        float sum = uintBitsToFloat(bits);
        uint least = place_of_sum(bits, line) - 2 * line.margin >> PLACE_BITS & 0xFF;
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

shared Taps shared_rows[SHARES_ROWS != 0 ? gl_WorkGroupSize.x : 1];

// Units that follow each other with the same rows.
uint units_of_group() {
    return push.extents[0] * (LANE_IS_CHANNELS != 0 ? push.extents[1] : 1);
}

uint group_of(uint index) {
    return index % push.extents[LANE_IS_CHANNELS != 0 ? 2 : 1];
}

// The rows of a workgroup's groups, of which the first has an index.
void load_rows(uint first) {
    uint group = gl_LocalInvocationID.x / push.turns;
    uint row = group_of(first + group) * push.turns + gl_LocalInvocationID.x - group * push.turns;
    if (row < push.rows)
        shared_rows[gl_LocalInvocationID.x] = taps_at(row, 0);
}

Taps taps_of_row(uint row, uint in_workgroup) {
    if (SHARES_ROWS != 0)
        return shared_rows[in_workgroup];
    return taps_at(row, 0);
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

// Which of a unit's columns an element lies in: channels lie in the same one.
uint column_of(uint i) {
    return LANE_IS_CHANNELS != 0 ? 0 : i;
}

const uint WORDS = READS_WORDS == 2 ? 2 : 1, ELEMENTS = 8;  // at most

// The numbers of a row of the input, at the taps of a unit's elements.
void load_row(out NUMBER numbers[ELEMENTS][2], uint start, uvec4 low, uvec4 high, uint reach) {
    uint first = start + low[0];
    if (READS_WORDS != 0) {
        EACH for (uint w = 0; w < 2; ++w) if (w < WORDS) {
            uint words[2] = {input_words[(first >> 2) + w], input_words[(start + high[0] >> 2) + w]};
            EACH for (uint i = 0; i < 4; ++i) [[unroll]]
            for (uint k = 0; k < 2; ++k) numbers[4 * w + i][k] = value_of(words[k] >> 8 * i);
        }
    } else if (PER_UNIT != 1 && reach <= 4) {
        uint words[2] = {input_words[first >> 2], input_words[first + reach >> 2]};
        EACH for (uint i = 0; i < 4; ++i) [[unroll]]
        for (uint k = 0; k < 2; ++k) {
            uint place = (first & 3) + (k == 0 ? low[i] : high[i]) - low[0];
            numbers[i][k] = value_of((place < 4 ? words[0] : words[1]) >> 8 * (place & 3));
        }
    } else {
        EACH for (uint i = 0; i < 4; ++i) if (i < PER_UNIT) [[unroll]]
        for (uint k = 0; k < 2; ++k) numbers[i][k] = value_of(load_element(start + (k == 0 ? low[i] : high[i])).x);
    }
}

void make(uint unit, uint first_group, Line line) {
    const uint LANE = LANE_IS_CHANNELS != 0 ? 1 : 3;
    uint rows_before = (unit / units_of_group() - first_group) * push.turns;  // of the workgroup
    uint lane = taken(unit, push.extents[0]);
    uint place_w = LANE_IS_CHANNELS != 0 ? taken(unit, push.extents[1]) : 0;
    uint group = taken(unit, push.extents[LANE_IS_CHANNELS != 0 ? 2 : 1]);
    uint channel = LANE_IS_CHANNELS != 0 ? 0 : taken(unit, push.extents[2]);
    uint source = push.input_start + unit * push.input_strides[0] + channel * push.input_strides[1];
    uint target = push.output_start + unit * push.output_strides[0] + channel * push.output_strides[1]
        + place_w * push.output_strides[3];

    // Of the elements of a unit, and of the taps of each in the row above and in the one below.
    Taps columns[4];
    uvec4 low, high;
    NUMBER upper[ELEMENTS][2], lower[ELEMENTS][2];
    uint mask = 0, reach = 0, lead = 4, low_row = NONE, high_row = NONE;
    for (uint place_h = group * push.turns; place_h < min((group + 1) * push.turns, push.rows); ++place_h) {
        Taps row = taps_of_row(place_h, rows_before + place_h - group * push.turns);
        if (!are_here(row, 0))
            continue;
        uint at = target + place_h * push.output_strides[2];
        uint before = PER_UNIT != 1 ? at & 3 : 0;  // bytes of the first word before the lane
        if (before != lead) {
            lead = before;
            low_row = high_row = NONE;
            mask = 0;
            EACH for (uint i = 0; i < 4; ++i) if (i < PER_UNIT) {
                uint element = lane * PER_UNIT + i - before;
                bool is_used = element < push.lane_extent;
                element = is_used ? element : 0;
                uint column = column_of(i);
                if (column == i)
                    columns[i] = taps_at(LANE_IS_CHANNELS != 0 ? place_w : element, 1);
                is_used = is_used && are_here(columns[column], 1);
                uvec2 taps = is_used ? uvec2(columns[column].low, columns[column].high) : uvec2(push.first_taps[1]);
                taps = taps * push.input_strides[3] + (LANE_IS_CHANNELS != 0 ? element * push.input_strides[1] : 0);
                low[i] = taps.x;
                high[i] = taps.y;
                mask |= is_used ? 0xFF << 8 * i : 0;
            }
            reach = 0;
            EACH for (uint i = 0; i < 4; ++i) if (i < PER_UNIT) reach =
                max(reach, max(low[i] - low[0], high[i] - low[0]));
        }
        if (row.low != low_row) {
            // The row behind the last one's numbers is often this one's first.
            if (row.low == high_row)
                upper = lower;
            else
                load_row(upper, source + row.low * push.input_strides[2], low, high, reach);
            load_row(lower, source + row.high * push.input_strides[2], low, high, reach);
            low_row = row.low;
            high_row = row.high;
        }
        EACH for (uint w = 0; w < 2; ++w) if (w < WORDS) {
            uint word = 0, least_rest = STEP;
            uvec4 sums = uvec4(0), places = uvec4(0);
            EACH for (uint i = 0; i < 4; ++i) if (i < PER_UNIT) {
                Taps column = columns[column_of(i)];
                uint k = 4 * w + i;
                NUMBER sum = times(times(column.before, row.before), upper[k][0]);
                sum = plus(sum, times(times(column.behind, row.before), upper[k][1]));
                sum = plus(sum, times(times(column.before, row.behind), lower[k][0]));
                sum = plus(sum, times(times(column.behind, row.behind), lower[k][1]));
                sums[i] = bits_of(sum);
                places[i] = place_of_sum(sums[i], line);
                word |= (places[i] >> PLACE_BITS & 0xFF) << 8 * i;
                least_rest = min(least_rest, places[i] & STEP - 1);
            }
            // Some are near a threshold. Ties are many where factors are powers of two.
            if (least_rest < 2 * line.margin) {
                word = 0;
                if (line.margin < STEP / 2) {
                    EACH for (uint i = 0; i < 4; ++i) if (i < PER_UNIT) word |= reached_of_one(sums[i], places[i], line)
                        << 8 * i;
                } else {
                    [[dont_unroll]] for (uint i = 0; i < min(PER_UNIT, 4); ++i) {
                        uint sum = i < 2 ? (i == 0 ? sums.x : sums.y) : i == 2 ? sums.z : sums.w;
                        word |= reached(sum, line) << 8 * i;
                    }
                }
            }
            word ^= (UNSIGNED_TYPES & 2) != 0 ? 0 : 0x80808080;
            uint place = PER_UNIT != 1 ? at - before + PER_UNIT * lane + 4 * w : at + lane * push.output_strides[LANE];
            uint shift = 8 * (place & 3);
            if (mask != 0)
                store_masked(place >> 2, mask << shift, word << shift);
        }
    }
}

void main() {
    uint first = (gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x) * gl_WorkGroupSize.x;
    uint first_group = first / units_of_group();
    if (SHARES_ROWS != 0)
        load_rows(first_group);
    Line line = load_thresholds();
    uint unit = first + gl_LocalInvocationID.x;
    if (unit < push.count)
        make(unit, first_group, line);
}
