#version 450

// Benchmark: products of matrices of signed bytes, from registers. It is the mark of the matrix units.
//
// Maths. C[i][j] <- A[i] B[j] + C[i][j], 2 M N K operations each, for two A and four B. This is repeated `iterations`
// times, so that in the end C[i][j] = iterations * A[i] B[j] modulo 2^32.
//
// Loop structure. Each subgroup has eight independent C. A and B are the same in all subgroups. They pass through
// shared memory once, before the loop. The loop accesses no memory.
//
// Layout. Source: two A and four transposed B, rows of K bytes one below the other. Result: the eight C of each
// subgroup, one subgroup after the other, each C row by row.
//
// Preconditions. Whole subgroups of LANES invocations. VK_KHR_cooperative_matrix lists signed MxNxK with 32-bit sums
// for subgroups, and K is a multiple of 8.
//
// Compiler bugs avoided. Strides of the matrices are specialization constants, as in
// quantized_linear_convolution/matrix.comp.

#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#pragma use_vulkan_memory_model

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint LANES = 32;
layout(constant_id = 2) const uint MATRIX_M = 16;
layout(constant_id = 3) const uint MATRIX_N = 16;
layout(constant_id = 4) const uint MATRIX_K = 32;

layout(set = 0, binding = 0) readonly buffer Source { uint source[]; };
layout(set = 0, binding = 1) writeonly buffer Result { int result[]; };

layout(push_constant) uniform PushConstants {
    uint source_start;  // in words, like those that follow
    uint result_start;
    uint iterations;
} push;

const uint ROWS = 2;
const uint COLUMNS = 4;
const uint ROW = MATRIX_K / 4;  // words
const uint WORDS = (ROWS * MATRIX_M + COLUMNS * MATRIX_N) * ROW;
const uint SUBGROUPS = gl_WorkGroupSize.x / LANES;

shared uint operands[WORDS];

void main() {
    for (uint i = gl_LocalInvocationID.x; i < WORDS; i += gl_WorkGroupSize.x)
        operands[i] = source[push.source_start + i];
    barrier();

    coopmat<int8_t, gl_ScopeSubgroup, MATRIX_M, MATRIX_K, gl_MatrixUseA> a[ROWS];
    coopmat<int8_t, gl_ScopeSubgroup, MATRIX_K, MATRIX_N, gl_MatrixUseB> b[COLUMNS];
    coopmat<int, gl_ScopeSubgroup, MATRIX_M, MATRIX_N, gl_MatrixUseAccumulator> c[ROWS * COLUMNS];
    [[unroll]] for (uint i = 0; i < ROWS; ++i)
        coopMatLoad(a[i], operands, i * MATRIX_M * ROW, ROW, gl_CooperativeMatrixLayoutRowMajor);
    [[unroll]] for (uint j = 0; j < COLUMNS; ++j)
        coopMatLoad(b[j], operands, (ROWS * MATRIX_M + j * MATRIX_N) * ROW, ROW, gl_CooperativeMatrixLayoutColumnMajor);
    [[unroll]] for (uint i = 0; i < ROWS * COLUMNS; ++i)
        c[i] = coopmat<int, gl_ScopeSubgroup, MATRIX_M, MATRIX_N, gl_MatrixUseAccumulator>(0);

    [[dont_unroll]] for (uint iteration = 0; iteration < push.iterations; ++iteration) {
        [[unroll]] for (uint i = 0; i < ROWS; ++i) {
            [[unroll]] for (uint j = 0; j < COLUMNS; ++j)
                c[i * COLUMNS + j] = coopMatMulAdd(a[i], b[j], c[i * COLUMNS + j]);
        }
    }

    uint subgroup = gl_WorkGroupID.x * SUBGROUPS + gl_SubgroupID;
    uint first = push.result_start + subgroup * ROWS * COLUMNS * MATRIX_M * MATRIX_N;
    [[unroll]] for (uint i = 0; i < ROWS * COLUMNS; ++i)
        coopMatStore(c[i], result, first + i * MATRIX_M * MATRIX_N, MATRIX_N, gl_CooperativeMatrixLayoutRowMajor);
}
