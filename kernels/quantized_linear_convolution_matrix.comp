#version 450

// QUANTIZED_LINEAR_CONVOLUTION, the product: on matrix units, through VK_KHR_cooperative_matrix.
//
// Maths and memory: include/quantized_matrix.glsl.
//
//     for each step of K:
//         each invocation fetches its share of the next step of both operands into registers
//         each subgroup, for each K of a matrix:
//             loads a column of input matrices and a row of filter matrices from shared memory, multiplies all pairs
//         store the fetched vectors to the other half of shared memory; one barrier
//     strip by strip: the sums through shared memory to whoever writes them, the last step, whole words
//
// Layout: both operands lie in shared memory as rows of K, a row per pixel or channel, which is what matrix units load
// fastest (A by rows, B by columns); a vector of padding between rows keeps eight of them in different banks. Rows are
// 16-byte vectors for the stores' sake. What an invocation fetches keeps its place in the step, so that the pixels'
// addresses are worked out once. Channel tiles run fastest, so that workgroups that share pixels run at the same time.
//
// sum(x') is added up by the fetching invocations, 4 dot products a vector, and only where a filter zero point of the
// tile is not 0. How matrices lie in registers is nobody's business but the driver's: sums pass through shared memory.
//
// Preconditions: filter panels TILE_CHANNELS wide; INVOCATIONS invocations in whole subgroups of LANES; the tile sizes
// divide by the subgroups' and these by the matrices'; a subgroup's quads of channels (or pixels) divide LANES. Grid: x
// channels, y pixels, z groups. No invocation leaves before the last barrier.
//
// Compiler bugs avoided: strides, offsets and loop bounds of matrix instructions are specialization constants (Samsung's
// miscompiles them from buffers), no optimizer has run (spirv-opt breaks matrix kernels).

#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_integer_dot_product : require
#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#pragma use_vulkan_memory_model

#include "quantized_matrix.glsl"

void put(uint place, uint vector, uvec4 value) {
    if (SLICES == 1) {
        tile[place + vector] = value;
    } else {
        tile[place + 2 * vector] = uvec4(value.xy, 0, 0);
        tile[place + 2 * vector + 1] = uvec4(value.zw, 0, 0);
    }
}

void main() {
    uint invocation = gl_LocalInvocationID.x;
    uint group = gl_WorkGroupID.z;
    uint first_pixel = gl_WorkGroupID.y * TILE_PIXELS;
    uint panel = push.filter_start + (group * push.panels_of_group + gl_WorkGroupID.x) * push.panel_stride;
    uint steps = (push.vectors + STEP - 1) / STEP;
    uint subgroup_pixel = gl_SubgroupID % (TILE_PIXELS / SUBGROUP_PIXELS) * SUBGROUP_PIXELS;
    uint subgroup_channel = gl_SubgroupID / (TILE_PIXELS / SUBGROUP_PIXELS) * SUBGROUP_CHANNELS;
    // Channels are counted from the tile's first, records and sums from the first of the group.
    uint first_channel = gl_WorkGroupID.x * TILE_CHANNELS;
    uint first_record = push.table_start + group * push.channels_of_group * PARAMETER_WORDS;
    uint filter_sums = 4 * (panel + steps * STEP * TILE_CHANNELS);

    uint own_vector = invocation % STEP;
    uint own_row = invocation / STEP;
    uint sources[INPUT_FETCHES];
    uint source_rows[INPUT_FETCHES];
    uint source_columns[INPUT_FETCHES];
    [[unroll]] for (uint f = 0; f < INPUT_FETCHES; ++f) {
        Pixel pixel = pixel_at(min(first_pixel + own_row + f * STEPPED_ROWS, push.pixels - 1));
        sources[f] = push.input_start + group * push.input_stride_group + pixel.image * push.input_stride_n
            + pixel.row * push.input_stride_h + pixel.column * push.input_stride_w;
        source_rows[f] = push.first_row + pixel.row * STRIDE_H;
        source_columns[f] = push.first_column + pixel.column * STRIDE_W;
    }
    if (invocation == 0)
        has_filter_zero_point = 0;
    barrier();

    for (uint i = invocation; i < TILE_CHANNELS; i += INVOCATIONS) {
        uint channel = min(first_channel + i, push.channels - 1);
        uint record = first_record + channel * PARAMETER_WORDS;
        uvec4 parameters = estimate_parameters(record, int(filter_words[filter_sums + channel - first_channel]));
        channel_parameters[i] = parameters;
        if (FILTER_ZERO_POINT != 0 && parameters.z != 0)
            atomicOr(has_filter_zero_point, 1);
    }
    for (uint i = invocation; i < TILE_PIXELS; i += INVOCATIONS) {
        Pixel pixel = pixel_at(min(first_pixel + i, push.pixels - 1));
        destinations[i] = push.output_start + group * push.channels_of_group * push.output_stride_c
            + pixel.image * push.output_stride_n + pixel.row * push.output_stride_h
            + pixel.column * push.output_stride_w;
        input_sums[i] = 0;
    }
    uint border = 0;
    if (CHECK_BORDER != 0)
        border = (table[push.table_start + PARAMETER_INPUT_ZERO_POINT] & 0xFF) * ONES;

    coopmat<int, gl_ScopeSubgroup, MATRIX_M, MATRIX_N, gl_MatrixUseAccumulator> sums[MATRIX_ROWS * MATRIX_COLUMNS];
    [[unroll]] for (uint i = 0; i < MATRIX_ROWS * MATRIX_COLUMNS; ++i)
        sums[i] = coopmat<int, gl_ScopeSubgroup, MATRIX_M, MATRIX_N, gl_MatrixUseAccumulator>(0);
    int own_sums[INPUT_FETCHES];
    uvec4 next_input[INPUT_FETCHES];
    uvec4 next_filter[FILTER_FETCHES];
    [[unroll]] for (uint f = 0; f < INPUT_FETCHES; ++f)
        own_sums[f] = 0;

    [[dont_unroll]] for (uint step = 0; step <= steps; ++step) {
        if (step < steps) {
            uint vector = step * STEP + own_vector;
            uint run = vector / RUN;
            uint tap_row = run / RUNS_W;
            uint tap_column = run - tap_row * RUNS_W;
            uint in_run = vector - run * RUN;
            uint offset = tap_row * push.tap_stride_h + tap_column * push.tap_stride_w
                + in_run * (VECTORS != 0 ? 1 : 4);
            [[unroll]] for (uint f = 0; f < INPUT_FETCHES; ++f) {
                bool inside = vector < push.vectors;
                next_input[f] = uvec4(0);
                if (CHECK_BORDER != 0) {
                    if (inside)
                        next_input[f] = uvec4(border);
                    inside = inside && source_rows[f] + tap_row * DILATION_H < push.row_limit
                        && source_columns[f] + tap_column * DILATION_W < push.column_limit;
                }
                if (inside) {
                    uint source = sources[f] + offset;
                    if (VECTORS != 0) {
                        next_input[f] = input_vectors[source] ^ FLIP;
                    } else {
                        next_input[f] = uvec4(input_words[source], input_words[source + 1], input_words[source + 2],
                            input_words[source + 3]);
                        // What follows a run in memory meets zeros of the filter, but it must not count in sum(x').
                        if (RUN_WORDS % 4 != 0)
                            next_input[f] = mix(uvec4(0), next_input[f],
                                lessThan(4 * in_run + uvec4(0, 1, 2, 3), uvec4(RUN_WORDS)));
                    }
                }
            }
            [[unroll]] for (uint f = 0; f < FILTER_FETCHES; ++f)
                next_filter[f] =
                    filter_vectors[panel + step * STEP * TILE_CHANNELS + invocation + f * INVOCATIONS];
        }
        if (step > 0) {
            uint half_tile = ((step - 1) & 1) * HALF_TILE;
            [[unroll]] for (uint k = 0; k < STEP_SLICES; ++k) {
                coopmat<int8_t, gl_ScopeSubgroup, MATRIX_M, MATRIX_K, gl_MatrixUseA> pixels[MATRIX_ROWS];
                [[unroll]] for (uint i = 0; i < MATRIX_ROWS; ++i)
                    coopMatLoad(pixels[i], tile,
                        half_tile + (subgroup_pixel + i * MATRIX_M) * ROW + k * SLICE_VECTORS, ROW,
                        gl_CooperativeMatrixLayoutRowMajor);
                [[unroll]] for (uint j = 0; j < MATRIX_COLUMNS; ++j) {
                    coopmat<int8_t, gl_ScopeSubgroup, MATRIX_K, MATRIX_N, gl_MatrixUseB> channels;
                    coopMatLoad(channels, tile,
                        half_tile + (TILE_PIXELS + subgroup_channel + j * MATRIX_N) * ROW + k * SLICE_VECTORS, ROW,
                        gl_CooperativeMatrixLayoutColumnMajor);
                    [[unroll]] for (uint i = 0; i < MATRIX_ROWS; ++i)
                        sums[i * MATRIX_COLUMNS + j] =
                            coopMatMulAdd(pixels[i], channels, sums[i * MATRIX_COLUMNS + j]);
                }
            }
        }
        if (step < steps) {
            uint half_tile = (step & 1) * HALF_TILE;
            [[unroll]] for (uint f = 0; f < INPUT_FETCHES; ++f)
                put(half_tile + (own_row + f * STEPPED_ROWS) * ROW, own_vector, next_input[f]);
            [[unroll]] for (uint f = 0; f < FILTER_FETCHES; ++f)
                put(half_tile + (TILE_PIXELS + own_row + f * STEPPED_ROWS) * ROW, own_vector, next_filter[f]);
            // Whether anybody wants the sums is known after the first barrier.
            if (FILTER_ZERO_POINT != 0 && (step == 0 || has_filter_zero_point != 0)) {
                [[unroll]] for (uint f = 0; f < INPUT_FETCHES; ++f)
                    [[unroll]] for (uint i = 0; i < 4; ++i)
                        own_sums[f] += dotPacked4x8EXT(int(next_input[f][i]), int(ONES));
            }
        }
        barrier();
    }

    if (FILTER_ZERO_POINT != 0 && has_filter_zero_point != 0) {
        [[unroll]] for (uint f = 0; f < INPUT_FETCHES; ++f)
            atomicAdd(input_sums[own_row + f * STEPPED_ROWS], own_sums[f]);
        barrier();
    }

    uint strip = gl_SubgroupID * STRIP_LINES * STRIP_ROW;
    uint quad = gl_SubgroupInvocationID % STRIP_QUADS;
    uint first_line = gl_SubgroupInvocationID / STRIP_QUADS;
    Range range = range_of(int(table[push.table_start + PARAMETER_OUTPUT_ZERO_POINT]));
    if (STORE_CHANNELS != 0) {
        uint own_channel = subgroup_channel + 4 * quad;
        uvec4 parameters[4];
        bvec4 valid;
        uint exact = 0;
        [[unroll]] for (uint i = 0; i < 4; ++i) {
            uint channel = first_channel + own_channel + i;
            parameters[i] = channel_parameters[own_channel + i];
            valid[i] = channel >= push.first_channel && channel < push.channels;
            exact |= parameters[i].w;
        }
        [[unroll]] for (uint row = 0; row < MATRIX_ROWS; ++row) {
            [[unroll]] for (uint j = 0; j < MATRIX_COLUMNS; ++j)
                coopMatStore(sums[row * MATRIX_COLUMNS + j], tile, strip + j * (MATRIX_N / 4), STRIP_ROW,
                    gl_CooperativeMatrixLayoutRowMajor);
            subgroupBarrier();
            [[dont_unroll]] for (uint line = first_line; line < MATRIX_M; line += LANES / STRIP_QUADS) {
                ivec4 products = ivec4(tile[strip + line * STRIP_ROW + quad]);
                uint pixel = subgroup_pixel + row * MATRIX_M + line;
                int input_sum = input_sums[pixel];
                uint bytes = 0;
                float distance_to_integer = 0.0;
                [[unroll]] for (uint i = 0; i < 4; ++i) {
                    int accumulator = products[i] + int(parameters[i].y);
                    if (FILTER_ZERO_POINT != 0)
                        accumulator -= int(parameters[i].z) * input_sum;
                    bytes |= estimate(accumulator, uintBitsToFloat(parameters[i].x), range, distance_to_integer)
                        << (8 * i);
                }
                if (exact != 0 || distance_to_integer > CERTAIN) {
                    bytes = 0;
                    [[dont_unroll]] for (uint i = 0; i < 4; ++i) {
                        uint channel = min(first_channel + own_channel + i, push.channels - 1);
                        bytes |= exact_byte(products[i], input_sum, first_record + channel * PARAMETER_WORDS,
                            int(filter_words[filter_sums + channel - first_channel])) << (8 * i);
                    }
                }
                if (first_pixel + pixel < push.pixels)
                    store_four(bytes, destinations[pixel]
                        + (first_channel + own_channel + uvec4(0, 1, 2, 3)) * push.output_stride_c, valid);
            }
            subgroupBarrier();
        }
    } else {
        uint own_pixel = subgroup_pixel + 4 * quad;
        uvec4 address;
        bvec4 valid;
        ivec4 own_input_sums;
        [[unroll]] for (uint i = 0; i < 4; ++i) {
            address[i] = destinations[own_pixel + i];
            own_input_sums[i] = input_sums[own_pixel + i];
            valid[i] = first_pixel + own_pixel + i < push.pixels;
        }
        [[unroll]] for (uint column = 0; column < MATRIX_COLUMNS; ++column) {
            [[unroll]] for (uint i = 0; i < MATRIX_ROWS; ++i)
                coopMatStore(sums[i * MATRIX_COLUMNS + column], tile, strip + i * (MATRIX_M / 4), STRIP_ROW,
                    gl_CooperativeMatrixLayoutColumnMajor);
            subgroupBarrier();
            [[dont_unroll]] for (uint line = first_line; line < MATRIX_N; line += LANES / STRIP_QUADS) {
                ivec4 products = ivec4(tile[strip + line * STRIP_ROW + quad]);
                uint own_channel = subgroup_channel + column * MATRIX_N + line;
                uvec4 parameters = channel_parameters[own_channel];
                uint channel = first_channel + own_channel;
                uint bytes = 0;
                float distance_to_integer = 0.0;
                ivec4 accumulators = products + int(parameters.y);
                if (FILTER_ZERO_POINT != 0)
                    accumulators -= int(parameters.z) * own_input_sums;
                [[unroll]] for (uint i = 0; i < 4; ++i)
                    bytes |= estimate(accumulators[i], uintBitsToFloat(parameters.x), range, distance_to_integer)
                        << (8 * i);
                if (parameters.w != 0 || distance_to_integer > CERTAIN) {
                    bytes = 0;
                    uint known = min(channel, push.channels - 1);
                    int filter_sum = int(filter_words[filter_sums + known - first_channel]);
                    [[dont_unroll]] for (uint i = 0; i < 4; ++i)
                        bytes |= exact_byte(products[i], own_input_sums[i], first_record + known * PARAMETER_WORDS,
                            filter_sum) << (8 * i);
                }
                if (channel >= push.first_channel && channel < push.channels)
                    store_four(bytes, address + channel * push.output_stride_c, valid);
            }
            subgroupBarrier();
        }
    }
}
