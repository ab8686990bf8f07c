// BYTE_RESAMPLE: y = least number + how many thresholds f32(sum of weight * v) reaches, v = f32(scale * (x - zero point))
//
// Maths. A coordinate c of a row lies between the elements i = trunc(c) and j = i + 1, whose weights are f32(j - c) and c - i;
// in the last row both are 1/2, and j = i. The same holds for columns. Each of the four weights is a product of two, each term a
// product of a weight and v, and the terms are added one after the other: (i, i), (i, j), (j, i), (j, j), the row first. Each
// step rounds to binary32, nearest even.
//     integers.comp computes in integers, which are exact on every device.
//     float32.comp, which defines ROUNDS_TO_NEAREST, is for devices that promise to round to nearest even. With a scale from
//         2^-40 to 2^40, and coordinates that are 0 or 2^-30 at least, no step is denormal or infinite.
// Numbers are compared by their bits, as integers in the same order. Thresholds of a scale are nearly even: then each is close
// to where a straight line has it, and two comparisons are enough. Whether they are, each workgroup finds out.
//
// Loops: an invocation makes some words of the output, one after the other, far from each other: neighbouring invocations make
// neighbouring words.
//     the thresholds come into shared memory
//     for each word: its row's place and weights; for each element: those of its column, four bytes, and the sum
//
// Layout. An invocation makes a word's elements along the lane: the channels or the columns, whichever is packed in the output,
// or single elements. With READS_WORDS the channels of a word are words of the input as well.
//
// Preconditions: four storage buffers; 2 KiB of shared memory. The input's window shows rows and columns from first_taps to
// end_taps, and those behind them: only outputs that lie there are made. Output elements do not overlap.
//
// Driver bugs avoided: none.
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
    uint count;  // units of the dispatch
    uint turns;  // units of an invocation
    uint extents[3];  // units along the lane; then the columns and the rows, or the rows and the channels
    uint lane_extent;  // elements
    uint sides[2];  // rows and columns of the input
    uint first_taps[2];
    uint end_taps[2];
    uint coordinates[2];  // where those of the first row and of the first column lie
    uint input_strides[4];
    uint output_strides[4];
    uint scale;
    int zero_point;
} push;

layout(set = 0, binding = 0) readonly buffer Input { uint input_words[]; };
layout(set = 0, binding = 1) readonly buffer Coordinates { uint coordinates[]; };
layout(set = 0, binding = 2) readonly buffer Thresholds { uint thresholds[]; };
layout(set = 0, binding = 3) buffer Output { uint output_words[]; };

const uint ELEMENT_SIZE = 1;
#include "windows/words.glsl"
#include "quantized_linear_convolution/arithmetic.glsl"
#include "quantized_linear_convolution/multiplier.glsl"
#include "windows/sum.glsl"

const uint ZERO_KEY = 1u << 31, NEVER = 0xFFFFFFFF;
const uint LEAST_COORDINATE = (127 - 30) << 23, LARGEST_ORDINARY = (127 + 100) << 23;
const uint ONE = 127 << 23, HALF = 126 << 23;
const uint COUNT = 255;

shared uint keys[COUNT + 2];  // of the thresholds; no sum reaches the last two
shared uint are_uneven;

// An integer in the order of numbers: -0 is 0, and a NaN lies beyond infinity.
uint key_of(uint bits) {
    uint magnitude = bits & 0x7FFFFFFF;
    return int(bits) < 0 ? ZERO_KEY - magnitude : ZERO_KEY + magnitude;
}

uint bits_of(uint key) {
    return key < ZERO_KEY ? 1u << 31 | (ZERO_KEY - key) : key - ZERO_KEY;
}

#ifdef ROUNDS_TO_NEAREST
#define NUMBER float
float loaded(uint bits) {
    return uintBitsToFloat(bits);
}
float from_integer(int value) {
    return float(value);
}
float times(float a, float b) {
    precise float rounded = a * b;
    return rounded;
}
float plus(float a, float b) {
    precise float rounded = a + b;
    return rounded;
}
uint bits_of_sum(float value) {
    return floatBitsToUint(value);
}
#else
#define NUMBER Binary32
Binary32 loaded(uint bits) {
    return from_bits(bits);
}
Binary32 from_integer(int value) {
    if (value == 0)
        return Binary32(0, 0, false);
    Binary32 number = from_count(uint(abs(value)));
    number.negative = value < 0;
    return number;
}
Binary32 times(Binary32 a, Binary32 b) {
    return multiply(a, b);
}
Binary32 plus(Binary32 a, Binary32 b) {
    return sum_of(a, b);
}
uint bits_of_sum(Binary32 value) {
    return to_bits(value);
}
#endif

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
        taps.behind = plus(loaded(bits), from_integer(-int(taps.low)));
        taps.before = plus(loaded(ONE), plus(from_integer(int(taps.low)), loaded(bits | 1u << 31)));
    }
    return taps;
}

bool are_here(Taps taps, uint side) {
    return taps.low >= push.first_taps[side] && taps.low < push.end_taps[side];
}

NUMBER value_of(uint byte) {
    int number = (UNSIGNED_TYPES & 1) != 0 ? int(byte) : bitfieldExtract(int(byte), 0, 8);
    return times(loaded(push.scale), from_integer(number - push.zero_point));
}

bool is_ordinary(uint bits) {
    return (bits & 0x7FFFFFFF) < LARGEST_ORDINARY;
}

// Of a straight line through the first and the last threshold: thresholds a unit. 0 if there is no such line.
float slope() {
    uint first = bits_of(keys[0]), last = bits_of(keys[COUNT - 1]);
    if (!is_ordinary(first) || !is_ordinary(last) || keys[COUNT - 1] <= keys[0])
        return 0.0;
    float room = uintBitsToFloat(last) - uintBitsToFloat(first);
    return room > uintBitsToFloat((127 - 100) << 23) ? float(COUNT - 1) / room : 0.0;
}

// All invocations of a workgroup call it.
float load_thresholds() {
    uint local = gl_LocalInvocationID.x;
    if (local == 0)
        are_uneven = 0;
    for (uint i = local; i < COUNT + 2; i += gl_WorkGroupSize.x)
        keys[i] = i < COUNT ? key_of(thresholds[push.threshold_start + i]) : NEVER;
    barrier();
    float factor = slope(), origin = uintBitsToFloat(bits_of(keys[0]));
    for (uint i = local; i < COUNT; i += gl_WorkGroupSize.x) {
        uint bits = bits_of(keys[i]);
        bool is_even = factor != 0.0 && is_ordinary(bits) && keys[i] <= keys[i + 1];
        if (is_even)
            is_even = abs((uintBitsToFloat(bits) - origin) * factor - float(i)) < 0.9;
        if (!is_even)
            atomicOr(are_uneven, 1);
    }
    barrier();
    return are_uneven != 0 ? 0.0 : factor;
}

// How many thresholds a sum reaches.
uint reached(uint bits, float factor, float origin) {
    uint key = key_of(bits), reached = 0;
    if (factor != 0.0) {
        // All that lie 0.95 of a step below it, at least.
        reached = uint(clamp((uintBitsToFloat(bits) - origin) * factor + 0.05, 0.0, float(COUNT)));
        uint next = reached + 1;
        return reached + (keys[reached] <= key ? 1 : 0) + (keys[next] <= key ? 1 : 0);
    }
    for (uint step = 128; step != 0; step >>= 1)
        reached += keys[reached + step - 1] <= key ? step : 0;
    return reached;
}

// The byte of four ones and their weights.
uint resampled(uvec4 bytes, Taps row, Taps column, float factor, float origin) {
    NUMBER sum = times(times(column.before, row.before), value_of(bytes.x));
    sum = plus(sum, times(times(column.behind, row.before), value_of(bytes.y)));
    sum = plus(sum, times(times(column.before, row.behind), value_of(bytes.z)));
    sum = plus(sum, times(times(column.behind, row.behind), value_of(bytes.w)));
    return reached(bits_of_sum(sum), factor, origin) ^ ((UNSIGNED_TYPES & 2) != 0 ? 0 : 0x80);
}

uvec4 loaded_bytes(uvec4 at) {
    return uvec4(load_element(at.x).x, load_element(at.y).x, load_element(at.z).x, load_element(at.w).x);
}

uint taken(inout uint rest, uint extent) {
    uint quotient = rest / extent;
    uint remainder = rest - quotient * extent;
    rest = quotient;
    return remainder;
}

void make(uint unit, float factor, float origin) {
    uint lane = taken(unit, push.extents[0]);
    uint second = taken(unit, push.extents[1]);
    uint third = taken(unit, push.extents[2]);
    uint channel = LANE_IS_CHANNELS != 0 ? 0 : third;
    uint place_h = LANE_IS_CHANNELS != 0 ? third : second;
    uint place_w = LANE_IS_CHANNELS != 0 ? second : 0;
    uint source = push.input_start + unit * push.input_strides[0] + channel * push.input_strides[1];
    uint target = push.output_start + unit * push.output_strides[0] + channel * push.output_strides[1]
        + place_h * push.output_strides[2] + place_w * push.output_strides[3];
    uint before = PER_UNIT != 1 ? target & 3 : 0;  // bytes of the first word before the lane
    uint first = lane * PER_UNIT - before;

    Taps row = taps_at(place_h, 0), column;
    if (!are_here(row, 0))
        return;
    uvec2 rows = source + uvec2(row.low, row.high) * push.input_strides[2];
    uvec4 at, words;
    if (LANE_IS_CHANNELS != 0) {
        column = taps_at(place_w, 1);
        if (!are_here(column, 1))
            return;
        at = rows.xxyy + uvec4(column.low, column.high, column.low, column.high) * push.input_strides[3];
        if (READS_WORDS != 0) [[unroll]]
            for (uint k = 0; k < 4; ++k)
                words[k] = input_words[(at[k] >> 2) + lane];
    }
    uint word = 0, mask = 0;
    [[unroll]] for (uint i = 0; i < PER_UNIT; ++i) {
        uint element = first + i;
        if (element >= push.lane_extent)
            continue;
        uvec4 bytes;
        if (LANE_IS_CHANNELS != 0) {
            if (READS_WORDS != 0)
                bytes = words >> 8 * i & 0xFF;
            else
                bytes = loaded_bytes(at + element * push.input_strides[1]);
        } else {
            column = taps_at(element, 1);
            if (!are_here(column, 1))
                continue;
            uvec2 columns = uvec2(column.low, column.high) * push.input_strides[3];
            bytes = loaded_bytes(rows.xxyy + columns.xyxy);
        }
        uint shift =
            PER_UNIT != 1 ? 8 * i : 8 * (target + lane * push.output_strides[LANE_IS_CHANNELS != 0 ? 1 : 3] & 3);
        word |= resampled(bytes, row, column, factor, origin) << shift;
        mask |= 0xFF << shift;
    }
    if (mask != 0) {
        uint at_word = PER_UNIT != 1 ? (target >> 2) + lane
                                     : target + lane * push.output_strides[LANE_IS_CHANNELS != 0 ? 1 : 3] >> 2;
        store_masked(at_word, mask, word);
    }
}

void main() {
    float factor = load_thresholds(), origin = uintBitsToFloat(bits_of(keys[0]));
    uint workgroup = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    for (uint turn = 0; turn < push.turns; ++turn) {
        uint unit = (workgroup * push.turns + turn) * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
        if (unit < push.count)
            make(unit, factor, origin);
    }
}
