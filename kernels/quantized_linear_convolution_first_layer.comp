#version 450

// QUANTIZED_LINEAR_CONVOLUTION of an input with at most 4 channels, on matrix units: a network's first layer.
//
// Maths: output[pixel][channel] = sum over tap rows, over K of input[row][pixel's first column * 4 + k] filter[channel]
// [row][k]: with four bytes a pixel, of which the last ones may be 0, a row of taps is a run of bytes that lies side by
// side in a row of the input. Neighbouring outputs see runs that begin STRIDE_W pixels apart and overlap: a matrix of
// pixels is the input's row itself, with a stride between its rows that is less than their length. Nothing is copied
// for it. Signed bytes (UINT8 is flipped), exact in 32 bits. Then, as everywhere,
//     acc = that - zw sum(x') + bias - zx' sum over taps of (w - zw)
//
//     once a workgroup: the filter and the last step's parameters to shared memory
//     for each of its tiles of TILE_ROWS x TILE_UNITS units of outputs:
//         the input's rows under it to shared memory, four bytes a pixel, what lies beside the input as zx'; barrier
//         each subgroup, for each of its units (PHASES matrices of pixels, all channels):
//             for each tap row, for each K of a matrix: load, multiply all pairs
//             strip by strip: the sums through shared memory to whoever writes them, the last step, whole words
//
// Layout: a matrix load has to begin at a multiple of 16 bytes, and outputs lie 4 * STRIDE_W bytes apart. So there are
// PHASES copies of the input's rows, each begun STRIDE_W pixels later than the one before: copy q serves the outputs q,
// PHASES + q, 2 PHASES + q, ..., whose runs begin at multiples of 16 bytes in it. Filter rows are FILTER_PITCH long, so
// that eight of them lie in different banks.
//
// Preconditions: as many invocations as SUBGROUPS of LANES; at most 4 channels of the input in one group; dilations of
// 1; filter panels of TILE_CHANNELS with a step of one row of taps; SUBGROUPS divide a tile's units, quads of a strip
// LANES. Input and output may
// have any strides. Grid: x tiles of columns, y tiles of rows, z panels of images. No invocation leaves before the last
// barrier.
//
// Compiler bugs avoided: as in quantized_linear_convolution_matrix.comp.

#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_integer_dot_product : require
#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#pragma use_vulkan_memory_model

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint OUTPUT_UNSIGNED = 0;
// The output's bytes of four neighbouring pixels (0) or of four neighbouring channels (1) are put into one word.
layout(constant_id = 2) const uint STORE_CHANNELS = 0;
layout(constant_id = 3) const uint FLIP = 0;  // 0x80 where the input is UINT8
layout(constant_id = 4) const uint MATRIX_M = 16;
layout(constant_id = 5) const uint MATRIX_N = 16;
layout(constant_id = 6) const uint MATRIX_K = 32;
layout(constant_id = 7) const uint LANES = 32;  // the subgroup size
layout(constant_id = 8) const uint SUBGROUPS = 4;
layout(constant_id = 9) const uint TILE_CHANNELS = 64;
layout(constant_id = 10) const uint TILE_ROWS = 4;
layout(constant_id = 11) const uint TILE_UNITS = 2;
layout(constant_id = 12) const uint STRIP_CHANNELS = 32;
layout(constant_id = 13) const uint FILTER_PADDING = 1;  // vectors of 16 bytes between rows of the filter
layout(constant_id = 14) const uint INPUT_CHANNELS = 3;
layout(constant_id = 15) const uint FILTER_HEIGHT = 7;
layout(constant_id = 16) const uint FILTER_WIDTH = 7;
layout(constant_id = 17) const uint STRIDE_H = 2;
layout(constant_id = 18) const uint STRIDE_W = 2;
layout(constant_id = 19) const uint FILTER_ZERO_POINT = 1;  // 0 where it is known to be 0
layout(constant_id = 20) const uint WHOLE_WORDS = 1;        // the output is words, whole ones, of four such neighbours
layout(constant_id = 21) const uint UNROLLED_ROWS = 7;      // of taps; divides FILTER_HEIGHT

layout(set = 0, binding = 0) readonly buffer Input { uint input_words[]; };
layout(set = 0, binding = 1) readonly buffer Filter { uint filter_words[]; };
layout(set = 0, binding = 1) readonly buffer FilterPairs { uvec2 filter_pairs[]; };
layout(set = 0, binding = 2) readonly buffer Table { uint table[]; };
layout(set = 0, binding = 3) buffer Output { uint output_words[]; };

layout(push_constant) uniform PushConstants {
    uint input_start;   // bytes, of the first image's first pixel
    uint filter_start;  // pairs of words
    uint table_start;   // words
    uint output_start;  // bytes
    uint panels;
    uint channels;      // output channels, from the first panel's first on
    uint rows;
    uint columns;
    uint tiles;         // of a workgroup, below each other
    uint panel_stride;  // pairs of words from one panel of the filter to the next
    uint first_row;     // the input's row under the first pixel's first tap; may be negative
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

#include "quantized_arithmetic.glsl"
#include "quantized_parameters.glsl"
#include "quantized_store.glsl"
#include "quantized_estimate.glsl"

const uint PHASES = STRIDE_W % 4 == 0 ? 1 : STRIDE_W % 2 == 0 ? 2 : 4;
const uint UNIT = MATRIX_M * PHASES;                                           // outputs side by side
const uint ROW_BYTES = (4 * FILTER_WIDTH + MATRIX_K - 1) / MATRIX_K * MATRIX_K;
// From here on in pairs of words.
const uint ROW = ROW_BYTES / 8;
const uint SLICE = MATRIX_K / 8;
const uint STEP = STRIDE_W * PHASES / 2;                                       // from one pixel of a copy to the next
const uint COPY = ((TILE_UNITS * MATRIX_M - 1) * STEP + ROW + 1) / 2 * 2;
const uint STAGED_ROWS = (TILE_ROWS - 1) * STRIDE_H + FILTER_HEIGHT;
const uint FILTER_PITCH = (ROW + 1) / 2 * 2 + 2 * FILTER_PADDING;
const uint MATRIX_COLUMNS = TILE_CHANNELS / MATRIX_N;

// Strips: lines are pixels of STRIP_CHANNELS channels, or channels of UNIT pixels; a vector lies between lines.
const uint STRIP_LINES = STORE_CHANNELS != 0 ? MATRIX_M : MATRIX_N;
const uint STRIP_QUADS = (STORE_CHANNELS != 0 ? STRIP_CHANNELS : UNIT) / 4;
const uint STRIP_PITCH = 2 * STRIP_QUADS + 2;
const uint STRIP_COLUMNS = STRIP_CHANNELS / MATRIX_N;

shared uvec2 staged[STAGED_ROWS * PHASES * COPY];
shared uvec2 staged_filter[FILTER_HEIGHT * TILE_CHANNELS * FILTER_PITCH];
shared uvec2 strips[SUBGROUPS * STRIP_LINES * STRIP_PITCH];
shared int input_sums[SUBGROUPS * UNIT];
shared uvec4 channel_parameters[TILE_CHANNELS];
shared int filter_zero_points[TILE_CHANNELS];
// .x; a whole vector, so that whatever order these have, each begins at a multiple of 16 bytes.
shared uvec4 has_filter_zero_point;

// The four bytes of a pixel.
uint pixel_at(uint plane, uint row, uint column, uint border) {
    if (row >= push.row_limit || column >= push.column_limit)
        return border;
    uint address = plane + row * push.input_stride_h + column * push.input_stride_w;
    uint bytes = 0;
    [[unroll]] for (uint c = 0; c < INPUT_CHANNELS; ++c) {
        bytes |= (((input_words[address >> 2] >> (8 * (address & 3))) & 0xFF) ^ FLIP) << (8 * c);
        address += push.input_stride_c;
    }
    return bytes;
}

void stage_input(uint plane, uint first_row, uint first_column, uint border) {
    if (STRIDE_W % 2 == 0) {
        // Copies are whole pairs apart: a pair belongs to all of them.
        const uint PAIRS = COPY + (PHASES - 1) * STRIDE_W / 2;
        for (uint i = gl_LocalInvocationID.x; i < STAGED_ROWS * PAIRS; i += SUBGROUPS * LANES) {
            uint row = i / PAIRS;
            uint pair = i - row * PAIRS;
            uint column = first_column + 2 * pair;
            uvec2 pixels = uvec2(pixel_at(plane, first_row + row, column, border),
                pixel_at(plane, first_row + row, column + 1, border));
            [[unroll]] for (uint q = 0; q < PHASES; ++q) {
                uint place = pair - q * STRIDE_W / 2;
                if (place < COPY)
                    staged[(row * PHASES + q) * COPY + place] = pixels;
            }
        }
    } else {
        for (uint i = gl_LocalInvocationID.x; i < STAGED_ROWS * PHASES * COPY; i += SUBGROUPS * LANES) {
            uint line = i / COPY;
            uint row = line / PHASES;
            uint column = first_column + (line - row * PHASES) * STRIDE_W + 2 * (i - line * COPY);
            staged[i] = uvec2(pixel_at(plane, first_row + row, column, border),
                pixel_at(plane, first_row + row, column + 1, border));
        }
    }
}

// sum(x') under a unit's pixels; bytes that stand for no channel are 0.
void add_up_input(uint row, uint unit, uint sums_start) {
    for (uint pixel = gl_SubgroupInvocationID; pixel < UNIT; pixel += LANES) {
        uint q = pixel % PHASES;
        int sum = 0;
        for (uint k = 0; k < FILTER_HEIGHT; ++k) {
            uint line = ((row * STRIDE_H + k) * PHASES + q) * COPY + (unit * MATRIX_M + pixel / PHASES) * STEP;
            for (uint s = 0; s < FILTER_WIDTH; ++s) {
                uvec2 pixels = staged[line + s / 2];
                sum += dotPacked4x8EXT(int((s & 1) != 0 ? pixels.y : pixels.x), 0x01010101);
            }
        }
        input_sums[sums_start + pixel] = sum;
    }
}

int whole_sum(int products, uint channel, int input_sum) {
    int sum = products + int(channel_parameters[channel].y);
    return FILTER_ZERO_POINT != 0 ? sum - filter_zero_points[channel] * input_sum : sum;
}

void main() {
    uint invocation = gl_LocalInvocationID.x;
    uint image = gl_WorkGroupID.z / push.panels;
    uint panel = gl_WorkGroupID.z - image * push.panels;
    uint first_channel = panel * TILE_CHANNELS;
    uint filter_start = push.filter_start + panel * push.panel_stride;
    uint first_column = gl_WorkGroupID.x * TILE_UNITS * UNIT;
    uint plane = push.input_start + image * push.input_stride_n;
    uint border = 0;
    [[unroll]] for (uint c = 0; c < INPUT_CHANNELS; ++c)
        border |= (table[push.table_start + PARAMETER_INPUT_ZERO_POINT] & 0xFF) << (8 * c);

    for (uint i = invocation; i < FILTER_HEIGHT * TILE_CHANNELS * ROW; i += SUBGROUPS * LANES) {
        uint line = i / ROW;
        staged_filter[line * FILTER_PITCH + i - line * ROW] = filter_pairs[filter_start + i];
    }
    if (invocation == 0)
        has_filter_zero_point.x = 0;
    barrier();
    for (uint i = invocation; i < TILE_CHANNELS; i += SUBGROUPS * LANES) {
        uint channel = min(first_channel + i, push.channels - 1);
        uint record = push.table_start + channel * PARAMETER_WORDS;
        uint taps = INPUT_CHANNELS * FILTER_HEIGHT * FILTER_WIDTH;
        int filter_zero_point = int(table[record + PARAMETER_FILTER_ZERO_POINT]);
        int filter_sum =
            int(filter_words[2 * (filter_start + FILTER_HEIGHT * TILE_CHANNELS * ROW) + channel - first_channel]);
        Wide constant = add(
            widened(int(table[record + PARAMETER_BIAS])),
            product(int(table[record + PARAMETER_INPUT_ZERO_POINT]), int(taps) * filter_zero_point - filter_sum));
        channel_parameters[i] = estimate_parameters(record, constant, taps);
        filter_zero_points[i] = filter_zero_point;
        if (FILTER_ZERO_POINT != 0 && filter_zero_point != 0)
            atomicOr(has_filter_zero_point.x, 1);
    }
    for (uint i = invocation; i < SUBGROUPS * UNIT; i += SUBGROUPS * LANES)
        input_sums[i] = 0;

    Range range = range_of(int(table[push.table_start + PARAMETER_OUTPUT_ZERO_POINT]));
    uint strip = gl_SubgroupID * STRIP_LINES * STRIP_PITCH;
    uint sums_start = gl_SubgroupID * UNIT;
    uint quad = gl_SubgroupInvocationID % STRIP_QUADS;
    uint first_line = gl_SubgroupInvocationID / STRIP_QUADS;

    [[dont_unroll]] for (uint t = 0; t < push.tiles; ++t) {
        uint first_row = (gl_WorkGroupID.y * push.tiles + t) * TILE_ROWS;
        if (first_row >= push.rows)
            break;
        // Nobody reads the tile before any more.
        barrier();
        stage_input(plane, push.first_row + first_row * STRIDE_H, push.first_column + first_column * STRIDE_W, border);
        barrier();

        // All subgroups go through the same barriers, also where there is nothing to store.
        [[dont_unroll]] for (uint i = 0; i < TILE_ROWS * TILE_UNITS / SUBGROUPS; ++i) {
            uint own = i * SUBGROUPS + gl_SubgroupID;
            uint tile_row = own / TILE_UNITS;
            uint unit = own - tile_row * TILE_UNITS;
            uint row = first_row + tile_row;
            uint unit_column = first_column + unit * UNIT;
            coopmat<int, gl_ScopeSubgroup, MATRIX_M, MATRIX_N, gl_MatrixUseAccumulator> sums[PHASES * MATRIX_COLUMNS];
            [[unroll]] for (uint i = 0; i < PHASES * MATRIX_COLUMNS; ++i)
                sums[i] = coopmat<int, gl_ScopeSubgroup, MATRIX_M, MATRIX_N, gl_MatrixUseAccumulator>(0);
            uint source = tile_row * STRIDE_H * PHASES * COPY + unit * MATRIX_M * STEP;
            [[dont_unroll]] for (uint first_k = 0; first_k < FILTER_HEIGHT; first_k += UNROLLED_ROWS) {
                [[unroll]] for (uint i = 0; i < UNROLLED_ROWS * ROW / SLICE; ++i) {
                    uint k = first_k + i / (ROW / SLICE);
                    uint slice = i % (ROW / SLICE);
                    coopmat<int8_t, gl_ScopeSubgroup, MATRIX_M, MATRIX_K, gl_MatrixUseA> pixels[PHASES];
                    [[unroll]] for (uint q = 0; q < PHASES; ++q)
                        coopMatLoad(pixels[q], staged, source + (k * PHASES + q) * COPY + slice * SLICE, STEP,
                            gl_CooperativeMatrixLayoutRowMajor);
                    [[unroll]] for (uint j = 0; j < MATRIX_COLUMNS; ++j) {
                        coopmat<int8_t, gl_ScopeSubgroup, MATRIX_K, MATRIX_N, gl_MatrixUseB> channels;
                        coopMatLoad(channels, staged_filter,
                            (k * TILE_CHANNELS + j * MATRIX_N) * FILTER_PITCH + slice * SLICE, FILTER_PITCH,
                            gl_CooperativeMatrixLayoutColumnMajor);
                        [[unroll]] for (uint q = 0; q < PHASES; ++q)
                            sums[q * MATRIX_COLUMNS + j] =
                                coopMatMulAdd(pixels[q], channels, sums[q * MATRIX_COLUMNS + j]);
                    }
                }
            }
            if (FILTER_ZERO_POINT != 0 && has_filter_zero_point.x != 0)
                add_up_input(tile_row, unit, sums_start);

            uint line_start = push.output_start + image * push.output_stride_n + first_channel * push.output_stride_c
                + row * push.output_stride_h + unit_column * push.output_stride_w;
            if (STORE_CHANNELS != 0) {
                [[unroll]] for (uint part = 0; part < TILE_CHANNELS / STRIP_CHANNELS; ++part) {
                    uint own_channel = part * STRIP_CHANNELS + 4 * quad;
                    uint channel = first_channel + own_channel;
                    uvec4 parameters[4];
                    uint exact = 0;
                    [[unroll]] for (uint b = 0; b < 4; ++b) {
                        parameters[b] = channel_parameters[own_channel + b];
                        exact |= parameters[b].w;
                    }
                    [[unroll]] for (uint q = 0; q < PHASES; ++q) {
                        subgroupBarrier();
                        [[unroll]] for (uint j = 0; j < STRIP_COLUMNS; ++j)
                            coopMatStore(sums[q * MATRIX_COLUMNS + part * STRIP_COLUMNS + j], strips,
                                strip + j * MATRIX_N / 2, STRIP_PITCH, gl_CooperativeMatrixLayoutRowMajor);
                        subgroupBarrier();
                        [[dont_unroll]] for (uint line = first_line; line < MATRIX_M; line += LANES / STRIP_QUADS) {
                            uint pixel = line * PHASES + q;
                            uint place = strip + line * STRIP_PITCH + 2 * quad;
                            ivec4 products = ivec4(strips[place], strips[place + 1]);
                            int input_sum = FILTER_ZERO_POINT != 0 ? input_sums[sums_start + pixel] : 0;
                            uint bytes = 0;
                            float distance_to_integer = 0.0;
                            [[unroll]] for (uint b = 0; b < 4; ++b) {
                                int sum = products[b] + int(parameters[b].y);
                                if (FILTER_ZERO_POINT != 0)
                                    sum -= filter_zero_points[own_channel + b] * input_sum;
                                bytes |= estimate(sum, uintBitsToFloat(parameters[b].x), range, distance_to_integer)
                                    << (8 * b);
                            }
                            if (exact != 0 || distance_to_integer > CERTAIN) {
                                bytes = 0;
                                [[dont_unroll]] for (uint b = 0; b < 4; ++b) {
                                    uint record =
                                        push.table_start + min(channel + b, push.channels - 1) * PARAMETER_WORDS;
                                    bytes |= exact_byte(whole_sum(products[b], own_channel + b, input_sum),
                                        channel_parameters[own_channel + b], record) << (8 * b);
                                }
                            }
                            uint address =
                                line_start + pixel * push.output_stride_w + own_channel * push.output_stride_c;
                            if (row < push.rows && unit_column + pixel < push.columns && channel < push.channels) {
                                if (WHOLE_WORDS != 0)
                                    output_words[address >> 2] = bytes;
                                else
                                    store_four(bytes, address + uvec4(0, 1, 2, 3) * push.output_stride_c,
                                        lessThan(channel + uvec4(0, 1, 2, 3), uvec4(push.channels)));
                            }
                        }
                    }
                }
            } else {
                [[unroll]] for (uint j = 0; j < MATRIX_COLUMNS; ++j) {
                    subgroupBarrier();
                    // A channel's line: the pixels of copy 0, of copy 1, ...
                    [[unroll]] for (uint q = 0; q < PHASES; ++q)
                        coopMatStore(sums[q * MATRIX_COLUMNS + j], strips, strip + q * MATRIX_M / 2, STRIP_PITCH,
                            gl_CooperativeMatrixLayoutColumnMajor);
                    subgroupBarrier();
                    uint column = unit_column + 4 * quad;
                    [[dont_unroll]] for (uint line = first_line; line < MATRIX_N; line += LANES / STRIP_QUADS) {
                        uint own_channel = j * MATRIX_N + line;
                        uint channel = first_channel + own_channel;
                        uvec4 parameters = channel_parameters[own_channel];
                        ivec4 products;
                        ivec4 own_input_sums;
                        [[unroll]] for (uint b = 0; b < 4; ++b) {
                            uint pixel = 4 * quad + b;
                            uint place = pixel % PHASES * MATRIX_M + pixel / PHASES;
                            uvec2 two = strips[strip + line * STRIP_PITCH + place / 2];
                            products[b] = int((place & 1) != 0 ? two.y : two.x);
                            own_input_sums[b] = FILTER_ZERO_POINT != 0 ? input_sums[sums_start + pixel] : 0;
                        }
                        uint bytes = 0;
                        float distance_to_integer = 0.0;
                        ivec4 sum = products + int(parameters.y);
                        if (FILTER_ZERO_POINT != 0)
                            sum -= filter_zero_points[own_channel] * own_input_sums;
                        [[unroll]] for (uint b = 0; b < 4; ++b)
                            bytes |= estimate(sum[b], uintBitsToFloat(parameters.x), range, distance_to_integer)
                                << (8 * b);
                        if (parameters.w != 0 || distance_to_integer > CERTAIN) {
                            bytes = 0;
                            uint record = push.table_start + min(channel, push.channels - 1) * PARAMETER_WORDS;
                            [[dont_unroll]] for (uint b = 0; b < 4; ++b)
                                bytes |= exact_byte(sum[b], parameters, record) << (8 * b);
                        }
                        uint address = line_start + 4 * quad * push.output_stride_w
                            + own_channel * push.output_stride_c;
                        if (row < push.rows && channel < push.channels && column < push.columns) {
                            if (WHOLE_WORDS != 0)
                                output_words[address >> 2] = bytes;
                            else
                                store_four(bytes, address + uvec4(0, 1, 2, 3) * push.output_stride_w,
                                    lessThan(column + uvec4(0, 1, 2, 3), uvec4(push.columns)));
                        }
                    }
                }
            }
            subgroupBarrier();
        }
    }
}
