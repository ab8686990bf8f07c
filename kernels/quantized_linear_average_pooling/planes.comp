#version 460

// QUANTIZED_LINEAR_AVERAGE_POOLING of whole planes that are packed, one after the other: channels first.
//
// Maths: mean.glsl, IS_GLOBAL. Sums of integers may be cut and added in any order.
//
// Loops: PARTS invocations, a power of two, take the words of a plane in turn, and workgroups take planes:
//     for each word of the invocation: bytes outside the plane are cleared; two masks and two additions
//     the sums of the plane's invocations are added by way of shared memory
//     one invocation finishes the planes of a word of the output
//
// Layout: neighbouring invocations read neighbouring words. Two sums of 16 bits share a word; they are added to one of 32
// bits after 128 words, before they can overflow.
//
// Preconditions: input and output are packed along N and C; at most 2^23 elements a plane. Six storage buffers. The shared
// memory is that of a workgroup's sums: 1 KiB at most.
//
// Driver bugs avoided: none.

#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint PARTS = 1;
const uint IS_GLOBAL = 1;
const uint WINDOW_TAPS = 1;
#define FIRST_PARAMETER_CONSTANT 2
#define FIRST_PARAMETER_BINDING 2

layout(push_constant) uniform PushConstants {
    uint input_start;   // bytes
    uint output_start;  // bytes
    uint planes;
    uint channels;
    uint input_scale_start;
    uint input_zero_point_start;
    uint output_scale_start;
    uint output_zero_point_start;
} push;

layout(set = 0, binding = 0) readonly buffer Input { uint input_words[]; };
layout(set = 0, binding = 1) buffer Output { uint output_words[]; };

shared uint sums[gl_WorkGroupSize.x];

const uint ELEMENT_SIZE = 1;
#include "windows/words.glsl"
#include "parameters.glsl"
#include "mean.glsl"

const uint FLIP = (UNSIGNED_TYPES & 1) != 0 ? 0 : 0x80808080u;
const int FLIPPED_ZERO = (UNSIGNED_TYPES & 1) != 0 ? 0 : 128;
const uint WORDS_BEFORE_OVERFLOW = 128;

uint bytes_from(int byte) {
    return byte <= 0 ? 0xFFFFFFFFu : byte >= 4 ? 0 : 0xFFFFFFFFu << uint(byte) * 8;
}

uint sum_of_bytes(uint first, uint part) {
    uint last = first + TAPS_OF_MEAN;  // excluding
    uint total = 0;
    uint word = first / 4 + part;
    while (word * 4 < last) {
        uint pair = 0;
        for (uint i = 0; i < WORDS_BEFORE_OVERFLOW && word * 4 < last; ++i, word += PARTS) {
            uint inside = bytes_from(int(first - word * 4)) & ~bytes_from(int(last - word * 4));
            uint bytes = (input_words[word] ^ FLIP) & inside;
            pair += (bytes & 0x00FF00FFu) + (bytes >> 8 & 0x00FF00FFu);
        }
        total += (pair & 0xFFFF) + (pair >> 16);
    }
    return total;
}

void main() {
    uint workgroup = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    uint planes_at_once = gl_WorkGroupSize.x / PARTS;
    uint first_plane = workgroup * planes_at_once;
    uint plane = first_plane + gl_LocalInvocationID.x / PARTS;
    sums[gl_LocalInvocationID.x] =
        plane < push.planes ? sum_of_bytes(push.input_start + plane * TAPS_OF_MEAN, gl_LocalInvocationID.x % PARTS) : 0;
    barrier();

    // An invocation for each word of the output that the workgroup's planes touch.
    uint last_plane = min(first_plane + planes_at_once, push.planes);
    uint word = (push.output_start + first_plane) / 4 + gl_LocalInvocationID.x;
    if (first_plane >= push.planes || word * 4 >= push.output_start + last_plane)
        return;
    uint packed = 0, mask = 0;
    for (uint i = 0; i < 4; ++i) {
        uint at = word * 4 + i - push.output_start;  // wraps before the first plane
        if (at >= first_plane && at < last_plane) {
            Parameters p = parameters_of(at % push.channels);
            int sum = -(p.input_zero_point + FLIPPED_ZERO) * int(TAPS_OF_MEAN);
            for (uint part = 0; part < PARTS; ++part)
                sum += int(sums[(at - first_plane) * PARTS + part]);
            bool is_certain;
            uint byte = estimated_mean(sum, 1.0 / float(TAPS_OF_MEAN), p, is_certain);
            if (!is_certain)
                byte = exact_plane(sum, p);
            packed |= byte << 8 * i;
            mask |= 0xFFu << 8 * i;
        }
    }
    store_masked(word, mask, packed);
}
