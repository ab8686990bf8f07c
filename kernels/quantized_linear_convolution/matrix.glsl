// The implicit matrix product of QUANTIZED_LINEAR_CONVOLUTION on matrix units: memory, tiles and the last step.
//
//     output[pixel][channel] = sum over k of input[pixel][k] filter[channel][k]         signed bytes, exact in 32 bits
//
// K is divided into "runs" of bytes that are contiguous in the input. A run is the channels of one tap, padded to 16.
// If there are so few channels that this would mostly multiply padding, a run is a whole row of taps, of pixels with 4
// bytes or a few more. Any order within K will do, as long as both operands have the same. In units of 16 bytes
// ("vectors"):
//
//     input    [image][group][row][column][vector]   packed, or the tensor itself if it has this layout (NHWC);
//              or [image][channel][row][column]      the tensor itself, for filters of a single tap (NCHW, 1x1),
//                                                    or in any layout, byte by byte (split_k alone)
//     filter   [panel][step][channel of the panel][vector of the step], channels in the order in which they are stored
//              to shared memory (`stored_row`), then each channel's sum of bytes, and its parameters if they
//              never change (prepared_channel.glsl)
//
// The planner gives the shape of the device's matrices (M x N x K), its subgroup size, and the tiles.
//
// The last step packs four bytes into a word inside the matrices' own registers: elements at the same place in four
// matrices are neighbours in the output. So four neighbouring matrices hold the pixels (or, for NHWC outputs, the
// channels) 4 i + 0, 4 i + 1, 4 i + 2 and 4 i + 3. A "position" counts rows of the tile in that order, see
// `position_of`. The kernel defines PACK_CHANNELS, which tells whether the four are channels.
//
// With PARTS, several workgroups share a tile, and each multiplies a part of K: see parts.glsl.

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint OUTPUT_UNSIGNED = 0;
// 0: a word of the output holds four neighbouring pixels. 1: it holds four neighbouring channels.
layout(constant_id = 2) const uint STORE_CHANNELS = 0;
layout(constant_id = 3) const uint FLIP = 0;  // 0x80808080 if the input is UINT8 and read in place
layout(constant_id = 4) const uint CHECK_BORDER = 0;  // 1 if the input is read in place and has padding
layout(constant_id = 5) const uint FETCH = 1;  // how the input is read: one of the following
const uint WORDS = 0;  // runs start at multiples of 4 bytes
const uint VECTORS = 1;  // runs start at multiples of 16 bytes
const uint PLANES = 2;  // bytes of a run lie in planes of whole words: four pixels of 16 channels at a time
const uint BYTES = 3;  // bytes of a run lie anywhere (SPLIT_K)
layout(constant_id = 6) const uint MATRIX_M = 16;
layout(constant_id = 7) const uint MATRIX_N = 16;
layout(constant_id = 8) const uint MATRIX_K = 32;
layout(constant_id = 9) const uint LANES = 32;  // the subgroup size
layout(constant_id = 10) const uint TILE_PIXELS = 128;
layout(constant_id = 11) const uint TILE_CHANNELS = 128;
layout(constant_id = 12) const uint SUBGROUP_PIXELS = 64;
layout(constant_id = 13) const uint SUBGROUP_CHANNELS = 32;
layout(constant_id = 14) const uint STEP = 4;  // vectors of K from one barrier to the next
layout(constant_id = 16) const uint RUN_WORDS = 16;  // words of a run without what fills its last vector
layout(constant_id = 17) const uint RUNS_W = 1;  // runs in a row of taps
layout(constant_id = 54) const uint TAPS = 1;  // runs of the whole filter
layout(constant_id = 55) const uint WHOLE_STEPS = 1;  // 1 if the vectors of K are whole steps
// 1 or 2 if K has so few steps, otherwise 0. Then no loop over them is left, which saves a third of the registers.
layout(constant_id = 56) const uint FEW_STEPS = 0;
layout(constant_id = 22) const uint FILTER_ZERO_POINT = 1;  // 0 if it is known to be 0
layout(constant_id = 23) const uint PADDING = 1;  // vectors between rows in shared memory
// Bytes of one store: 16 or 4 if this many neighbouring channels (pixels) of the output always are a whole vector or
// word of its memory, otherwise 1.
layout(constant_id = 25) const uint STORE_UNIT = 1;

// 1 if all pixels of the input that a tap sees, or all of the output, are one stride apart: then a pixel's place takes no
// divisions. Only without a border for the input, and with FETCH other than PLANES.
layout(constant_id = 57) const uint EVEN_INPUT = 0;
layout(constant_id = 58) const uint EVEN_OUTPUT = 0;

// (26 to 34: parameter_sources.glsl.)
// Sizes. Each is a constant, or 0 and a push constant of the same name: see `SIZE`.
layout(constant_id = 15) const uint RUN = 4;  // vectors of a run
layout(constant_id = 18) const uint STRIDE_H = 1;  // this and the next three are for CHECK_BORDER
layout(constant_id = 19) const uint STRIDE_W = 1;
layout(constant_id = 20) const uint DILATION_H = 1;
layout(constant_id = 21) const uint DILATION_W = 1;
layout(constant_id = 24) const uint VECTORS_OF_K = 4;  // without those that fill the last step
layout(constant_id = 35) const uint ROWS = 1;  // rows and columns of output pixels in this dispatch
layout(constant_id = 36) const uint COLUMNS = 1;
layout(constant_id = 37) const uint INPUT_STRIDE_N = 1;  // in units of push.input_start, from one image to the next
layout(constant_id = 38) const uint INPUT_STRIDE_GROUP = 1;
layout(constant_id = 39) const uint INPUT_STRIDE_H = 1;  // likewise, from one output pixel to the one below
layout(constant_id = 40) const uint INPUT_STRIDE_W = 1;
layout(constant_id = 41) const uint TAP_STRIDE_H = 1;  // likewise, from one tap to the one below
layout(constant_id = 42) const uint TAP_STRIDE_W = 1;
layout(constant_id = 43) const uint CHANNEL_STRIDE = 1;  // likewise, from one channel to the next, for PLANES and BYTES
layout(constant_id = 44) const uint OUTPUT_STRIDE_N = 1;  // bytes
layout(constant_id = 45) const uint OUTPUT_STRIDE_C = 1;
layout(constant_id = 46) const uint OUTPUT_STRIDE_H = 1;
layout(constant_id = 47) const uint OUTPUT_STRIDE_W = 1;
layout(constant_id = 48) const uint ROW_LIMIT = 1;  // rows and columns of the input
layout(constant_id = 49) const uint COLUMN_LIMIT = 1;
layout(constant_id = 50) const uint TURNS = 1;  // tiles of pixels that a workgroup computes one after the other
// 1 if a matrix of words has one stride in the output, wherever it lies, so that it can be stored directly.
layout(constant_id = 51) const uint STORE_MATRICES = 0;
layout(constant_id = 52) const uint PARTS = 1;  // workgroups that share the K of a tile
#ifdef SPLIT_K
layout(constant_id = 59) const uint SUBGROUPS = 4;  // of a workgroup, which share the K of a tile
// With BYTES:
layout(constant_id = 61) const uint PIXEL_BYTES = 0;  // of K, if a run is a row of taps; 0 if it is one tap
layout(constant_id = 62) const uint PIXEL_CHANNELS = 0;  // that there are of a pixel; 0 if they fill whole vectors
#else
const uint PIXEL_BYTES = 0;
#endif
layout(constant_id = 53) const uint PREPARED = 0;  // 1 if the channels' parameters follow the filter in each panel

layout(set = 0, binding = 0) readonly buffer Input { uint input_words[]; };
layout(set = 0, binding = 0) readonly buffer InputVectors { uvec4 input_vectors[]; };
#ifdef SPLIT_K
layout(set = 0, binding = 0) readonly buffer InputBytes { uint8_t input_bytes[]; };
#endif
layout(set = 0, binding = 1) readonly buffer Filter { uint filter_words[]; };
layout(set = 0, binding = 1) readonly buffer FilterVectors { uvec4 filter_vectors[]; };
layout(set = 0, binding = 2) buffer Output { uint output_words[]; };
#ifdef MATRIX_UNITS
layout(set = 0, binding = 2) buffer OutputBytes { uint8_t output_bytes[]; };
#endif
layout(set = 0, binding = 2) buffer OutputVectors { uvec4 output_vectors[]; };
// 3 to 9: parameter_sources.glsl.
// With PARTS; zeros before and after each dispatch.
layout(set = 0, binding = 10) queuefamilycoherent buffer Clean { int part_sums[]; };
layout(set = 0, binding = 10) queuefamilycoherent buffer CleanVectors { uvec4 part_vectors[]; };

layout(push_constant) uniform PushConstants {
    uint input_start;  // vectors, words or bytes, by FETCH; words for PLANES
    uint filter_start;  // vectors
    uint output_start;  // bytes
    uint input_scale_start;  // elements, like those that follow, at the first channel of the first group
    uint filter_scale_start;
    uint output_scale_start;
    uint input_zero_point_start;
    uint filter_zero_point_start;
    uint output_zero_point_start;
    uint bias_start;
    uint pixels;  // of this dispatch: images x rows x columns
    uint taps;  // channels per group x filter height x filter width
    uint first_channel;  // the first to be stored, if a panel is not stored from its beginning
    uint channels;  // end of the output channels to be stored, in each group
    uint channels_of_group;  // output channels from one group to the next
    uint panel_stride;  // vectors from one panel of the filter to the next
    uint panels_of_group;
    uint first_row;  // the input's row under the first pixel's first tap; may be negative
    uint first_column;
    uint part_sums_start;  // words
#ifndef CONSTANT_SIZES
    // Sizes, and what they are divided by.
    uint run;
    uint stride_h;
    uint stride_w;
    uint dilation_h;
    uint dilation_w;
    uint vectors_of_k;
    uint rows;
    uint columns;
    uint input_stride_n;
    uint input_stride_group;
    uint input_stride_h;
    uint input_stride_w;
    uint tap_stride_h;
    uint tap_stride_w;
    uint channel_stride;
    uint output_stride_n;
    uint output_stride_c;
    uint output_stride_h;
    uint output_stride_w;
    uint row_limit;
    uint column_limit;
    uint turns;
    uint parts;
    uint part_steps;  // steps of a part, but for the last ones
    uint rows_reciprocal;  // see `quotient`
    uint columns_reciprocal;
    uint run_reciprocal;
    uint reciprocal_shifts;  // of rows, columns and runs, five bits each
#endif
#ifdef WITH_SUM
    uint addend_start;  // bytes
    uint sum_table_start;  // vectors, and a bit: sum.glsl
#endif
} push;

#ifdef CONSTANT_SIZES
// All sizes are constants.
#define SIZE(constant, pushed) (constant)
#define QUOTIENT_BY(n, constant, name, first_bit) ((n) / (constant))
#else
// A size: the constant, or the push constant if the pipeline serves several sizes.
#define SIZE(constant, pushed) mix(push.pushed, constant, constant != 0)

// n / divisor, for n below 2^31. The divisor is a constant; or that is 0, and there is a reciprocal, slightly above
// 2^(31 + shift) / divisor, where 2^shift is the first power of two that is not below the divisor. A compiler does the
// same for a constant divisor.
uint quotient(uint n, uint constant, uint reciprocal, uint shift) {
    if (constant != 0)
        return n / max(constant, 1);
    uint high, low;
    umulExtended(n << 1, reciprocal, high, low);
    return high >> shift;
}

#define QUOTIENT_BY(n, constant, name, first_bit)                                                                      \
    quotient(n, constant, push.name##_reciprocal, bitfieldExtract(push.reciprocal_shifts, first_bit, 5))
#endif

#include "arithmetic.glsl"
#define FIRST_PARAMETER_CONSTANT 26
#define FIRST_PARAMETER_BINDING 3
#include "parameter_sources.glsl"
#include "float32.glsl"
#include "prepared_channel.glsl"
// What follows the rounding: kernels of QUANTIZED_LINEAR_CONVOLUTION_ADD, which define WITH_SUM, add; the others have a form
// that looks bytes up.
#ifndef LAST_STEP_CONSTANT
#define LAST_STEP_CONSTANT 59
#endif
#ifdef WITH_SUM
#include "quantized_linear_convolution_add/sum.glsl"
#endif

#ifdef SPLIT_K
// Every subgroup has the whole tile, and fetches its own part of K.
const uint INVOCATIONS = SUBGROUPS * LANES;
const uint FETCHERS = LANES;
#else
const uint INVOCATIONS = TILE_PIXELS / SUBGROUP_PIXELS * (TILE_CHANNELS / SUBGROUP_CHANNELS) * LANES;
const uint FETCHERS = INVOCATIONS;
#endif
const uint FILTER_FETCHES = TILE_CHANNELS * STEP / FETCHERS;
#ifdef WITH_SUM
#define LOOKED_UP(word) word
#define LOOKED_UP_BYTE(byte) byte
#define LOOK_UP_WORDS(words)
#else
#define TABLE_CONSTANT LAST_STEP_CONSTANT
#define TABLE_INVOCATIONS INVOCATIONS
#include "quantized_linear_convolution_table/table.glsl"
#define LOOKED_UP(word) looked_up(word)
#define LOOKED_UP_BYTE(byte) looked_up_byte(byte)
// The elements of a matrix of words.
#define LOOK_UP_WORDS(words)                                                                                           \
    if (HAS_TABLE != 0) {                                                                                              \
        [[unroll]] for (uint e = 0; e < words.length(); ++e)                                                           \
            words[e] = int(looked_up(uint(words[e])));                                                                 \
    }
#endif
// The vectors of shared memory that hold a vector of an operand.
#ifdef FLOAT32_PRODUCTS
const uint SLICES = 4;
#else
// A matrix row of 8 bytes gets its own vector, because no load can begin inside a vector.
const uint SLICES = MATRIX_K < 16 ? 16 / MATRIX_K : 1;
#endif
const uint SLICE_VECTORS = MATRIX_K > 16 ? MATRIX_K / 16 : 1;
const uint STEP_SLICES = STEP * 16 / MATRIX_K;
const uint ROW = STEP * SLICES + PADDING;
const uint HALF_TILE = (TILE_PIXELS + TILE_CHANNELS) * ROW;
// Shared memory holds two steps, in halves that take turns. Floats are so large that it holds one, and with SPLIT_K it
// holds one for each subgroup.
#if defined(FLOAT32_PRODUCTS) || defined(SPLIT_K)
const uint HALVES = 1;
#else
const uint HALVES = 2;
#endif
#define HALF_OF(step) ((step) & (HALVES - 1))
#ifdef ONE_SET
// If a word holds four pixels, channels are the first operand. So words always lie along the columns of sums, and their
// four matrices differ in the second operand. On Intel's Xe-HPG a matrix of the first one takes eight loads, and one of
// the second two.
#define CHANNELS_FIRST (STORE_CHANNELS == 0)
const uint MATRIX_PIXELS = CHANNELS_FIRST ? MATRIX_N : MATRIX_M;  // of a matrix of sums
const uint MATRIX_CHANNELS = CHANNELS_FIRST ? MATRIX_M : MATRIX_N;
// How a matrix of sums lies in memory whose lines are the channels of a pixel, or the pixels of a channel.
#define PIXEL_LINES (CHANNELS_FIRST ? gl_CooperativeMatrixLayoutColumnMajor : gl_CooperativeMatrixLayoutRowMajor)
#define CHANNEL_LINES (CHANNELS_FIRST ? gl_CooperativeMatrixLayoutRowMajor : gl_CooperativeMatrixLayoutColumnMajor)
#else
const uint MATRIX_PIXELS = MATRIX_M;
const uint MATRIX_CHANNELS = MATRIX_N;
#define PIXEL_LINES gl_CooperativeMatrixLayoutRowMajor
#define CHANNEL_LINES gl_CooperativeMatrixLayoutColumnMajor
#endif
const uint MATRIX_ROWS = SUBGROUP_PIXELS / MATRIX_PIXELS;
const uint MATRIX_COLUMNS = SUBGROUP_CHANNELS / MATRIX_CHANNELS;

// The last step takes words out of the matrices in strips. The lines of a strip hold the channels, or the pixels, of four
// matrices.
const uint STRIP_LINES = STORE_CHANNELS != 0 ? MATRIX_PIXELS : MATRIX_CHANNELS;
const uint STRIP_VECTORS = (STORE_CHANNELS != 0 ? MATRIX_CHANNELS : MATRIX_PIXELS) / 4;
const uint STRIP_ROW = STRIP_VECTORS + 1;
// The last step in integers takes one matrix of sums at a time.
const uint STRIP_SUMS = MATRIX_M * MATRIX_N / 4;
const uint STRIP = STRIP_LINES * STRIP_ROW > STRIP_SUMS ? STRIP_LINES * STRIP_ROW : STRIP_SUMS;

// By place in the tile:
shared uint destinations[TILE_PIXELS];
// By position, the order in which matrices hold them:
shared int input_sums[TILE_PIXELS];
shared float multipliers[TILE_CHANNELS];
shared int constants[TILE_CHANNELS];
shared int filter_zero_points[TILE_CHANNELS];
// Whole vectors, so that each of these variables begins at a multiple of 16 bytes, whatever their order: NVIDIA's
// matrix loads read something else if an array does not begin there.
shared uvec4 has_filter_zero_point;
shared uvec4 needs_integers;

struct Pixel {
    uint image;
    uint row;
    uint column;
};

Pixel pixel_at(uint index) {
    uint line = QUOTIENT_BY(index, COLUMNS, columns, 5);
    uint image = QUOTIENT_BY(line, ROWS, rows, 0);
    return Pixel(image, line - image * SIZE(ROWS, rows), index - line * SIZE(COLUMNS, columns));
}

// The place in the tile of the pixel or channel at a position, and the reverse. Four matrices of `size` are
// interleaved.
uint place_at(uint position, uint size) {
    uint in_block = position % (4 * size);
    return position - in_block + 4 * (in_block % size) + in_block / size;
}

uint position_of(uint place, uint size) {
    uint in_block = place % (4 * size);
    return place - in_block + in_block % 4 * size + in_block / 4;
}

// The row of shared memory that the index-th group of STEP neighbouring invocations stores. Eight invocations store
// 128 bytes at once, two rows of a step of 64 bytes. Rows that are four apart lie in different banks. Neighbouring
// rows would overlap there by the padding between them.
uint stored_row(uint index) {
    return (index & ~7u) | (index & 1) << 2 | (index >> 1 & 3);
}

#ifdef SPLIT_K
// Sums leave the matrices before the last step, so nothing is interleaved.
uint pixel_place(uint position) {
    return position;
}

uint pixel_position(uint place) {
    return place;
}

uint channel_place(uint position) {
    return position;
}
#else
uint pixel_place(uint position) {
    return PACK_CHANNELS ? position : place_at(position, MATRIX_PIXELS);
}

uint pixel_position(uint place) {
    return PACK_CHANNELS ? place : position_of(place, MATRIX_PIXELS);
}

uint channel_place(uint position) {
    return PACK_CHANNELS ? place_at(position, MATRIX_CHANNELS) : position;
}
#endif

uint step_count() {
    return FEW_STEPS != 0 ? FEW_STEPS : (SIZE(VECTORS_OF_K, vectors_of_k) + STEP - 1) / STEP;
}

// y of one output, in integers only.
uint exact_byte(int products, int input_sum, uint channel, int filter_sum, float multiplier) {
    Wide accumulator = add(exact_constant(channel, filter_sum), widened(products));
    accumulator = add(accumulator, product(-filter_zero_point(channel), input_sum));
    return exact_byte(accumulator, multiplier, output_zero_point(channel));
}
