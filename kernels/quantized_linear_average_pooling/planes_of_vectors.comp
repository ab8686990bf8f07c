#version 460

// QUANTIZED_LINEAR_AVERAGE_POOLING of whole planes by vectors of channels: channels last.
//
// Maths: mean.glsl, IS_GLOBAL. Sums of integers may be cut and added in any order.
//
// Loops: LANES invocations, a power of two, take neighbouring vectors of channels; the others of a workgroup take the
// pixels in turn:
//     for each pixel of the invocation, BATCH at a time: one load, and for each word two masks and two additions
//     the sums of a vector's invocations are added by way of shared memory
//     one invocation finishes a word of the output
//
// Layout: neighbouring invocations read neighbouring vectors. Two sums of 16 bits share a word; they are added to sums of 32
// bits after 257 pixels, before they can overflow.
//
// Preconditions: pixels are evenly spaced in the input; channels are packed in the input and in the output; channels, strides
// and starts are multiples of a vector; at most 2^23 pixels. Workgroups of 128 at most: 8 KiB of shared memory. Six storage
// buffers.
//
// Driver bugs avoided: none.

#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint LANES = 1;
layout(constant_id = 2) const uint VECTOR_WORDS = 4;
const uint IS_GLOBAL = 1;
const uint WINDOW_TAPS = 1;
#define FIRST_PARAMETER_CONSTANT 3
#define FIRST_PARAMETER_BINDING 2

layout(push_constant) uniform PushConstants {
    uint input_start;   // vectors
    uint output_start;  // words
    uint images;
    uint vectors;  // of an image
    uint input_stride_n;
    uint pixel_stride;
    uint output_stride_n;
    uint input_scale_start;
    uint input_zero_point_start;
    uint output_scale_start;
    uint output_zero_point_start;
} push;

layout(set = 0, binding = 0) readonly buffer InputWords { uint input_words[]; };
layout(set = 0, binding = 0) readonly buffer InputVectors { uvec4 input_vectors[]; };
layout(set = 0, binding = 1) buffer Output { uint output_words[]; };

// For each invocation the sums of its bytes: those of a word are 4 numbers, those of 4 words of the vector follow each other.
shared uvec4 sums[gl_WorkGroupSize.x * VECTOR_WORDS];

#include "parameters.glsl"
#include "mean.glsl"

const uint BATCH = 4;
const uint BATCHES_BEFORE_OVERFLOW = 257 / BATCH;

void main() {
    uint workgroup = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    uint groups = (push.vectors + LANES - 1) / LANES;
    uint image = workgroup / groups;
    uint first_vector = (workgroup - image * groups) * LANES;
    uint vector = first_vector + gl_LocalInvocationID.x % LANES;
    uint parts = gl_WorkGroupSize.x / LANES;

    uvec4 totals[4];
    [[unroll]] for (uint word = 0; word < 4; ++word)
        totals[word] = uvec4(0);
    if (image < push.images && vector < push.vectors) {
        uint pixel = gl_LocalInvocationID.x / LANES;
        uint at = push.input_start + image * push.input_stride_n + vector;
        while (pixel < TAPS_OF_MEAN) {
            uvec2 pairs[4];
            [[unroll]] for (uint word = 0; word < 4; ++word)
                pairs[word] = uvec2(0);
            for (uint i = 0; i < BATCHES_BEFORE_OVERFLOW && pixel < TAPS_OF_MEAN; ++i) {
                uvec4 values[BATCH];
                [[unroll]] for (uint k = 0; k < BATCH; ++k) {
                    // In place of a pixel behind the plane, the last one is loaded, and does not count.
                    uint place = at + min(pixel + k * parts, TAPS_OF_MEAN - 1) * push.pixel_stride;
                    values[k] = VECTOR_WORDS == 4 ? input_vectors[place] : uvec4(input_words[place], 0, 0, 0);
                }
                [[unroll]] for (uint k = 0; k < BATCH; ++k) {
                    uint mask = pixel + k * parts < TAPS_OF_MEAN ? 0x00FF00FFu : 0;
                    [[unroll]] for (uint word = 0; word < 4; ++word)
                        if (word < VECTOR_WORDS)
                            pairs[word] += ((uvec2(values[k][word]) ^ FLIP) >> uvec2(0, 8)) & mask;
                }
                pixel += BATCH * parts;
            }
            [[unroll]] for (uint word = 0; word < 4; ++word)
                totals[word] += uvec4(pairs[word] & 0xFFFF, pairs[word] >> 16);  // bytes 0, 1; 2, 3
        }
    }
    [[unroll]] for (uint word = 0; word < 4; ++word)
        if (word < VECTOR_WORDS)
            sums[gl_LocalInvocationID.x * VECTOR_WORDS + word] = totals[word];
    barrier();

    // An invocation for each word of the workgroup's vectors; there may be more words than invocations.
    for (uint i = gl_LocalInvocationID.x; i < LANES * VECTOR_WORDS; i += gl_WorkGroupSize.x) {
        if (image >= push.images || first_vector + i / VECTOR_WORDS >= push.vectors)
            return;
        uvec4 all = uvec4(0);
        for (uint part = 0; part < parts; ++part)
            all += sums[part * LANES * VECTOR_WORDS + i];
        uint word = first_vector * VECTOR_WORDS + i;
        uint packed = 0;
        for (uint k = 0; k < 4; ++k) {
            Parameters p = parameters_of(4 * word + k);
            int sum = int(all[k]) - (p.input_zero_point + FLIPPED_ZERO) * int(TAPS_OF_MEAN);
            bool is_certain;
            uint byte = estimated_mean(sum, 1.0 / float(TAPS_OF_MEAN), p, is_certain);
            if (!is_certain)
                byte = exact_plane(sum, p);
            packed |= byte << 8 * k;
        }
        output_words[push.output_start + image * push.output_stride_n + word] = packed;
    }
}
