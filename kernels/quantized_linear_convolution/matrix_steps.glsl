// One step of K on matrix units, for both kernels: each keeps two steps of its operands in shared memory, this is how one
// of them is multiplied. To be included after what a kernel says about its operands:
//
//     uint pixels_at(uint step)      where the subgroup's rows of pixels begin in `tile`
//     uint channels_at(uint step)    ... and its rows of channels
//
// K of a matrix is a slice of a step. While one slice is multiplied, the next one's matrices are on their way from shared
// memory: also from one step to the next, over the barrier between them.
//
// Who fetches from memory meanwhile is to follow two rules, or he waits for it in the midst of a step, with idle matrix
// units: 40% more time on NVIDIA. Nothing may be done with a fetched value before it is stored to shared memory, no
// flipping of its bits, and least of all in a branch. And where a value is fetched only under a condition, the compiler
// copies it to where its other version is: loops that fetch always do, and their last rounds are loops of their own.

#define PIXELS coopmat<int8_t, gl_ScopeSubgroup, MATRIX_M, MATRIX_K, gl_MatrixUseA>
#define CHANNELS coopmat<int8_t, gl_ScopeSubgroup, MATRIX_K, MATRIX_N, gl_MatrixUseB>

// Macros, so that the two sets of matrices are names and never an index.
#define LOAD_SLICE(pixels, channels, step, slice)                                                                      \
    {                                                                                                                  \
        uint pixel_rows = pixels_at(step) + (slice) * SLICE_VECTORS;                                                   \
        uint channel_rows = channels_at(step) + (slice) * SLICE_VECTORS;                                               \
        [[unroll]] for (uint i = 0; i < MATRIX_ROWS; ++i)                                                              \
            coopMatLoad(pixels[i], tile, pixel_rows + i * MATRIX_M * ROW, ROW, gl_CooperativeMatrixLayoutRowMajor);    \
        [[unroll]] for (uint j = 0; j < MATRIX_COLUMNS; ++j)                                                           \
            coopMatLoad(                                                                                               \
                channels[j], tile, channel_rows + j * MATRIX_N * ROW, ROW, gl_CooperativeMatrixLayoutColumnMajor);     \
    }

#define MULTIPLY_SLICE(pixels, channels)                                                                               \
    [[unroll]] for (uint j = 0; j < MATRIX_COLUMNS; ++j) {                                                             \
        [[unroll]] for (uint i = 0; i < MATRIX_ROWS; ++i)                                                              \
            sums[i * MATRIX_COLUMNS + j] = coopMatMulAdd(pixels[i], channels[j], sums[i * MATRIX_COLUMNS + j]);        \
    }

// The two sets, with the first slice of step 0, once that is in shared memory.
#define BEGIN_STEPS                                                                                                    \
    PIXELS even_pixels[MATRIX_ROWS], odd_pixels[MATRIX_ROWS];                                                          \
    CHANNELS even_channels[MATRIX_COLUMNS], odd_channels[MATRIX_COLUMNS];                                              \
    LOAD_SLICE(even_pixels, even_channels, 0, 0)

// All slices of a step but for loading what comes after the last one, which `before_last` does while that is multiplied.
#define MULTIPLY_STEP(step, before_last)                                                                               \
    [[unroll]] for (uint k = 0; k < STEP_SLICES; k += 2) {                                                             \
        LOAD_SLICE(odd_pixels, odd_channels, step, k + 1)                                                              \
        MULTIPLY_SLICE(even_pixels, even_channels)                                                                     \
        if (k + 2 < STEP_SLICES)                                                                                       \
            LOAD_SLICE(even_pixels, even_channels, step, k + 2)                                                        \
        else                                                                                                           \
            before_last;                                                                                               \
        MULTIPLY_SLICE(odd_pixels, odd_channels)                                                                       \
    }

// Once the next step is in shared memory; after the last one a barrier is enough.
#define BEGIN_NEXT_STEP(step)                                                                                          \
    {                                                                                                                  \
        barrier();                                                                                                     \
        LOAD_SLICE(even_pixels, even_channels, (step) + 1, 0)                                                          \
    }
