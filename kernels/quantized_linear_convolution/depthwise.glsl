// QUANTIZED_LINEAR_CONVOLUTION, depthwise: every output channel sees a single input channel.
//
// Maths: acc = sum over taps of x'(w - zw), plus the channel's constant, bias - zx' sum over taps of (w - zw). Taps
// outside the input see zx'. x' and zx' are signed bytes, and w - zw has nine bits. There are at most 49 taps, so sums
// of products have 21 bits.
//
// Loops:
//     once a workgroup: store the weights w - zw and its channels' parameters to shared memory; one barrier; or, with
//     PREPARED, once an invocation: load them
//     for each of an invocation's tiles of ROWS x COLUMNS outputs (of one channel, or of four neighbouring channels):
//         for each batch of input rows, while the next batch is fetched, STRIDE_H rows at a time:
//             an output row begins to see the input: add the rows' products to the LIVE output rows that see them
//             the oldest of these output rows has seen all: finish and store it; the others grow older
//             the few words with an output that the last step is not certain of: compute them again, in integers, with
//             DOT4 from the start
//
// All loops that index arrays are unrolled, so that rows, weights and sums stay in registers. The loop over batches is
// not: with all rows of a tile unrolled, an H200's compiler left the arrays in memory, and channels-last inputs took
// twice as long. Neither are the loops that few invocations run, or run once: a compiler that unrolls those by itself
// takes twice as long. Sums begin with the channel's constant.
//
// Layout: words of the input hold four columns (CHANNELS_LAST 0, NCHW) or four channels (1, NHWC). Columns of a row
// are loaded by words even if the output's rows do not begin at words of the input: they begin SHIFT bytes after one,
// or at any byte (ALIGNED 0). Bytes outside the input are masked out.
//
// With DOT4, one packed dot product multiplies four taps of a row; a shift of two words moves the taps' bytes into
// place. Words of channels are transposed first, four columns at a time. w - zw is the difference of two signed bytes,
// of which the second is always 0 if zw is 0. A dilated filter is a wider one with zeros. Weights are in registers; or,
// where an invocation has few registers, they stay in shared memory (HELD 0): those of 5 x 5 taps take 40 of about 128.
// Without DOT4, bytes are taken out of the words once a row, and each tap is a 32-bit multiplication. Weights come out
// of shared memory three at a time, because lavapipe makes a loop over invocations of each load.
//
// With DOT4, the kernel computes the last step's parameters itself. Otherwise it reads them as records. With PREPARED, it
// reads parameters and weights that depthwise_prepare.comp has made once (depthwise_channel.glsl). One image takes a
// GPU a few waits for memory, one after the other. So an invocation waits once before its products, for all loads
// together: there is no barrier and no branch between them, none needs what another one brings, and no division comes
// before them. (NVIDIA's compiler moves loads into branches and behind barriers.) With HELD 0, weights go through shared
// memory all the same, which takes a barrier after these loads.
//
// Preconditions: memory is accessed by 32-bit words only. With DOT4 there are ten storage buffers, otherwise four. With
// PREPARED, an invocation has one tile.
// Channels-last inputs begin at a word at every position, and have one output channel for each input channel.
// gl_WorkGroupSize.x is a multiple of BLOCK; or it is push.block or more, and what remains of its multiples has nothing to
// do. Grid: x tiles, y channels. No invocation leaves before the last barrier.

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint INPUT_FLIP = 0;  // 0x80808080 for UINT8
layout(constant_id = 2) const uint FILTER_FLIP = 0;  // 0x80
layout(constant_id = 3) const uint OUTPUT_UNSIGNED = 0;
layout(constant_id = 4) const uint CHANNELS_LAST = 0;
layout(constant_id = 5) const uint TAP_ROWS = 3;
layout(constant_id = 6) const uint TAP_COLUMNS = 3;
layout(constant_id = 7) const uint STRIDE_H = 1;
layout(constant_id = 8) const uint STRIDE_W = 1;
layout(constant_id = 9) const uint DILATION_H = 1;
layout(constant_id = 10) const uint DILATION_W = 1;
layout(constant_id = 12) const uint COLUMNS = 4;  // a multiple of 4 unless CHANNELS_LAST
layout(constant_id = 14) const uint SHIFT = 0;  // bytes from the start of a tile's first word to its first tap
layout(constant_id = 15) const uint ALIGNED = 1;
layout(constant_id = 16) const uint WHOLE_WORDS = 1;  // 1 if the output consists of whole words of four such neighbours
layout(constant_id = 17) const uint FILTER_ZERO_POINT = 1;  // 0 if it is known to be 0
layout(constant_id = 18) const uint BATCH = 2;  // input rows that are fetched at a time, divided by STRIDE_H
layout(constant_id = 19) const uint CHANNELS_OF_GROUP = 1;  // output channels that see the same input channel
layout(constant_id = 22) const uint FILTER_STRIDE_M = 1;  // bytes
layout(constant_id = 23) const uint FILTER_STRIDE_H = 1;
layout(constant_id = 24) const uint FILTER_STRIDE_W = 1;
layout(constant_id = 25) const uint MOST_BLOCK = 1;  // a workgroup's block is at most this
// Sizes. Each is a constant, or 0 and a push constant of the same name: see `SIZE`.
layout(constant_id = 11) const uint ROWS = 4;  // rows of outputs in a tile
layout(constant_id = 13) const uint BLOCK = 1;  // channels of a workgroup, or quads of channels
layout(constant_id = 20) const uint ROW_LIMIT = 1;  // rows and columns of the input
layout(constant_id = 21) const uint COLUMN_LIMIT = 1;

layout(set = 0, binding = 0) restrict readonly buffer Input { uint input_words[]; };
layout(set = 0, binding = 1) restrict readonly buffer Filter { uint filter_words[]; };
#ifdef DOT4
// The same memory under another name: nobody writes to it.
layout(set = 0, binding = 1) restrict readonly buffer FilterVectors { uvec4 filter_vectors[]; };
#endif
layout(set = 0, binding = 2) restrict buffer Output { uint output_words[]; };

layout(push_constant) uniform PushConstants {
    uint input_start;  // bytes
    uint filter_start;  // bytes; with PREPARED vectors, at the convolution's first channel
    uint output_start;  // bytes
#ifdef DOT4
    uint input_scale_start;  // elements, like those that follow, at the first channel
    uint filter_scale_start;
    uint output_scale_start;
    uint input_zero_point_start;
    uint filter_zero_point_start;
    uint output_zero_point_start;
    uint bias_start;
#else
    uint table_start;  // words
#endif
    uint images;
    uint channels;  // output channels
    uint rows;
    uint columns;
    uint tile_rows;  // tiles one below the other
    uint tile_columns;
    uint tiles;  // tiles of an invocation
    uint first_channel;  // the first channel's place in the convolution
    uint first_row;  // the input row under the first output's first tap; may be negative
    uint first_column;  // the first column of the word that holds this tap; may be negative
    uint input_stride_n;
    uint input_stride_c;
    uint input_stride_h;
    uint input_stride_w;
    uint output_stride_n;
    uint output_stride_c;
    uint output_stride_h;
    uint output_stride_w;
    uint tile_height;  // ROWS
    uint block;
    uint row_limit;
    uint column_limit;
} push;

// A size: the constant, or the push constant if the pipeline serves several sizes.
#define SIZE(constant, pushed) mix(push.pushed, constant, constant != 0)

#include "arithmetic.glsl"
#include "store.glsl"
#ifdef DOT4
layout(constant_id = 26) const uint HELD = 1;  // 0: weights stay in shared memory
layout(constant_id = 27) const uint PREPARED = 0;  // 1: the filter is what depthwise_prepare.comp made of it
#define FIRST_PARAMETER_CONSTANT 28
#define FIRST_PARAMETER_BINDING 3
#include "parameter_sources.glsl"
#include "float32.glsl"
#define TABLE_CONSTANT 37
#define TABLE_INVOCATIONS gl_WorkGroupSize.x
#include "quantized_linear_convolution_table/table.glsl"
#else
layout(set = 0, binding = 3) restrict readonly buffer Table { uint table[]; };
const uint PREPARED = 0;
layout(constant_id = 26) const uint AHEAD = 1;  // 0: a batch of rows is fetched when it is needed, which is less code
#include "parameter_table.glsl"
#include "estimate.glsl"
#endif

const uint CHANNELS = CHANNELS_LAST != 0 ? 4 : 1;  // channels of an invocation
const uint REACH = (TAP_COLUMNS - 1) * DILATION_W + 1;
const uint SPAN = (COLUMNS - 1) * STRIDE_W + REACH;  // input columns under a tile
const uint WORDS = (SHIFT + SPAN + 3) / 4;  // words of four columns
const uint FETCHED = CHANNELS_LAST != 0 ? SPAN : WORDS;  // words of a row
// Output rows that see one row of the input.
const uint LIVE = ((TAP_ROWS - 1) * DILATION_H + STRIDE_H) / STRIDE_H;
const uint OUTPUTS = CHANNELS * COLUMNS;  // outputs of a row of a tile
const uint OUTPUT_WORDS = OUTPUTS / 4;
const uint BLOCK_CHANNELS = MOST_BLOCK * CHANNELS;  // room in shared memory
const uint FETCHED_ROWS = BATCH * STRIDE_H * FETCHED;
#ifdef DOT4
const uint CHUNKS = (REACH + 3) / 4;  // words of weights in a row of taps
const uint WEIGHTS = TAP_ROWS * CHUNKS;
const uint STORED_WEIGHTS = FILTER_ZERO_POINT != 0 ? 2 * WEIGHTS : WEIGHTS;
const uint SHARED_WEIGHTS = PREPARED == 0 ? STORED_WEIGHTS : HELD == 0 ? WEIGHTS : 0;
const uint ARRANGED = CHANNELS * WORDS;
#else
const uint CHUNKS = TAP_COLUMNS;
const uint WEIGHTS = TAP_ROWS * TAP_COLUMNS;
const uint SHARED_WEIGHTS = (WEIGHTS + 2) / 3;  // words of three weights of ten bits
const uint ARRANGED = CHANNELS * SPAN;
#endif
const uint ARRANGED_ROWS = STRIDE_H * ARRANGED;
const uint OWN_WEIGHTS = CHANNELS * WEIGHTS;  // words of an invocation's channels

shared uint shared_weights[SHARED_WEIGHTS != 0 ? SHARED_WEIGHTS * BLOCK_CHANNELS : 1];
shared uvec4 shared_parameters[PREPARED == 0 ? BLOCK_CHANNELS : 1];
shared uint has_second;

#include "depthwise_channel.glsl"
#ifdef DOT4
const uint PANEL_ROWS = WEIGHT_ROWS + STORED_WEIGHTS;
#endif
#include "depthwise_weights.glsl"
#include "depthwise_fetch.glsl"
#include "depthwise_exact.glsl"

#ifdef DOT4
// With PREPARED no tensor of parameters is read, and the words of their starts have what saves the first loads waiting for
// divisions: reciprocals, slightly above 2^(31 + shift) / divisor, where 2^shift is the first power of two that is not below
// the divisor; five bits for each shift; and the items of a block.
#define ITEMS(block) (PREPARED != 0 ? push.filter_zero_point_start : gl_WorkGroupSize.x / (block))
#define QUOTIENT(n, divisor, reciprocal, first_bit) quotient(n, divisor, push.reciprocal, first_bit)

// n / divisor, for n below 2^31.
uint quotient(uint n, uint divisor, uint reciprocal, uint first_bit) {
    if (PREPARED == 0)
        return n / divisor;
    uint high, low;
    umulExtended(n << 1, reciprocal, high, low);
    return high >> bitfieldExtract(push.input_zero_point_start, int(first_bit), 5);
}
#else
#define ITEMS(block) (gl_WorkGroupSize.x / (block))
#define QUOTIENT(n, divisor, reciprocal, first_bit) ((n) / (divisor))
#endif

void main() {
    uint invocation = gl_LocalInvocationID.x;
    uint block = SIZE(BLOCK, block);
    uint items = ITEMS(block);
    uint first_channel = gl_WorkGroupID.y * block * CHANNELS;
    if (PREPARED == 0)
        prepare_channels(first_channel, block);

    // Neighbouring invocations take neighbours in memory.
    uint across = CHANNELS_LAST != 0 ? block : items;
    uint whole = QUOTIENT(invocation, across, input_scale_start, 0);
    uint rest = invocation - whole * across;
    uint unit = CHANNELS_LAST != 0 ? rest : whole;
    uint item = CHANNELS_LAST != 0 ? whole : rest;
    uint channel = first_channel + unit * CHANNELS;
    // Comparisons by themselves: a compiler may make branches of what `||` compares.
    bool is_past_channels = channel >= push.channels;
    bool is_past_units = BLOCK == 0 && unit >= block;
    bool is_past_items = BLOCK == 0 && item >= items;
    bool is_idle = is_past_channels || is_past_units || is_past_items;
    if (PREPARED == 0 && is_idle)
        return;
    uint plane = push.input_start + (push.first_channel + channel) / CHANNELS_OF_GROUP * push.input_stride_c;
    uint step_in_word = CHANNELS_LAST != 0 ? push.output_stride_c : push.output_stride_w;

    uint weights[OWN_WEIGHTS];
    uvec4 parameters[CHANNELS];
    Facts facts;
    facts.border = 0;
#ifdef DOT4
    fetch_table();
#endif
    if (PREPARED == 0)
        facts = channels_from_shared(unit, weights, parameters);

    uint t = 0;
    [[dont_unroll]] do {
        uint index = (gl_WorkGroupID.x * push.tiles + t) * items + item;
        uint line = QUOTIENT(index, push.tile_columns, filter_scale_start, 5);
        uint column = (index - line * push.tile_columns) * COLUMNS;
        uint image = QUOTIENT(line, push.tile_rows, output_scale_start, 10);
        uint row = (line - image * push.tile_rows) * SIZE(ROWS, tile_height);
        bool is_past_images = image >= push.images;
        if (PREPARED == 0 && is_past_images)
            return;
        uint top = push.first_row + row * STRIDE_H;
        uint left = push.first_column + column * STRIDE_W;
        uint source = plane + image * push.input_stride_n + row * STRIDE_H * push.input_stride_h
            + column * STRIDE_W * push.input_stride_w;
        uint destination = push.output_start + image * push.output_stride_n + channel * push.output_stride_c
            + row * push.output_stride_h + column * push.output_stride_w;
        uint masks[FETCHED];
        [[unroll]] for (uint n = 0; n < FETCHED; ++n)
            masks[n] =
                CHANNELS_LAST != 0 ? (left + n < SIZE(COLUMN_LIMIT, column_limit) ? ~0 : 0) : inside_mask(left + 4 * n);

        uint next[FETCHED_ROWS];
        uint tile_end = min(SIZE(ROWS, tile_height), push.rows - row) + LIVE - 1;
        // Rows past the tile are not fetched, but without a branch around the fetch.
        uint row_limit = min(SIZE(ROW_LIMIT, row_limit), top + tile_end * STRIDE_H);
        // With PREPARED, an invocation that has nothing to do stays, but no rows are its own: there is no branch.
        if (PREPARED != 0 && (is_idle || is_past_images)) {
            tile_end = 0;
            row_limit = 0;
        }
#ifndef DOT4
        if (AHEAD != 0)
#endif
            fetch(top, row_limit, source, masks, facts.border, PREPARED != 0, next);
#ifdef DOT4
        if (PREPARED != 0)
            facts = prepared_channels(channel, weights, parameters);
        if (PREPARED != 0 && (HELD == 0 || HAS_TABLE != 0)) {
            if (HELD == 0)
                copy_weights(first_channel, block);
            begin_table();
            barrier();
        }
#endif

        // The first OUTPUTS sums belong to the output row that begins to see the input, the others to rows above it.
        int sums[LIVE * OUTPUTS];
        [[unroll]] for (uint i = 0; i < LIVE * OUTPUTS; ++i)
            sums[i] = int(parameters[i % OUTPUTS / COLUMNS].y);
        [[dont_unroll]] for (uint first = 0; first < tile_end; first += BATCH) {
#ifndef DOT4
            if (AHEAD == 0)
                fetch(top + first * STRIDE_H, row_limit, source + first * STRIDE_H * push.input_stride_h, masks,
                    facts.border, false, next);
#endif
            uint words[FETCHED_ROWS];
            [[unroll]] for (uint n = 0; n < FETCHED_ROWS; ++n) {
                bool is_inside = PREPARED == 0 || top + first * STRIDE_H + n / FETCHED < row_limit;
                words[n] = finished(next[n], is_inside ? masks[n % FETCHED] : 0, facts.border);
            }
#ifndef DOT4
            if (AHEAD != 0)
#endif
                fetch(top + (first + BATCH) * STRIDE_H, row_limit,
                    source + (first + BATCH) * STRIDE_H * push.input_stride_h, masks, facts.border, false, next);
            // A bit for each word, of the batch's rows, whose outputs the last step is not certain of.
            uint uncertain = 0;
            [[unroll]] for (uint u = 0; u < BATCH; ++u) {
                uint newest = first + u;
                uint arranged[ARRANGED_ROWS];
                [[unroll]] for (uint s = 0; s < STRIDE_H; ++s)
                    arrange(words, u * STRIDE_H + s, s, arranged);

                [[unroll]] for (uint s = 0; s < STRIDE_H; ++s) {
                    [[unroll]] for (uint age = 0; age < LIVE; ++age) {
                        // The tap row under which the output row that is `age` rows above the newest sees this input
                        // row, if there is one.
                        uint distance = age * STRIDE_H + s;
                        uint k = distance / DILATION_H;
                        if (distance % DILATION_H == 0 && k < TAP_ROWS) {
                            [[unroll]] for (uint c = 0; c < CHANNELS; ++c) {
                                [[unroll]] for (uint chunk = 0; chunk < CHUNKS; ++chunk) {
                                    uint tap = min(k, TAP_ROWS - 1) * CHUNKS + chunk;
                                    int weight = int(weights[c * WEIGHTS + tap]);
#ifdef DOT4
                                    if (HELD == 0)
                                        weight = int(shared_weights[tap * BLOCK_CHANNELS + unit * CHANNELS + c]);
#endif
                                    [[unroll]] for (uint j = 0; j < COLUMNS; ++j) {
                                        uint n = age * OUTPUTS + c * COLUMNS + j;
#ifdef DOT4
                                        int taps = window(arranged, s, c, SHIFT + j * STRIDE_W + 4 * chunk);
                                        sums[n] += dotPacked4x8EXT(taps, weight);
#else
                                        uint place = s * ARRANGED + c * SPAN + j * STRIDE_W + chunk * DILATION_W;
                                        sums[n] += int(arranged[place]) * weight;
#endif
                                    }
                                }
                            }
                        }
                    }
                }
#ifdef DOT4
                if (facts.has_second) {
                    [[unroll]] for (uint s = 0; s < STRIDE_H; ++s) {
                        [[unroll]] for (uint age = 0; age < LIVE; ++age) {
                            uint distance = age * STRIDE_H + s;
                            uint k = distance / DILATION_H;
                            if (distance % DILATION_H == 0 && k < TAP_ROWS) {
                                [[unroll]] for (uint chunk = 0; chunk < CHUNKS; ++chunk) {
                                    uvec4 weights = second_words(WEIGHTS + k * CHUNKS + chunk, unit, channel);
                                    [[unroll]] for (uint c = 0; c < CHANNELS; ++c) {
                                        int weight = int(weights[c]);
                                        [[unroll]] for (uint j = 0; j < COLUMNS; ++j) {
                                            int taps = window(arranged, s, c, SHIFT + j * STRIDE_W + 4 * chunk);
                                            sums[age * OUTPUTS + c * COLUMNS + j] -= dotPacked4x8EXT(taps, weight);
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
#endif

                if (newest + 1 >= LIVE && newest < tile_end) {
                    uint r = newest + 1 - LIVE;
                    uint line = destination + r * push.output_stride_h;
                    // Channels that must not use the estimate set all bits.
                    uncertain |= facts.exact << (u * OUTPUT_WORDS);
                    [[unroll]] for (uint w = 0; w < OUTPUT_WORDS; ++w) {
#ifdef DOT4
                        uint bytes = facts.range.first;
#else
                        uint bytes = 0;
                        float distance_to_integer = 0.0;
#endif
                        [[unroll]] for (uint b = 0; b < 4; ++b) {
                            uint c = CHANNELS_LAST != 0 ? b : 0;
                            uint j = CHANNELS_LAST != 0 ? w : 4 * w + b;
                            int sum = sums[(LIVE - 1) * OUTPUTS + c * COLUMNS + j];
                            float multiplier = uintBitsToFloat(parameters[c].x);
#ifdef DOT4
                            bytes += rounded_bits(sum, multiplier, facts.range) << (8 * b);
#else
                            bytes |= estimate(sum, multiplier, facts.range, distance_to_integer) << (8 * b);
#endif
                        }
#ifdef DOT4
                        bytes = looked_up(bytes ^ OUTPUT_FLIP);
#else
                        if (distance_to_integer > CERTAIN)
                            uncertain |= 1u << (u * OUTPUT_WORDS + w);
#endif
                        if (CHANNELS_LAST == 0 || column + w < push.columns) {
                            uint address = line + (CHANNELS_LAST != 0 ? w : 4 * w) * push.output_stride_w;
                            if (WHOLE_WORDS != 0)
                                output_words[address >> 2] = bytes;
                            else
                                store_four(bytes, address + uvec4(0, 1, 2, 3) * step_in_word,
                                    lessThan((CHANNELS_LAST != 0 ? channel : column + 4 * w) + uvec4(0, 1, 2, 3),
                                        uvec4(CHANNELS_LAST != 0 ? push.channels : push.columns)));
                        }
                    }
#ifndef DOT4
                    [[dont_unroll]] while (uncertain != 0) {
                        uint w = findLSB(uncertain) - u * OUTPUT_WORDS;
                        uncertain &= uncertain - 1;
                        [[dont_unroll]] for (uint b = 0; b < 4; ++b) {
                            uint c = CHANNELS_LAST != 0 ? b : 0;
                            uint j = CHANNELS_LAST != 0 ? w : 4 * w + b;
                            // Compilers for CPUs are fast with selections, and slow with loads.
                            int sum = 0;
                            [[unroll]] for (uint i = 0; i < OUTPUTS; ++i)
                                sum = i == c * COLUMNS + j ? sums[(LIVE - 1) * OUTPUTS + i] : sum;
                            if (channel + c < push.channels && column + j < push.columns)
                                store_exactly(channel + c, sum,
                                    line + c * push.output_stride_c + j * push.output_stride_w,
                                    shared_parameters[unit * CHANNELS + c]);
                        }
                    }
#endif
                }
#ifdef DOT4
                if (!ONE_COPY) {
                    store_uncertain(uncertain, channel, unit, image, row + first + 1 - LIVE, column);
                    uncertain = 0;
                }
#endif
                [[unroll]] for (uint i = LIVE * OUTPUTS; i > OUTPUTS; --i)
                    sums[i - 1] = sums[i - 1 - OUTPUTS];
                [[unroll]] for (uint i = 0; i < OUTPUTS; ++i)
                    sums[i] = int(parameters[i / COLUMNS].y);
            }
#ifdef DOT4
            if (ONE_COPY)
                store_uncertain(uncertain, channel, unit, image, row + first + 1 - LIVE, column);
#endif
        }
    } while (PREPARED == 0 && ++t < push.tiles);
}
