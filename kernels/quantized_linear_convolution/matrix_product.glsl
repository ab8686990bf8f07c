// The product on matrix units as matrix.comp states it, for its own kernel and for the one of few registers.

#define MATRIX_UNITS
#define DOT_PRODUCT
#define PACK_CHANNELS (STORE_CHANNELS != 0)
#include "matrix.glsl"
#include "data_movement/byte_matrices.glsl"

// Bytes of a store, and the stores of an invocation for a strip.
const uint UNIT = STORE_UNIT;
const uint UNITS = 16 * STRIP_VECTORS / UNIT;  // of a line
const uint STORES = (STRIP_LINES * UNITS + LANES - 1) / LANES;
const uint STRIPS_OF_SUBGROUP = MATRIX_ROWS * MATRIX_COLUMNS / 4;

// Both halves of both operands, and afterwards the strips of all subgroups, and vectors that are added to them.
const uint STRIPS = INVOCATIONS / LANES * STRIPS_OF_SUBGROUP * STRIP;
const uint LAST_STEP = STRIPS + TILE_PIXELS * TILE_CHANNELS / 16;
shared uvec4 tile[2 * HALF_TILE > LAST_STEP ? 2 * HALF_TILE : LAST_STEP];

#include "matrix_workgroup.glsl"

#include "matrix_subgroup.glsl"
#include "matrix_fetch.glsl"

#ifdef ONE_SET
// Whether a step is fetched while the one before it is multiplied. The vectors that wait take registers. Without, other
// workgroups have to fill the time.
const bool AHEAD = INPUT_FETCHES + FILTER_FETCHES <= 4;
#endif

uint pixels_at(uint step) {
    return (step & 1) * HALF_TILE + subgroup_pixel * ROW;
}

uint channels_at(uint step) {
    return (step & 1) * HALF_TILE + (TILE_PIXELS + subgroup_channel) * ROW;
}

#include "matrix_steps.glsl"

// The pixel and the channel, by place, at which a strip of the subgroup begins.
uvec2 start_of_strip(uint strip) {
    if (STORE_CHANNELS != 0)
        return uvec2(subgroup_pixel + strip % MATRIX_ROWS * MATRIX_PIXELS,
            subgroup_channel + strip / MATRIX_ROWS * 4 * MATRIX_CHANNELS);
    return uvec2(subgroup_pixel + strip % (MATRIX_ROWS / 4) * 4 * MATRIX_PIXELS,
        subgroup_channel + strip / (MATRIX_ROWS / 4) * MATRIX_CHANNELS);
}

// The pixel and the channel, by place, of an invocation's n-th unit of a strip, whose lines are bytes: a pixel's channels
// or a channel's pixels. Neighbouring invocations have neighbouring units, so that single bytes go to few sectors of
// memory.
uvec2 place_of_unit(uint strip, uint n) {
    uint i = gl_SubgroupInvocationID + n * LANES;
    uvec2 in_strip = uvec2(i / UNITS, i % UNITS * UNIT);
    return start_of_strip(strip) + (STORE_CHANNELS != 0 ? in_strip : in_strip.yx);
}

uint address_at(uint pixel, uint channel) {
    return destinations[pixel] + channel * SIZE(OUTPUT_STRIDE_C, output_stride_c);
}

#ifdef WITH_SUM
#include "quantized_linear_convolution_add/strips.glsl"
#else
#define VECTOR_WITH_ADDENDS(vector, address, place) vector
#define WITH_ADDENDS(word, address, in_floats) word
#define BYTE_WITH_ADDEND(byte, address, in_floats) byte
#endif

// Whether outputs are finished one by one, in a loop.
#ifdef WITH_SUM
#define TAKES_BYTES (takes_integers || !takes_floats())
#else
#define TAKES_BYTES takes_integers
#endif

// Stores a strip of the subgroup.
void store_strip(uint strip, uint first_pixel) {
    const uint TOGETHER = STORE_UNIT == 16 ? 1 : STORES < 4 ? STORES : 4;
    uint vectors = (gl_SubgroupID * STRIPS_OF_SUBGROUP + strip) * STRIP;
    // The loop is counted by constants: with NVIDIA's compiler, a loop that begins at the invocation's number is three
    // times as slow, and more stores at a time take too many registers.
    [[dont_unroll]] for (uint first = 0; first < STORES; first += TOGETHER) {
        [[unroll]] for (uint n = 0; n < TOGETHER; ++n) {
            uint i = gl_SubgroupInvocationID + (first + n) * LANES;
            if (STRIP_LINES * UNITS % LANES != 0 && i >= STRIP_LINES * UNITS)
                break;
            uint line = i / UNITS;
            uint start = (i - line * UNITS) * UNIT;
            uint vector = vectors + line * STRIP_ROW + start / 16;
            uvec2 place = place_of_unit(strip, first + n);
            uint channel = first_channel + place.y;
            uint address = address_at(place.x, channel);
            // Without the branches of a logical and.
            if (all(bvec3(
                    first_pixel + place.x < push.pixels, channel >= push.first_channel, channel < push.channels))) {
                if (STORE_UNIT == 16)
                    output_vectors[address / 16] = VECTOR_WITH_ADDENDS(tile[vector], address, addend_place(strip, i));
                else if (STORE_UNIT == 4)
                    output_words[address / 4] = WITH_ADDENDS(tile[vector][start / 4 % 4], address, true);
                else
                    output_bytes[address] =
                        uint8_t(BYTE_WITH_ADDEND(tile[vector][start / 4 % 4] >> (8 * (start % 4)), address, true));
            }
        }
    }
}

void make_tile(uint first_pixel, bool is_first) {
    uint end_step = step_count();
    locate(first_pixel);
    fetch_step(0);
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
    put_step(0);
#ifdef ONE_SET
    if (AHEAD)
        fetch_step(min(1, end_step - 1));
#else
    if (end_step > 1)
        fetch_step(1);
#endif
    barrier();

    SUMS sums[MATRIX_ROWS * MATRIX_COLUMNS];
    [[unroll]] for (uint j = 0; j < MATRIX_COLUMNS; ++j) {
        SUMS constant;
        coopMatLoad(constant, constants, subgroup_channel + j * MATRIX_CHANNELS, 0, PIXEL_LINES);
        [[unroll]] for (uint i = 0; i < MATRIX_ROWS; ++i)
            sums[i * MATRIX_COLUMNS + j] = constant;
    }
#ifdef ONE_SET
    // A single copy of the products, whose last rounds fetch a step again that nobody stores.
    [[dont_unroll]] for (uint step = 0; step < end_step; ++step) {
        if (step + 1 < end_step) {
            if (!AHEAD)
                fetch_step(step + 1);
            put_step(step + 1);
        }
        if (AHEAD)
            fetch_step(min(step + 2, end_step - 1));
        MULTIPLY_STEP(step)
        barrier();
    }
#else
    BEGIN_STEPS(0)
    uint step = 0;
    [[dont_unroll]] for (; step + 2 < end_step; ++step) {
        put_step(step + 1);
        fetch_step(step + 2);
        MULTIPLY_STEP(step, BEGIN_NEXT_STEP(step))
    }
    if (end_step > 1) {
        put_step(step + 1);
        MULTIPLY_STEP(step, BEGIN_NEXT_STEP(step))
        ++step;
    }
    MULTIPLY_STEP(step, barrier())
#endif

    uint strip = gl_SubgroupID * (STRIPS_OF_SUBGROUP * STRIP);
    if (TAKES_BYTES) {
        [[dont_unroll]] for (uint n = 0; n < MATRIX_ROWS * MATRIX_COLUMNS; ++n) {
            // Matrices cannot be indexed at run time.
            SUMS chosen = sums[0];
            [[unroll]] for (uint i = 1; i < MATRIX_ROWS * MATRIX_COLUMNS; ++i)
                if (i == n)
                    chosen = sums[i];
            coopMatStore(chosen, tile, strip, MATRIX_CHANNELS / 4, PIXEL_LINES);
            subgroupBarrier();
            [[dont_unroll]] for (uint i = gl_SubgroupInvocationID; i < MATRIX_M * MATRIX_N; i += LANES) {
                uint pixel_position = subgroup_pixel + n / MATRIX_COLUMNS * MATRIX_PIXELS + i / MATRIX_CHANNELS;
                uint channel_position = subgroup_channel + n % MATRIX_COLUMNS * MATRIX_CHANNELS + i % MATRIX_CHANNELS;
                uint pixel = pixel_place(pixel_position);
                uint channel = first_channel + channel_place(channel_position);
                if (first_pixel + pixel < push.pixels && channel >= push.first_channel && channel < push.channels) {
                    int products = int(tile[strip + i / 4][i % 4]) - constants[channel_position];
                    uint value = exact_byte(products, input_sums[pixel_position], group_channel + channel,
                        int(filter_words[filter_sums + channel - first_channel]), multipliers[channel_position]);
                    uint address = destinations[pixel] + channel * SIZE(OUTPUT_STRIDE_C, output_stride_c);
                    output_bytes[address] = uint8_t(BYTE_WITH_ADDEND(LOOKED_UP_BYTE(value), address, false));
                }
            }
            subgroupBarrier();
        }
        return;
    }

    if (counts) {
        [[unroll]] for (uint j = 0; j < MATRIX_COLUMNS; ++j) {
            SUMS zero_points;
            coopMatLoad(zero_points, filter_zero_points, subgroup_channel + j * MATRIX_CHANNELS, 0, PIXEL_LINES);
            [[unroll]] for (uint i = 0; i < MATRIX_ROWS; ++i) {
                SUMS of_pixels;
                coopMatLoad(of_pixels, input_sums, subgroup_pixel + i * MATRIX_PIXELS, 0, CHANNEL_LINES);
                [[unroll]] for (uint e = 0; e < of_pixels.length(); ++e)
                    sums[i * MATRIX_COLUMNS + j][e] -= zero_points[e] * of_pixels[e];
            }
        }
    }

    Range range = range_of(zero_point_of_output);
#ifdef WITH_SUM
    const bool whole = false;
    fetch_addends();
#else
    bool whole = STORE_MATRICES != 0 && first_pixel + TILE_PIXELS <= push.pixels && first_channel >= push.first_channel
        && first_channel + TILE_CHANNELS <= push.channels;
#endif
    if (STORE_CHANNELS != 0) {
        [[unroll]] for (uint j = 0; j < MATRIX_COLUMNS; j += 4) {
            FLOATS factors[4];
            [[unroll]] for (uint q = 0; q < 4; ++q)
                coopMatLoad(factors[q], multipliers, subgroup_channel + (j + q) * MATRIX_CHANNELS, 0, PIXEL_LINES);
            uint channel = subgroup_channel + j * MATRIX_CHANNELS;
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
                LOOK_UP_WORDS(words)
                uint pixel = subgroup_pixel + i * MATRIX_PIXELS;
                if (whole) {
                    coopMatStore(words, output_words, (destinations[pixel] + first_channel + channel) / 4,
                        SIZE(OUTPUT_STRIDE_W, output_stride_w) / 4, PIXEL_LINES);
                } else {
                    coopMatStore(words, tile, strip + (j / 4 * MATRIX_ROWS + i) * STRIP, STRIP_ROW, PIXEL_LINES);
                }
            }
        }
    } else {
        [[unroll]] for (uint j = 0; j < MATRIX_COLUMNS; ++j) {
            FLOATS factors;
            coopMatLoad(factors, multipliers, subgroup_channel + j * MATRIX_CHANNELS, 0, PIXEL_LINES);
            uint channel = subgroup_channel + j * MATRIX_CHANNELS;
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
                LOOK_UP_WORDS(words)
                uint pixel = subgroup_pixel + i * MATRIX_PIXELS;
                if (whole) {
                    coopMatStore(words, output_words,
                        (destinations[pixel] + (first_channel + channel) * SIZE(OUTPUT_STRIDE_C, output_stride_c)) / 4,
                        SIZE(OUTPUT_STRIDE_C, output_stride_c) / 4, CHANNEL_LINES);
                } else {
                    coopMatStore(
                        words, tile, strip + (j * (MATRIX_ROWS / 4) + i / 4) * STRIP, STRIP_ROW, CHANNEL_LINES);
                }
            }
        }
    }
    if (whole)
        return;
#ifdef WITH_SUM
    put_addends();
#endif
    subgroupBarrier();
    [[dont_unroll]] for (uint n = 0; n < STRIPS_OF_SUBGROUP; ++n)
        store_strip(n, first_pixel);
}

void main() {
    begin_workgroup();
    begin_subgroup();
    begin_fetches();

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
