// The product by vectors of K, without matrix units: a workgroup computes TILE_PIXELS x TILE_CHANNELS outputs, an
// invocation OWN_PIXELS x OWN_CHANNELS of them.
//
// Maths and memory: matrix.glsl. Here each invocation is what a subgroup is on matrix units: LANES is 1.
//
// Loops:
//     for each step of K:
//         each invocation stores the step of both operands, fetched a step before, to one half of shared memory; one
//         barrier; it fetches the next step into registers
//         for each vector of the step, which is four words of K:
//             load OWN_PIXELS vectors of the input and OWN_CHANNELS of the filter from shared memory, and multiply each
//             pair: four dot products
//
// With FLOAT32_PRODUCTS, the bytes become floats when they are stored, so that each is converted once for all that
// multiply it, and a vector of shared memory is four bytes of K. There is room for one step, and a second barrier behind
// it: two steps at a time leave room for fewer workgroups, and took a fifth longer (H200). A product is 2^14 at most, and
// float32 counts exactly to 2^24, so after 1,024 bytes of K the partial sums are added to integers.
//
// Layout: in shared memory, both operands are rows of K, one row for each pixel or channel, as they lie in an NHWC input
// and in the packed filter. So nothing is transposed, and the input is read in place, in whole vectors. An invocation has
// every PIXEL_GROUPS-th row of pixels and every CHANNEL_GROUPS-th row of channels, so that neighbouring invocations read
// neighbouring rows, and a vector of padding between rows keeps eight of them in different banks. Four bytes of an output
// word are four rows of the same invocation: channels, or for planes pixels, are interleaved as those of four matrices are.
//
// A loop over vectors, not unrolled as a whole, and one copy of it: in a network every layer has a pipeline of its own,
// whose instructions have to be fetched.
//
// Compiler bug avoided: after two loops that only some invocations take, lavapipe of Mesa 22.3 loses some of the last
// stores of those that took them. So what is done by some is under a condition in an unrolled loop.
//
// Preconditions: filter panels are TILE_CHANNELS wide. There are INVOCATIONS invocations, which fetch both operands
// evenly; with PLANES, four pixels at a time. A step is an even number of vectors. Along the words of the output, the own
// sizes are multiples of four, and MATRIX_M or MATRIX_N is a fourth of the tile. Grid: x channels, y TURNS tiles of
// pixels, z groups. No invocation leaves before the last barrier, and with PARTS only whole workgroups do. With PARTS, z
// counts the parts of each group, and TURNS is 1.

// Many devices without matrices have 128 bytes of push constants, too few for sizes.
#define CONSTANT_SIZES
#define PACK_CHANNELS (STORE_CHANNELS != 0)
#include "matrix.glsl"
#include "data_movement/byte_matrices.glsl"

const uint OWN_PIXELS = SUBGROUP_PIXELS;
const uint OWN_CHANNELS = SUBGROUP_CHANNELS;
const uint PIXEL_GROUPS = TILE_PIXELS / OWN_PIXELS;
const uint CHANNEL_GROUPS = TILE_CHANNELS / OWN_CHANNELS;
const uint OUTPUTS = OWN_PIXELS * OWN_CHANNELS;

// A vector of shared memory, the sums that the products of its elements are added to, and such an addition.
#ifdef FLOAT32_PRODUCTS
#define OPERANDS vec4
#define PRODUCTS partial_sums
#define ADD_PRODUCT(a, b, sum) fma(a, b, sum)
const uint UNROLLED = 1;  // vectors
#else
#define OPERANDS uvec4
#define PRODUCTS sums
#define ADD_PRODUCT(a, b, sum) dot_add(a, b, sum)
const uint UNROLLED = 2;
#endif

shared OPERANDS tile[HALVES * HALF_TILE];

#include "matrix_workgroup.glsl"
#include "matrix_fetch.glsl"
#include "parts.glsl"
#include "store_word.glsl"

// The first of an invocation's positions.
uint own_pixel;
uint own_channel;
int sums[OUTPUTS];  // [channel][pixel]

#ifdef FLOAT32_PRODUCTS
// A product of two signed bytes is 2^14 at most, and float32 counts exactly to 2^24.
const uint EXACT_STEPS = (1 << 10) / (16 * STEP);

float partial_sums[OUTPUTS];  // of at most EXACT_STEPS steps

void begin_partial_sums() {
    [[unroll]] for (uint n = 0; n < OUTPUTS; ++n)
        partial_sums[n] = 0.0;
}

void add_partial_sums() {
    [[unroll]] for (uint n = 0; n < OUTPUTS; ++n)
        sums[n] += int(partial_sums[n]);
}
#endif

void multiply_step(uint step) {
    uint pixel_rows = HALF_OF(step) * HALF_TILE + own_pixel * ROW;
    uint channel_rows = HALF_OF(step) * HALF_TILE + (TILE_PIXELS + own_channel) * ROW;
    [[dont_unroll]] for (uint first = 0; first < STEP * SLICES; first += UNROLLED) {
        [[unroll]] for (uint n = 0; n < UNROLLED; ++n) {
            OPERANDS pixels[OWN_PIXELS];
            [[unroll]] for (uint j = 0; j < OWN_PIXELS; ++j)
                pixels[j] = tile[pixel_rows + j * PIXEL_GROUPS * ROW + first + n];
            [[unroll]] for (uint i = 0; i < OWN_CHANNELS; ++i) {
                OPERANDS weights = tile[channel_rows + i * CHANNEL_GROUPS * ROW + first + n];
                [[unroll]] for (uint q = 0; q < 4; ++q) {
                    [[unroll]] for (uint j = 0; j < OWN_PIXELS; ++j) {
                        uint sum = i * OWN_PIXELS + j;
                        PRODUCTS[sum] = ADD_PRODUCT(pixels[j][q], weights[q], PRODUCTS[sum]);
                    }
                }
            }
        }
    }
}

#ifdef MIXED_SIGNS
// Each stored byte of the input is 128 too large: sums begin with -128 times the sum of the filter, in the first part of
// K alone.
void begin_sums() {
    [[unroll]] for (uint i = 0; i < OWN_CHANNELS; ++i) {
        int start = 0;
        if (part == 0)
            start = -128 * int(filter_words[filter_sums + channel_place(own_channel + i * CHANNEL_GROUPS)]);
        [[unroll]] for (uint j = 0; j < OWN_PIXELS; ++j)
            sums[i * OWN_PIXELS + j] = start;
    }
}
#endif

// Adds the sums to those of the tile. Neighbouring invocations add to neighbouring words.
void add_part() {
    uint first = part_sums_at() + gl_LocalInvocationID.x;
    [[unroll]] for (uint n = 0; n < OUTPUTS; ++n)
        add_to_part_sums(first + n * INVOCATIONS, sums[n]);
}

// Takes the whole sums, and leaves zeros. All are loaded before the first is used.
void take_parts() {
    uint first = part_sums_at() + gl_LocalInvocationID.x;
    [[unroll]] for (uint n = 0; n < OUTPUTS; ++n)
        sums[n] = part_sums[first + n * INVOCATIONS];
    [[unroll]] for (uint n = 0; n < OUTPUTS; ++n)
        part_sums[first + n * INVOCATIONS] = 0;
}

// The word of outputs n, n + stride, n + 2 stride and n + 3 stride, in integers only. The sums are indexed at run time,
// so this is for a copy of them.
uint exact_word(int products[OUTPUTS], uint n, uint stride) {
    uint word = 0;
    [[dont_unroll]] for (uint q = 0; q < 4; ++q, n += stride) {
        uint pixel = own_pixel + n % OWN_PIXELS * PIXEL_GROUPS;
        uint position = own_channel + n / OWN_PIXELS * CHANNEL_GROUPS;
        uint channel = min(first_channel + channel_place(position), push.channels - 1);
        word |= exact_byte(products[n], input_sums[pixel], group_channel + channel,
                    int(filter_words[filter_sums + channel - first_channel]), multipliers[position])
            << (8 * q);
    }
    return word;
}

void store_exactly(uint first_pixel) {
    int products[OUTPUTS];
    [[unroll]] for (uint n = 0; n < OUTPUTS; ++n)
        products[n] = sums[n];
    const uint STRIDE = STORE_CHANNELS != 0 ? OUTPUTS / 4 : OWN_PIXELS / 4;
    [[dont_unroll]] for (uint w = 0; w < OUTPUTS / 4; ++w) {
        uint n = STORE_CHANNELS != 0 ? w : w / STRIDE * OWN_PIXELS + w % STRIDE;
        uint pixel = pixel_place(own_pixel + n % OWN_PIXELS * PIXEL_GROUPS);
        uint channel = channel_place(own_channel + n / OWN_PIXELS * CHANNEL_GROUPS);
        store_word(LOOKED_UP(exact_word(products, n, STRIDE)), first_pixel, pixel, channel, true);
    }
}

void store_rounded(uint first_pixel) {
    Range range = range_of(zero_point_of_output);
    [[unroll]] for (uint i = 0; i < OWN_CHANNELS; ++i) {
        uint position = own_channel + i * CHANNEL_GROUPS;
        int constant = constants[position];
        float factor = multipliers[position];
        int zero_point = counts ? filter_zero_points[position] : 0;
        [[unroll]] for (uint j = 0; j < OWN_PIXELS; ++j) {
            int sum = sums[i * OWN_PIXELS + j] + constant;
            if (counts)
                sum -= zero_point * input_sums[own_pixel + j * PIXEL_GROUPS];
            sums[i * OWN_PIXELS + j] = int(rounded_bits(sum, factor, range));
        }
    }
    const uint STRIDE = STORE_CHANNELS != 0 ? OUTPUTS / 4 : OWN_PIXELS / 4;
    [[unroll]] for (uint w = 0; w < OUTPUTS / 4; ++w) {
        uint n = STORE_CHANNELS != 0 ? w : w / STRIDE * OWN_PIXELS + w % STRIDE;
        uint word = range.first;
        [[unroll]] for (uint q = 0; q < 4; ++q)
            word += uint(sums[n + q * STRIDE]) << (8 * q);
        store_word(LOOKED_UP(word ^ OUTPUT_FLIP), first_pixel, pixel_place(own_pixel + n % OWN_PIXELS * PIXEL_GROUPS),
            channel_place(own_channel + n / OWN_PIXELS * CHANNEL_GROUPS), false);
    }
}

// Adds the products of some steps. The last step of all is fetched twice: a fetch under a condition would be waited for,
// see matrix_steps.glsl.
void add_steps(uint first_step, uint last_step, uint end_step) {
    [[dont_unroll]] for (uint step = first_step; step < last_step; ++step) {
        put_step(step);
        barrier();
        fetch_step(min(step + 1, end_step - 1));
        multiply_step(step);
        if (HALVES == 1)
            barrier();
    }
}

void make_tile(uint first_pixel, bool is_first) {
    // The steps of this part of K. With PARTS, the last parts may be empty.
    const uint STEPS = (VECTORS_OF_K + STEP - 1) / STEP;
    const uint PART_STEPS = (STEPS + PARTS - 1) / PARTS;
    uint first_step = part * PART_STEPS;
    uint end_step = min(first_step + PART_STEPS, STEPS);
    bool is_empty = first_step >= STEPS;
    locate(first_pixel);
    fetch_step(is_empty ? 0 : first_step);
    if (is_first)
        fetch_channels();
    locate_outputs(first_pixel);
    if (is_first)
        begin_channels();
    begin_pixels();
    if (is_first)
        hear_of_channels();
    if (counts)
        barrier();  // sum(x') is added up from zeros

#ifdef MIXED_SIGNS
    begin_sums();
#else
    [[unroll]] for (uint n = 0; n < OUTPUTS; ++n)
        sums[n] = 0;
#endif
#ifdef FLOAT32_PRODUCTS
    [[dont_unroll]] for (uint first = first_step; first < end_step; first += EXACT_STEPS) {
        begin_partial_sums();
        add_steps(first, PART_STEPS > EXACT_STEPS ? min(first + EXACT_STEPS, end_step) : end_step, end_step);
        add_partial_sums();
    }
#else
    add_steps(first_step, end_step, end_step);
#endif

    if (PARTS > 1) {
        add_part();
        if (counts)
            add_input_sums();
        if (!is_last_part())
            return;
        take_parts();
        if (counts)
            take_input_sums();
    }
#ifdef ROUNDS_TO_NEAREST_EVEN
#ifdef WITH_SUM
    takes_integers = takes_integers || !takes_floats();
#endif
    if (!takes_integers)
        store_rounded(first_pixel);
    else
#endif
        store_exactly(first_pixel);
}

// The index of an invocation's own rows. Of eight neighbours, two pixels by four channels (or the reverse) read fewer rows
// of shared memory than one by eight. Dot products take so long that they gain nothing by that.
uint own_index_in_tile() {
    uint invocation = gl_LocalInvocationID.x;
#ifdef FLOAT32_PRODUCTS
    invocation = (invocation & ~15u) | (invocation & 1u) << 3 | (invocation >> 1 & 7u);
#endif
    return invocation;
}

void main() {
    begin_workgroup();
    begin_fetches();
    uint invocation = own_index_in_tile();
    own_channel = STORE_CHANNELS != 0 ? invocation % CHANNEL_GROUPS : invocation / PIXEL_GROUPS;
    own_pixel = STORE_CHANNELS != 0 ? invocation / CHANNEL_GROUPS : invocation % PIXEL_GROUPS;

    uint first_pixel = gl_WorkGroupID.y * (TURNS * TILE_PIXELS);
    if (TURNS == 1) {
        make_tile(first_pixel, true);
        return;
    }
    [[dont_unroll]] for (uint turn = 0; turn < TURNS && first_pixel < push.pixels; ++turn) {
        // The previous tile's sums and destinations may still be read.
        if (turn > 0)
            barrier();
        make_tile(first_pixel, turn == 0);
        first_pixel += TILE_PIXELS;
    }
}
