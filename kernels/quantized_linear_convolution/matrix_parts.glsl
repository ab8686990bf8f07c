// The sums of matrix units in the buffer of parts: those of each subgroup, one matrix after the other, row by row. Include
// this file after parts.glsl.

const uint SUBGROUP_SUMS = MATRIX_ROWS * MATRIX_COLUMNS * MATRIX_M * MATRIX_N;

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
