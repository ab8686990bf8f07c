#version 460

// BYTE_LAYER_NORMALIZATION: y = nearest_even(f32(f32(f32(d * factor) * scale + bias) / output scale)) + zero point over a row,
// with d = f32(x - mean), where x = f32(input scale * (byte - zero point)).
//
// Maths. The mean is the row's exact sum over n, rounded once. The squares of d are added up in eight sums, of which sum l takes
// the elements i with i % 8 == l in their order, each as f32(d * d + sum), rounded once; then the sums are joined in halves. The
// factor is f32(1 / f32(sqrt(f32(f32(sum / n) + epsilon)))). All that is done in integers, since no device has to round a product
// and a sum once, or a division and a root to the nearest number.
//     Each x is a multiple of the last bit of the input scale, less than 2^32 times it, so a row of 2^20 has an exact sum of 64 bits.
//     d and d * factor depend on the byte alone: a row has a table of 256 of each.
//     An output is estimated in floats, with a bound of the estimate's error, whichever way they round. Only where the bound
//     reaches a half of a step, the output is found in integers: once in some thousand.
//
// Loops: LANES invocations take a row, and a workgroup takes ROWS rows.
//     for each element of the row: the sum; the first lane finds the mean
//     for each byte: d
//     for each 8 elements of the row: eight invocations add their squares, AT_ONCE of which they have loaded before
//     for each byte: d * factor, with the factor of the first lane
//     for each word of the output: its elements
//
// Layout: neighbouring lanes take neighbouring elements. Those that add up squares are neighbours, too, of whichever row.
//
// Preconditions: n is a multiple of 8, at most 2^20; four storage buffers; 1.1 KiB of shared memory for a row. The two scales
// are from 2^-20 to 2^20, and epsilon from 2^-60 to 2^60. Output elements do not overlap.
//
// Driver bugs avoided: none.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint LANES = 8;  // 8 or more
layout(constant_id = 2) const uint ROWS = 1;  // of a workgroup
layout(constant_id = 3) const uint IS_SIGNED = 0;

layout(push_constant) uniform PushConstants {
    uint input_start;  // bytes
    uint scale_start;
    uint bias_start;
    uint output_start;  // bytes
    uint rows;  // of the dispatch
    uint count;  // elements of a row
    uint input_strides[2];
    uint output_strides[2];
    uint epsilon;
    uint input_scale;
    uint input_zero_point;  // as a distance from the type's least number
    uint output_scale;
    uint steps_of_one;  // about 1 / output_scale
    uint output_zero_point;
} push;

layout(set = 0, binding = 0) readonly buffer Input { uint input_words[]; };
layout(set = 0, binding = 1) readonly buffer Scales { uint scales[]; };
layout(set = 0, binding = 2) readonly buffer Biases { uint biases[]; };
layout(set = 0, binding = 3) buffer Output { uint output_words[]; };

const uint UNSIGNED_TYPES = 0;
const uint ELEMENT_SIZE = 1;
#include "windows/words.glsl"
#include "element_wise/exact.glsl"
#include "windows/sum.glsl"

const uint SUMS = 8, AT_ONCE = 4;
const uint FLIP = IS_SIGNED != 0 ? 0x80 : 0;
const int LEAST = IS_SIGNED != 0 ? -128 : 0;
const uint ONE = 127 << 23, MAGNITUDE = 0x7FFFFFFF, INFINITY_BITS = 0x7F800000;
// No product of such a number is infinite.
const uint LARGEST_ORDINARY = (127 + 60) << 23;
// An estimate has five roundings, each to within two units in the last place, and it leaves out what is denormal.
const float ERROR = 1.0 / 1048576.0, LARGEST_ERROR = 1.0 / 256.0;

// By row of the workgroup.
shared uint numbers[256 * ROWS];  // of each byte: d, and then d * factor
shared uint digits[3 * ROWS];  // of the sum: 16 bits, 16 bits and what is beyond
shared uint sums[SUMS * ROWS];
shared uint number_of_row[ROWS];  // the mean, and then the factor

// Shifts 64 bits, not all of which are 0, until the highest is set.
int normalize(inout uint high, inout uint low) {
    int shift = high != 0 ? 31 - findMSB(high) : 63 - findMSB(low);
    if (shift >= 32) {
        high = low;
        low = 0;
    }
    int rest = shift & 31;
    high = high << rest | low >> 1 >> (31 - rest);
    low <<= rest;
    return shift;
}

// f32(a * b + c), rounded once.
Binary32 fused(Binary32 a, Binary32 b, Binary32 c) {
    if (a.mantissa == 0 || b.mantissa == 0)
        return c;
    uint high, low, other_high = c.mantissa, other_low = 0;
    umulExtended(a.mantissa, b.mantissa, high, low);
    int exponent = a.exponent + b.exponent + 1;
    exponent -= normalize(high, low);
    bool negative = a.negative != b.negative, differ = negative != c.negative;
    int distance = exponent - c.exponent;
    if (c.mantissa == 0)
        return rounded_to_binary32(high, low != 0, exponent, negative);
    if (distance < 0 || distance == 0 && high < other_high) {
        other_high = high;
        other_low = low;
        high = c.mantissa;
        low = 0;
        exponent = c.exponent;
        negative = c.negative;
        distance = -distance;
    }
    // Of the smaller one, 64 bits count. What is left of it is less than the last of them.
    bool sticky = false;
    if (distance >= 32) {
        sticky = other_low != 0;
        other_low = other_high;
        other_high = 0;
        distance = min(distance - 32, 31);
    }
    if (distance != 0) {
        sticky = sticky || other_low << (32 - distance) != 0;
        other_low = other_low >> distance | other_high << (32 - distance);
        other_high >>= distance;
    }
    if (!differ) {
        uint carry;
        low = uaddCarry(low, other_low, carry);
        uint sum = high + carry;
        bool wraps = sum < carry;
        high = sum + other_high;
        if (wraps || high < other_high) {
            sticky = sticky || (low & 1) != 0;
            low = low >> 1 | high << 31;
            high = high >> 1 | 1u << 31;
            ++exponent;
        }
    } else {
        uint borrow;
        low = usubBorrow(low, other_low, borrow);
        high -= other_high + borrow;
        if (sticky) {
            high -= low == 0 ? 1 : 0;
            --low;
        }
        if ((high | low) == 0)
            return Binary32(0, 0, false);
        exponent -= normalize(high, low);
    }
    return rounded_to_binary32(high, sticky || low != 0, exponent, negative);
}

// f32(sqrt(v)) of a positive number.
Binary32 square_root(Binary32 v) {
    // Of 64 bits, the lower 32 of which are 0: v with an even exponent.
    uint square = (v.exponent & 1) != 0 ? v.mantissa : v.mantissa >> 1;
    uint root = 0, high, low;
    for (uint bit = 1u << 31; bit != 0; bit >>= 1) {
        umulExtended(root | bit, root | bit, high, low);
        if (high < square || high == square && low == 0)
            root |= bit;
    }
    umulExtended(root, root, high, low);
    return rounded_to_binary32(root, high != square || low != 0, v.exponent >> 1, false);
}

// For what a byte stands.
Binary32 value_of(uint byte) {
    int steps = int(byte ^ FLIP) - int(push.input_zero_point);
    if (steps == 0)
        return Binary32(0, 0, false);
    Binary32 number = from_count(uint(abs(steps)));
    number.negative = steps < 0;
    return multiply(from_bits(push.input_scale), number);
}

// The same in units of the input scale's last bit.
Wide units_of(uint byte) {
    int steps = int(byte ^ FLIP) - int(push.input_zero_point);
    uint exact = (push.input_scale & 0x7FFFFF | 1 << 23) * uint(abs(steps));
    int dropped = max(findMSB(exact) - 23, 0);
    uint unit = 1u << dropped;
    uint kept = exact + (unit >> 1) - (unit > 1 && (exact >> dropped & 1) == 0 ? 1 : 0) & 0u - unit;
    return steps < 0 ? negated(Wide(kept, 0)) : Wide(kept, 0);
}

// The mean of a row, of whose sum the digits are known.
Binary32 mean_of(uint at) {
    Wide sum = add(Wide(digits[at], digits[at + 2]), Wide(digits[at + 1] << 16, digits[at + 1] >> 16));
    bool negative = int(sum.high) < 0;
    if (negative)
        sum = negated(sum);
    if ((sum.high | sum.low) == 0)
        return Binary32(0, 0, false);
    int exponent = int(push.input_scale >> 23) - 127 - 23 + 63 - normalize(sum.high, sum.low);
    uint rest = 0, high = 0, low = 0;
    for (uint i = 0; i < 8; ++i) {
        rest = rest << 8 | sum.high >> 24;
        sum = Wide(sum.low << 8, sum.high << 8 | sum.low >> 24);
        uint digit = rest / push.count;
        rest -= digit * push.count;
        high = high << 8 | low >> 24;
        low = low << 8 | digit;
    }
    exponent -= normalize(high, low);
    return rounded_to_binary32(high, (low | rest) != 0, exponent, negative);
}

// What a row's d are multiplied by, from its eight sums.
Binary32 factor_of(uint at) {
    Binary32 parts[4];
    for (uint i = 0; i < 4; ++i)
        parts[i] = sum_of(from_bits(sums[at + i]), from_bits(sums[at + i + 4]));
    Binary32 squares = sum_of(sum_of(parts[0], parts[2]), sum_of(parts[1], parts[3]));
    Binary32 variance = sum_of(divide(squares, from_count(push.count)), from_bits(push.epsilon));
    return divide(from_bits(ONE), square_root(variance));
}

uint finite(uint bits) {
    return (bits & MAGNITUDE) < INFINITY_BITS ? bits : 0;
}

// The steps of the output that a number, as it is in the table, is in a column.
int steps_of(uint number, uint column) {
    uint scale = scales[push.scale_start + column], bias = biases[push.bias_start + column];
    if (max(scale & MAGNITUDE, bias & MAGNITUDE) < LARGEST_ORDINARY) {
        float product = uintBitsToFloat(number) * uintBitsToFloat(scale), summand = uintBitsToFloat(bias);
        float steps_of_one = uintBitsToFloat(push.steps_of_one);
        float steps = (product + summand) * steps_of_one, below = floor(steps);
        float error = (abs(product) + abs(summand)) * steps_of_one * ERROR + ERROR;
        if (error < LARGEST_ERROR && abs(steps - below - 0.5) > error)
            return int(below) + (steps - below > 0.5 ? 1 : 0);
    }
    Binary32 y = fused(from_bits(number), from_bits(finite(scale)), from_bits(finite(bias)));
    return nearest_even(divide(y, from_bits(push.output_scale)));
}

void main() {
    uint local = gl_LocalInvocationID.x;
    uint first_row = (gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x) * ROWS;
    uint row_of_group = local / LANES, lane = local % LANES;
    uint row = first_row + row_of_group;
    bool is_used = row_of_group < ROWS && row < push.rows;
    uint source = push.input_start + row * push.input_strides[0];
    uint table = 256 * row_of_group;

    if (local < 3 * ROWS)
        digits[local] = 0;
    barrier();
    if (is_used) {
        Wide sum = Wide(0, 0);
        for (uint i = lane; i < push.count; i += LANES)
            sum = add(sum, units_of(load_element(source + i * push.input_strides[1]).x));
        atomicAdd(digits[3 * row_of_group], sum.low & 0xFFFF);
        atomicAdd(digits[3 * row_of_group + 1], sum.low >> 16);
        atomicAdd(digits[3 * row_of_group + 2], sum.high);
    }
    barrier();
    if (is_used && lane == 0)
        number_of_row[row_of_group] = to_bits(mean_of(3 * row_of_group));
    barrier();
    if (is_used) {
        Binary32 mean = from_bits(number_of_row[row_of_group]);
        mean.negative = !mean.negative;
        for (uint byte = lane; byte < 256; byte += LANES)
            numbers[table + byte] = to_bits(sum_of(value_of(byte), mean));
    }
    barrier();
    uint row_of_sum = local / SUMS;
    if (row_of_sum < ROWS && first_row + row_of_sum < push.rows) {
        uint start = push.input_start + (first_row + row_of_sum) * push.input_strides[0];
        Binary32 sum = Binary32(0, 0, false);
        for (uint first = local % SUMS; first < push.count; first += SUMS * AT_ONCE) {
            uint loaded[AT_ONCE];
            [[unroll]] for (uint i = 0; i < AT_ONCE; ++i) {
                uint element = min(first + SUMS * i, push.count - 1);
                loaded[i] = numbers[256 * row_of_sum + load_element(start + element * push.input_strides[1]).x];
            }
            [[unroll]] for (uint i = 0; i < AT_ONCE; ++i) {
                Binary32 d = from_bits(first + SUMS * i < push.count ? loaded[i] & MAGNITUDE : 0);
                sum = fused(d, d, sum);
            }
        }
        sums[local] = to_bits(sum);
    }
    barrier();
    if (is_used && lane == 0)
        number_of_row[row_of_group] = to_bits(factor_of(SUMS * row_of_group));
    barrier();
    if (is_used) {
        Binary32 factor = from_bits(number_of_row[row_of_group]);
        for (uint byte = lane; byte < 256; byte += LANES)
            numbers[table + byte] = to_bits(multiply(from_bits(numbers[table + byte]), factor));
    }
    barrier();
    if (!is_used)
        return;

    uint target = push.output_start + row * push.output_strides[0], step = push.output_strides[1];
    uint per_word = step == 1 ? 4 : 1;
    uint before = step == 1 ? target & 3 : 0;  // bytes of the first word before the row
    for (uint unit = lane; unit * per_word < push.count + before; unit += LANES) {
        uint word = 0, mask = 0;
        for (uint k = 0; k < per_word; ++k) {
            uint column = unit * per_word + k - before;
            if (column >= push.count)
                continue;
            uint byte = load_element(source + column * push.input_strides[1]).x;
            int value = steps_of(numbers[table + byte], column) + int(push.output_zero_point);
            uint place = 8 * (target + column * step & 3);
            word |= uint(clamp(value, LEAST, LEAST + 255) & 0xFF) << place;
            mask |= 0xFF << place;
        }
        store_masked(step == 1 ? (target >> 2) + unit : target + unit * step >> 2, mask, word);
    }
}
