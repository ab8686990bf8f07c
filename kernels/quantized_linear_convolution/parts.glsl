// K cut over PARTS workgroups, for layers of few tiles and a large K. Include this file after matrix_workgroup.glsl.
//
// Each workgroup adds its sums to those of the tile in a buffer, by integer atomics: their order does not matter, so the
// bits do not depend on it. Then it counts itself. The last one to arrive takes the whole sums, leaves zeros for the
// next dispatch, and does the last step alone. Nobody waits for anybody.
//
// Layout of a tile in the buffer: its sums in an order that the kernel chooses; sum(x') of each position; the number of
// workgroups that arrived. A channel's constant is added once.
//
// Memory model: an invocation's additions, which are atomic, happen before its workgroup's barrier, the barrier before
// the count (release), the last count after all others (acquire), and the barrier after it before the loads. The buffer
// is coherent, so that the loads see the additions. The scope is the queue family, which needs no feature as the scope
// of the device would.

const uint TILE_SUMS = TILE_PIXELS * TILE_CHANNELS;
const uint TILE_WORDS = TILE_SUMS + TILE_PIXELS + 4;

shared uvec4 arrived;

uint part_sums_at() {
    uint index =
        ((gl_WorkGroupID.z - part) / SIZE(PARTS, parts) * gl_NumWorkGroups.y + gl_WorkGroupID.y) * gl_NumWorkGroups.x
        + gl_WorkGroupID.x;
    return push.part_sums_start + index * TILE_WORDS;
}

void add_to_part_sums(uint place, int value) {
    atomicAdd(part_sums[place], value, gl_ScopeQueueFamily, gl_StorageSemanticsBuffer, gl_SemanticsRelaxed);
}

void part_barrier() {
    controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsBuffer | gl_StorageSemanticsShared,
        gl_SemanticsAcquireRelease);
}

// Counts the workgroup, when all its invocations have added their sums. Whether it is the last one of the tile.
bool is_last_part() {
    uint counter = part_sums_at() + TILE_SUMS + TILE_PIXELS;
    part_barrier();
    if (gl_LocalInvocationID.x == 0) {
        arrived.x = uint(atomicAdd(
            part_sums[counter], 1, gl_ScopeQueueFamily, gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease));
        if (arrived.x == SIZE(PARTS, parts) - 1)
            part_sums[counter] = 0;
    }
    part_barrier();
    return arrived.x == SIZE(PARTS, parts) - 1;
}

// Adds sum(x') of all positions of the tile.
void add_input_sums() {
    [[unroll]] for (uint round = 0; round < TILE_PIXELS; round += INVOCATIONS) {
        uint i = round + gl_LocalInvocationID.x;
        if (TILE_PIXELS % INVOCATIONS == 0 || i < TILE_PIXELS)
            add_to_part_sums(part_sums_at() + TILE_SUMS + i, input_sums[i]);
    }
}

// Takes the whole sum(x') of all positions.
void take_input_sums() {
    [[unroll]] for (uint round = 0; round < TILE_PIXELS; round += INVOCATIONS) {
        uint i = round + gl_LocalInvocationID.x;
        if (TILE_PIXELS % INVOCATIONS == 0 || i < TILE_PIXELS) {
            input_sums[i] = part_sums[part_sums_at() + TILE_SUMS + i];
            part_sums[part_sums_at() + TILE_SUMS + i] = 0;
        }
    }
    barrier();
}
