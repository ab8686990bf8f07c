// The product with registers only, for drivers that run on a CPU. There, shared memory is ordinary memory, a barrier
// splits the program, and the number of loads for each product decides the speed.
//
// Loops:
//     each invocation: 8 channels x 4 neighbouring pixels
//     for each word of K:
//         4 words of the input, one a pixel; 8 words of the filter, the same for all invocations
//         32 dot products
//
// Layout: the 8 words of the filter are contiguous in its panel, so that they are two 16-byte loads.
//
// Preconditions: filter panels 8 wide. Grid: x pixels, y panels, z groups.

const uint PANEL = 8;
const uint OWN_PIXELS = 4;

void main() {
    uint group = gl_WorkGroupID.z;
    uint panel = push.filter_start + (group * push.panels_of_group + gl_WorkGroupID.y) * push.panel_stride;
    uint first_pixel = (gl_WorkGroupID.x * gl_WorkGroupSize.x + gl_LocalInvocationID.x) * OWN_PIXELS;
    if (first_pixel >= push.pixels)
        return;
    Pixel pixels[OWN_PIXELS];
    int sums[PANEL * OWN_PIXELS];
    int input_sums[OWN_PIXELS];
    [[unroll]] for (uint j = 0; j < OWN_PIXELS; ++j) {
        pixels[j] = pixel_at(min(first_pixel + j, push.pixels - 1));
        pixels[j].source += group * push.input_stride_group;
        input_sums[j] = 0;
        [[unroll]] for (uint i = 0; i < PANEL; ++i)
            sums[i * OWN_PIXELS + j] = 0;
    }
    for (uint k = 0; k < push.words; ++k) {
        uint offset = tap_offset(k);
        uint x[OWN_PIXELS];
        [[unroll]] for (uint j = 0; j < OWN_PIXELS; ++j) {
            x[j] = input_words[pixels[j].source + offset];
            input_sums[j] = dot_add(x[j], ONES, input_sums[j]);
        }
        uint row = panel / 4 + k * (PANEL / 4);
        [[unroll]] for (uint i = 0; i < PANEL; i += 4) {
            uvec4 w = filter_vectors[row + i / 4];
            [[unroll]] for (uint l = 0; l < 4; ++l) {
                [[unroll]] for (uint j = 0; j < OWN_PIXELS; ++j)
                    sums[(i + l) * OWN_PIXELS + j] = dot_add(x[j], w[l], sums[(i + l) * OWN_PIXELS + j]);
            }
        }
    }

    // The last step is long, and a driver would spend seconds on 32 copies of it, so it is a loop. The loop takes a
    // copy of the sums, because an array that is indexed by a variable lies in memory and not in registers.
    int finished[PANEL * OWN_PIXELS];
    [[unroll]] for (uint i = 0; i < PANEL * OWN_PIXELS; ++i)
        finished[i] = sums[i];
    [[dont_unroll]] for (uint i = 0; i < PANEL; ++i) {
        uint channel = gl_WorkGroupID.y * PANEL + i;
        bool channel_valid = is_stored(channel);
        channel = group * push.channels_of_group + min(channel, push.channels - 1);
        Channel last = channel_at(channel, int(filter_words[panel + push.words * PANEL + i]));
        uint packed = 0;
        uvec4 address;
        bvec4 valid;
        [[unroll]] for (uint j = 0; j < OWN_PIXELS; ++j) {
            packed |= output_byte(finished[i * OWN_PIXELS + j], input_sums[j], last) << (8 * j);
            address[j] = pixels[j].destination + channel * push.output_stride_c;
            valid[j] = channel_valid && first_pixel + j < push.pixels;
        }
        store_four(packed, address, valid);
    }
}
