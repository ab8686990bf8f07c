// The product as split_k.comp states it, for its own kernel and for that of QUANTIZED_LINEAR_CONVOLUTION_ADD.

#define MATRIX_UNITS
#define DOT_PRODUCT
#define SPLIT_K
#define LAST_STEP_CONSTANT 63
#include "matrix.glsl"
#include "data_movement/byte_matrices.glsl"

layout(constant_id = 60) const uint PART_STEPS = 0;  // 1 if a subgroup has one step: then no loop is left; otherwise 0

// Lines of sums: pixels with the channels of each, or channels with the pixels of each.
const uint LINES = STORE_CHANNELS != 0 ? TILE_PIXELS : TILE_CHANNELS;
const uint LINE = STORE_CHANNELS != 0 ? TILE_CHANNELS : TILE_PIXELS;  // outputs of a line
const uint LINE_WORDS = LINE / 4;
const uint SUMS_ROW = LINE_WORDS + 2;
const uint SUMS_SIZE = LINES * SUMS_ROW;
const uint REGION = HALF_TILE > SUMS_SIZE ? HALF_TILE : SUMS_SIZE;

shared uvec4 tile[SUBGROUPS * REGION];

#include "matrix_workgroup.glsl"

#define SUMS coopmat<int, gl_ScopeSubgroup, MATRIX_M, MATRIX_N, gl_MatrixUseAccumulator>

#include "matrix_fetch.glsl"

uint pixels_at(uint step) {
    return operands_at;
}

uint channels_at(uint step) {
    return operands_at + TILE_PIXELS * ROW;
}

#include "matrix_steps.glsl"
#include "parts.glsl"

const uint OUTPUT_WORDS = LINES * LINE_WORDS;
const uint OWN_WORDS = (OUTPUT_WORDS + INVOCATIONS - 1) / INVOCATIONS;

// An invocation's n-th word of the output, of OUTPUT_WORDS or more if there is none.
uint own_word(uint n) {
    return gl_LocalInvocationID.x + n * INVOCATIONS;
}

bool has_word(uint n) {
    return OUTPUT_WORDS % INVOCATIONS == 0 || own_word(n) < OUTPUT_WORDS;
}

// The line of the i-th output of an invocation's n-th word, and its place there. If bytes are stored by themselves, the
// four lie in several lines, at the same place. So neighbouring invocations store neighbouring bytes.
uvec2 place_of_output(uint n, uint i) {
    if (STORE_UNIT >= 4)
        return uvec2(own_word(n) / LINE_WORDS, own_word(n) % LINE_WORDS * 4 + i);
    if (INVOCATIONS % LINE != 0)
        return uvec2(own_word(n) / LINE + i * (LINES / 4), own_word(n) % LINE);
    // The same in fewer instructions.
    uint id = gl_LocalInvocationID.x;
    return uvec2(id / LINE + n * (INVOCATIONS / LINE) + i * (LINES / 4), id % LINE);
}

// A component of the vectors of sums.
uint place_of_sum(uint n, uint i) {
    uvec2 place = place_of_output(n, i);
    return place.x * (4 * SUMS_ROW) + place.y;
}

// The sums of the workgroup's subgroups, of an invocation's n-th word. Zeros if there is none: the places of such a word
// lie outside the region, for the last subgroup outside shared memory.
ivec4 added_sums(uint n) {
    ivec4 sums = ivec4(0);
    if (!has_word(n))
        return sums;
    [[unroll]] for (uint s = 0; s < SUBGROUPS; ++s) {
        if (STORE_UNIT >= 4) {
            sums += ivec4(tile[s * REGION + place_of_sum(n, 0) / 4]);
        } else {
            [[unroll]] for (uint i = 0; i < 4; ++i)
                sums[i] += int(tile[s * REGION + place_of_sum(n, i) / 4][place_of_sum(n, i) % 4]);
        }
    }
    return sums;
}

// Where the parts of a word's i-th output are added up. Neighbouring invocations add to neighbouring words.
uint part_sum_at(uint word, uint i) {
    return part_sums_at() + i * OUTPUT_WORDS + word;
}

// Shares the sums with the other parts. Whether this workgroup has the whole ones now.
bool has_taken_parts(inout ivec4 sums[OWN_WORDS]) {
    [[unroll]] for (uint n = 0; n < OWN_WORDS; ++n) {
        if (has_word(n)) {
            [[unroll]] for (uint i = 0; i < 4; ++i)
                add_to_part_sums(part_sum_at(own_word(n), i), sums[n][i]);
        }
    }
    if (counts)
        add_input_sums();
    if (!is_last_part())
        return false;
    // All are loaded before the first is used.
    [[unroll]] for (uint n = 0; n < OWN_WORDS; ++n) {
        [[unroll]] for (uint i = 0; i < 4; ++i)
            sums[n][i] = part_sums[part_sum_at(min(own_word(n), OUTPUT_WORDS - 1), i)];
    }
    [[unroll]] for (uint n = 0; n < OWN_WORDS; ++n) {
        if (has_word(n)) {
            [[unroll]] for (uint i = 0; i < 4; ++i)
                part_sums[part_sum_at(own_word(n), i)] = 0;
        }
    }
    if (counts)
        take_input_sums();
    return true;
}

// The tile's pixel and channel of the i-th output of an invocation's n-th word.
uvec2 output_at(uint n, uint i) {
    uvec2 place = place_of_output(n, i);
    return STORE_CHANNELS != 0 ? place : place.yx;
}

// The word of four outputs, in integers only. The sums are in shared memory.
uint exact_word(uint n) {
    uint word = 0;
    [[dont_unroll]] for (uint i = 0; i < 4; ++i) {
        uvec2 at = output_at(n, i);
        uint channel = min(first_channel + at.y, push.channels - 1);
        int sum = int(tile[place_of_sum(n, i) / 4][place_of_sum(n, i) % 4]);
        word |= exact_byte(sum, input_sums[at.x], group_channel + channel,
                    int(filter_words[filter_sums + channel - first_channel]), multipliers[at.y])
            << (8 * i);
    }
    return word;
}

uint rounded_word(ivec4 sums, uint n, Range range) {
    uint word = range.first;
    [[unroll]] for (uint i = 0; i < 4; ++i) {
        uvec2 at = output_at(n, i);
        int sum = sums[i] + constants[at.y];
        if (counts)
            sum -= filter_zero_points[at.y] * input_sums[at.x];
        word += rounded_bits(sum, multipliers[at.y], range) << (8 * i);
    }
    return word ^ OUTPUT_FLIP;
}

// Whether the i-th output of an invocation's n-th word is to be stored, and where.
bool has_output(uint n, uint i, uint first_pixel, out uint address) {
    uvec2 at = output_at(n, i);
    uint channel = first_channel + at.y;
    address = destinations[at.x] + channel * SIZE(OUTPUT_STRIDE_C, output_stride_c);
    return first_pixel + at.x < push.pixels && channel >= push.first_channel && channel < push.channels;
}

void store_word(uint word, uint n, uint first_pixel, bool is_exact) {
    uint address;
#ifdef WITH_SUM
    uint addends = 0;
    [[unroll]] for (uint i = 0; i < (STORE_UNIT >= 4 ? 1 : 4); ++i) {
        if (!has_output(n, i, first_pixel, address))
            continue;
        if (STORE_UNIT >= 4)
            addends = addend_words[addend_address(address) / 4];
        else
            addends |= uint(addend_bytes[addend_address(address)]) << (8 * i);
    }
    word = added(word, addends, !is_exact);
#endif
    // All four of a whole word are to be stored, or none.
    [[unroll]] for (uint i = 0; i < (STORE_UNIT >= 4 ? 1 : 4); ++i) {
        if (has_output(n, i, first_pixel, address)) {
            if (STORE_UNIT >= 4)
                output_words[address / 4] = word;
            else
                output_bytes[address] = uint8_t(word >> (8 * i));
        }
    }
}

// Multiplies the step in the subgroup's region, which can be overwritten then. A macro, because a function would copy the
// matrices.
#define MULTIPLY_OPERANDS                                                                                              \
    subgroupBarrier();                                                                                                 \
    [[unroll]] for (uint k = 0; k < STEP_SLICES; ++k) {                                                                \
        PIXELS pixels[MATRIX_ROWS];                                                                                    \
        CHANNELS channels[MATRIX_COLUMNS];                                                                             \
        LOAD_SLICE(pixels, channels, 0, k)                                                                             \
        MULTIPLY_SLICE(pixels, channels)                                                                               \
    }                                                                                                                  \
    subgroupBarrier();

void main() {
    begin_workgroup();
    begin_fetches();
    uint first_pixel = gl_WorkGroupID.y * TILE_PIXELS;
    locate(first_pixel);
    uint own_steps = PART_STEPS != 0 ? PART_STEPS : push.part_steps;
    uint step = (part * SUBGROUPS + gl_SubgroupID) * own_steps;
    fetch_step(step);
    fetch_channels();
    locate_outputs(first_pixel);
    begin_channels();
    begin_pixels();
    hear_of_channels();
    if (counts)
        barrier();  // sum(x') is added up from zeros

    SUMS sums[MATRIX_ROWS * MATRIX_COLUMNS];
    [[unroll]] for (uint n = 0; n < MATRIX_ROWS * MATRIX_COLUMNS; ++n)
        sums[n] = SUMS(0);
    put_step(step);
    [[dont_unroll]] for (uint n = 1; n < own_steps; ++n) {
        fetch_step(step + n);
        MULTIPLY_OPERANDS
        put_step(step + n);
    }
    MULTIPLY_OPERANDS

    [[unroll]] for (uint i = 0; i < MATRIX_ROWS; ++i) {
        [[unroll]] for (uint j = 0; j < MATRIX_COLUMNS; ++j) {
            if (STORE_CHANNELS != 0)
                coopMatStore(sums[i * MATRIX_COLUMNS + j], tile,
                    operands_at + i * MATRIX_M * SUMS_ROW + j * MATRIX_N / 4, SUMS_ROW,
                    gl_CooperativeMatrixLayoutRowMajor);
            else
                coopMatStore(sums[i * MATRIX_COLUMNS + j], tile,
                    operands_at + j * MATRIX_N * SUMS_ROW + i * MATRIX_M / 4, SUMS_ROW,
                    gl_CooperativeMatrixLayoutColumnMajor);
        }
    }
    barrier();

    ivec4 whole[OWN_WORDS];
    [[unroll]] for (uint n = 0; n < OWN_WORDS; ++n)
        whole[n] = added_sums(n);
    if (PARTS != 1 && !has_taken_parts(whole))
        return;
#ifdef WITH_SUM
    takes_integers = takes_integers || !takes_floats();
#endif
    if (takes_integers) {
        // The sums are indexed at run time, so they are those in shared memory.
        [[unroll]] for (uint n = 0; n < OWN_WORDS; ++n) {
            [[unroll]] for (uint i = 0; i < 4; ++i) {
                if (has_word(n))
                    tile[place_of_sum(n, i) / 4][place_of_sum(n, i) % 4] = uint(whole[n][i]);
            }
        }
        [[dont_unroll]] for (uint n = 0; n < OWN_WORDS; ++n) {
            if (has_word(n))
                store_word(LOOKED_UP(exact_word(n)), n, first_pixel, true);
        }
        return;
    }
    Range range = range_of(zero_point_of_output);
    [[unroll]] for (uint n = 0; n < OWN_WORDS; ++n) {
        if (has_word(n))
            store_word(LOOKED_UP(rounded_word(whole[n], n, range)), n, first_pixel, false);
    }
}
