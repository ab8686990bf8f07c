#version 450

// QUANTIZED_LINEAR_CONVOLUTION, the product: on matrix units, for filters of several taps at stride 1. The input under
// a tile of outputs is fetched once and serves all taps; matrix.comp fetches it for each tap.
//
// Maths and memory: matrix.glsl. The input is read in place, in whole vectors of channels (NHWC).
//
// Outputs are counted by "positions" in the order of the input with its border: PITCH from one row to the next, PLANE
// from one image to the next. In that order, a tap is equally far from every output. So the matrices of pixels for a
// tap are those for the first tap, moved on by that many rows in shared memory. The price is the positions between
// rows and images, which are computed and not stored: 3% for 56 x 56, 23% for 7 x 7. A row's end and the next row's
// start share their border, and so do images.
//
// Loops:
//     for each block of STEP vectors of channels, for each tap ("step"):
//         at the last tap, each invocation fetches its share of the next block's input
//         each subgroup, for each K of a matrix:
//             loads a column of input matrices, moved by the tap, and a row of filter matrices, multiplies all pairs
//         each invocation stores the filter of the next step, fetched a step before, to the other half of the filter's
//         shared memory, and fetches the filter of the step after it; one barrier
//         at the last tap, when all invocations have loaded their matrices: store the fetched input; one more barrier
//     four matrices of sums, of interleaved channels, become one matrix of words; a strip of words goes through shared
//     memory to the invocations that write vectors of channels, or a byte for each plane
//
// Layout: in shared memory, both operands are rows of K, one row for each position of the tile and its halo, and one
// for each channel. A vector of padding between rows keeps eight rows in different banks. The last step packs
// channels, never pixels, because neighbouring positions need not be neighbours in the output.
//
// It moves half as many bytes from the second-level cache as matrix.comp.
// It is faster if there are so few tiles that a multiprocessor has one or two of them.
//
// Sums begin with the constant that the bias and the zero points add to a channel. sum(x') is added up by position
// while the input is stored to shared memory, and only if a filter zero point of the tile is not 0. For an output, the
// sums at its taps' positions are added. A tile with a channel whose sums may not fit 32 bits takes all its last steps
// in integers.
//
// Preconditions: strides are 1, and TAPS is at least 2. Runs (the channels of a group) are whole steps. A step is an
// even number of the K of a matrix. There are INVOCATIONS invocations, in whole subgroups of LANES, which fetch the
// filter evenly. A subgroup has a multiple of four matrices of channels. push.pixels counts positions. The device
// rounds to nearest even (shaderRoundingModeRTEFloat32). Grid: x channels, y tiles of positions, z groups. No
// invocation leaves before the last barrier.
//
// Compiler bugs avoided: as in matrix.comp.

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

#define MATRIX_UNITS
#define DOT_PRODUCT
#define PACK_CHANNELS true
#define LAST_STEP_CONSTANT 62
#include "matrix.glsl"

layout(constant_id = 59) const uint PITCH = 1;  // positions from one row of outputs to the one below
layout(constant_id = 60) const uint PLANE = 1;  // positions of an image
// At most this many vectors of the next block's input are in an invocation's registers while the current block is
// multiplied. The other vectors are loaded after that.
layout(constant_id = 61) const uint MOST_AHEAD = 4;

// All sizes are constants here.
const uint STEPS = TAPS * RUN / STEP;
const uint BLOCKS = RUN / STEP;  // blocks of input channels
const uint HALO = (TAPS / RUNS_W - 1) * DILATION_H * PITCH + (RUNS_W - 1) * DILATION_W;
const uint STAGED = TILE_PIXELS + HALO;
const uint FILTERS = STAGED * ROW;  // where the filters begin
const uint FILTER_BUFFER = TILE_CHANNELS * ROW;
const uint OPERANDS = FILTERS + 2 * FILTER_BUFFER;
const uint STAGED_FETCHES = ((STAGED + 7) / 8 * 8 * STEP + INVOCATIONS - 1) / INVOCATIONS;
const uint FETCHES_AHEAD = STAGED_FETCHES < MOST_AHEAD ? STAGED_FETCHES : MOST_AHEAD;

// The lines of a strip: words of four channels, one line for each pixel.
const uint BLOCK_ROWS = STORE_CHANNELS != 0 || MATRIX_ROWS < 2 ? 1 : 2;
const uint LINES = BLOCK_ROWS * MATRIX_M;
const uint LINE_VECTORS = MATRIX_N / 4;
const uint LINE = LINE_VECTORS + 1;
const uint OWN_STRIP = LINES * LINE > STRIP_SUMS ? LINES * LINE : STRIP_SUMS;
const uint ALL_STRIPS = INVOCATIONS / LANES * OWN_STRIP;

shared uvec4 tile[OPERANDS > ALL_STRIPS ? OPERANDS : ALL_STRIPS];
shared int position_sums[FILTER_ZERO_POINT != 0 ? (STAGED + 3) / 4 * 4 : 4];

const uint NOWHERE = 0xFFFFFFFF;

#include "matrix_workgroup.glsl"
#include "matrix_subgroup.glsl"

uint first_position;  // the tile's first position

// The vectors that an invocation fetches, as they are in memory. Nothing is done with them before they are stored: see
// matrix_steps.glsl.
uvec4 next_filter[FILTER_FETCHES];
uvec4 next_input[FETCHES_AHEAD];

struct Place {
    uint image;
    uint row;
    uint column;
};

Place place_of(uint position) {
    uint image = position / PLANE;
    uint in_image = position - image * PLANE;
    uint row = in_image / PITCH;
    return Place(image, row, in_image - row * PITCH);
}

uvec4 input_at(uint staged, uint vector) {
    uint position = first_position + staged;
    Place place = place_of(position);
    // These values become 0, and the border, when they are stored.
    if (RUN_WORDS != 4 * RUN && 4 * vector >= RUN_WORDS)
        return uvec4(FLIP);
    uvec4 value = uvec4(border ^ FLIP);
    if (position < push.pixels && push.first_row + place.row < ROW_LIMIT
        && push.first_column + place.column < COLUMN_LIMIT)
        value = input_vectors[group_start + place.image * INPUT_STRIDE_N + place.row * INPUT_STRIDE_H
            + place.column * INPUT_STRIDE_W + vector];
    return value;
}

uint index_of_fetch(uint f) {
    return gl_LocalInvocationID.x + f * INVOCATIONS;
}

void fetch_input(uint block) {
    [[unroll]] for (uint f = 0; f < FETCHES_AHEAD; ++f) {
        uint staged = min(stored_row(index_of_fetch(f) / STEP), STAGED - 1);
        next_input[f] = input_at(staged, block * STEP + index_of_fetch(f) % STEP);
    }
}

void stage(uint f, uvec4 fetched) {
    uint staged = stored_row(index_of_fetch(f) / STEP);
    if (staged >= STAGED)
        return;
    uvec4 value = fetched ^ FLIP;
    put(staged * ROW, index_of_fetch(f) % STEP, value);
    if (counts)
        atomicAdd(position_sums[staged], sum_of_bytes(value));
}

void put_input(uint block) {
    [[unroll]] for (uint f = 0; f < FETCHES_AHEAD; ++f)
        stage(f, next_input[f]);
    [[dont_unroll]] for (uint first = FETCHES_AHEAD; first < STAGED_FETCHES; first += 4) {
        uvec4 fetched[4];
        [[unroll]] for (uint f = 0; f < 4; ++f) {
            uint staged = stored_row(index_of_fetch(first + f) / STEP);
            if (staged < STAGED)
                fetched[f] = input_at(staged, block * STEP + index_of_fetch(first + f) % STEP);
        }
        [[unroll]] for (uint f = 0; f < 4; ++f)
            stage(first + f, fetched[f]);
    }
}

void fetch_filter(uint step) {
    uint block = step / TAPS;
    uint source = panel + ((step - block * TAPS) * BLOCKS + block) * TILE_CHANNELS * STEP;
    [[unroll]] for (uint f = 0; f < FILTER_FETCHES; ++f)
        next_filter[f] = filter_vectors[source + index_of_fetch(f)];
}

void put_filter(uint step) {
    uint filters = FILTERS + (step & 1) * FILTER_BUFFER;
    [[unroll]] for (uint f = 0; f < FILTER_FETCHES; ++f)
        put(filters + stored_row(index_of_fetch(f) / STEP) * ROW, index_of_fetch(f) % STEP, next_filter[f]);
}

// Stores the filter of the next step, which was fetched a step before, and fetches the filter of the step after it. At
// the end of K it fetches the last one again, which is not multiplied.
void move_filter(uint step) {
    put_filter(step + 1);
    fetch_filter(min(step + 2, STEPS - 1));
}

uint pixels_at(uint step) {
    uint tap = step % TAPS;
    uint tap_row = tap / RUNS_W;
    uint shift = tap_row * DILATION_H * PITCH + (tap - tap_row * RUNS_W) * DILATION_W;
    return (subgroup_pixel + shift) * ROW;
}

uint channels_at(uint step) {
    return FILTERS + (step & 1) * FILTER_BUFFER + subgroup_channel * ROW;
}

#include "matrix_steps.glsl"

// Stores a strip, whose lines are bytes: a pixel's channels.
void store_strip(uint strip, uint line_place, uint byte_place) {
    subgroupBarrier();
    [[unroll]] for (uint n = 0; n < (LINES * LINE_VECTORS + LANES - 1) / LANES; ++n) {
        uint i = gl_SubgroupInvocationID + n * LANES;
        if (LINES * LINE_VECTORS % LANES != 0 && i >= LINES * LINE_VECTORS)
            break;
        uint line = STORE_CHANNELS != 0 ? i / LINE_VECTORS : i % LINES;
        uint vector = STORE_CHANNELS != 0 ? i % LINE_VECTORS : i / LINES;
        uint address = destinations[line_place + line];
        if (address != NOWHERE) {
            uint channel = first_channel + byte_place + 16 * vector;
            uvec4 bytes = tile[strip + line * LINE + vector];
            address += channel * OUTPUT_STRIDE_C;
            if (STORE_CHANNELS != 0 && STORE_UNIT == 16) {
                if (channel >= push.first_channel && channel < push.channels)
                    output_vectors[address / 16] = bytes;
            } else {
                [[unroll]] for (uint b = 0; b < 16; ++b) {
                    if (channel + b >= push.first_channel && channel + b < push.channels)
                        output_bytes[address + b * OUTPUT_STRIDE_C] = uint8_t(bytes[b / 4] >> (8 * (b % 4)));
                }
            }
        }
    }
    subgroupBarrier();
}

void make_tile() {
    fetch_filter(0);
    fetch_input(0);
    fetch_channels();
    begin_channels();
    for (uint i = gl_LocalInvocationID.x; i < TILE_PIXELS; i += INVOCATIONS) {
        uint position = first_position + i;
        Place place = place_of(position);
        destinations[i] = position < push.pixels && place.row < ROWS && place.column < COLUMNS
            ? push.output_start + group_channel * OUTPUT_STRIDE_C + place.image * OUTPUT_STRIDE_N
                + place.row * OUTPUT_STRIDE_H + place.column * OUTPUT_STRIDE_W
            : NOWHERE;
    }
    hear_of_channels();
    if (counts) {
        for (uint i = gl_LocalInvocationID.x; i < STAGED; i += INVOCATIONS)
            position_sums[i] = 0;
        barrier();
    }
    put_filter(0);
    put_input(0);
    fetch_filter(1);
    barrier();

    SUMS sums[MATRIX_ROWS * MATRIX_COLUMNS];
    [[unroll]] for (uint j = 0; j < MATRIX_COLUMNS; ++j) {
        SUMS constant;
        coopMatLoad(constant, constants, subgroup_channel + j * MATRIX_N, 0, gl_CooperativeMatrixLayoutRowMajor);
        [[unroll]] for (uint i = 0; i < MATRIX_ROWS; ++i)
            sums[i * MATRIX_COLUMNS + j] = constant;
    }
    BEGIN_STEPS(0)
    uint step = 0;
    [[dont_unroll]] for (uint block = 0; block < BLOCKS; ++block) {
        [[dont_unroll]] for (uint tap = 0; tap + 1 < TAPS; ++tap, ++step) {
            MULTIPLY_STEP(step, )
            move_filter(step);
            BEGIN_NEXT_STEP(step)
        }
        if (BLOCKS > 1)
            fetch_input(min(block + 1, BLOCKS - 1));
        MULTIPLY_STEP(step, )
        move_filter(step);
        barrier();
        if (block + 1 < BLOCKS) {
            put_input(block + 1);
            BEGIN_NEXT_STEP(step)
        }
        ++step;
    }

    if (counts) {
        for (uint i = gl_LocalInvocationID.x; i < TILE_PIXELS; i += INVOCATIONS) {
            int sum = 0;
            [[dont_unroll]] for (uint tap_row = 0; tap_row < TAPS / RUNS_W; ++tap_row) {
                [[dont_unroll]] for (uint tap_column = 0; tap_column < RUNS_W; ++tap_column)
                    sum += position_sums[i + tap_row * DILATION_H * PITCH + tap_column * DILATION_W];
            }
            input_sums[i] = sum;
        }
        barrier();
    }

    uint strip = gl_SubgroupID * OWN_STRIP;
    if (takes_integers) {
        [[dont_unroll]] for (uint n = 0; n < MATRIX_ROWS * MATRIX_COLUMNS; ++n) {
            // Matrices cannot be indexed at run time.
            SUMS chosen = sums[0];
            [[unroll]] for (uint i = 1; i < MATRIX_ROWS * MATRIX_COLUMNS; ++i)
                if (i == n)
                    chosen = sums[i];
            coopMatStore(chosen, tile, strip, MATRIX_N / 4, gl_CooperativeMatrixLayoutRowMajor);
            subgroupBarrier();
            [[dont_unroll]] for (uint i = gl_SubgroupInvocationID; i < MATRIX_M * MATRIX_N; i += LANES) {
                uint pixel = subgroup_pixel + n / MATRIX_COLUMNS * MATRIX_M + i / MATRIX_N;
                uint channel_position = subgroup_channel + n % MATRIX_COLUMNS * MATRIX_N + i % MATRIX_N;
                uint channel = first_channel + channel_place(channel_position);
                if (destinations[pixel] != NOWHERE && channel >= push.first_channel && channel < push.channels) {
                    int products = int(tile[strip + i / 4][i % 4]) - constants[channel_position];
                    uint value = exact_byte(products, input_sums[pixel], group_channel + channel,
                        int(filter_words[filter_sums + channel - first_channel]), multipliers[channel_position]);
                    output_bytes[destinations[pixel] + channel * OUTPUT_STRIDE_C] = uint8_t(LOOKED_UP_BYTE(value));
                }
            }
            subgroupBarrier();
        }
        return;
    }

    if (counts) {
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

    Range range = range_of(zero_point_of_output);
    [[unroll]] for (uint j = 0; j < MATRIX_COLUMNS; j += 4) {
        FLOATS factors[4];
        [[unroll]] for (uint q = 0; q < 4; ++q)
            coopMatLoad(
                factors[q], multipliers, subgroup_channel + (j + q) * MATRIX_N, 0, gl_CooperativeMatrixLayoutRowMajor);
        [[unroll]] for (uint i = 0; i < MATRIX_ROWS; i += BLOCK_ROWS) {
            [[unroll]] for (uint r = 0; r < BLOCK_ROWS; ++r) {
                SUMS words = SUMS(int(range.first));
                [[unroll]] for (uint q = 0; q < 4; ++q) {
                    [[unroll]] for (uint e = 0; e < words.length(); ++e)
                        words[e] += int(
                            rounded_bits(sums[(i + r) * MATRIX_COLUMNS + j + q][e], factors[q][e], range) << (8 * q));
                }
                if (OUTPUT_FLIP != 0) {
                    [[unroll]] for (uint e = 0; e < words.length(); ++e)
                        words[e] ^= OUTPUT_FLIP;
                }
                LOOK_UP_WORDS(words)
                coopMatStore(words, tile, strip + r * MATRIX_M * LINE, LINE, gl_CooperativeMatrixLayoutRowMajor);
            }
            store_strip(strip, subgroup_pixel + i * MATRIX_M, subgroup_channel + j * MATRIX_N);
        }
    }
}

void main() {
    begin_workgroup();
    begin_subgroup();
    first_position = gl_WorkGroupID.y * TILE_PIXELS;
    make_tile();
}
