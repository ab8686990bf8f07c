#version 450

// QUANTIZED_LINEAR_CONVOLUTION of an input with at most 4 channels, on matrix units: a network's first layer.
//
// Maths: products[pixel][channel] = sum over tap rows, and over k, of
//     input[row][4 * the pixel's first column + k] filter[channel][row][k]
// A pixel has four bytes, of which the last ones may be 0. So a row of taps is a run of contiguous bytes in a row of
// the input. The runs of neighbouring outputs begin STRIDE_W pixels apart and overlap. A matrix of pixels is the
// input's row itself, with a stride between the matrix's rows that is less than their length, and nothing is copied
// for it. Bytes are signed (UINT8 is flipped), and sums are exact in 32 bits. Then, as everywhere,
//     acc = products - zw sum(x') + bias - zx' sum over taps of (w - zw)
//
// Loops:
//     once a workgroup: store the filter and the last step's parameters to shared memory
//     for each of its tiles of TILE_ROWS x TILE_UNITS units of 4 MATRIX_M neighbouring outputs:
//         store the input's rows under the tile to shared memory, four bytes a pixel, and zx' for positions outside the
//         input; barrier
//         each subgroup, for each of its units, for PASS_PIXELS x PASS_CHANNELS matrices of sums at a time:
//             for each tap row, for each K of a matrix: load, multiply all pairs
//             the last step in registers turns four matrices of sums into one of words; these go through shared memory
//             to the invocations that write them as vectors
//
// Layout: a matrix load has to begin at a multiple of 16 bytes, and the runs of neighbouring outputs lie 4 * STRIDE_W
// bytes apart. So there are PHASES copies of the input's rows, each of which begins STRIDE_W pixels later than the one
// before. Copy c serves the outputs c, PHASES + c, 2 PHASES + c, ..., whose runs begin at multiples of 16 bytes in it.
// Each of the four pixel matrices of a unit holds every fourth output. If words hold channels, each of four matrices
// holds every fourth channel. So elements with the same index make a word, however matrices lie in registers. Filter
// rows are padded, so that eight of them lie in different banks.
//
// Sums begin with the constant that the bias and the zero points add to a channel. sum(x') is added up only if a
// filter zero point of the tile is not 0. A tile with a channel whose sums may not fit 32 bits takes its last steps in
// integers.
//
// Preconditions: a workgroup has SUBGROUPS subgroups of LANES invocations. The input has at most 4 channels, in one
// group. Dilations are 1. Filter panels have TILE_CHANNELS channels and steps of one row of taps. SUBGROUPS divides
// the number of units of a tile, and the matrices of a pass divide those of a unit. Input and output may have any
// strides. The device rounds to nearest even (shaderRoundingModeRTEFloat32). Grid: x tiles of columns, y tiles of
// rows, z panels of images. No invocation leaves before the last barrier.
//
// Compiler bugs avoided: as in matrix.comp. All subgroups go through the same subgroup barriers; otherwise lavapipe
// (Mesa 26) leaves the work of the later subgroups undone.

#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_integer_dot_product : require
#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require
#extension GL_EXT_spirv_intrinsics : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#pragma use_vulkan_memory_model

spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4467], 4462, 32);  // RoundingModeRTE 32

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint OUTPUT_UNSIGNED = 0;
// 0: a word of the output holds four neighbouring pixels. 1: it holds four neighbouring channels.
layout(constant_id = 2) const uint STORE_CHANNELS = 0;
layout(constant_id = 3) const uint FLIP = 0;  // 0x80 if the input is UINT8
layout(constant_id = 4) const uint MATRIX_M = 16;
layout(constant_id = 5) const uint MATRIX_N = 16;
layout(constant_id = 6) const uint MATRIX_K = 32;
layout(constant_id = 7) const uint LANES = 32;  // the subgroup size
layout(constant_id = 8) const uint SUBGROUPS = 4;
layout(constant_id = 9) const uint TILE_CHANNELS = 64;
layout(constant_id = 10) const uint TILE_ROWS = 4;
layout(constant_id = 11) const uint TILE_UNITS = 1;
layout(constant_id = 12) const uint PASS_PIXELS = 4;  // matrices; 4 unless STORE_CHANNELS
layout(constant_id = 22) const uint PASS_CHANNELS = 2;  // 4 with STORE_CHANNELS
layout(constant_id = 13) const uint FILTER_PADDING = 1;  // vectors of 16 bytes between rows of the filter
layout(constant_id = 14) const uint INPUT_CHANNELS = 3;
layout(constant_id = 15) const uint FILTER_HEIGHT = 7;
layout(constant_id = 16) const uint FILTER_WIDTH = 7;
layout(constant_id = 17) const uint STRIDE_H = 2;
layout(constant_id = 18) const uint STRIDE_W = 2;
layout(constant_id = 19) const uint FILTER_ZERO_POINT = 1;  // 0 if it is known to be 0
// 16 or 4 if the output consists of whole runs of this many such neighbours, which begin at multiples of as many
// bytes; otherwise 1.
layout(constant_id = 20) const uint WHOLE = 16;
layout(constant_id = 21) const uint UNROLLED_ROWS = 7;  // rows of taps; divides FILTER_HEIGHT

layout(set = 0, binding = 0) readonly buffer Input { uint input_words[]; };
layout(set = 0, binding = 1) readonly buffer Filter { uint filter_words[]; };
layout(set = 0, binding = 1) readonly buffer FilterPairs { uvec2 filter_pairs[]; };
layout(set = 0, binding = 2) buffer Output { uint output_words[]; };
layout(set = 0, binding = 2) buffer OutputVectors { uvec4 output_vectors[]; };

layout(push_constant) uniform PushConstants {
    uint input_start;  // bytes, of the first image's first pixel
    uint filter_start;  // pairs of words
    uint output_start;  // bytes
    uint input_scale_start;  // elements, like those that follow, at the first panel's first channel
    uint filter_scale_start;
    uint output_scale_start;
    uint input_zero_point_start;
    uint filter_zero_point_start;
    uint output_zero_point_start;
    uint bias_start;
    uint panels;
    uint channels;  // output channels, from the first panel's first on
    uint rows;
    uint columns;
    uint tiles;  // tiles of a workgroup, one below the other
    uint panel_stride;  // pairs of words from one panel of the filter to the next
    uint first_row;  // the input's row under the first pixel's first tap; may be negative
    uint first_column;
    uint row_limit;
    uint column_limit;
    uint input_stride_n;  // bytes
    uint input_stride_c;
    uint input_stride_h;
    uint input_stride_w;
    uint output_stride_n;
    uint output_stride_c;
    uint output_stride_h;
    uint output_stride_w;
} push;

#include "arithmetic.glsl"
#define FIRST_PARAMETER_CONSTANT 23
#define FIRST_PARAMETER_BINDING 3
#include "parameter_sources.glsl"
#include "float32.glsl"
#include "store.glsl"

const uint PHASES = STRIDE_W % 4 == 0 ? 1 : STRIDE_W % 2 == 0 ? 2 : 4;
const uint UNIT = 4 * MATRIX_M;  // neighbouring outputs
const uint ROW_BYTES = (4 * FILTER_WIDTH + MATRIX_K - 1) / MATRIX_K * MATRIX_K;
// The following are in pairs of words.
const uint ROW = ROW_BYTES / 8;
const uint SLICE = MATRIX_K / 8;
const uint STEP = STRIDE_W * PHASES / 2;  // from one output of a copy to the next
const uint COPY = ((TILE_UNITS * UNIT / PHASES - 1) * STEP + ROW + 1) / 2 * 2;
const uint STAGED_ROWS = (TILE_ROWS - 1) * STRIDE_H + FILTER_HEIGHT;
const uint FILTER_PITCH = (ROW + 1) / 2 * 2 + 2 * FILTER_PADDING;
const uint MATRIX_COLUMNS = TILE_CHANNELS / MATRIX_N;
const uint TAPS = INPUT_CHANNELS * FILTER_HEIGHT * FILTER_WIDTH;

// A strip is one matrix of words, or of sums. Its lines are pixels of 4 MATRIX_N channels, or channels of UNIT pixels.
const uint STRIP_LINES = STORE_CHANNELS != 0 ? MATRIX_M : MATRIX_N;
const uint STRIP_VECTORS = (STORE_CHANNELS != 0 ? MATRIX_N : MATRIX_M) / 4;
const uint STRIP_ROW = STRIP_VECTORS + 1;
// Stores of an invocation. The loops over them are counted by a constant: with NVIDIA's compiler, a loop that begins
// at the invocation's number is three times as slow.
const uint STORES = (STRIP_LINES * STRIP_VECTORS + LANES - 1) / LANES;
const uint STRIP_SUMS = MATRIX_M * MATRIX_N / 4;
const uint STRIP = STRIP_LINES * STRIP_ROW > STRIP_SUMS ? STRIP_LINES * STRIP_ROW : STRIP_SUMS;

shared uvec4 strips[SUBGROUPS * STRIP];
shared uvec2 staged[STAGED_ROWS * PHASES * COPY];
shared uvec2 staged_filter[FILTER_HEIGHT * TILE_CHANNELS * FILTER_PITCH];
// By position, the order in which matrices hold them:
shared int input_sums[SUBGROUPS * UNIT];
shared float multipliers[TILE_CHANNELS];
shared int constants[TILE_CHANNELS];
shared uint constants_high[TILE_CHANNELS];
shared int filter_zero_points[TILE_CHANNELS];
// Whole vectors, so that each of these variables begins at a multiple of 16 bytes, whatever their order.
shared uvec4 has_filter_zero_point;
shared uvec4 needs_integers;

#define SUMS coopmat<int, gl_ScopeSubgroup, MATRIX_M, MATRIX_N, gl_MatrixUseAccumulator>
#define FLOATS coopmat<float, gl_ScopeSubgroup, MATRIX_M, MATRIX_N, gl_MatrixUseAccumulator>

// The channel of the tile at a position. If words hold channels, a matrix holds every fourth channel.
uint channel_at(uint position) {
    if (STORE_CHANNELS == 0)
        return position;
    uint in_block = position % (4 * MATRIX_N);
    return position - in_block + 4 * (in_block % MATRIX_N) + in_block / MATRIX_N;
}

#include "first_layer_input.glsl"
#include "first_layer_store.glsl"

void main() {
    uint invocation = gl_LocalInvocationID.x;
    uint image = gl_WorkGroupID.z / push.panels;
    uint panel = gl_WorkGroupID.z - image * push.panels;
    uint first_channel = panel * TILE_CHANNELS;
    uint filter_start = push.filter_start + panel * push.panel_stride;
    uint filter_sums = 2 * (filter_start + FILTER_HEIGHT * TILE_CHANNELS * ROW);
    uint first_column = gl_WorkGroupID.x * TILE_UNITS * UNIT;
    uint plane = push.input_start + image * push.input_stride_n;
    uint border = 0;
    [[unroll]] for (uint c = 0; c < INPUT_CHANNELS; ++c)
        border |= (uint(input_zero_point(0)) & 0xFF) << (8 * c);

    for (uint i = invocation; i < FILTER_HEIGHT * TILE_CHANNELS * ROW; i += SUBGROUPS * LANES) {
        uint line = i / ROW;
        uint in_row = i - line * ROW;
        uint position = line % TILE_CHANNELS;
        staged_filter[line * FILTER_PITCH + in_row] =
            filter_pairs[filter_start + (line - position + channel_at(position)) * ROW + in_row];
    }
    if (invocation == 0) {
        has_filter_zero_point.x = 0;
        needs_integers.x = 0;
    }
    barrier();
    for (uint i = invocation; i < TILE_CHANNELS; i += SUBGROUPS * LANES) {
        uint channel = min(first_channel + channel_at(i), push.channels - 1);
        int filter_zero = filter_zero_point(channel);
        int filter_sum = int(filter_words[filter_sums + channel - first_channel]);
        Wide constant =
            add(widened(bias_of(channel)), product(input_zero_point(channel), int(TAPS) * filter_zero - filter_sum));
        multipliers[i] = multiplier_of(channel);
        constants[i] = int(constant.low);
        constants_high[i] = constant.high;
        filter_zero_points[i] = filter_zero;
        if (!is_narrow(constant, TAPS))
            atomicOr(needs_integers.x, 1);
        if (FILTER_ZERO_POINT != 0 && filter_zero != 0)
            atomicOr(has_filter_zero_point.x, 1);
    }

    Range range = range_of(output_zero_point(0));
    uint strip = gl_SubgroupID * STRIP;
    uint sums_start = gl_SubgroupID * UNIT;

    [[dont_unroll]] for (uint t = 0; t < push.tiles; ++t) {
        uint first_row = (gl_WorkGroupID.y * push.tiles + t) * TILE_ROWS;
        if (first_row >= push.rows)
            break;
        // No invocation may still read the previous tile. Before the first tile, those with no channel to prepare go
        // ahead.
        if (t > 0)
            barrier();
        stage_input(plane, push.first_row + first_row * STRIDE_H, push.first_column + first_column * STRIDE_W, border);
        barrier();

        [[dont_unroll]] for (uint u = 0; u < TILE_ROWS * TILE_UNITS / SUBGROUPS; ++u) {
            uint own = u * SUBGROUPS + gl_SubgroupID;
            uint tile_row = own / TILE_UNITS;
            uint unit = own - tile_row * TILE_UNITS;
            uint row = first_row + tile_row;
            uint unit_column = first_column + unit * UNIT;
            // In rows past the output every place is at or past `end_column`, so nothing is stored.
            uint end_column = row < push.rows ? push.columns : 0;
            uint source = tile_row * STRIDE_H * PHASES * COPY + unit * UNIT / PHASES * STEP;
            uint destination = push.output_start + image * push.output_stride_n + first_channel * push.output_stride_c
                + row * push.output_stride_h + unit_column * push.output_stride_w;
            if (FILTER_ZERO_POINT != 0 && has_filter_zero_point.x != 0) {
                add_up_input(tile_row, unit, sums_start);
                subgroupBarrier();
            }

            [[dont_unroll]] for (uint pass = 0; pass < 4 / PASS_PIXELS * (MATRIX_COLUMNS / PASS_CHANNELS); ++pass) {
                uint first_q = pass % (4 / PASS_PIXELS) * PASS_PIXELS;
                uint first_j = pass / (4 / PASS_PIXELS) * PASS_CHANNELS;
                SUMS sums[PASS_PIXELS * PASS_CHANNELS];
                [[unroll]] for (uint j = 0; j < PASS_CHANNELS; ++j) {
                    SUMS constant;
                    coopMatLoad(constant, constants, (first_j + j) * MATRIX_N, 0, gl_CooperativeMatrixLayoutRowMajor);
                    [[unroll]] for (uint q = 0; q < PASS_PIXELS; ++q)
                        sums[q * PASS_CHANNELS + j] = constant;
                }
                [[dont_unroll]] for (uint first_k = 0; first_k < FILTER_HEIGHT; first_k += UNROLLED_ROWS) {
                    [[unroll]] for (uint i = 0; i < UNROLLED_ROWS * ROW / SLICE; ++i) {
                        uint k = first_k + i / (ROW / SLICE);
                        uint slice = i % (ROW / SLICE);
                        coopmat<int8_t, gl_ScopeSubgroup, MATRIX_M, MATRIX_K, gl_MatrixUseA> pixels[PASS_PIXELS];
                        [[unroll]] for (uint q = 0; q < PASS_PIXELS; ++q)
                            coopMatLoad(pixels[q], staged,
                                source + (k * PHASES + (first_q + q) % PHASES) * COPY + (first_q + q) / PHASES * STEP
                                    + slice * SLICE,
                                4 / PHASES * STEP, gl_CooperativeMatrixLayoutRowMajor);
                        [[unroll]] for (uint j = 0; j < PASS_CHANNELS; ++j) {
                            coopmat<int8_t, gl_ScopeSubgroup, MATRIX_K, MATRIX_N, gl_MatrixUseB> channels;
                            coopMatLoad(channels, staged_filter,
                                (k * TILE_CHANNELS + (first_j + j) * MATRIX_N) * FILTER_PITCH + slice * SLICE,
                                FILTER_PITCH, gl_CooperativeMatrixLayoutColumnMajor);
                            [[unroll]] for (uint q = 0; q < PASS_PIXELS; ++q)
                                sums[q * PASS_CHANNELS + j] =
                                    coopMatMulAdd(pixels[q], channels, sums[q * PASS_CHANNELS + j]);
                        }
                    }
                }

                if (FILTER_ZERO_POINT != 0 && has_filter_zero_point.x != 0) {
                    [[unroll]] for (uint j = 0; j < PASS_CHANNELS; ++j) {
                        SUMS zero_points;
                        coopMatLoad(zero_points, filter_zero_points, (first_j + j) * MATRIX_N, 0,
                            gl_CooperativeMatrixLayoutRowMajor);
                        [[unroll]] for (uint q = 0; q < PASS_PIXELS; ++q) {
                            SUMS of_pixels;
                            coopMatLoad(of_pixels, input_sums, sums_start + (first_q + q) * MATRIX_M, 0,
                                gl_CooperativeMatrixLayoutColumnMajor);
                            [[unroll]] for (uint e = 0; e < of_pixels.length(); ++e)
                                sums[q * PASS_CHANNELS + j][e] -= zero_points[e] * of_pixels[e];
                        }
                    }
                }

                if (needs_integers.x != 0) {
                    [[dont_unroll]] for (uint n = 0; n < PASS_PIXELS * PASS_CHANNELS; ++n) {
                        // Matrices cannot be indexed at run time.
                        SUMS chosen = sums[0];
                        [[unroll]] for (uint i = 1; i < PASS_PIXELS * PASS_CHANNELS; ++i)
                            if (i == n)
                                chosen = sums[i];
                        subgroupBarrier();
                        coopMatStore(chosen, strips, strip, MATRIX_N / 4, gl_CooperativeMatrixLayoutRowMajor);
                        subgroupBarrier();
                        for (uint i = gl_SubgroupInvocationID; i < MATRIX_M * MATRIX_N; i += LANES) {
                            uint position = (first_j + n % PASS_CHANNELS) * MATRIX_N + i % MATRIX_N;
                            uint channel = channel_at(position);
                            uint pixel = i / MATRIX_N * 4 + first_q + n / PASS_CHANNELS;
                            if (unit_column + pixel < end_column && first_channel + channel < push.channels) {
                                int sum = int(strips[strip + i / 4][i % 4]);
                                Wide accumulator = add(Wide(uint(constants[position]), constants_high[position]),
                                    widened(sum - constants[position]));
                                store_byte(destination + pixel * push.output_stride_w + channel * push.output_stride_c,
                                    exact_byte(accumulator, multipliers[position],
                                        output_zero_point(first_channel + channel)));
                            }
                        }
                    }
                } else if (STORE_CHANNELS != 0) {
                    [[unroll]] for (uint q = 0; q < PASS_PIXELS; ++q) {
                        SUMS words = SUMS(int(range.first));
                        [[unroll]] for (uint j = 0; j < 4; ++j) {
                            FLOATS factors;
                            coopMatLoad(
                                factors, multipliers, (first_j + j) * MATRIX_N, 0, gl_CooperativeMatrixLayoutRowMajor);
                            [[unroll]] for (uint e = 0; e < words.length(); ++e)
                                words[e] +=
                                    int(rounded_bits(sums[q * PASS_CHANNELS + j][e], factors[e], range) << (8 * j));
                        }
                        if (OUTPUT_FLIP != 0) {
                            [[unroll]] for (uint e = 0; e < words.length(); ++e)
                                words[e] ^= OUTPUT_FLIP;
                        }
                        subgroupBarrier();
                        coopMatStore(words, strips, strip, STRIP_ROW, gl_CooperativeMatrixLayoutRowMajor);
                        subgroupBarrier();
                        [[unroll]] for (uint n = 0; n < STORES; ++n) {
                            uint v = gl_SubgroupInvocationID + n * LANES;
                            if (STRIP_LINES * STRIP_VECTORS % LANES != 0 && v >= STRIP_LINES * STRIP_VECTORS)
                                break;
                            uint line = v / STRIP_VECTORS;
                            uint pixel = 4 * line + first_q + q;
                            uint channel = first_j * MATRIX_N + 16 * (v - line * STRIP_VECTORS);
                            if (unit_column + pixel < end_column)
                                store_sixteen(strips[strip + v + line],
                                    destination + pixel * push.output_stride_w + channel * push.output_stride_c,
                                    push.output_stride_c, first_channel + channel, push.channels);
                        }
                    }
                } else {
                    [[unroll]] for (uint j = 0; j < PASS_CHANNELS; ++j) {
                        FLOATS factors;
                        coopMatLoad(
                            factors, multipliers, (first_j + j) * MATRIX_N, 0, gl_CooperativeMatrixLayoutRowMajor);
                        SUMS words = SUMS(int(range.first));
                        [[unroll]] for (uint q = 0; q < 4; ++q) {
                            [[unroll]] for (uint e = 0; e < words.length(); ++e)
                                words[e] +=
                                    int(rounded_bits(sums[q * PASS_CHANNELS + j][e], factors[e], range) << (8 * q));
                        }
                        if (OUTPUT_FLIP != 0) {
                            [[unroll]] for (uint e = 0; e < words.length(); ++e)
                                words[e] ^= OUTPUT_FLIP;
                        }
                        subgroupBarrier();
                        coopMatStore(words, strips, strip, STRIP_ROW, gl_CooperativeMatrixLayoutColumnMajor);
                        subgroupBarrier();
                        [[unroll]] for (uint n = 0; n < STORES; ++n) {
                            uint v = gl_SubgroupInvocationID + n * LANES;
                            if (STRIP_LINES * STRIP_VECTORS % LANES != 0 && v >= STRIP_LINES * STRIP_VECTORS)
                                break;
                            uint line = v / STRIP_VECTORS;
                            uint channel = (first_j + j) * MATRIX_N + line;
                            uint pixel = 16 * (v - line * STRIP_VECTORS);
                            if (first_channel + channel < push.channels)
                                store_sixteen(strips[strip + v + line],
                                    destination + pixel * push.output_stride_w + channel * push.output_stride_c,
                                    push.output_stride_w, unit_column + pixel, end_column);
                        }
                    }
                }
            }
        }
    }
}
