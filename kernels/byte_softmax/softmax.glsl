// BYTE_SOFTMAX: y = nearest_even(steps * e(x) / sum of e(x)) + zero point over a row, where e(x) is table[255 - (m - x)], with
// the row's largest number m.
//
// Maths. The terms e(x) are added in the row's order, and each addition rounds to binary32, nearest even.
//     integers.comp adds in integers, which are exact on every device.
//     float32.comp, which defines ROUNDS_TO_NEAREST, is for devices that promise to round to nearest even. It adds in floats
//         until it meets a term of no ordinary size, and behind that in integers: so no sum in floats is denormal or infinite.
// The quotient is exact: shares.glsl.
//
// Loops: LANES invocations take a row, and a workgroup takes ROWS rows.
//     for each element of the row: the largest one, by way of shared memory
//     for each TURN elements: their terms, which all lanes load and judge, and the first lane adds, AT_ONCE of them before it
//         waits for the next ones
//     for each word of the output: four quotients
// A row that no window shows whole is taken in parts. Each of the three loops is a PASS then, which goes over all parts
// before the next one does, and the largest number and the sum go from one dispatch to the next in memory.
//
// Layout: where a row's elements are packed, neighbouring invocations take neighbouring elements, else neighbouring rows.
//
// Preconditions: four storage buffers; 7 KiB of shared memory for 256 invocations. Output elements do not overlap.
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

#include "byte_softmax/shares.glsl"

layout(set = 0, binding = 3) buffer State { uint state[]; };

const uint ALL = 0, LARGEST = 1, SUM = 2, QUOTIENTS = 3;
const uint PER_LANE = 4;  // terms that a lane loads before it waits for them
const uint TURN = PER_LANE * LANES, AT_ONCE = 32;

shared uint terms[PER_LANE * gl_WorkGroupSize.x];
// By row of the workgroup.
shared uint largest_of[gl_WorkGroupSize.x];
shared uint sum_of_row[gl_WorkGroupSize.x];
shared uint has_odd_terms[gl_WorkGroupSize.x];

// An element as the distance from its type's least number.
uint level_at(uint at) {
    return load_element(at).x ^ FLIP;
}

uint term_of(uint level, uint largest) {
    uint bits = table[push.table_start + 255 - (largest - level)];
    return bits < INFINITY_BITS ? bits : 0;
}

// A sum with the terms of some elements, at most those of a turn; behind the last one there are zeros.
uint with_terms(uint sum, uint first, uint count, bool are_ordinary) {
#ifdef ROUNDS_TO_NEAREST
    if (are_ordinary && is_ordinary(sum, LARGEST_SUM)) {
        precise float total = uintBitsToFloat(sum);
        for (uint k = 0; k < count; k += AT_ONCE) {
            float values[AT_ONCE];
            [[unroll]] for (uint i = 0; i < AT_ONCE; ++i)
                values[i] = TURN % AT_ONCE == 0 || k + i < TURN ? uintBitsToFloat(terms[first + k + i]) : 0.0;
            [[unroll]] for (uint i = 0; i < AT_ONCE; ++i)
                if (TURN % AT_ONCE == 0 || k + i < TURN)
                    total = total + values[i];
        }
        return floatBitsToUint(total);
    }
#endif
    for (uint k = 0; k < count; ++k)
        sum = added(sum, terms[first + k]);
    return sum;
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
        for (uint first = 0; first < push.count; first += TURN) {
            if (is_used) {
                uint bits[PER_LANE];
                [[unroll]] for (uint k = 0; k < PER_LANE; ++k) {
                    uint i = first + k * LANES + lane;
                    bits[k] = i < push.count ? term_of(level_at(source + i * push.input_strides[2]), largest) : 0;
                }
                [[unroll]] for (uint k = 0; k < PER_LANE; ++k) {
                    terms[row_of_group * TURN + k * LANES + lane] = bits[k];
                    if (!is_ordinary(bits[k], push.largest_term))
                        atomicOr(has_odd_terms[row_of_group], 1);
                }
            }
            barrier();
            if (is_used && lane == 0)
                sum = with_terms(
                    sum, row_of_group * TURN, min(push.count - first, TURN), has_odd_terms[row_of_group] == 0);
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
