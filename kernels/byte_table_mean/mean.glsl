// BYTE_TABLE_MEAN: y = f32(sum(table[x]) / n) over the n elements of a plane, in an order of additions that LANES says.
//
// Maths. Each addition rounds to binary32, nearest even, and the order is the operator's: see ByteTableMeanDesc. With 8
// lanes the first elements of a plane wait, so that the lanes begin at a multiple of 4 of all planes' elements. The groups
// of LANES elements behind them are added to the lanes' sums, and what is left of the plane, fewer than LANES, waits as well.
//     integers.comp adds in integers, which are exact on every device.
//     float32.comp, which defines ROUNDS_TO_NEAREST, is for devices that promise to round to nearest even. It adds in
//         floats if all numbers of the table have ordinary sizes: then no sum is a denormal or infinite.
// The division is done in integers.
//
// Loops: an invocation is a lane of a plane; workgroups take planes.
//     the first bytes are on their way, while the table comes into shared memory
//     for each group of the dispatch's elements, AT_ONCE of them: the next bytes; values, and additions
//     by way of shared memory, the plane's first lane adds up the lanes and what waits, and divides
// A dispatch takes the elements from `first` to `end` of each plane; where a plane is cut, sums and waiting elements go from
// one dispatch to the next in memory.
//
// Layout: where channels are packed, neighbouring invocations take neighbouring channels, else neighbouring elements.
//
// Preconditions: four storage buffers; 1 KiB of shared memory, and 3 KiB more for 256 invocations. Offsets wrap modulo 2^32.
//
// Driver bugs avoided: none.

#extension GL_EXT_control_flow_attributes : require

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint LANES = 1;
layout(constant_id = 2) const uint PLANES = 1;  // of a workgroup
layout(constant_id = 3) const uint LANE_IS_OUTER = 0;  // whether a workgroup's invocations count planes first
layout(constant_id = 4) const uint IS_EVEN = 0;  // whether a plane's elements are evenly spaced: width_stride apart
layout(constant_id = 5) const uint TAKES_STATE = 0;
layout(constant_id = 6) const uint LEAVES_STATE = 0;
layout(constant_id = 7) const uint AT_ONCE = 8;  // bytes of a lane that are on their way together

layout(push_constant) uniform PushConstants {
    uint input_start;  // bytes
    uint table_start;
    uint output_start;
    uint state_start;
    uint planes;  // of the dispatch
    uint channels;
    uint first_plane;  // the number of the first image's first plane among all
    uint planes_of_image;
    uint count;  // elements of a plane
    uint first;
    uint end;
    uint height;
    uint width;
    uint input_stride_n;
    uint input_stride_c;
    uint input_stride_d;
    uint input_stride_h;
    uint input_stride_w;
    uint output_stride_n;
    uint output_stride_c;
} push;

layout(set = 0, binding = 0) readonly buffer Input { uint input_words[]; };
layout(set = 0, binding = 1) readonly buffer Table { uint table[]; };
layout(set = 0, binding = 2) buffer Output { uint output_words[]; };
layout(set = 0, binding = 3) buffer State { uint state[]; };

const uint UNSIGNED_TYPES = 0;
#include "quantized_linear_convolution/arithmetic.glsl"
#include "quantized_linear_convolution/multiplier.glsl"
#include "windows/sum.glsl"
#include "byte_table_mean/ordinary.glsl"

// Of a lane: its sum, an element before the groups, and one behind them.
const uint STATES = 3;
shared uint states[STATES * gl_WorkGroupSize.x];
shared uint values[256];

const uint MOST_AT_ONCE = 16;

const uint ALIGNMENT = 4;
uint byte_at(uint plane_start, uint element) {
    uint at = plane_start;
    if (IS_EVEN != 0) {
        at += element * push.input_stride_w;
    } else {
        uint row = element / push.width;
        uint slice = row / push.height;
        at += (element - row * push.width) * push.input_stride_w + (row - slice * push.height) * push.input_stride_h
            + slice * push.input_stride_d;
    }
    return input_words[at >> 2] >> 8 * (at & 3) & 0xFF;
}

uint value_at(uint plane_start, uint element) {
    return values[byte_at(plane_start, element)];
}

struct Bytes { uint bytes[MOST_AT_ONCE]; };

// The bytes of a lane's next turns. In place of those behind its last turn, that one's is read.
Bytes load_bytes(uint plane_start, uint element, uint turn, uint turns) {
    Bytes next;
    [[unroll]] for (uint i = 0; i < MOST_AT_ONCE; ++i)
        next.bytes[i] =
            i < AT_ONCE && turns != 0 ? byte_at(plane_start, element + min(turn + i, turns - 1) * LANES) : 0;
    return next;
}

// A lane's sum with further elements, from `element` on, the first of which are loaded.
uint sum_of_lane(uint sum, uint plane_start, uint element, uint turns, Bytes next) {
#ifdef ROUNDS_TO_NEAREST
    if (are_odd == 0 && is_between(sum, LEAST_SUM, LARGEST_SUM)) {
        precise float total = uintBitsToFloat(sum);
        for (uint turn = 0; turn < turns; turn += AT_ONCE) {
            Bytes now = next;
            next = load_bytes(plane_start, element, turn + AT_ONCE, turns);
            [[unroll]] for (uint i = 0; i < MOST_AT_ONCE; ++i)
                if (i < AT_ONCE && turn + i < turns)
                    total = total + uintBitsToFloat(values[now.bytes[i]]);
        }
        return floatBitsToUint(total);
    }
#endif
    for (uint turn = 0; turn < turns; ++turn)
        sum = added(sum, value_at(plane_start, element + turn * LANES));
    return sum;
}

void load_values() {
    if (gl_LocalInvocationID.x == 0)
        are_odd = 0;
    barrier();
    for (uint i = gl_LocalInvocationID.x; i < 256; i += gl_WorkGroupSize.x) {
        uint value = table[push.table_start + i];
        values[i] = value;
        if (!is_between(value, LEAST_ORDINARY, LARGEST_ORDINARY))
            atomicOr(are_odd, 1);
    }
    barrier();
}

uint state_of(uint plane, uint lane, uint number) {
    return states[(plane * LANES + lane) * STATES + number];
}

// Lane i and i + LANES / 2 are added first, then i and i + LANES / 4, and so on; four of what is left behind the groups come
// after the first step of eight lanes.
uint mean_of(uint plane, uint waiting, uint rest) {
    uint next = LANES == 8 && rest >= 4 ? 4 : 0;
    [[dont_unroll]] for (uint distance = LANES / 2; distance != 0; distance /= 2) {
        [[dont_unroll]] for (uint lane = 0; lane < distance; ++lane) {
            uint sum = sum_of_two(state_of(plane, lane, 0), state_of(plane, lane + distance, 0));
            if (distance == 4 && next != 0)
                sum = sum_of_two(sum, state_of(plane, lane, 2));
            states[(plane * LANES + lane) * STATES] = sum;
        }
    }
    uint total = state_of(plane, 0, 0);
    [[dont_unroll]] for (uint i = 0; i < waiting; ++i)
        total = sum_of_two(total, state_of(plane, i, 1));
    [[dont_unroll]] for (; next < rest; ++next)
        total = sum_of_two(total, state_of(plane, next, 2));
    return quotient_of(total, push.count);
}

void main() {
    uint workgroup = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    uint local = gl_LocalInvocationID.x;
    uint plane_of_group = LANE_IS_OUTER != 0 ? local % PLANES : local / LANES;
    uint lane = LANE_IS_OUTER != 0 ? local / PLANES : local % LANES;
    uint plane = workgroup * PLANES + plane_of_group;
    bool is_used = plane < push.planes && plane_of_group < PLANES && lane < LANES;
    uint image = plane / push.channels;
    uint channel = plane - image * push.channels;
    uint number = push.first_plane + image * push.planes_of_image + channel;
    uint waiting = LANES == 8 ? min((0u - number * push.count) % ALIGNMENT, push.count) : 0;
    uint rest = (push.count - waiting) % LANES;
    uint groups_end = push.count - rest;
    uint state_at = push.state_start + (plane * LANES + lane) * STATES;

    uint plane_start = push.input_start + image * push.input_stride_n + channel * push.input_stride_c;
    // The lane's elements from push.first on, below the end of the groups or of the dispatch.
    uint distance = waiting + lane - push.first;
    if (waiting + lane < push.first)
        distance %= LANES;
    uint end = min(groups_end, push.end);
    uint length = end > push.first ? end - push.first : 0;
    uint turns = is_used && distance < length ? (length - 1 - distance) / LANES + 1 : 0;
    Bytes next = load_bytes(plane_start, push.first + distance, 0, turns);
    load_values();
    if (is_used) {
        uint sum = 0, before = 0, behind = 0;
        if (TAKES_STATE != 0) {
            sum = state[state_at];
            before = state[state_at + 1];
            behind = state[state_at + 2];
        }
        sum = sum_of_lane(sum, plane_start, push.first + distance, turns, next);
        if (lane < waiting && lane >= push.first && lane < push.end)
            before = value_at(plane_start, lane);
        uint last = groups_end + lane;
        if (lane < rest && last >= push.first && last < push.end)
            behind = value_at(plane_start, last);
        if (LEAVES_STATE != 0) {
            state[state_at] = sum;
            state[state_at + 1] = before;
            state[state_at + 2] = behind;
        }
        uint at = (plane_of_group * LANES + lane) * STATES;
        states[at] = sum;
        states[at + 1] = before;
        states[at + 2] = behind;
    }
    barrier();
    if (LEAVES_STATE == 0 && is_used && lane == 0)
        output_words[push.output_start + image * push.output_stride_n + channel * push.output_stride_c] =
            mean_of(plane_of_group, waiting, rest);
}
