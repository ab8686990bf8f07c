// BYTE_SOFTMAX: y = nearest_even(steps * e(x) / sum of e(x)) + zero point over a row, where e(x) is table[255 - (m - x)], with
// the row's largest number m.
//
// Maths. The terms e(x) are added in the row's order, and each addition rounds to binary32, nearest even.
//     integers.comp adds in integers, which are exact on every device.
//     float32.comp, which defines ROUNDS_TO_NEAREST, is for devices that promise to round to nearest even. It adds in floats
//         until it meets a term of no ordinary size, and behind that in integers: so no sum in floats is denormal or infinite.
// The quotient is exact. With mantissas e and s of 24 bits, and s's exponent d beyond e's, it is above k + 1/2 if
//     2 * e * steps > (2k + 1) * s * 2^d,
// which are integers of 64 bits. An estimate in floats says where to begin; no rounding of it matters. d is not negative:
// no sum is less than one of its terms.
//
// Loops: LANES invocations take a row, and a workgroup takes ROWS rows.
//     for each element of the row: the largest one, by way of shared memory
//     for each LANES elements: their terms, which all lanes load and judge, and the first lane adds, AT_ONCE of them in a
//         turn, so that it waits once for all of these
//     for each word of the output: four quotients
// A row that no window shows whole is taken in parts. Each of the three loops is a PASS then, which goes over all parts
// before the next one does, and the largest number and the sum go from one dispatch to the next in memory.
//
// Layout: where a row's elements are packed, neighbouring invocations take neighbouring elements, else neighbouring rows.
//
// Preconditions: four storage buffers; 4 KiB of shared memory for 256 invocations. Output elements do not overlap.
//
// Driver bugs avoided: none.
#extension GL_EXT_control_flow_attributes : require

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint LANES = 1;
layout(constant_id = 2) const uint ROWS = 1;  // of a workgroup
layout(constant_id = 3) const uint LANE_IS_OUTER = 0;  // whether a workgroup's invocations count rows first
layout(constant_id = 4) const uint IS_SIGNED = 0;
layout(constant_id = 5) const uint PASS = 0;  // 0: all; 1: the largest number; 2: the sum; 3: the quotients
layout(constant_id = 6) const uint IS_FIRST = 1;  // whether the row begins here

layout(push_constant) uniform PushConstants {
    uint input_start;  // bytes
    uint table_start;
    uint output_start;
    uint state_start;
    uint rows;  // of the dispatch
    uint inner;  // of these, those along the second dimension
    uint count;  // elements of a row
    uint largest_term;  // ordinary terms are not larger, so that all of a row's are less than 2^126 together
    uint steps;
    uint zero_point;
    uint input_strides[3];
    uint output_strides[3];
} push;

layout(set = 0, binding = 0) readonly buffer Input { uint input_words[]; };
layout(set = 0, binding = 1) readonly buffer Table { uint table[]; };
layout(set = 0, binding = 2) buffer Output { uint output_words[]; };
layout(set = 0, binding = 3) buffer State { uint state[]; };

const uint UNSIGNED_TYPES = 0;
const uint ELEMENT_SIZE = 1;
#include "windows/words.glsl"
#include "quantized_linear_convolution/arithmetic.glsl"
#include "quantized_linear_convolution/multiplier.glsl"
#include "windows/sum.glsl"

const uint ALL = 0, LARGEST = 1, SUM = 2, QUOTIENTS = 3;
const uint INFINITY_BITS = 0x7F800000;
const uint LEAST_ORDINARY = 1 << 23, LARGEST_SUM = (127 + 126) << 23;
const uint FLIP = IS_SIGNED != 0 ? 0x80 : 0;
const int LEAST = IS_SIGNED != 0 ? -128 : 0;
const uint MOST_STEPS_OF_BYTES = 511;  // with any zero point it is beyond every byte

shared uint terms[gl_WorkGroupSize.x];
// By row of the workgroup.
shared uint largest_of[gl_WorkGroupSize.x];
shared uint sum_of_row[gl_WorkGroupSize.x];
shared uint has_odd_terms[gl_WorkGroupSize.x];

const uint AT_ONCE = 8;

bool is_ordinary(uint bits, uint largest) {
    return bits == 0 || bits - LEAST_ORDINARY <= largest - LEAST_ORDINARY;
}

// An element as the distance from its type's least number.
uint level_at(uint at) {
    return load_element(at).x ^ FLIP;
}

uint term_of(uint level, uint largest) {
    uint bits = table[push.table_start + 255 - (largest - level)];
    return bits < INFINITY_BITS ? bits : 0;
}

// A sum with the terms of LANES elements.
uint with_terms(uint sum, uint first, bool are_ordinary) {
#ifdef ROUNDS_TO_NEAREST
    if (are_ordinary && is_ordinary(sum, LARGEST_SUM)) {
        precise float total = uintBitsToFloat(sum);
        for (uint k = 0; k < LANES; k += AT_ONCE) {
            float values[AT_ONCE];
            [[unroll]] for (uint i = 0; i < AT_ONCE; ++i)
                values[i] = k + i < LANES ? uintBitsToFloat(terms[first + k + i]) : 0.0;
            [[unroll]] for (uint i = 0; i < AT_ONCE; ++i)
                total = total + values[i];
        }
        return floatBitsToUint(total);
    }
#endif
    for (uint k = 0; k < LANES; ++k)
        sum = added(sum, terms[first + k]);
    return sum;
}

// Whether a dividend of 64 bits is above (k + 1/2) * divisor * 2^shift, or so much and k is odd.
bool rounds_above(uint high, uint low, uint k, uint divisor, uint shift) {
    uint its_high, its_low;
    umulExtended(divisor, 2 * k + 1, its_high, its_low);
    its_high = its_high << shift | its_low >> 1 >> (31 - shift);
    its_low <<= shift;
    if (high != its_high)
        return high > its_high;
    return low != its_low ? low > its_low : (k & 1) != 0;
}

uint quotient(uint term, uint sum) {
    if (term == 0 || sum == 0 || sum >= INFINITY_BITS)
        return 0;
    Binary32 e = from_bits(term), s = from_bits(sum);
    uint shift = uint(s.exponent - e.exponent), divisor = s.mantissa >> 8;
    if (shift > 25)  // 2^24 steps of it are less than a half
        return 0;
    uint high, low;
    umulExtended(e.mantissa >> 7, push.steps, high, low);
    float share = float(e.mantissa >> 8) / float(divisor) * uintBitsToFloat((127 - shift) << 23);
    uint k = max(uint(min(share * float(push.steps), float(MOST_STEPS_OF_BYTES))), 1) - 1;
    while (k < MOST_STEPS_OF_BYTES && rounds_above(high, low, k, divisor, shift))
        ++k;
    return k;
}

void main() {
    uint workgroup = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    uint local = gl_LocalInvocationID.x;
    uint row_of_group = LANE_IS_OUTER != 0 ? local % ROWS : local / LANES;
    uint lane = LANE_IS_OUTER != 0 ? local / ROWS : local % LANES;
    uint row = workgroup * ROWS + row_of_group;
    bool is_used = row < push.rows && row_of_group < ROWS && lane < LANES;
    uint n = row / push.inner;
    uint m = row - n * push.inner;
    uint source = push.input_start + n * push.input_strides[0] + m * push.input_strides[1];
    uint state_at = push.state_start + 2 * row;

    uint largest = 0, sum = 0;
    if (is_used && PASS != ALL && (PASS != LARGEST || IS_FIRST == 0))
        largest = state[state_at];
    if (is_used && (PASS == QUOTIENTS || PASS == SUM && IS_FIRST == 0))
        sum = state[state_at + 1];

    if (PASS == ALL || PASS == LARGEST) {
        if (is_used && lane == 0)
            largest_of[row_of_group] = largest;
        barrier();
        if (is_used) {
            for (uint i = lane; i < push.count; i += LANES)
                largest = max(largest, level_at(source + i * push.input_strides[2]));
            atomicMax(largest_of[row_of_group], largest);
        }
        barrier();
        if (is_used)
            largest = largest_of[row_of_group];
    }
    if (PASS == ALL || PASS == SUM) {
        if (is_used && lane == 0)
            has_odd_terms[row_of_group] = 0;
        barrier();
        for (uint first = 0; first < push.count; first += LANES) {
            uint i = first + lane;
            if (is_used) {
                uint term = i < push.count ? term_of(level_at(source + i * push.input_strides[2]), largest) : 0;
                terms[row_of_group * LANES + lane] = term;
                if (!is_ordinary(term, push.largest_term))
                    atomicOr(has_odd_terms[row_of_group], 1);
            }
            barrier();
            if (is_used && lane == 0)
                sum = with_terms(sum, row_of_group * LANES, has_odd_terms[row_of_group] == 0);
            barrier();
        }
        if (is_used && lane == 0)
            sum_of_row[row_of_group] = sum;
        barrier();
    }
    if (!is_used)
        return;
    if (PASS == LARGEST || PASS == SUM) {
        if (lane == 0) {
            state[state_at] = largest;
            state[state_at + 1] = sum;
        }
        return;
    }
    if (PASS == ALL)
        sum = sum_of_row[row_of_group];

    uint target = push.output_start + n * push.output_strides[0] + m * push.output_strides[1];
    uint step = push.output_strides[2];
    uint per_word = step == 1 ? 4 : 1;
    uint before = step == 1 ? target & 3 : 0;  // bytes of the first word before the row
    for (uint unit = lane; unit * per_word < push.count + before; unit += LANES) {
        uint word = 0, mask = 0;
        for (uint k = 0; k < per_word; ++k) {
            uint i = unit * per_word + k - before;
            if (i >= push.count)
                continue;
            uint level = level_at(source + i * push.input_strides[2]);
            int value = int(quotient(term_of(level, largest), sum)) + int(push.zero_point);
            uint place = 8 * (target + i * step & 3);
            word |= uint(clamp(value, LEAST, LEAST + 255) & 0xFF) << place;
            mask |= 0xFF << place;
        }
        store_masked(step == 1 ? (target >> 2) + unit : target + unit * step >> 2, mask, word);
    }
}
