#version 460

// QUANTIZED_LINEAR_AVERAGE_POOLING of whole planes that are packed, one after the other: channels first.
//
// Maths: mean.glsl, IS_GLOBAL. Sums of integers may be cut and added in any order.
//
// Loops: small planes (PARTS is 1) come into shared memory:
//     all words of the workgroup's planes are loaded, and then stored
//     one invocation adds up a plane, two masks and two additions for each word, and finishes it
// PARTS invocations, a power of two, take the words of a larger plane in turn, and workgroups take planes:
//     for each word of the invocation, BATCH at a time: one load, two masks and two additions
//     the sums of the plane's invocations are added by way of shared memory
//     one invocation finishes a plane: it subtracts what the first word and the last one have outside the plane
//     one invocation stores a word of the output
//
// Layout: neighbouring invocations read neighbouring words of the input. Two sums of 16 bits share a word; they are added to
// one of 32 bits after 128 words, before they can overflow.
//
// Preconditions: input and output are packed along N and C; at most 2^23 elements a plane, or 60 if PARTS is 1. Six storage
// buffers. The shared memory is that of a workgroup's sums and bytes: 2 KiB at most; or of its planes, and 4 bytes for each.
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

#include "parameters.glsl"

// Words of a workgroup's small planes, the first and the last of which it may have in part.
const uint PLANE_WORDS = (gl_WorkGroupSize.x * TAPS_OF_MEAN + 6) / 4;
shared uint sums[PARTS == 1 ? PLANE_WORDS : gl_WorkGroupSize.x];
shared uint bytes[gl_WorkGroupSize.x];

const uint ELEMENT_SIZE = 1;
#include "windows/words.glsl"
#include "mean.glsl"

const uint BATCH = 4;
const uint BATCHES_BEFORE_OVERFLOW = 128 / BATCH;
// Sums of a plane that one invocation adds up.
const uint FEW_PARTS = 4;

// The sums of a word's bytes, two of them.
uint pair_of(uint word) {
    return ((word ^ FLIP) & 0x00FF00FFu) + ((word ^ FLIP) >> 8 & 0x00FF00FFu);
}

// Brings the words of the bytes from `first` on, excluding `end`, into shared memory.
const uint MOST_WORDS = 16;
void load_planes(uint first, uint end) {
    uint words[MOST_WORDS];
    [[unroll]] for (uint k = 0; k < MOST_WORDS; ++k)
        if (k * gl_WorkGroupSize.x < PLANE_WORDS)
            words[k] = input_words[min(first / 4 + gl_LocalInvocationID.x + k * gl_WorkGroupSize.x, (end - 1) / 4)];
    [[unroll]] for (uint k = 0; k < MOST_WORDS; ++k) {
        uint at = gl_LocalInvocationID.x + k * gl_WorkGroupSize.x;
        if (at < PLANE_WORDS)
            sums[at] = words[k];
    }
}

// The lowest bytes of a word, so many of them.
uint bytes_below(int count) {
    uint half_bits = uint(clamp(count, 0, 4)) * 4;
    return ~(0xFFFFFFFFu << half_bits << half_bits);
}

// The sum of a plane that is in shared memory from byte `first` on.
uint sum_of_plane(uint first) {
    uint pair = 0;
    [[unroll]] for (uint k = 0; k < MOST_WORDS; ++k) {
        if (4 * k < TAPS_OF_MEAN + 3) {
            uint word = sums[min(first / 4 + k, PLANE_WORDS - 1)] ^ FLIP;
            int place = int(4 * k) - int(first % 4);  // of the word in the plane
            if (k == 0)
                word &= ~bytes_below(-place);
            if (4 * k + 4 > TAPS_OF_MEAN)
                word &= bytes_below(int(TAPS_OF_MEAN) - place);
            pair += (word & 0x00FF00FFu) + (word >> 8 & 0x00FF00FFu);
        }
    }
    return (pair & 0xFFFF) + (pair >> 16);
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
    uint input_begin = push.input_start + first_plane * TAPS_OF_MEAN;
    if (PARTS == 1) {
        if (first_plane < push.planes)
            load_planes(input_begin, push.input_start + min(first_plane + planes_at_once, push.planes) * TAPS_OF_MEAN);
        barrier();
    } else {
        sums[local] = plane < push.planes ? sum_of_part(push.input_start + plane * TAPS_OF_MEAN, part) : 0;
        barrier();
        for (uint parts = PARTS / 2; parts >= FEW_PARTS; parts /= 2) {
            if (part < parts)
                sums[local] += sums[local + parts];
            barrier();
        }
    }
    plane = first_plane + local;
    if (local < planes_at_once && plane < push.planes) {
        Parameters p = parameters_of(plane % push.channels);
        int sum = -(p.input_zero_point + FLIPPED_ZERO) * int(TAPS_OF_MEAN);
        if (PARTS == 1) {
            sum += int(sum_of_plane(input_begin % 4 + local * TAPS_OF_MEAN));
        } else {
            [[unroll]] for (uint i = 0; i < FEW_PARTS; ++i)
                if (i < PARTS)
                    sum += int(sums[local * PARTS + i]);
            sum -= int(sum_outside(push.input_start + plane * TAPS_OF_MEAN));
        }
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
