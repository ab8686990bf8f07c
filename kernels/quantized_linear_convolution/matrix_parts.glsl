// K cut over PARTS workgroups, for layers of few tiles and a large K. Include this file after matrix_workgroup.glsl.
//
// Each workgroup adds its sums to those of the tile in a buffer, by integer atomics: their order does not matter, so the
// bits do not depend on it. Then it counts itself. The last one to arrive takes the whole sums, leaves zeros for the
// next dispatch, and does the last step alone. Nobody waits for anybody.
//
// Layout of a tile in the buffer: the sums of each subgroup, one matrix after the other, row by row; sum(x') of each
// position; the number of workgroups that arrived. The constant that sums begin with is the first part's.
//
// Memory model: an invocation's additions, which are atomic, happen before its workgroup's barrier, the barrier before
// the count (release), the last count after all others (acquire), and the barrier after it before the loads. The buffer
// is coherent, so that the loads see the additions. The scope is the queue family, which needs no feature as the scope
// of the device would.

const uint SUBGROUP_SUMS = MATRIX_ROWS * MATRIX_COLUMNS * MATRIX_M * MATRIX_N;
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

// Adds the matrices to the tile's sums, through the subgroup's strip of shared memory. A macro, because a function would
// copy the matrices.
#define ADD_PART(sums, strip)                                                                                          \
    [[unroll]] for (uint n = 0; n < MATRIX_ROWS * MATRIX_COLUMNS; ++n) {                                               \
        coopMatStore(sums[n], tile, strip, MATRIX_N / 4, gl_CooperativeMatrixLayoutRowMajor);                          \
        subgroupBarrier();                                                                                             \
        [[unroll]] for (uint i = 0; i < MATRIX_M * MATRIX_N; i += LANES) {                                             \
            uint element = i + gl_SubgroupInvocationID;                                                                \
            if (MATRIX_M * MATRIX_N % LANES == 0 || element < MATRIX_M * MATRIX_N)                                     \
                add_to_part_sums(part_sums_at() + gl_SubgroupID * SUBGROUP_SUMS + n * (MATRIX_M * MATRIX_N) + element, \
                    int(tile[strip + element / 4][element % 4]));                                                      \
        }                                                                                                              \
        subgroupBarrier();                                                                                             \
    }

// Takes the matrices' whole sums, and leaves zeros. All are loaded before the first is used: an atomic exchange for each
// would wait for the one before, which takes 8 us for a tile (NVIDIA).
const uint MATRIX_VECTORS = MATRIX_M * MATRIX_N / 4;
const uint OWN_VECTORS = (MATRIX_VECTORS + LANES - 1) / LANES;

#define TAKE_PARTS(sums, strip)                                                                                        \
    {                                                                                                                  \
        uvec4 taken[MATRIX_ROWS * MATRIX_COLUMNS * OWN_VECTORS];                                                       \
        uint first = (part_sums_at() + gl_SubgroupID * SUBGROUP_SUMS) / 4;                                             \
        [[unroll]] for (uint i = 0; i < MATRIX_ROWS * MATRIX_COLUMNS * OWN_VECTORS; ++i) {                             \
            uint vector = i % OWN_VECTORS * LANES + gl_SubgroupInvocationID;                                           \
            taken[i] = part_vectors[first + i / OWN_VECTORS * MATRIX_VECTORS + min(vector, MATRIX_VECTORS - 1)];       \
        }                                                                                                              \
        [[unroll]] for (uint n = 0; n < MATRIX_ROWS * MATRIX_COLUMNS; ++n) {                                           \
            [[unroll]] for (uint i = 0; i < OWN_VECTORS; ++i) {                                                        \
                uint vector = i * LANES + gl_SubgroupInvocationID;                                                     \
                if (vector < MATRIX_VECTORS) {                                                                         \
                    tile[strip + vector] = taken[n * OWN_VECTORS + i];                                                 \
                    part_vectors[first + n * MATRIX_VECTORS + vector] = uvec4(0);                                      \
                }                                                                                                      \
            }                                                                                                          \
            subgroupBarrier();                                                                                         \
            coopMatLoad(sums[n], tile, strip, MATRIX_N / 4, gl_CooperativeMatrixLayoutRowMajor);                       \
            subgroupBarrier();                                                                                         \
        }                                                                                                              \
    }

// Adds sum(x') of all positions of the tile.
void add_input_sums() {
    for (uint i = gl_LocalInvocationID.x; i < TILE_PIXELS; i += INVOCATIONS)
        add_to_part_sums(part_sums_at() + TILE_SUMS + i, input_sums[i]);
}

// Takes the whole sum(x') of all positions.
void take_input_sums() {
    for (uint i = gl_LocalInvocationID.x; i < TILE_PIXELS; i += INVOCATIONS) {
        input_sums[i] = part_sums[part_sums_at() + TILE_SUMS + i];
        part_sums[part_sums_at() + TILE_SUMS + i] = 0;
    }
    barrier();
}
