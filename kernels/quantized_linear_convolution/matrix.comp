#version 450

// QUANTIZED_LINEAR_CONVOLUTION, the product: on matrix units, through VK_KHR_cooperative_matrix.
//
// Maths and memory: matrix.glsl.
//
// Loops:
//     for each step of K:
//         each invocation stores the next step of both operands, fetched a step before, to the other half of shared
//         memory, and fetches the step after it into registers
//         each subgroup, for each K of a matrix:
//             loads a column of input matrices and a row of filter matrices from shared memory, multiplies all pairs
//         one barrier, before the last of these products
//     four matrices of sums at a time become one matrix of words, which is stored directly; at the output's ends, or if
//     its strides do not allow that, a strip of words goes through shared memory to the invocations that write vectors,
//     words or bytes
//
// Layout: in shared memory, both operands are rows of K, one row for each pixel or channel, which matrix units load
// fastest (A by rows, B by columns). A vector of padding between rows keeps eight rows in different banks. Rows
// consist of 16-byte vectors for the sake of the stores. The vectors that an invocation fetches keep their place in
// the step, so that it computes the pixels' addresses once. The order of pixels or channels that the last step needs
// costs nothing there. Planes of an NCHW input are transposed 4 x 4 bytes at a time on the way. Channel tiles run
// fastest, so that workgroups that share pixels run at the same time.
//
// Sums begin with the constant that the bias and the zero points add to a channel. sum(x') is added up in shared
// memory while the input is stored there, and only if a filter zero point of the tile is not 0. In registers it would
// take the place of a third workgroup (NVIDIA: more than 168 registers, a fifth more time). A tile with a channel
// whose sums may not fit 32 bits takes all its last steps in integers. Only the driver knows how matrices lie in
// registers, so only elements with the same index are combined.
//
// Preconditions: filter panels are TILE_CHANNELS wide. A step is an even number of the K of a matrix. There are
// INVOCATIONS invocations, in whole subgroups of LANES. The tile sizes are multiples of the subgroups' sizes, and
// these are multiples of the matrices' sizes. Along the words of the output, a subgroup has a multiple of four
// matrices. With PLANES: one tap, no border, and planes of whole words that all tiles see whole. The device rounds to
// nearest even (shaderRoundingModeRTEFloat32). Grid: x channels, y TURNS tiles of pixels, z groups. No invocation
// leaves before the last barrier. With PARTS, z counts the parts of each group, and TURNS is 1.
//
// Compiler bugs avoided: strides of matrix instructions and bounds of the loops around them can be specialization
// constants, for Samsung's compiler, which miscompiles them from buffers. No optimizer has run (spirv-opt breaks matrix
// kernels). Shared variables are arrays or whole vectors (NVIDIA's matrix loads, see matrix.glsl).

#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_integer_dot_product : require
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require
#extension GL_EXT_spirv_intrinsics : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#pragma use_vulkan_memory_model

spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4467], 4462, 32);  // RoundingModeRTE 32

#define PACK_CHANNELS (STORE_CHANNELS != 0)
#include "matrix.glsl"
#include "data_movement/byte_matrices.glsl"

const uint STEPPED_ROWS = INVOCATIONS / STEP;
const uint INPUT_FETCHES = TILE_PIXELS / STEPPED_ROWS;
const bool FEW_TAPS = CHECK_BORDER != 0 && TAPS <= 32;

// Both halves of both operands, and afterwards the strips of all subgroups.
shared uvec4 tile[2 * HALF_TILE > STRIPS ? 2 * HALF_TILE : STRIPS];

#include "matrix_workgroup.glsl"

// The places of the vectors that an invocation fetches.
uint own_vector;
uint own_index;
uint sources[INPUT_FETCHES];
uint inside_taps[INPUT_FETCHES];  // with FEW_TAPS, a bit for each tap that lies inside the input
uint source_rows[INPUT_FETCHES];
uint source_columns[INPUT_FETCHES];
// The vectors as they lie in memory. Nothing is done with them before they are stored: see matrix_steps.glsl.
uvec4 next_input[INPUT_FETCHES];
uvec4 next_filter[FILTER_FETCHES];

// The four pixels of the tile, and the vector of the step, that an invocation fetches from planes at its f-th turn.
uint plane_quad(uint f) {
    return (gl_LocalInvocationID.x + f * INVOCATIONS) % (TILE_PIXELS / 4);
}

uint plane_vector(uint f) {
    return (gl_LocalInvocationID.x + f * INVOCATIONS) / (TILE_PIXELS / 4);
}

// The row of both operands that an invocation stores at its f-th turn, except for pixels of planes.
uint row_of_fetch(uint f) {
    return stored_row(own_index + f * STEPPED_ROWS);
}

bool is_inside(uint f, uint tap_row, uint tap_column) {
    return source_rows[f] + tap_row * SIZE(DILATION_H, dilation_h) < SIZE(ROW_LIMIT, row_limit)
        && source_columns[f] + tap_column * SIZE(DILATION_W, dilation_w) < SIZE(COLUMN_LIMIT, column_limit);
}

void locate(uint first_pixel) {
    if (FETCH == PLANES) {
        [[unroll]] for (uint f = 0; f < INPUT_FETCHES / 4; ++f) {
            Pixel pixel = pixel_at(min(first_pixel + 4 * plane_quad(f), push.pixels - 4));
            sources[f] = group_start + pixel.image * SIZE(INPUT_STRIDE_N, input_stride_n)
                + (pixel.row * SIZE(COLUMNS, columns) + pixel.column) / 4
                + 16 * plane_vector(f) * SIZE(CHANNEL_STRIDE, channel_stride);
        }
        return;
    }
    [[unroll]] for (uint f = 0; f < INPUT_FETCHES; ++f) {
        Pixel pixel = pixel_at(min(first_pixel + pixel_place(row_of_fetch(f)), push.pixels - 1));
        sources[f] = group_start + pixel.image * SIZE(INPUT_STRIDE_N, input_stride_n)
            + pixel.row * SIZE(INPUT_STRIDE_H, input_stride_h) + pixel.column * SIZE(INPUT_STRIDE_W, input_stride_w);
        source_rows[f] = push.first_row + pixel.row * SIZE(STRIDE_H, stride_h);
        source_columns[f] = push.first_column + pixel.column * SIZE(STRIDE_W, stride_w);
        inside_taps[f] = 0;
        if (FEW_TAPS) {
            [[unroll]] for (uint tap = 0; tap < TAPS; ++tap)
                inside_taps[f] |= (is_inside(f, tap / RUNS_W, tap % RUNS_W) ? 1u : 0) << tap;
        }
    }
}

// The value that becomes 0 when it is stored.
const uvec4 NOTHING = uvec4(FLIP);

void fetch_planes(uint step) {
    [[unroll]] for (uint f = 0; f < INPUT_FETCHES / 4; ++f) {
        uint source = sources[f] + 16 * STEP * step * SIZE(CHANNEL_STRIDE, channel_stride);
        [[unroll]] for (uint i = 0; i < 4; ++i)
            next_input[4 * f + i] = NOTHING;
        if (WHOLE_STEPS != 0 || step * STEP + plane_vector(f) < SIZE(VECTORS_OF_K, vectors_of_k)) {
            [[unroll]] for (uint i = 0; i < 4; ++i) {
                [[unroll]] for (uint j = 0; j < 4; ++j)
                    next_input[4 * f + i][j] = input_words[source + (4 * i + j) * SIZE(CHANNEL_STRIDE, channel_stride)];
            }
        }
    }
}

void fetch_runs(uint step) {
    uint vector = step * STEP + own_vector;
    uint run = TAPS == 1 ? 0 : QUOTIENT_BY(vector, RUN, run, 10);
    uint tap_row = run / RUNS_W;
    uint tap_column = run - tap_row * RUNS_W;
    uint in_run = vector - run * SIZE(RUN, run);
    uint offset = tap_row * SIZE(TAP_STRIDE_H, tap_stride_h) + tap_column * SIZE(TAP_STRIDE_W, tap_stride_w)
        + in_run * (FETCH == VECTORS ? 1 : 4);
    [[unroll]] for (uint f = 0; f < INPUT_FETCHES; ++f) {
        bool inside = WHOLE_STEPS != 0 || vector < SIZE(VECTORS_OF_K, vectors_of_k);
        next_input[f] = NOTHING;
        if (CHECK_BORDER != 0) {
            if (inside)
                next_input[f] = uvec4(border ^ FLIP);
            inside = inside && (FEW_TAPS ? (inside_taps[f] >> run & 1) != 0 : is_inside(f, tap_row, tap_column));
        }
        if (inside) {
            uint source = sources[f] + offset;
            if (FETCH == VECTORS)
                next_input[f] = input_vectors[source];
            else
                next_input[f] = uvec4(
                    input_words[source], input_words[source + 1], input_words[source + 2], input_words[source + 3]);
        }
    }
}

void fetch_step(uint step) {
    if (FETCH == PLANES)
        fetch_planes(step);
    else
        fetch_runs(step);
    uint source = panel + step * STEP * TILE_CHANNELS + gl_LocalInvocationID.x;
    [[unroll]] for (uint f = 0; f < FILTER_FETCHES; ++f)
        next_filter[f] = filter_vectors[source + f * INVOCATIONS];
}

// Copies next_input, with planes as vectors of channels. next_input itself does not change: if it changed under a
// condition, both versions of it would take registers.
void arrange_input(out uvec4 vectors[INPUT_FETCHES]) {
    if (FETCH != PLANES) {
        [[unroll]] for (uint f = 0; f < INPUT_FETCHES; ++f)
            vectors[f] = next_input[f];
        return;
    }
    [[unroll]] for (uint f = 0; f < INPUT_FETCHES / 4; ++f) {
        [[unroll]] for (uint i = 0; i < 4; ++i) {
            uvec4 words = turned(next_input[4 * f + i]);
            [[unroll]] for (uint j = 0; j < 4; ++j)
                vectors[4 * f + j][i] = words[j];
        }
    }
}

// The position, and the vector of the step, of an arranged vector.
uint position_of_fetch(uint f) {
    if (FETCH != PLANES)
        return row_of_fetch(f);
    uint place = 4 * plane_quad(f / 4) + f % 4;
    return STORE_CHANNELS != 0 ? place : position_of(place, MATRIX_M);
}

uint vector_of_fetch(uint f) {
    return FETCH != PLANES ? own_vector : plane_vector(f / 4);
}

void put_step(uint step) {
    bool counts = FILTER_ZERO_POINT != 0 && has_filter_zero_point.x != 0;
    uint half_tile = (step & 1) * HALF_TILE;
    uvec4 vectors[INPUT_FETCHES];
    arrange_input(vectors);
    [[unroll]] for (uint f = 0; f < INPUT_FETCHES; ++f) {
        vectors[f] ^= FLIP;
        // The bytes after a run in memory are multiplied by zeros of the filter, but they must not count in sum(x').
        if (FETCH == WORDS && RUN_WORDS % 4 != 0)
            vectors[f] = mix(uvec4(0), vectors[f],
                lessThan(4 * ((step * STEP + own_vector) % SIZE(RUN, run)) + uvec4(0, 1, 2, 3), uvec4(RUN_WORDS)));
        put(half_tile + position_of_fetch(f) * ROW, vector_of_fetch(f), vectors[f]);
    }
    [[unroll]] for (uint f = 0; f < FILTER_FETCHES; ++f)
        put(half_tile + (TILE_PIXELS + row_of_fetch(f)) * ROW, own_vector, next_filter[f]);
    if (counts) {
        [[unroll]] for (uint f = 0; f < INPUT_FETCHES; ++f)
            atomicAdd(input_sums[position_of_fetch(f)], sum_of_bytes(vectors[f]));
    }
}

uint pixels_at(uint step) {
    return (step & 1) * HALF_TILE + subgroup_pixel * ROW;
}

uint channels_at(uint step) {
    return (step & 1) * HALF_TILE + (TILE_PIXELS + subgroup_channel) * ROW;
}

#include "matrix_steps.glsl"
#include "matrix_parts.glsl"

// Stores a strip, whose lines are bytes: a pixel's channels or a channel's pixels.
void store_strip(uint strip, uint first_pixel, uint line_place, uint byte_place) {
    // Neighbouring invocations store neighbouring units. So single bytes go to few sectors of memory.
    const uint SIZE = STORE_UNIT;
    const uint UNITS = 16 * STRIP_VECTORS / SIZE;
    const uint STORES = (STRIP_LINES * UNITS + LANES - 1) / LANES;
    const uint TOGETHER = STORES < 4 ? STORES : 4;
    subgroupBarrier();
    // The loop is counted by constants: with NVIDIA's compiler, a loop that begins at the invocation's number is three
    // times as slow, and more stores at a time take too many registers.
    [[dont_unroll]] for (uint first = 0; first < STORES; first += TOGETHER) {
        [[unroll]] for (uint n = 0; n < TOGETHER; ++n) {
            uint i = gl_SubgroupInvocationID + (first + n) * LANES;
            if (STRIP_LINES * UNITS % LANES != 0 && i >= STRIP_LINES * UNITS)
                break;
            uint line = i / UNITS;
            uint start = (i - line * UNITS) * SIZE;
            uint pixel = STORE_CHANNELS != 0 ? line_place + line : byte_place + start;
            uint channel = first_channel + (STORE_CHANNELS != 0 ? byte_place + start : line_place + line);
            uint vector = strip + line * STRIP_ROW + start / 16;
            if (first_pixel + pixel < push.pixels && channel >= push.first_channel && channel < push.channels) {
                uint address = destinations[pixel] + channel * SIZE(OUTPUT_STRIDE_C, output_stride_c);
                if (STORE_UNIT == 16)
                    output_vectors[address / 16] = tile[vector];
                else if (STORE_UNIT == 4)
                    output_words[address / 4] = tile[vector][start / 4 % 4];
                else
                    output_bytes[address] = uint8_t(tile[vector][start / 4 % 4] >> (8 * (start % 4)));
            }
        }
    }
    subgroupBarrier();
}

void make_tile(uint first_pixel, bool is_first) {
    // The steps of this part of K. With PARTS, the last parts may be empty.
    uint end_step = step_count();
    uint first_step = PARTS == 1 ? 0 : part * push.part_steps;
    bool is_empty = PARTS != 1 && first_step >= end_step;
    if (PARTS != 1)
        end_step = min(first_step + push.part_steps, end_step);
    locate(first_pixel);
    fetch_step(is_empty ? 0 : first_step);
    if (is_first)
        begin_channels();
    for (uint i = gl_LocalInvocationID.x; i < TILE_PIXELS; i += INVOCATIONS) {
        Pixel pixel = pixel_at(min(first_pixel + i, push.pixels - 1));
        destinations[i] = push.output_start + group_channel * SIZE(OUTPUT_STRIDE_C, output_stride_c)
            + pixel.image * SIZE(OUTPUT_STRIDE_N, output_stride_n) + pixel.row * SIZE(OUTPUT_STRIDE_H, output_stride_h)
            + pixel.column * SIZE(OUTPUT_STRIDE_W, output_stride_w);
        input_sums[i] = 0;
    }
    barrier();

    SUMS sums[MATRIX_ROWS * MATRIX_COLUMNS];
    [[unroll]] for (uint j = 0; j < MATRIX_COLUMNS; ++j) {
        SUMS constant;
        coopMatLoad(constant, constants, subgroup_channel + j * MATRIX_N, 0, gl_CooperativeMatrixLayoutRowMajor);
        if (PARTS != 1 && part != 0)
            constant = SUMS(0);
        [[unroll]] for (uint i = 0; i < MATRIX_ROWS; ++i)
            sums[i * MATRIX_COLUMNS + j] = constant;
    }
    if (!is_empty) {
        put_step(first_step);
        if (first_step + 1 < end_step)
            fetch_step(first_step + 1);
        barrier();
        BEGIN_STEPS(first_step)
        uint step = first_step;
        [[dont_unroll]] for (; step + 2 < end_step; ++step) {
            put_step(step + 1);
            fetch_step(step + 2);
            MULTIPLY_STEP(step, BEGIN_NEXT_STEP(step))
        }
        if (first_step + 1 < end_step) {
            put_step(step + 1);
            MULTIPLY_STEP(step, BEGIN_NEXT_STEP(step))
            ++step;
        }
        MULTIPLY_STEP(step, barrier())
    }

    uint strip = gl_SubgroupID * STRIP;
    if (PARTS != 1) {
        bool counts = FILTER_ZERO_POINT != 0 && has_filter_zero_point.x != 0;
        ADD_PART(sums, strip)
        if (counts)
            add_input_sums();
        if (!is_last_part())
            return;
        TAKE_PARTS(sums, strip)
        if (counts)
            take_input_sums();
    }
    if (needs_integers.x != 0) {
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
                    uint value = exact_byte(products, input_sums[pixel_position], group_channel + channel,
                        int(filter_words[filter_sums + channel - first_channel]), multipliers[channel_position]);
                    output_bytes[destinations[pixel] + channel * SIZE(OUTPUT_STRIDE_C, output_stride_c)] =
                        uint8_t(value);
                }
            }
            subgroupBarrier();
        }
        return;
    }

    if (FILTER_ZERO_POINT != 0 && has_filter_zero_point.x != 0) {
        [[unroll]] for (uint j = 0; j < MATRIX_COLUMNS; ++j) {
            SUMS zero_points;
            coopMatLoad(zero_points, filter_zero_points, subgroup_channel + j * MATRIX_N, 0,
                gl_CooperativeMatrixLayoutRowMajor);
            [[unroll]] for (uint i = 0; i < MATRIX_ROWS; ++i) {
                SUMS of_pixels;
                coopMatLoad(
                    of_pixels, input_sums, subgroup_pixel + i * MATRIX_M, 0, gl_CooperativeMatrixLayoutColumnMajor);
                [[unroll]] for (uint e = 0; e < of_pixels.length(); ++e)
                    sums[i * MATRIX_COLUMNS + j][e] -= zero_points[e] * of_pixels[e];
            }
        }
    }

    Range range = range_of(output_zero_point(group_channel));
    bool whole = STORE_MATRICES != 0 && first_pixel + TILE_PIXELS <= push.pixels && first_channel >= push.first_channel
        && first_channel + TILE_CHANNELS <= push.channels;
    if (STORE_CHANNELS != 0) {
        [[unroll]] for (uint j = 0; j < MATRIX_COLUMNS; j += 4) {
            FLOATS factors[4];
            [[unroll]] for (uint q = 0; q < 4; ++q)
                coopMatLoad(factors[q], multipliers, subgroup_channel + (j + q) * MATRIX_N, 0,
                    gl_CooperativeMatrixLayoutRowMajor);
            uint channel = subgroup_channel + j * MATRIX_N;
            [[unroll]] for (uint i = 0; i < MATRIX_ROWS; ++i) {
                SUMS words = SUMS(int(range.first));
                [[unroll]] for (uint q = 0; q < 4; ++q) {
                    [[unroll]] for (uint e = 0; e < words.length(); ++e)
                        words[e] +=
                            int(rounded_bits(sums[i * MATRIX_COLUMNS + j + q][e], factors[q][e], range) << (8 * q));
                }
                if (OUTPUT_FLIP != 0) {
                    [[unroll]] for (uint e = 0; e < words.length(); ++e)
                        words[e] ^= OUTPUT_FLIP;
                }
                uint pixel = subgroup_pixel + i * MATRIX_M;
                if (whole) {
                    coopMatStore(words, output_words, (destinations[pixel] + first_channel + channel) / 4,
                        SIZE(OUTPUT_STRIDE_W, output_stride_w) / 4, gl_CooperativeMatrixLayoutRowMajor);
                } else {
                    coopMatStore(words, tile, strip, STRIP_ROW, gl_CooperativeMatrixLayoutRowMajor);
                    store_strip(strip, first_pixel, pixel, channel);
                }
            }
        }
    } else {
        [[unroll]] for (uint j = 0; j < MATRIX_COLUMNS; ++j) {
            FLOATS factors;
            coopMatLoad(factors, multipliers, subgroup_channel + j * MATRIX_N, 0, gl_CooperativeMatrixLayoutRowMajor);
            uint channel = subgroup_channel + j * MATRIX_N;
            [[unroll]] for (uint i = 0; i < MATRIX_ROWS; i += 4) {
                SUMS words = SUMS(int(range.first));
                [[unroll]] for (uint q = 0; q < 4; ++q) {
                    [[unroll]] for (uint e = 0; e < words.length(); ++e)
                        words[e] +=
                            int(rounded_bits(sums[(i + q) * MATRIX_COLUMNS + j][e], factors[e], range) << (8 * q));
                }
                if (OUTPUT_FLIP != 0) {
                    [[unroll]] for (uint e = 0; e < words.length(); ++e)
                        words[e] ^= OUTPUT_FLIP;
                }
                uint pixel = subgroup_pixel + i * MATRIX_M;
                if (whole) {
                    coopMatStore(words, output_words,
                        (destinations[pixel] + (first_channel + channel) * SIZE(OUTPUT_STRIDE_C, output_stride_c)) / 4,
                        SIZE(OUTPUT_STRIDE_C, output_stride_c) / 4, gl_CooperativeMatrixLayoutColumnMajor);
                } else {
                    coopMatStore(words, tile, strip, STRIP_ROW, gl_CooperativeMatrixLayoutColumnMajor);
                    store_strip(strip, first_pixel, channel, pixel);
                }
            }
        }
    }
}

void main() {
    begin_workgroup();
    own_vector = gl_LocalInvocationID.x % STEP;
    own_index = gl_LocalInvocationID.x / STEP;

    uint first_pixel = gl_WorkGroupID.y * (SIZE(TURNS, turns) * TILE_PIXELS);
    // Without the loop fewer registers are in use, which can allow one more workgroup on each multiprocessor.
    if (TURNS == 1) {
        make_tile(first_pixel, true);
        return;
    }
    [[dont_unroll]] for (uint turn = 0; turn < SIZE(TURNS, turns) && first_pixel < push.pixels; ++turn) {
        // Strips and destinations of the previous tile may still be read.
        if (turn > 0)
            barrier();
        make_tile(first_pixel, turn == 0);
        first_pixel += TILE_PIXELS;
    }
}
