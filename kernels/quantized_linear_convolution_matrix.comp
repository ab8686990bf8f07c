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
//     strip by strip: four matrices of sums into one of words, through shared memory to whoever writes them as vectors
//
// Layout: both operands lie in shared memory as rows of K, a row per pixel or channel, which is what matrix units load
// fastest (A by rows, B by columns); a vector of padding between rows keeps eight of them in different banks. Rows are
// 16-byte vectors for the stores' sake. What an invocation fetches keeps its place in the step, so that the pixels'
// addresses are worked out once; the order of pixels or channels that the last step wants costs nothing there. Planes
// of an NCHW input are turned 4 x 4 bytes at a time on the way. Channel tiles run fastest, so that workgroups that share
// pixels run at the same time.
//
// Sums begin with what the bias and the zero points add to a channel. sum(x') is added up in a second pass over the
// input, and only where a filter zero point of the tile is not 0: the registers it would take slow the product down. A
// tile with a channel whose sums may not fit 32 bits takes all its last steps in integers. How matrices lie in
// registers is nobody's business but the driver's: only elements with the same index are combined.
//
// Preconditions: filter panels TILE_CHANNELS wide; INVOCATIONS invocations in whole subgroups of LANES; the tile sizes
// divide by the subgroups' and these by the matrices'; along the output's words a subgroup has a multiple of four
// matrices. PLANES: one tap, no border, planes of whole words that all tiles see whole. The device rounds to nearest even
// (shaderRoundingModeRTEFloat32). Grid: x channels, y pixels, z groups. No invocation leaves before the last barrier.
//
// Compiler bugs avoided: strides, offsets and loop bounds of matrix instructions are specialization constants (Samsung's
// miscompiles them from buffers), no optimizer has run (spirv-opt breaks matrix kernels).

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

#include "quantized_matrix.glsl"

#define SUMS coopmat<int, gl_ScopeSubgroup, MATRIX_M, MATRIX_N, gl_MatrixUseAccumulator>
#define FLOATS coopmat<float, gl_ScopeSubgroup, MATRIX_M, MATRIX_N, gl_MatrixUseAccumulator>

uint border;
uint group_start;
uint own_vector;
uint own_row;
uint sources[INPUT_FETCHES];
uint source_rows[INPUT_FETCHES];
uint source_columns[INPUT_FETCHES];
uvec4 next_input[INPUT_FETCHES];

void put(uint place, uint vector, uvec4 value) {
    if (SLICES == 1) {
        tile[place + vector] = value;
    } else {
        tile[place + 2 * vector] = uvec4(value.xy, 0, 0);
        tile[place + 2 * vector + 1] = uvec4(value.zw, 0, 0);
    }
}

// Four words with four pixels each become four words with the four channels of a pixel each.
uvec4 turned(uvec4 channels) {
    uvec4 even = channels & 0x00FF00FF;
    uvec4 odd = (channels >> 8) & 0x00FF00FF;
    uvec2 pixels02 = uvec2(even.x | even.y << 8, even.z | even.w << 8);
    uvec2 pixels13 = uvec2(odd.x | odd.y << 8, odd.z | odd.w << 8);
    return uvec4(
        (pixels02.x & 0xFFFF) | pixels02.y << 16, (pixels13.x & 0xFFFF) | pixels13.y << 16,
        pixels02.x >> 16 | (pixels02.y & 0xFFFF0000), pixels13.x >> 16 | (pixels13.y & 0xFFFF0000));
}

// Which four pixels of the tile, and which vector of the step, an invocation fetches from planes at its f-th turn.
uint plane_quad(uint f) {
    return (gl_LocalInvocationID.x + f * INVOCATIONS) % (TILE_PIXELS / 4);
}

uint plane_vector(uint f) {
    return (gl_LocalInvocationID.x + f * INVOCATIONS) / (TILE_PIXELS / 4);
}

// The position and the vector of the step of what next_input holds.
uint position_of_fetch(uint f) {
    if (FETCH != PLANES)
        return own_row + f * STEPPED_ROWS;
    uint place = 4 * plane_quad(f / 4) + f % 4;
    return STORE_CHANNELS != 0 ? place : position_of(place, MATRIX_M);
}

uint vector_of_fetch(uint f) {
    return FETCH != PLANES ? own_vector : plane_vector(f / 4);
}

void locate(uint first_pixel) {
    if (FETCH == PLANES) {
        [[unroll]] for (uint f = 0; f < INPUT_FETCHES / 4; ++f) {
            Pixel pixel = pixel_at(min(first_pixel + 4 * plane_quad(f), push.pixels - 4));
            sources[f] = group_start + pixel.image * push.input_stride_n
                + (pixel.row * push.columns + pixel.column) / 4 + 16 * plane_vector(f) * push.tap_stride_h;
        }
        return;
    }
    [[unroll]] for (uint f = 0; f < INPUT_FETCHES; ++f) {
        uint place = pixel_place(own_row + f * STEPPED_ROWS);
        Pixel pixel = pixel_at(min(first_pixel + place, push.pixels - 1));
        sources[f] = group_start + pixel.image * push.input_stride_n + pixel.row * push.input_stride_h
            + pixel.column * push.input_stride_w;
        source_rows[f] = push.first_row + pixel.row * STRIDE_H;
        source_columns[f] = push.first_column + pixel.column * STRIDE_W;
    }
}

void fetch_input(uint step) {
    const bool WHOLE = RUN_VECTORS % STEP == 0;
    if (FETCH == PLANES) {
        [[unroll]] for (uint f = 0; f < INPUT_FETCHES / 4; ++f) {
            uint source = sources[f] + 16 * STEP * step * push.tap_stride_h;
            uvec4 pixels[4];
            [[unroll]] for (uint i = 0; i < 4; ++i)
                pixels[i] = uvec4(0);
            if (WHOLE || step * STEP + plane_vector(f) < RUN_VECTORS) {
                [[unroll]] for (uint i = 0; i < 4; ++i) {
                    uvec4 words;
                    [[unroll]] for (uint j = 0; j < 4; ++j)
                        words[j] = input_words[source + (4 * i + j) * push.tap_stride_h];
                    words = turned(words) ^ FLIP;
                    [[unroll]] for (uint j = 0; j < 4; ++j)
                        pixels[j][i] = words[j];
                }
            }
            [[unroll]] for (uint i = 0; i < 4; ++i)
                next_input[4 * f + i] = pixels[i];
        }
        return;
    }
    uint vector = step * STEP + own_vector;
    uint run = vector / RUN;
    uint tap_row = run / RUNS_W;
    uint tap_column = run - tap_row * RUNS_W;
    uint in_run = vector - run * RUN;
    uint offset = tap_row * push.tap_stride_h + tap_column * push.tap_stride_w + in_run * (FETCH == VECTORS ? 1 : 4);
    [[unroll]] for (uint f = 0; f < INPUT_FETCHES; ++f) {
        bool inside = WHOLE || vector < RUN_VECTORS;
        next_input[f] = uvec4(0);
        if (CHECK_BORDER != 0) {
            if (inside)
                next_input[f] = uvec4(border);
            inside = inside && source_rows[f] + tap_row * DILATION_H < push.row_limit
                && source_columns[f] + tap_column * DILATION_W < push.column_limit;
        }
        if (inside) {
            uint source = sources[f] + offset;
            if (FETCH == VECTORS) {
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
}

// Sixteen bytes at neighbouring places of a line: channels of a pixel, or pixels of a channel.
void store_line(uvec4 words, uint first_pixel, uint pixel, uint first_channel, uint channel) {
    if (STORE_CHANNELS != 0) {
        if (first_pixel + pixel >= push.pixels)
            return;
        uint first = first_channel + channel;
        uint destination = destinations[pixel];
        if (STORE_VECTORS != 0 && first >= push.first_channel && first + 16 <= push.channels) {
            output_vectors[(destination + first) / 16] = words;
            return;
        }
        [[dont_unroll]] for (uint i = 0; i < 4; ++i) {
            uvec4 channels = first + 4 * i + uvec4(0, 1, 2, 3);
            bvec4 valid;
            [[unroll]] for (uint j = 0; j < 4; ++j)
                valid[j] = channels[j] >= push.first_channel && channels[j] < push.channels;
            store_four(words[i], destination + channels * push.output_stride_c, valid);
        }
    } else {
        channel += first_channel;
        if (channel < push.first_channel || channel >= push.channels)
            return;
        uint start = channel * push.output_stride_c;
        if (STORE_VECTORS != 0 && first_pixel + pixel + 16 <= push.pixels) {
            output_vectors[(start + destinations[pixel]) / 16] = words;
            return;
        }
        [[dont_unroll]] for (uint i = 0; i < 4; ++i) {
            uvec4 address;
            bvec4 valid;
            [[unroll]] for (uint j = 0; j < 4; ++j) {
                address[j] = start + destinations[pixel + 4 * i + j];
                valid[j] = first_pixel + pixel + 4 * i + j < push.pixels;
            }
            store_four(words[i], address, valid);
        }
    }
}

void main() {
    uint invocation = gl_LocalInvocationID.x;
    uint group = gl_WorkGroupID.z;
    uint first_pixel = gl_WorkGroupID.y * TILE_PIXELS;
    uint panel = push.filter_start + (group * push.panels_of_group + gl_WorkGroupID.x) * push.panel_stride;
    uint subgroup_pixel = gl_SubgroupID % (TILE_PIXELS / SUBGROUP_PIXELS) * SUBGROUP_PIXELS;
    uint subgroup_channel = gl_SubgroupID / (TILE_PIXELS / SUBGROUP_PIXELS) * SUBGROUP_CHANNELS;
    // Channels are counted from the tile's first, records and sums from the first of the group.
    uint first_channel = gl_WorkGroupID.x * TILE_CHANNELS;
    uint first_record = push.table_start + group * push.channels_of_group * PARAMETER_WORDS;
    uint filter_sums = 4 * (panel + STEPS * STEP * TILE_CHANNELS);

    own_vector = invocation % STEP;
    own_row = invocation / STEP;
    group_start = push.input_start + group * push.input_stride_group;
    locate(first_pixel);
    if (invocation == 0) {
        has_filter_zero_point = 0;
        needs_integers = 0;
    }
    barrier();

    for (uint i = invocation; i < TILE_CHANNELS; i += INVOCATIONS) {
        uint channel = min(first_channel + channel_place(i), push.channels - 1);
        uint record = first_record + channel * PARAMETER_WORDS;
        Wide constant = exact_constant(record, int(filter_words[filter_sums + channel - first_channel]));
        multipliers[i] = multiplier_of(record);
        constants[i] = int(constant.low);
        if (!is_narrow(constant))
            atomicOr(needs_integers, 1);
        if (FILTER_ZERO_POINT != 0) {
            filter_zero_points[i] = int(table[record + PARAMETER_FILTER_ZERO_POINT]);
            if (filter_zero_points[i] != 0)
                atomicOr(has_filter_zero_point, 1);
        }
    }
    for (uint i = invocation; i < TILE_PIXELS; i += INVOCATIONS) {
        Pixel pixel = pixel_at(min(first_pixel + i, push.pixels - 1));
        destinations[i] = push.output_start + group * push.channels_of_group * push.output_stride_c
            + pixel.image * push.output_stride_n + pixel.row * push.output_stride_h
            + pixel.column * push.output_stride_w;
        input_sums[i] = 0;
    }
    border = 0;
    if (CHECK_BORDER != 0)
        border = (table[push.table_start + PARAMETER_INPUT_ZERO_POINT] & 0xFF) * ONES;
    barrier();

    SUMS sums[MATRIX_ROWS * MATRIX_COLUMNS];
    [[unroll]] for (uint j = 0; j < MATRIX_COLUMNS; ++j) {
        SUMS constant;
        coopMatLoad(constant, constants, subgroup_channel + j * MATRIX_N, 0, gl_CooperativeMatrixLayoutRowMajor);
        [[unroll]] for (uint i = 0; i < MATRIX_ROWS; ++i)
            sums[i * MATRIX_COLUMNS + j] = constant;
    }
    uvec4 next_filter[FILTER_FETCHES];
    uint filter_sources[FILTER_FETCHES];
    [[unroll]] for (uint f = 0; f < FILTER_FETCHES; ++f)
        filter_sources[f] = panel + channel_place(own_row + f * STEPPED_ROWS) * STEP + own_vector;

    [[dont_unroll]] for (uint step = 0; step <= STEPS; ++step) {
        if (step < STEPS) {
            fetch_input(step);
            [[unroll]] for (uint f = 0; f < FILTER_FETCHES; ++f)
                next_filter[f] = filter_vectors[filter_sources[f] + step * STEP * TILE_CHANNELS];
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
        if (step < STEPS) {
            uint half_tile = (step & 1) * HALF_TILE;
            [[unroll]] for (uint f = 0; f < INPUT_FETCHES; ++f)
                put(half_tile + position_of_fetch(f) * ROW, vector_of_fetch(f), next_input[f]);
            [[unroll]] for (uint f = 0; f < FILTER_FETCHES; ++f)
                put(half_tile + (TILE_PIXELS + own_row + f * STEPPED_ROWS) * ROW, own_vector, next_filter[f]);
        }
        barrier();
    }

    if (FILTER_ZERO_POINT != 0 && has_filter_zero_point != 0) {
        int own_sums[INPUT_FETCHES];
        [[unroll]] for (uint f = 0; f < INPUT_FETCHES; ++f)
            own_sums[f] = 0;
        [[dont_unroll]] for (uint step = 0; step < STEPS; ++step) {
            fetch_input(step);
            [[unroll]] for (uint f = 0; f < INPUT_FETCHES; ++f)
                [[unroll]] for (uint i = 0; i < 4; ++i)
                    own_sums[f] += dotPacked4x8EXT(int(next_input[f][i]), int(ONES));
        }
        [[unroll]] for (uint f = 0; f < INPUT_FETCHES; ++f)
            atomicAdd(input_sums[position_of_fetch(f)], own_sums[f]);
        barrier();
    }

    uint strip = gl_SubgroupID * STRIP;
    if (needs_integers != 0) {
        [[dont_unroll]] for (uint n = 0; n < MATRIX_ROWS * MATRIX_COLUMNS; ++n) {
            // Matrices cannot be indexed at run time.
            SUMS chosen = sums[0];
            [[unroll]] for (uint i = 1; i < MATRIX_ROWS * MATRIX_COLUMNS; ++i)
                if (i == n)
                    chosen = sums[i];
            coopMatStore(chosen, tile, strip, MATRIX_N / 4, gl_CooperativeMatrixLayoutRowMajor);
            subgroupBarrier();
            [[dont_unroll]] for (uint i = gl_SubgroupInvocationID; i < MATRIX_M * MATRIX_N; i += LANES) {
                uint pixel_position = subgroup_pixel + n / MATRIX_COLUMNS * MATRIX_M + i / MATRIX_N;
                uint channel_position = subgroup_channel + n % MATRIX_COLUMNS * MATRIX_N + i % MATRIX_N;
                uint pixel = pixel_place(pixel_position);
                uint channel = first_channel + channel_place(channel_position);
                if (first_pixel + pixel < push.pixels && channel >= push.first_channel && channel < push.channels) {
                    int products = int(tile[strip + i / 4][i % 4]) - constants[channel_position];
                    store_byte(destinations[pixel] + channel * push.output_stride_c,
                        exact_byte(products, input_sums[pixel_position], first_record + channel * PARAMETER_WORDS,
                            int(filter_words[filter_sums + channel - first_channel])));
                }
            }
            subgroupBarrier();
        }
        return;
    }

    if (FILTER_ZERO_POINT != 0 && has_filter_zero_point != 0) {
        [[unroll]] for (uint j = 0; j < MATRIX_COLUMNS; ++j) {
            SUMS zero_points;
            coopMatLoad(zero_points, filter_zero_points, subgroup_channel + j * MATRIX_N, 0,
                gl_CooperativeMatrixLayoutRowMajor);
            [[unroll]] for (uint i = 0; i < MATRIX_ROWS; ++i) {
                SUMS of_pixels;
                coopMatLoad(of_pixels, input_sums, subgroup_pixel + i * MATRIX_M, 0,
                    gl_CooperativeMatrixLayoutColumnMajor);
                [[unroll]] for (uint e = 0; e < of_pixels.length(); ++e)
                    sums[i * MATRIX_COLUMNS + j][e] -= zero_points[e] * of_pixels[e];
            }
        }
    }

    Range range = range_of(int(table[push.table_start + PARAMETER_OUTPUT_ZERO_POINT]));
    if (STORE_CHANNELS != 0) {
        [[unroll]] for (uint i = 0; i < MATRIX_ROWS; ++i) {
            [[unroll]] for (uint j = 0; j < MATRIX_COLUMNS; j += 4) {
                SUMS words = SUMS(0);
                [[unroll]] for (uint q = 0; q < 4; ++q) {
                    FLOATS factors;
                    coopMatLoad(factors, multipliers, subgroup_channel + (j + q) * MATRIX_N, 0,
                        gl_CooperativeMatrixLayoutRowMajor);
                    [[unroll]] for (uint e = 0; e < words.length(); ++e)
                        words[e] |=
                            int(rounded_byte(sums[i * MATRIX_COLUMNS + j + q][e], factors[e], range) << (8 * q));
                }
                coopMatStore(words, tile, strip + j / 4 * (MATRIX_N / 4), STRIP_ROW,
                    gl_CooperativeMatrixLayoutRowMajor);
            }
            subgroupBarrier();
            [[dont_unroll]] for (uint v = gl_SubgroupInvocationID; v < STRIP_LINES * STRIP_VECTORS; v += LANES) {
                uint line = v / STRIP_VECTORS;
                uint vector = v - line * STRIP_VECTORS;
                store_line(tile[strip + line * STRIP_ROW + vector], first_pixel,
                    subgroup_pixel + i * MATRIX_M + line, first_channel, subgroup_channel + 16 * vector);
            }
            subgroupBarrier();
        }
    } else {
        [[unroll]] for (uint j = 0; j < MATRIX_COLUMNS; ++j) {
            FLOATS factors;
            coopMatLoad(factors, multipliers, subgroup_channel + j * MATRIX_N, 0, gl_CooperativeMatrixLayoutRowMajor);
            [[unroll]] for (uint i = 0; i < MATRIX_ROWS; i += 4) {
                SUMS words = SUMS(0);
                [[unroll]] for (uint q = 0; q < 4; ++q) {
                    [[unroll]] for (uint e = 0; e < words.length(); ++e)
                        words[e] |=
                            int(rounded_byte(sums[(i + q) * MATRIX_COLUMNS + j][e], factors[e], range) << (8 * q));
                }
                coopMatStore(words, tile, strip + i / 4 * (MATRIX_M / 4), STRIP_ROW,
                    gl_CooperativeMatrixLayoutColumnMajor);
            }
            subgroupBarrier();
            [[dont_unroll]] for (uint v = gl_SubgroupInvocationID; v < STRIP_LINES * STRIP_VECTORS; v += LANES) {
                uint line = v / STRIP_VECTORS;
                uint vector = v - line * STRIP_VECTORS;
                store_line(tile[strip + line * STRIP_ROW + vector], first_pixel, subgroup_pixel + 16 * vector,
                    first_channel, subgroup_channel + j * MATRIX_N + line);
            }
            subgroupBarrier();
        }
    }
}
