#version 460

// BYTE_SOFTMAX of many packed rows in float32, on devices that round to nearest even if they are asked to.
//
// Maths: softmax.glsl and shares.glsl. A quotient is first estimated: v = e * f32(steps / sum). As a float from 256 on,
//     v + 1/2 + 256
// has its bits in units of 2^-15, and the eight above are v rounded. Vulkan lets the division be wrong by 2.5 units in the last
// place, and three more operations by one each: with v < 256 that is less than 6 * 2^-15. So only an estimate that lies within
// MARGIN of these units from a half of a step is not certain, and is found exactly then. Larger ones are the largest byte.
//
// Loops: a workgroup takes ROWS rows.
//     the table comes into shared memory, and the rows' bytes, by neighbouring words
//     for each row: the largest number, by some invocations
//     for each row: the sum, by one invocation, so that neighbouring ones add up neighbouring rows
//     for each word of the output: four quotients
// If a term is of no ordinary size, sums are made in integers, and all quotients exactly.
//
// Layout. The table lies in shared memory COPIES times, so that neighbouring invocations wait less often for the same bank. A
// word is looked up by its distance from the row's largest number, with one addition for four bytes, of which none carries.
//
// Preconditions: three storage buffers. Rows follow each other without gaps, in words, in input and output; ROWS of them are
// whole words, and a word has elements of two rows at most: LENGTH >= 4. The device has shaderRoundingModeRTEFloat32.
//
// Driver bugs avoided: none.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_spirv_intrinsics : require
#extension GL_EXT_control_flow_attributes : require
spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4467], 4462, 32);  // RoundingModeRTE 32

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint LENGTH = 4;  // of a row
layout(constant_id = 2) const uint ROWS = 1;  // of a workgroup; a power of two
layout(constant_id = 3) const uint PITCH =
    1;  // of rows that consist of words: words from one to the next in shared memory
layout(constant_id = 4) const uint STAGED_WORDS = 1;  // of all rows in shared memory
layout(constant_id = 5) const uint IS_SIGNED = 0;

#include "byte_softmax/shares.glsl"

const uint COPIES = 8, TERMS = 256, AT_ONCE = 8;
const uint MARGIN = 6, HALF_BITS = 15;
const float UNITS_OF_MARGIN = float(MARGIN) / float(1 << HALF_BITS);
const uint LEAST_LARGEST_TERM = (127 - 90) << 23;  // no quotient of steps and a sum from it on is infinite
const uint ONES = 0x01010101, FLIPS = FLIP * ONES;
const bool HAS_WORDS = LENGTH % 4 == 0;
const uint WORDS_OF_ROW = HAS_WORDS ? LENGTH / 4 : 1;
const uint LANES = ROWS < gl_WorkGroupSize.x ? gl_WorkGroupSize.x / ROWS : 1;  // that find the largest number of a row

shared uint terms[TERMS * COPIES];
shared uint staged[STAGED_WORDS];
shared uint largest_of[ROWS];
shared uint total_of[ROWS];
shared float step_of[ROWS];  // steps / sum
shared uint are_odd;

// Where a word of the rows lies in shared memory.
uint place_of(uint word) {
    return HAS_WORDS ? word + word / WORDS_OF_ROW * (PITCH - WORDS_OF_ROW) : word;
}

// A row's bytes in shared memory: the first word, how many bytes of it are of the row before, and the number of words.
struct Row {
    uint start;
    uint before;
    uint words;
};

Row row_at(uint row) {
    uint before = HAS_WORDS ? 0 : row * LENGTH & 3;
    return Row(HAS_WORDS ? row * PITCH : row * LENGTH >> 2, before, (before + LENGTH + 3) / 4);
}

// A word of a row without the bytes of other rows.
uint word_of(Row row, uint k) {
    uint word = staged[row.start + k];
    if (HAS_WORDS)
        return word;
    word = k == 0 ? word & 0xFFFFFFFFu << 8 * row.before : word;
    return k == row.words - 1 ? word & 0xFFFFFFFFu >> 8 * (4 * row.words - row.before - LENGTH) : word;
}

// The term of a byte of a word of levels, each as far below 255 as the element is below the largest one.
uint term_at(uint word, uint i) {
    return terms[(word >> 8 * i & 0xFF) * COPIES | gl_LocalInvocationID.x % COPIES];
}

uint to_levels(uint largest) {
    return (255 - largest) * ONES;
}

// Loads the table; whether all sums are ordinary then, `are_odd` says behind the next barrier.
void load_table() {
    bool is_odd = false;
    for (uint base = gl_LocalInvocationID.x; base < TERMS * COPIES; base += AT_ONCE * gl_WorkGroupSize.x) {
        uint values[AT_ONCE];
        [[unroll]] for (uint i = 0; i < AT_ONCE; ++i) {
            uint level = min((base + i * gl_WorkGroupSize.x) / COPIES, TERMS - 1);
            values[i] = table[push.table_start + level];
        }
        [[unroll]] for (uint i = 0; i < AT_ONCE; ++i) {
            uint place = base + i * gl_WorkGroupSize.x, bits = values[i] < INFINITY_BITS ? values[i] : 0;
            if (place < TERMS * COPIES)
                terms[place] = bits;
            is_odd = is_odd || !is_ordinary(bits, push.largest_term);
            is_odd = is_odd || place / COPIES == TERMS - 1 && bits < LEAST_LARGEST_TERM;
        }
    }
    if (is_odd)
        atomicOr(are_odd, 1);
}

void stage(uint first_word, uint words) {
    for (uint base = gl_LocalInvocationID.x; base < words; base += AT_ONCE * gl_WorkGroupSize.x) {
        uint values[AT_ONCE];
        [[unroll]] for (uint i = 0; i < AT_ONCE; ++i) {
            uint word = base + i * gl_WorkGroupSize.x;
            values[i] = word < words ? input_words[first_word + word] ^ FLIPS : 0;
        }
        [[unroll]] for (uint i = 0; i < AT_ONCE; ++i) {
            uint word = base + i * gl_WorkGroupSize.x;
            if (word < words)
                staged[place_of(word)] = values[i];
        }
    }
}

// The largest number of the words from one on, every LANES-th. The uppermost byte of a word decides which is larger.
uint largest_of_words(Row row, uint first) {
    uint bytes[4] = {0, 0, 0, 0};
    for (uint k = first; k < row.words; k += LANES) {
        uint word = word_of(row, k);
        [[unroll]] for (uint i = 0; i < 4; ++i)
            bytes[i] = max(bytes[i], word << 8 * i);
    }
    return max(max(bytes[0], bytes[1]), max(bytes[2], bytes[3])) >> 24;
}

// The sum of a row's terms, and whether no step of it is odd.
uint sum_of_row(Row row, uint largest) {
    uint levels = to_levels(largest);
    if (are_odd != 0) {
        uint sum = 0;
        for (uint i = row.before; i < row.before + LENGTH; ++i)
            sum = added(sum, term_at(word_of(row, i >> 2) + levels, i & 3));
        return sum;
    }
    precise float total = 0.0;
    uint k = 0;
    // Words at a row's ends, which have bytes of other rows, begin and end these loops.
    uint end = row.words - (HAS_WORDS || (row.before + LENGTH) % 4 == 0 ? 0 : 1);
    if (row.before != 0) {
        uint word = word_of(row, 0) + levels;
        [[unroll]] for (uint i = 1; i < 4; ++i)
            total = total + (i >= row.before ? uintBitsToFloat(term_at(word, i)) : 0.0);
        k = 1;
    }
    for (; k + 4 <= end; k += 4) {
        float values[16];
        [[unroll]] for (uint i = 0; i < 16; ++i)
            values[i] = uintBitsToFloat(term_at(staged[row.start + k + i / 4] + levels, i % 4));
        [[unroll]] for (uint i = 0; i < 16; ++i)
            total = total + values[i];
    }
    for (; k < row.words; ++k) {
        uint word = word_of(row, k) + levels;
        [[unroll]] for (uint i = 0; i < 4; ++i)
            total = total + (4 * k + i < row.before + LENGTH ? uintBitsToFloat(term_at(word, i)) : 0.0);
    }
    return floatBitsToUint(total);
}

// v + 1/2 + 256, and MARGIN units.
uint estimate(uint term, float step, float top) {
    return floatBitsToUint(min(fma(uintBitsToFloat(term), step, 256.5 + UNITS_OF_MARGIN), top));
}

// A word of the output, as distances from the type's least number.
uint shares(uint index, uint least, float top) {
    uint row = index * 4 / LENGTH;
    uint of_row = HAS_WORDS ? 4 : min((row + 1) * LENGTH - 4 * index, 4);  // elements; the others are of the next row
    uint next = of_row < 4 ? row + 1 : row;
    uint word = staged[place_of(index)], mask = 0xFFFFFFFFu >> 8 * (4 - of_row);
    uint levels = (word & mask) + to_levels(largest_of[row]) & mask;
    levels |= (word & ~mask) + to_levels(largest_of[next]) & ~mask;
    float steps[2] = {step_of[row], step_of[next]};
    uint result = 0, least_rest = 1 << HALF_BITS;
    [[unroll]] for (uint i = 0; i < 4; ++i) {
        uint bits = estimate(term_at(levels, i), i < of_row ? steps[0] : steps[1], top);
        least_rest = min(least_rest, bits & (1 << HALF_BITS) - 1);
        result |= (bits >> HALF_BITS & 0xFF) << 8 * i;
    }
    result += least * ONES;
    // Some are near a half of a step.
    bool are_all = are_odd != 0;
    [[dont_unroll]] for (uint i = 0; i < 4 && (are_all || least_rest < 2 * MARGIN); ++i) {
        uint term = term_at(levels, i);
        bool is_first = i < of_row;
        uint rest = estimate(term, is_first ? steps[0] : steps[1], top) & (1 << HALF_BITS) - 1;
        if (are_all || rest < 2 * MARGIN) {
            uint share = quotient(term, total_of[is_first ? row : next]);
            result = bitfieldInsert(result, min(share + least, 255), int(8 * i), 8);
        }
    }
    return result;
}

void main() {
    uint local = gl_LocalInvocationID.x;
    uint first_row = (gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x) * ROWS;
    uint rows = first_row < push.rows ? min(push.rows - first_row, ROWS) : 0;
    uint first_word = first_row * LENGTH / 4;
    uint size = rows * LENGTH, words = (size + 3) / 4;

    if (local == 0)
        are_odd = 0;
    for (uint row = local; row < ROWS; row += gl_WorkGroupSize.x)
        largest_of[row] = 0;
    barrier();
    load_table();
    stage(push.input_start / 4 + first_word, words);
    barrier();
    for (uint row = local / LANES; row < rows; row += gl_WorkGroupSize.x / LANES)
        atomicMax(largest_of[row], largest_of_words(row_at(row), local % LANES));
    barrier();
    for (uint row = local; row < rows; row += gl_WorkGroupSize.x) {
        uint sum = sum_of_row(row_at(row), largest_of[row]);
        total_of[row] = sum;
        step_of[row] = float(push.steps) / uintBitsToFloat(sum);
    }
    barrier();
    uint least = push.zero_point - uint(LEAST);
    float top = 256.5 + float(255 - least);
    for (uint word = local; word < words; word += gl_WorkGroupSize.x) {
        uint mask = 0xFFFFFFFFu >> 8 * (4 - min(size - 4 * word, 4));
        store_masked(push.output_start / 4 + first_word + word, mask, shares(word, least, top) ^ FLIPS);
    }
}
