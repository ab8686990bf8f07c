#version 460

// QUANTIZED_LINEAR_AVERAGE_POOLING of whole planes that are packed, one after the other: channels first.
//
// Maths: mean.glsl, IS_GLOBAL. Sums of integers may be cut and added in any order.
//
// Loops: PARTS invocations, a power of two, take the words of a plane in turn, and workgroups take planes:
//     for each word of the invocation, BATCH at a time: one load, two masks and two additions
//     the sums of the plane's invocations are added by way of shared memory
//     one invocation finishes a plane: it subtracts what the first word and the last one have outside the plane
//     one invocation stores a word of the output
//
// Layout: neighbouring invocations read neighbouring words. Two sums of 16 bits share a word; they are added to one of 32
// bits after 128 words, before they can overflow.
//
// Preconditions: input and output are packed along N and C; at most 2^23 elements a plane. Six storage buffers. The shared
// memory is that of a workgroup's sums and bytes: 2 KiB at most.
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
shared uint bytes[gl_WorkGroupSize.x];

const uint ELEMENT_SIZE = 1;
#include "windows/words.glsl"
#include "parameters.glsl"
#include "mean.glsl"

const uint FLIP = (UNSIGNED_TYPES & 1) != 0 ? 0 : 0x80808080u;
const int FLIPPED_ZERO = (UNSIGNED_TYPES & 1) != 0 ? 0 : 128;
const uint BATCH = 4;
const uint BATCHES_BEFORE_OVERFLOW = 128 / BATCH;
// Sums of a plane that one invocation adds up.
const uint FEW_PARTS = 4;

// The sums of a word's bytes, two of them.
uint pair_of(uint word) {
    return ((word ^ FLIP) & 0x00FF00FFu) + ((word ^ FLIP) >> 8 & 0x00FF00FFu);
}

// The sum of a part of the words that have bytes of the plane from byte `first` on.
uint sum_of_part(uint first, uint part) {
    uint word = first / 4 + part, last_word = (first + TAPS_OF_MEAN - 1) / 4;
    uint total = 0;
    while (word <= last_word) {
        uint pair = 0;
        for (uint i = 0; i < BATCHES_BEFORE_OVERFLOW && word <= last_word; ++i) {
            uint words[BATCH];
            [[unroll]] for (uint k = 0; k < BATCH; ++k)
                words[k] = input_words[min(word + k * PARTS, last_word)];
            [[unroll]] for (uint k = 0; k < BATCH; ++k)
                pair += word + k * PARTS <= last_word ? pair_of(words[k]) : 0;
            word += BATCH * PARTS;
        }
        total += (pair & 0xFFFF) + (pair >> 16);
    }
    return total;
}

// What the first word and the last one add to the plane's sum, and should not.
uint sum_outside(uint first) {
    uint end = first + TAPS_OF_MEAN;
    uint before = (1u << 8 * (first % 4)) - 1, behind = end % 4 == 0 ? 0 : 0xFFFFFFFFu << 8 * (end % 4);
    uint pair = pair_of(input_words[first / 4] & before | FLIP & ~before)
        + pair_of(input_words[(end - 1) / 4] & behind | FLIP & ~behind);
    return (pair & 0xFFFF) + (pair >> 16);
}

void main() {
    uint local = gl_LocalInvocationID.x;
    uint workgroup = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    uint planes_at_once = gl_WorkGroupSize.x / PARTS;
    uint first_plane = workgroup * planes_at_once;
    uint plane = first_plane + local / PARTS, part = local % PARTS;
    sums[local] = plane < push.planes ? sum_of_part(push.input_start + plane * TAPS_OF_MEAN, part) : 0;
    barrier();
    for (uint parts = PARTS / 2; parts >= FEW_PARTS; parts /= 2) {
        if (part < parts)
            sums[local] += sums[local + parts];
        barrier();
    }
    plane = first_plane + local;
    if (local < planes_at_once && plane < push.planes) {
        Parameters p = parameters_of(plane % push.channels);
        int sum = -(p.input_zero_point + FLIPPED_ZERO) * int(TAPS_OF_MEAN);
        [[unroll]] for (uint i = 0; i < FEW_PARTS; ++i)
            if (i < PARTS)
                sum += int(sums[local * PARTS + i]);
        sum -= int(sum_outside(push.input_start + plane * TAPS_OF_MEAN));
        bool is_certain;
        uint byte = estimated_mean(sum, 1.0 / float(TAPS_OF_MEAN), p, is_certain);
        bytes[local] = is_certain ? byte : exact_plane(sum, p);
    }
    barrier();

    // An invocation for each word of the output that the workgroup's planes touch.
    uint last_plane = min(first_plane + planes_at_once, push.planes);
    uint word = (push.output_start + first_plane) / 4 + local;
    if (first_plane >= push.planes || word * 4 >= push.output_start + last_plane)
        return;
    uint packed = 0, mask = 0;
    for (uint i = 0; i < 4; ++i) {
        uint at = word * 4 + i - push.output_start;  // wraps before the first plane
        if (at >= first_plane && at < last_plane) {
            packed |= bytes[at - first_plane] << 8 * i;
            mask |= 0xFFu << 8 * i;
        }
    }
    store_masked(word, mask, packed);
}
