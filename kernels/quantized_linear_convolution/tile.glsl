// The product with shared memory: a workgroup computes TILE_CHANNELS x 128 outputs, an invocation 8 x 8 of them.
//
// Loops:
//     for each 8 words of K:
//         each invocation fetches its share of the next 8 words of both operands into registers
//         for each of the current 8 words:
//             read 8 words of the filter and 8 of the input from shared memory (four 16-byte reads)
//             64 dot products
//         store the fetched words to the other half of shared memory; one barrier
//
// Layout: shared memory holds [k][channel] and [k][pixel]. An invocation's 8 channels, or 8 pixels, are two 16-byte
// vectors, half a tile apart. So neighbouring invocations read neighbouring vectors, without bank conflicts. 8 x 8
// outputs take 16 words from shared memory for 64 dot products, so few that the dot product unit is the limit. 64 sums
// and 16 operands fit the registers of any GPU. Vectors of the filter are contiguous in its panel. Four pixels of the
// input are four loads along a row of the packed input, so the same few cache lines serve all of them.
//
// sum(x') costs next to nothing: each invocation adds up the words that it fetches anyway, with 4 dot products to 512
// if TILE_CHANNELS is 128. These sums are added through shared memory at the end.
//
// Preconditions: the local size is TILE_CHANNELS / 8 * 16, and filter panels are TILE_CHANNELS wide. TILE_CHANNELS is
// 32, 64 or 128: 10 to 16 KiB of shared memory, which every device has. Grid: x channels, y pixels, z groups. Channels
// run fastest, so that workgroups that share pixels run at the same time. No invocation leaves before the last
// barrier.

layout(constant_id = 5) const uint TILE_CHANNELS = 64;

const uint TILE_PIXELS = 128;
const uint STEP = 8;
const uint CHANNEL_VECTORS = TILE_CHANNELS / 4;
const uint PIXEL_VECTORS = TILE_PIXELS / 4;
const uint INVOCATIONS = TILE_CHANNELS / 8 * (TILE_PIXELS / 8);
const uint FILTER_FETCHES = STEP * CHANNEL_VECTORS / INVOCATIONS;
const uint INPUT_FETCHES = STEP * PIXEL_VECTORS / INVOCATIONS;

shared uvec4 filter_tile[2 * STEP * CHANNEL_VECTORS];
shared uvec4 input_tile[2 * STEP * PIXEL_VECTORS];

void main() {
    uint invocation = gl_LocalInvocationID.x;
    uint own_channels = invocation / (TILE_PIXELS / 8);
    uint own_pixels = invocation % (TILE_PIXELS / 8);
    uint tile = gl_WorkGroupID.x;
    uint group = gl_WorkGroupID.z;
    uint first_pixel = gl_WorkGroupID.y * TILE_PIXELS;
    uint panel = push.filter_start + (group * push.panels_of_group + tile) * push.panel_stride;

    // This invocation fetches the same four pixels in every step, in INPUT_FETCHES rows of K.
    uint fetch_pixel = invocation % PIXEL_VECTORS;
    uint fetch_row = invocation / PIXEL_VECTORS;
    uint source[4];
    [[unroll]] for (uint i = 0; i < 4; ++i) {
        uint pixel = min(first_pixel + 4 * fetch_pixel + i, push.pixels - 1);
        source[i] = pixel_at(pixel).source + group * push.input_stride_group;
    }

    int sums[8][8];
    [[unroll]] for (uint i = 0; i < 8; ++i) {
        [[unroll]] for (uint j = 0; j < 8; ++j)
            sums[i][j] = 0;
    }
    ivec4 input_sum = ivec4(0);
    uvec4 next_filter[FILTER_FETCHES];
    uvec4 next_input[INPUT_FETCHES];

    uint steps = (push.words + STEP - 1) / STEP;
    for (uint step = 0; step <= steps; ++step) {
        if (step < steps) {
            [[unroll]] for (uint f = 0; f < FILTER_FETCHES; ++f) {
                uint vector = invocation + f * INVOCATIONS;
                uint k = step * STEP + vector / CHANNEL_VECTORS;
                next_filter[f] = uvec4(0);
                if (k < push.words)
                    next_filter[f] = filter_vectors[(panel + k * TILE_CHANNELS) / 4 + vector % CHANNEL_VECTORS];
            }
            [[unroll]] for (uint f = 0; f < INPUT_FETCHES; ++f) {
                uint k = step * STEP + fetch_row + f * (STEP / INPUT_FETCHES);
                next_input[f] = uvec4(0);
                if (k < push.words) {
                    uint offset = tap_offset(k);
                    next_input[f] = uvec4(input_words[source[0] + offset], input_words[source[1] + offset],
                        input_words[source[2] + offset], input_words[source[3] + offset]);
                }
                input_sum.x = dot_add(next_input[f].x, ONES, input_sum.x);
                input_sum.y = dot_add(next_input[f].y, ONES, input_sum.y);
                input_sum.z = dot_add(next_input[f].z, ONES, input_sum.z);
                input_sum.w = dot_add(next_input[f].w, ONES, input_sum.w);
            }
        }
        if (step > 0) {
            uint half_tile = (step - 1) & 1;
            [[unroll]] for (uint k = 0; k < STEP; ++k) {
                uint filter_row = (half_tile * STEP + k) * CHANNEL_VECTORS + own_channels;
                uint input_row = (half_tile * STEP + k) * PIXEL_VECTORS + own_pixels;
                uvec4 w[2] = {filter_tile[filter_row], filter_tile[filter_row + CHANNEL_VECTORS / 2]};
                uvec4 x[2] = {input_tile[input_row], input_tile[input_row + PIXEL_VECTORS / 2]};
                [[unroll]] for (uint i = 0; i < 8; ++i) {
                    [[unroll]] for (uint j = 0; j < 8; ++j)
                        sums[i][j] = dot_add(w[i / 4][i % 4], x[j / 4][j % 4], sums[i][j]);
                }
            }
        }
        if (step < steps) {
            uint half_tile = step & 1;
            [[unroll]] for (uint f = 0; f < FILTER_FETCHES; ++f)
                filter_tile[half_tile * STEP * CHANNEL_VECTORS + invocation + f * INVOCATIONS] = next_filter[f];
            [[unroll]] for (uint f = 0; f < INPUT_FETCHES; ++f)
                input_tile[(half_tile * STEP + fetch_row + f * (STEP / INPUT_FETCHES)) * PIXEL_VECTORS + fetch_pixel] =
                    next_input[f];
        }
        barrier();
    }

    // The parts of sum(x') go from the invocations that fetched them to the owners of the pixels.
    input_tile[invocation] = uvec4(input_sum);
    barrier();
    int input_sums[8];
    [[unroll]] for (uint j = 0; j < 8; ++j)
        input_sums[j] = 0;
    for (uint row = 0; row < INVOCATIONS / PIXEL_VECTORS; ++row) {
        ivec4 low = ivec4(input_tile[row * PIXEL_VECTORS + own_pixels]);
        ivec4 high = ivec4(input_tile[row * PIXEL_VECTORS + own_pixels + PIXEL_VECTORS / 2]);
        [[unroll]] for (uint j = 0; j < 4; ++j) {
            input_sums[j] += low[j];
            input_sums[4 + j] += high[j];
        }
    }

    uint destination[8];
    bool pixel_valid[8];
    [[unroll]] for (uint j = 0; j < 8; ++j) {
        uint pixel = first_pixel + (j / 4) * (TILE_PIXELS / 2) + 4 * own_pixels + j % 4;
        pixel_valid[j] = pixel < push.pixels;
        destination[j] = pixel_at(min(pixel, push.pixels - 1)).destination;
    }
    [[unroll]] for (uint quad = 0; quad < 2; ++quad) {
        uint packed[8];
        bvec4 channel_valid;
        [[unroll]] for (uint j = 0; j < 8; ++j)
            packed[j] = 0;
        uint first_channel = tile * TILE_CHANNELS + quad * (TILE_CHANNELS / 2) + 4 * own_channels;
        uint first_address = (group * push.channels_of_group + first_channel) * push.output_stride_c;
        [[unroll]] for (uint i = 0; i < 4; ++i) {
            uint channel = first_channel + i;
            channel_valid[i] = is_stored(channel);
            uint place = quad * (TILE_CHANNELS / 2) + 4 * own_channels + i;
            int filter_sum = int(filter_words[panel + push.words * TILE_CHANNELS + place]);
            uint known = min(channel, push.channels - 1);
            Channel last = channel_at(group * push.channels_of_group + known, filter_sum);
            uvec2 row = uvec2(0);
            [[unroll]] for (uint j = 0; j < 8; ++j) {
                uint value = output_byte(sums[4 * quad + i][j], input_sums[j], last);
                row[j / 4] |= value << (8 * (j % 4));
                packed[j] |= value << (8 * i);
            }
            if (STORE_CHANNELS == 0 && channel_valid[i]) {
                uint address = first_address + i * push.output_stride_c;
                [[unroll]] for (uint j = 0; j < 8; j += 4)
                    store_four(row[j / 4],
                        address + uvec4(destination[j], destination[j + 1], destination[j + 2], destination[j + 3]),
                        bvec4(pixel_valid[j], pixel_valid[j + 1], pixel_valid[j + 2], pixel_valid[j + 3]));
            }
        }
        if (STORE_CHANNELS != 0) {
            [[unroll]] for (uint j = 0; j < 8; ++j)
                if (pixel_valid[j])
                    store_four(packed[j], first_address + destination[j] + uvec4(0, 1, 2, 3) * push.output_stride_c,
                        channel_valid);
        }
    }
}
