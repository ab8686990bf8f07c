// One step of K on matrix units, for both kernels. Each kernel keeps two steps of its operands in shared memory. The
// macros here multiply one of them. Include this file after the kernel's functions for its operands:
//
//     uint pixels_at(uint step)      where the subgroup's rows of pixels begin in `tile`
//     uint channels_at(uint step)    where its rows of channels begin
//
// A slice of a step is the K of one matrix. While one slice is multiplied, the matrices of the next one are loaded
// from shared memory, also from one step to the next, across the barrier between them. With ONE_SET, for devices with
// few registers, a slice is loaded when it is multiplied, and the kernel calls MULTIPLY_STEP alone.
//
// Meanwhile the kernel fetches from memory. It has to follow two rules; otherwise it waits for a fetch in the middle
// of a step, with idle matrix units, which takes 40% more time on NVIDIA.
//   - Nothing is done with a fetched value before it is stored to shared memory. Not even its bits are flipped, least
//     of all in a branch.
//   - A loop that fetches does so in each round, and its last rounds are code of their own. If a value is fetched only
//     under a condition, the compiler copies it to the place of its other version.
// With ONE_SET registers count more, and the kernel does not follow the second rule.

#ifdef ONE_SET

// The operands in the order of the multiplication (CHANNELS_FIRST), and the place of a product's sum.
#define FIRST coopmat<int8_t, gl_ScopeSubgroup, MATRIX_M, MATRIX_K, gl_MatrixUseA>
#define SECOND coopmat<int8_t, gl_ScopeSubgroup, MATRIX_K, MATRIX_N, gl_MatrixUseB>
const uint FIRST_MATRICES = CHANNELS_FIRST ? MATRIX_COLUMNS : MATRIX_ROWS;
const uint SECOND_MATRICES = CHANNELS_FIRST ? MATRIX_ROWS : MATRIX_COLUMNS;
#define SUM_OF(i, j) (CHANNELS_FIRST ? (j) * MATRIX_COLUMNS + (i) : (i) * MATRIX_COLUMNS + (j))

// The matrices of the first operand are loaded together, those of the second one, which are more, one at a time. The loop
// over slices is not unrolled: Intel's compiler would load all slices first.
#define MULTIPLY_LOADED(step, slice)                                                                                   \
    {                                                                                                                  \
        uint first_rows = (CHANNELS_FIRST ? channels_at(step) : pixels_at(step)) + (slice) * SLICE_VECTORS;            \
        uint second_rows = (CHANNELS_FIRST ? pixels_at(step) : channels_at(step)) + (slice) * SLICE_VECTORS;           \
        FIRST first[FIRST_MATRICES];                                                                                   \
        [[unroll]] for (uint i = 0; i < FIRST_MATRICES; ++i)                                                           \
            coopMatLoad(first[i], tile, first_rows + i * MATRIX_M * ROW, ROW, gl_CooperativeMatrixLayoutRowMajor);     \
        [[unroll]] for (uint j = 0; j < SECOND_MATRICES; ++j) {                                                        \
            SECOND second;                                                                                             \
            coopMatLoad(second, tile, second_rows + j * MATRIX_N * ROW, ROW, gl_CooperativeMatrixLayoutColumnMajor);   \
            [[unroll]] for (uint i = 0; i < FIRST_MATRICES; ++i)                                                       \
                sums[SUM_OF(i, j)] = coopMatMulAdd(first[i], second, sums[SUM_OF(i, j)]);                              \
        }                                                                                                              \
    }

#define MULTIPLY_STEP(step)                                                                                            \
    [[dont_unroll]] for (uint k = 0; k < STEP_SLICES; ++k)                                                             \
    MULTIPLY_LOADED(step, k)

#else

#define PIXELS coopmat<int8_t, gl_ScopeSubgroup, MATRIX_M, MATRIX_K, gl_MatrixUseA>
#define CHANNELS coopmat<int8_t, gl_ScopeSubgroup, MATRIX_K, MATRIX_N, gl_MatrixUseB>

// Macros, so that the two sets of matrices have names and are never indexed.
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

// Declares the two sets, and loads the first slice of the first step, which has to be in shared memory.
#define BEGIN_STEPS(step)                                                                                              \
    PIXELS even_pixels[MATRIX_ROWS], odd_pixels[MATRIX_ROWS];                                                          \
    CHANNELS even_channels[MATRIX_COLUMNS], odd_channels[MATRIX_COLUMNS];                                              \
    LOAD_SLICE(even_pixels, even_channels, step, 0)

// Multiplies all slices of a step. `before_last` stands before the last multiplication, so that it can load meanwhile
// what comes after the last slice.
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

// Waits until the next step is in shared memory, and loads its first slice. After the last step, a barrier is enough.
#define BEGIN_NEXT_STEP(step)                                                                                          \
    {                                                                                                                  \
        barrier();                                                                                                     \
        LOAD_SLICE(even_pixels, even_channels, (step) + 1, 0)                                                          \
    }

#endif
