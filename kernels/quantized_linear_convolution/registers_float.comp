#version 450

// QUANTIZED_LINEAR_CONVOLUTION, the product: tiles in registers, by float32 multiplications and subgroup shuffles, for
// lavapipe.
//
// Maths: product.glsl. A product of two signed bytes is at most 2^14, so 1,024 of them add up to at most 2^24. Up to
// there float32 is exact: every partial sum is an integer that it can hold. So neither the rounding mode nor
// contraction nor the order of additions can change a sum. The sums of such blocks are then added up in 32-bit
// integers.
//
// Why: on a CPU with 8 lanes, a float multiplication and addition are two instructions. An integer dot product is four
// slow multiplications, four additions and the extraction of bytes from its words. Besides, Mesa 22.3 turns a storage
// buffer load inside a loop into a walk over the lanes, some 40 cycles for 8 lanes, even if all of them want the same
// word. So the number of loads decides the speed. Here each of 8 lanes loads its own filter words and takes them apart
// once, and the lanes pass their values around by shuffles, one instruction each. A walk that loads 64 bits costs as
// much as one that loads 32. So two words of K are loaded at once if a pixel's words come in pairs: 4 loads for 256
// vector multiply-adds, in place of 36.
//
// Layout: both operands have their channels last, k = (r * filter width + s) * quads + i, so that the words of two
// consecutive quads are contiguous. In the filter's words[k][8 channels], 64-bit lane l then holds channels 2 l % 8
// and 2 l % 8 + 1 of word k + l / 4.
//
// Loops:
//     each invocation: 16 channels (two panels) x 2 pixels, one workgroup apart so that lanes read along rows
//     for each 256 words of K:
//         for each pair of words: 2 input and 2 filter loads, 16 + 16 conversions, 128 shuffles, 256 multiply-adds
//         add the 32 float sums to the integer sums
//
// 16 x 2 is the best of the shapes tried: 32 sums fill the registers of AVX-512VL, and more sums spill, which takes 4
// times as long. The place of a tap is advanced in steps and not computed by divisions, because lavapipe has no cheap
// division.
//
// Preconditions: 64-bit integers. With WORDS 2, an even number of quads, and input and filter at multiples of 8 bytes.
// Subgroups of 8 or more lanes with shuffle, all lanes active: workgroups are multiples of the subgroup size, and no
// invocation leaves early. Filter panels 8 wide. Grid: x pixels, y pairs of panels, z groups.

#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "product.glsl"

layout(constant_id = 5) const uint WORDS = 1;  // words of K that are loaded at once: 1 or 2

layout(set = 0, binding = 0) readonly buffer InputPairs { uint64_t input_pairs[]; };
layout(set = 0, binding = 1) readonly buffer FilterPairs { uint64_t filter_pairs[]; };

const uint PANEL = 8;
const uint PANELS = 2;
const uint OWN_PIXELS = 2;
const uint BLOCK = 256;  // words of K that float32 adds up exactly

vec4 bytes_of(uint word) {
    return vec4(bitfieldExtract(int(word), 0, 8), bitfieldExtract(int(word), 8, 8), bitfieldExtract(int(word), 16, 8),
        int(word) >> 24);
}

void main() {
    uint group = gl_WorkGroupID.z;
    uint lane = gl_SubgroupInvocationID % PANEL;
    uint first_panel = gl_WorkGroupID.y * PANELS;
    uint filter_place[PANELS];
    [[unroll]] for (uint p = 0; p < PANELS; ++p) {
        // Past the last panel, the last one is computed again and not stored.
        uint panel = min(first_panel + p, push.panels_of_group - 1);
        filter_place[p] = push.filter_start + (group * push.panels_of_group + panel) * push.panel_stride;
    }
    Pixel pixels[OWN_PIXELS];
    uint pixel_index[OWN_PIXELS];
    int sums[PANELS * PANEL * OWN_PIXELS];
    int input_sums[OWN_PIXELS];
    [[unroll]] for (uint j = 0; j < OWN_PIXELS; ++j) {
        pixel_index[j] = (gl_WorkGroupID.x * OWN_PIXELS + j) * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
        pixels[j] = pixel_at(min(pixel_index[j], push.pixels - 1));
        pixels[j].source += group * push.input_stride_group;
        input_sums[j] = 0;
        [[unroll]] for (uint i = 0; i < PANELS * PANEL; ++i)
            sums[i * OWN_PIXELS + j] = 0;
    }

    uint quads = push.words / (FILTER_HEIGHT * FILTER_WIDTH);
    uint offset = 0;
    uint quad = 0;
    uint tap_column = 0;
    for (uint block = 0; block < push.words; block += BLOCK) {
        float block_sums[PANELS * PANEL * OWN_PIXELS];
        float block_input_sums[OWN_PIXELS];
        [[unroll]] for (uint i = 0; i < PANELS * PANEL * OWN_PIXELS; ++i)
            block_sums[i] = 0;
        [[unroll]] for (uint j = 0; j < OWN_PIXELS; ++j)
            block_input_sums[j] = 0;
        uint end = min(block + BLOCK, push.words);
        for (uint k = block; k < end; k += WORDS) {
            uvec2 input_pair[OWN_PIXELS];
            [[unroll]] for (uint j = 0; j < OWN_PIXELS; ++j) {
                uint place = pixels[j].source + offset;
                input_pair[j] = WORDS == 2 ? unpack32(input_pairs[place / 2]) : uvec2(input_words[place]);
            }
            uvec2 filter_pair[PANELS];
            [[unroll]] for (uint p = 0; p < PANELS; ++p) {
                uint place = filter_place[p] + k * PANEL + WORDS * lane;
                filter_pair[p] = WORDS == 2 ? unpack32(filter_pairs[place / 2]) : uvec2(filter_words[place]);
            }
            [[unroll]] for (uint h = 0; h < WORDS; ++h) {
                vec4 x[OWN_PIXELS];
                [[unroll]] for (uint j = 0; j < OWN_PIXELS; ++j) {
                    x[j] = bytes_of(input_pair[j][h]);
                    block_input_sums[j] += (x[j].x + x[j].y) + (x[j].z + x[j].w);
                }
                [[unroll]] for (uint p = 0; p < PANELS; ++p) {
                    // With WORDS 2 a lane holds two channels of word k (lanes 0 to 3) or k + 1 (4 to 7).
                    vec4 w[WORDS];
                    [[unroll]] for (uint c = 0; c < WORDS; ++c)
                        w[c] = bytes_of(filter_pair[p][c]);
                    [[unroll]] for (uint q = 0; q < 4; ++q) {
                        [[unroll]] for (uint i = 0; i < PANEL; ++i) {
                            float value = subgroupShuffle(w[i % WORDS][q], (h * PANEL + i) / WORDS);
                            [[unroll]] for (uint j = 0; j < OWN_PIXELS; ++j)
                                block_sums[(p * PANEL + i) * OWN_PIXELS + j] += x[j][q] * value;
                        }
                    }
                }
            }
            offset += WORDS;
            quad += WORDS;
            bool tap_done = quad == quads;
            quad = tap_done ? 0 : quad;
            offset += tap_done ? push.tap_stride_w - quads : 0;
            tap_column += tap_done ? 1 : 0;
            bool row_done = tap_column == FILTER_WIDTH;
            tap_column = row_done ? 0 : tap_column;
            offset += row_done ? push.tap_stride_h - FILTER_WIDTH * push.tap_stride_w : 0;
        }
        [[unroll]] for (uint i = 0; i < PANELS * PANEL * OWN_PIXELS; ++i)
            sums[i] += int(block_sums[i]);
        [[unroll]] for (uint j = 0; j < OWN_PIXELS; ++j)
            input_sums[j] += int(block_input_sums[j]);
    }

    // Not unrolled: this part is long, and a driver would spend seconds on 32 copies of it.
    [[dont_unroll]] for (uint quad = 0; quad < PANELS * PANEL / 4; ++quad) {
        uint packed[OWN_PIXELS];
        [[unroll]] for (uint j = 0; j < OWN_PIXELS; ++j)
            packed[j] = 0;
        uint first_channel = first_panel * PANEL + quad * 4;
        [[dont_unroll]] for (uint l = 0; l < 4; ++l) {
            uint i = quad * 4 + l;
            uint known = group * push.channels_of_group + min(first_channel + l, push.channels - 1);
            uint panel = i / PANEL == 0 ? filter_place[0] : filter_place[1];
            Channel last = channel_at(known, int(filter_words[panel + push.words * PANEL + i % PANEL]));
            [[unroll]] for (uint j = 0; j < OWN_PIXELS; ++j)
                packed[j] |= output_byte(sums[i * OWN_PIXELS + j], input_sums[j], last) << (8 * l);
        }
        uvec4 channels = group * push.channels_of_group + first_channel + uvec4(0, 1, 2, 3);
        bvec4 valid = bvec4(is_stored(first_channel), is_stored(first_channel + 1), is_stored(first_channel + 2),
            is_stored(first_channel + 3));
        [[unroll]] for (uint j = 0; j < OWN_PIXELS; ++j)
            if (pixel_index[j] < push.pixels)
                store_four(packed[j], pixels[j].destination + channels * push.output_stride_c, valid);
    }
}
