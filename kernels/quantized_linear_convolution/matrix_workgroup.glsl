// The start of a workgroup, and the accesses to shared memory that all kernels of matrix.glsl share. Include this file
// after matrix.glsl and the declaration of `tile`, which has rows of ROW vectors.

#include "dot_add.glsl"

// These are the same in all invocations of a workgroup, and for all its tiles.
uint border;  // four bytes with the value of positions outside the input
uint group_start;
uint group_channel;  // the group's first channel, from which channels are counted
uint first_channel;  // the tile's first channel
uint panel;
uint filter_sums;
uint part;  // of K
int zero_point_of_output;
// Known from the start with PREPARED, otherwise after `hear_of_channels`. Shared memory would be read again at each use.
bool counts;  // sum(x'), because a filter zero point of the tile is not 0
bool takes_integers;  // in the last steps, because a channel's sums may not fit 32 bits

void begin_workgroup() {
    uint group = PARTS == 1 ? gl_WorkGroupID.z : gl_WorkGroupID.z / SIZE(PARTS, parts);
    part = PARTS == 1 ? 0 : gl_WorkGroupID.z - group * SIZE(PARTS, parts);
    panel = push.filter_start + (group * push.panels_of_group + gl_WorkGroupID.x) * push.panel_stride;
    uint sums_vector = panel + step_count() * STEP * TILE_CHANNELS;
    filter_sums = 4 * sums_vector;
    first_channel = gl_WorkGroupID.x * TILE_CHANNELS;
    group_channel = group * push.channels_of_group;
    group_start = push.input_start + group * SIZE(INPUT_STRIDE_GROUP, input_stride_group);
    border = 0;
    if (PREPARED != 0) {
        // Four rows of TILE_CHANNELS words stand before the panel's vector.
        uvec4 properties = filter_vectors[sums_vector + TILE_CHANNELS];
        counts = FILTER_ZERO_POINT != 0 && (properties.x & PANEL_HAS_FILTER_ZERO_POINT) != 0;
        takes_integers = (properties.x & PANEL_NEEDS_INTEGERS) != 0;
        zero_point_of_output = int(properties.y);
        if (CHECK_BORDER != 0)
            border = (properties.z & 0xFF) * ONES;
    } else {
        zero_point_of_output = output_zero_point(group_channel);
        if (CHECK_BORDER != 0)
            border = (uint(input_zero_point(group_channel)) & 0xFF) * ONES;
    }
}

// What an invocation has loaded of its channels with PREPARED: multipliers, constants and zero points.
const uint CHANNEL_ROUNDS = (TILE_CHANNELS + INVOCATIONS - 1) / INVOCATIONS;
uvec3 fetched_channels[CHANNEL_ROUNDS];

// The channel of an invocation in a round. In the last round there may be none, but loads have no condition: behind a
// branch they would wait for the loads before it.
uint channel_of_round(uint round) {
    uint i = round * INVOCATIONS + gl_LocalInvocationID.x;
    return TILE_CHANNELS % INVOCATIONS == 0 ? i : min(i, TILE_CHANNELS - 1);
}

bool has_channel(uint round) {
    return TILE_CHANNELS % INVOCATIONS == 0 || round * INVOCATIONS + gl_LocalInvocationID.x < TILE_CHANNELS;
}

// Loads what was worked out before of the tile's channels, together with the first operands.
void fetch_channels() {
#ifdef WITH_SUM
    fetch_sum_record();
#else
    fetch_table();
#endif
    if (PREPARED == 0)
        return;
    [[unroll]] for (uint round = 0; round < CHANNEL_ROUNDS; ++round) {
        uint channel = min(channel_place(channel_of_round(round)), push.channels - 1 - first_channel);
        uint word = filter_sums + channel;
        fetched_channels[round].x = filter_words[word + TILE_CHANNELS];
        fetched_channels[round].y = filter_words[word + 2 * TILE_CHANNELS];
        if (FILTER_ZERO_POINT != 0)
            fetched_channels[round].z = filter_words[word + 3 * TILE_CHANNELS];
    }
}

void work_out_channel(uint i) {
    uint channel = min(first_channel + channel_place(i), push.channels - 1);
    Wide constant = exact_constant(group_channel + channel, int(filter_words[filter_sums + channel - first_channel]));
    multipliers[i] = multiplier_of(group_channel + channel);
    constants[i] = int(constant.low);
    if (!is_narrow(constant, push.taps))
        atomicOr(needs_integers.x, 1);
    if (FILTER_ZERO_POINT != 0) {
        int zero_point = filter_zero_point(group_channel + channel);
        filter_zero_points[i] = zero_point;
        if (zero_point != 0)
            atomicOr(has_filter_zero_point.x, 1);
    }
}

// Stores the multipliers, constants and zero points of the tile's channels; without PREPARED it works them out. An earlier
// dispatch could do so, but on layers that take 40 us, waiting for one more dispatch costs more than some hundred
// integer operations a channel. The loads of the first operands are under way meanwhile. A barrier has to follow before
// any invocation reads the results.
void begin_channels() {
#ifdef WITH_SUM
    begin_sum_record();
#else
    begin_table();
#endif
    if (PREPARED == 0) {
        if (gl_LocalInvocationID.x == 0) {
            has_filter_zero_point.x = 0;
            needs_integers.x = 0;
        }
        barrier();
    }
    [[unroll]] for (uint round = 0; round < CHANNEL_ROUNDS; ++round) {
        if (has_channel(round)) {
            uint i = channel_of_round(round);
            if (PREPARED == 0) {
                work_out_channel(i);
            } else {
                multipliers[i] = uintBitsToFloat(fetched_channels[round].x);
                constants[i] = int(fetched_channels[round].y);
                if (FILTER_ZERO_POINT != 0)
                    filter_zero_points[i] = int(fetched_channels[round].z);
            }
        }
    }
}

// What the invocations have found out about the tile's channels. A barrier less with PREPARED: then all loads of the first
// operands are waited for at once.
void hear_of_channels() {
    if (PREPARED == 0) {
        barrier();
        counts = FILTER_ZERO_POINT != 0 && has_filter_zero_point.x != 0;
        takes_integers = needs_integers.x != 0;
    }
}

#ifdef FLOAT32_PRODUCTS
// Four signed bytes as they are multiplied.
vec4 floats(uint word) {
    int bytes = int(word);
    return vec4(bitfieldExtract(bytes, 0, 8), bitfieldExtract(bytes, 8, 8), bitfieldExtract(bytes, 16, 8), bytes >> 24);
}
#endif

void put(uint place, uint vector, uvec4 value) {
#ifdef FLOAT32_PRODUCTS
    [[unroll]] for (uint i = 0; i < 4; ++i)
        tile[place + 4 * vector + i] = floats(value[i]);
#else
    if (SLICES == 1) {
        tile[place + vector] = value;
    } else {
        tile[place + 2 * vector] = uvec4(value.xy, 0, 0);
        tile[place + 2 * vector + 1] = uvec4(value.zw, 0, 0);
    }
#endif
}

int sum_of_bytes(uvec4 vector) {
    int sum = 0;
    [[unroll]] for (uint i = 0; i < 4; ++i)
        sum = dot_add(STORED(vector[i]), ONES, sum);
#ifdef MIXED_SIGNS
    sum -= 16 * 128;
#endif
    return sum;
}
