// The part of a tile that a subgroup has on matrix units. Include this file after matrix_workgroup.glsl.

#define SUMS coopmat<int, gl_ScopeSubgroup, MATRIX_M, MATRIX_N, gl_MatrixUseAccumulator>
#define FLOATS coopmat<float, gl_ScopeSubgroup, MATRIX_M, MATRIX_N, gl_MatrixUseAccumulator>

uint subgroup_pixel;
uint subgroup_channel;

void begin_subgroup() {
    subgroup_pixel = gl_SubgroupID % (TILE_PIXELS / SUBGROUP_PIXELS) * SUBGROUP_PIXELS;
    subgroup_channel = gl_SubgroupID / (TILE_PIXELS / SUBGROUP_PIXELS) * SUBGROUP_CHANNELS;
}
