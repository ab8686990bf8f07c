// What rows.glsl and vectors.glsl begin with: the push constants, to which MORE_PARAMETERS may add, and windows over the
// tensor.

#ifndef MORE_PARAMETERS
#define MORE_PARAMETERS
#endif
#define MORE_PUSH_CONSTANTS                                                                                            \
    uint input_scale_start;                                                                                            \
    uint input_zero_point_start;                                                                                       \
    uint output_scale_start;                                                                                           \
    uint output_zero_point_start;                                                                                      \
    MORE_PARAMETERS
#include "windows/window.glsl"

layout(constant_id = FIRST_OWN_CONSTANT) const uint IS_GLOBAL = 0;
#define SUMS_ARE_SMALL  // below 2^22
