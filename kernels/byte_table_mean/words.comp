#version 460

// BYTE_TABLE_MEAN of many planes in float32, four bytes at a time, on devices that round to nearest even if they are asked to.
//
// Maths: mean.glsl. No element waits before the groups, and none or four are left behind them. All additions are floats' if all
// numbers of the table have ordinary sizes, else all are made in integers. The division is always made in integers.
//
// Loops: a workgroup takes PLANES planes.
//     the table comes into shared memory
//     with channels last, for each lane and each four channels, by one invocation:
//         for each group of LANES elements, AT_ONCE of them: the next words; four values of each, and additions
//     with channels first, for each plane, by one invocation:
//         for each CHUNK words of each plane: they come into shared memory by neighbouring words; values, and additions
//     for each plane: the sum of its lanes, and a division
//
// Layout. The table lies in shared memory COPIES times, so that neighbouring invocations wait less often for the same bank. With
// channels first, chunks begin at a multiple of 8 words, as memory is read, but for an odd word.
//
// Preconditions: three storage buffers. A plane's elements are evenly spaced, and their number is a multiple of 4. All starts
// and strides of the input are words, but for that of a packed dimension: the channels, whose number is a multiple of 4, or the
// elements. With channels last, invocations are PLANES * LANES / 4, else PLANES, a multiple of CHUNK. The device has
// shaderRoundingModeRTEFloat32. Offsets wrap modulo 2^32.
//
// Driver bugs avoided: none.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_spirv_intrinsics : require
#extension GL_EXT_control_flow_attributes : require
spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4467], 4462, 32);  // RoundingModeRTE 32

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint LANES = 1;
layout(constant_id = 2) const uint PLANES = 4;  // of a workgroup; a multiple of 4
layout(constant_id = 3) const uint IS_CHANNELS_LAST = 0;
layout(constant_id = 4) const uint COPY_BITS = 0;
layout(constant_id = 5) const uint STAGED_WORDS = 1;  // PLANES of PITCH
layout(constant_id = 6) const uint AT_ONCE = 8;  // words of a lane that are on their way together

const uint COPIES = 1 << COPY_BITS;

layout(push_constant) uniform PushConstants {
    uint input_start;  // bytes
    uint table_start;
    uint output_start;
    uint planes;  // of the dispatch
    uint channels;
    uint count;  // elements of a plane
    uint input_stride_n;
    uint input_stride_c;
    uint input_stride_w;
    uint output_stride_n;
    uint output_stride_c;
} push;

layout(set = 0, binding = 0) readonly buffer Input { uint input_words[]; };
layout(set = 0, binding = 1) readonly buffer Table { uint table[]; };
layout(set = 0, binding = 2) writeonly buffer Output { uint output_words[]; };

const uint UNSIGNED_TYPES = 0;
#define ROUNDS_TO_NEAREST
#include "quantized_linear_convolution/arithmetic.glsl"
#include "quantized_linear_convolution/multiplier.glsl"
#include "windows/sum.glsl"
#include "byte_table_mean/ordinary.glsl"

const uint VALUES = 256, CHUNK = 16, MOST_AT_ONCE = 16;
const uint PITCH = IS_CHANNELS_LAST != 0 ? LANES | 1 : CHUNK + 1;  // words of a plane in shared memory, or of its lanes

shared uint values[VALUES * COPIES];
shared uint staged[STAGED_WORDS];  // the planes' next words, and then the sums of their lanes
shared uint starts[PLANES];  // where the planes begin, in bytes

uint copy;

uint value_of(uint byte) {
    return values[byte << COPY_BITS | copy];
}

struct Values { float of[4]; };

// Those of the bytes of a word.
Values values_of(uint word) {
    Values found;
    [[unroll]] for (uint i = 0; i < 4; ++i) {
        uint place = (i == 0 ? word << COPY_BITS : word >> 8 * i - COPY_BITS) & 0xFF << COPY_BITS;
        found.of[i] = uintBitsToFloat(values[place | copy]);
    }
    return found;
}

// Behind the next barrier `are_odd` says whether sums are made in integers.
void load_table() {
    for (uint i = gl_LocalInvocationID.x; i < VALUES; i += gl_WorkGroupSize.x) {
        uint value = table[push.table_start + i];
        [[unroll]] for (uint other = 0; other < COPIES; ++other)
            values[i << COPY_BITS | (copy + other) % COPIES] = value;
        if (!is_between(value, LEAST_ORDINARY, LARGEST_ORDINARY))
            atomicOr(are_odd, 1);
    }
}

uint byte_at(uint start, uint element) {
    uint at = start + element * push.input_stride_w;
    return input_words[at >> 2] >> 8 * (at & 3) & 0xFF;
}

struct Words { uint words[MOST_AT_ONCE]; };

// In place of the words behind a lane's last turn, that one's is read.
Words load_words(uint start, uint step, uint turn, uint turns) {
    Words next;
    [[unroll]] for (uint i = 0; i < MOST_AT_ONCE; ++i)
        next.words[i] = i < AT_ONCE && turns != 0 ? input_words[start + min(turn + i, turns - 1) * step] : 0;
    return next;
}

// With channels last: the sums of a lane of four planes, the first of which is `column`. The first words are loaded.
void sum_of_columns(uint start, uint step, uint turns, Words next, uint column, uint lane) {
    precise float totals[4] = {0.0, 0.0, 0.0, 0.0};
    uint turn = 0;
    for (; turn + AT_ONCE <= turns; turn += AT_ONCE) {
        Words now = next;
        next = load_words(start, step, turn + AT_ONCE, turns);
        [[unroll]] for (uint k = 0; k < MOST_AT_ONCE; ++k) {
            if (k < AT_ONCE) {
                Values found = values_of(now.words[k]);
                [[unroll]] for (uint i = 0; i < 4; ++i)
                    totals[i] = totals[i] + found.of[i];
            }
        }
    }
    [[unroll]] for (uint k = 0; k < MOST_AT_ONCE; ++k) {
        if (k < AT_ONCE && turn + k < turns) {
            Values found = values_of(next.words[k]);
            [[unroll]] for (uint i = 0; i < 4; ++i)
                totals[i] = totals[i] + found.of[i];
        }
    }
    [[unroll]] for (uint i = 0; i < 4; ++i)
        staged[(column + i) * PITCH + lane] = floatBitsToUint(totals[i]);
}

// How many words of the first chunk are not of the plane.
uint words_before(uint start) {
    return start >> 2 & 6;
}

struct Chunk { uint words[CHUNK]; };

// An invocation's words of a chunk of all planes: one word of each plane that is CHUNK-th of the workgroup's.
Chunk load_chunk(uint number, uint words) {
    const uint planes_at_once = gl_WorkGroupSize.x / CHUNK;
    Chunk chunk;
    [[unroll]] for (uint i = 0; i < CHUNK; ++i) {
        uint start = starts[i * planes_at_once + gl_LocalInvocationID.x / CHUNK];
        uint word = number * CHUNK + gl_LocalInvocationID.x % CHUNK - words_before(start);
        chunk.words[i] = word < words ? input_words[start / 4 + word] : 0;
    }
    return chunk;
}

void store_chunk(Chunk chunk) {
    const uint planes_at_once = gl_WorkGroupSize.x / CHUNK;
    [[unroll]] for (uint i = 0; i < CHUNK; ++i)
        staged[(i * planes_at_once + gl_LocalInvocationID.x / CHUNK) * PITCH + gl_LocalInvocationID.x % CHUNK] =
            chunk.words[i];
}

// With channels first: the sums of the lanes of a plane of `words` words.
void sum_of_plane(uint words, Chunk next) {
    uint plane = gl_LocalInvocationID.x;
    uint before = words_before(starts[plane]);
    // What is behind the groups is added later.
    uint end = before + (LANES == 8 ? words & ~1u : words);
    precise float totals[LANES];
    [[unroll]] for (uint lane = 0; lane < LANES; ++lane)
        totals[lane] = 0.0;
    for (uint first = 0; first < words + 6; first += CHUNK) {
        barrier();
        store_chunk(next);
        barrier();
        next = load_chunk(first / CHUNK + 1, words);
        if (first >= before && first + CHUNK <= end) {
            [[unroll]] for (uint k = 0; k < CHUNK; ++k) {
                Values found = values_of(staged[plane * PITCH + k]);
                [[unroll]] for (uint i = 0; i < 4; ++i)
                    totals[(4 * k + i) % LANES] = totals[(4 * k + i) % LANES] + found.of[i];
            }
        } else {
            uint last = min(CHUNK, max(end, first) - first);
            [[dont_unroll]] for (uint k = max(before, first) - first; k < last; k += 2) {
                [[unroll]] for (uint odd = 0; odd < 2; ++odd) {
                    if (k + odd < last) {
                        Values found = values_of(staged[plane * PITCH + k + odd]);
                        [[unroll]] for (uint i = 0; i < 4; ++i)
                            totals[(4 * odd + i) % LANES] = totals[(4 * odd + i) % LANES] + found.of[i];
                    }
                }
            }
        }
    }
    barrier();
    [[unroll]] for (uint lane = 0; lane < LANES; ++lane)
        staged[plane * PITCH + lane] = floatBitsToUint(totals[lane]);
}

// Lane i and i + LANES / 2 are added first, then i and i + LANES / 4, and so on; what is left behind the groups comes after the
// first step of eight lanes.
uint mean_of(uint plane) {
    uint at = plane * PITCH;
    bool has_rest = LANES == 8 && push.count % 8 != 0;
    for (uint distance = LANES / 2; distance != 0;) {
        [[dont_unroll]] for (uint lane = 0; lane < distance; ++lane)
            staged[at + lane] = sum_of_two(staged[at + lane], staged[at + lane + distance]);
        for (uint lane = 0; has_rest && lane < distance; ++lane)
            staged[at + lane + distance] = value_of(byte_at(starts[plane], push.count - distance + lane));
        distance = has_rest ? distance : distance / 2;
        has_rest = false;
    }
    return quotient_of(staged[at], push.count);
}

void main() {
    uint local = gl_LocalInvocationID.x;
    uint first_plane = (gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x) * PLANES;
    copy = local % COPIES;
    if (local == 0)
        are_odd = 0;
    for (uint i = local; i < PLANES; i += gl_WorkGroupSize.x) {
        uint plane = min(first_plane + i, push.planes - 1);
        uint image = plane / push.channels;
        starts[i] =
            push.input_start + image * push.input_stride_n + (plane - image * push.channels) * push.input_stride_c;
    }
    barrier();
    uint turns = push.count / LANES;
    if (IS_CHANNELS_LAST != 0) {
        uint column = local % (PLANES / 4) * 4, lane = local / (PLANES / 4);
        uint start = (starts[column] + lane * push.input_stride_w) / 4, step = push.input_stride_w / 4 * LANES;
        Words next = load_words(start, step, 0, turns);
        load_table();
        barrier();
        sum_of_columns(start, step, turns, next, column, lane);
    } else {
        Chunk next = load_chunk(0, push.count / 4);
        load_table();
        sum_of_plane(push.count / 4, next);
    }
    barrier();
    if (are_odd != 0) {
        for (uint i = local; i < PLANES * LANES; i += gl_WorkGroupSize.x) {
            uint plane = i / LANES, lane = i % LANES, sum = 0;
            for (uint turn = 0; turn < turns; ++turn)
                sum = added(sum, value_of(byte_at(starts[plane], turn * LANES + lane)));
            staged[plane * PITCH + lane] = sum;
        }
        barrier();
    }
    for (uint i = local; i < PLANES && first_plane + i < push.planes; i += gl_WorkGroupSize.x) {
        uint plane = first_plane + i, image = plane / push.channels;
        output_words[push.output_start + image * push.output_stride_n
            + (plane - image * push.channels) * push.output_stride_c] = mean_of(i);
    }
}
