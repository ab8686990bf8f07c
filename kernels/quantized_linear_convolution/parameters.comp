#version 450

// QUANTIZED_LINEAR_CONVOLUTION, preparation: the parameters of each output channel, as one record of integers.
//
// Maths: the multiplier m = f32(f32(sx * sw[c]) / sy) as mantissa and exponent, the three zero points, the bias.
//
// Loops: one invocation a channel, some hundred integer operations.
//
// Layout: one dispatch has seven sources and the table, so that it writes the whole record. On a GPU, every dispatch
// for which another one waits costs some 4 us, a tenth of a whole layer. A source has one element and stride 0, or one
// element for each channel at any stride. 8-bit elements are addressed by bytes inside words.
//
// Preconditions: eight storage buffers a stage (otherwise parameters_by_part.comp). The windows begin at the first of
// `count` channels. Absent sources are bound to some other window and never read.
//
// Compiler bugs avoided: glslang gives a local array the stride of an array in memory (see `element`).

#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint PRESENT = 0;         // bits 0 to 2: which zero points exist; bit 3: a bias
layout(constant_id = 2) const uint UNSIGNED_TYPES = 0;  // bits 0 to 2: input, filter, output are UINT8

layout(set = 0, binding = 0) readonly buffer InputScale { uint input_scale[]; };
layout(set = 0, binding = 1) readonly buffer FilterScale { uint filter_scale[]; };
layout(set = 0, binding = 2) readonly buffer OutputScale { uint output_scale[]; };
layout(set = 0, binding = 3) readonly buffer InputZeroPoint { uint input_zero_point[]; };
layout(set = 0, binding = 4) readonly buffer FilterZeroPoint { uint filter_zero_point[]; };
layout(set = 0, binding = 5) readonly buffer OutputZeroPoint { uint output_zero_point[]; };
layout(set = 0, binding = 6) readonly buffer Bias { uint bias[]; };
layout(set = 0, binding = 7) buffer Table { uint table[]; };

const uint SOURCES = 7;

layout(push_constant) uniform PushConstants {
    uint start[SOURCES];  // in elements, like the strides
    uint table_start;     // in words
    uint stride[SOURCES];
    uint count;
} push;

#include "arithmetic.glsl"
#include "parameters.glsl"
#include "multiplier.glsl"

void main() {
    uint workgroup = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    uint channel = workgroup * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (channel >= push.count)
        return;
    // One element longer than the arrays of the push constants. A local array of the same type would get their stride
    // in memory from glslang, which an array in registers must not have (VUID-StandaloneSpirv-None-10684).
    uint element[SOURCES + 1];
    [[unroll]] for (uint i = 0; i < SOURCES; ++i)
        element[i] = push.start[i] + channel * push.stride[i];
    Binary32 m = multiplier(input_scale[element[0]], filter_scale[element[1]], output_scale[element[2]]);
    // An absent zero point is 0, which is -128 for UINT8 data taken as INT8.
    int zero_x = -int(flip_of(0)), zero_w = -int(flip_of(1)), zero_y = 0, b = 0;
    if ((PRESENT & 1) != 0)
        zero_x = signed_byte(input_zero_point[element[3] >> 2], element[3], flip_of(0));
    if ((PRESENT & 2) != 0)
        zero_w = signed_byte(filter_zero_point[element[4] >> 2], element[4], flip_of(1));
    if ((PRESENT & 4) != 0)
        zero_y = signed_byte(output_zero_point[element[5] >> 2], element[5], flip_of(2)) + int(flip_of(2));
    if ((PRESENT & 8) != 0)
        b = int(bias[element[6]]);
    uint record = push.table_start + channel * PARAMETER_WORDS;
    table[record + PARAMETER_MANTISSA] = m.mantissa;
    table[record + PARAMETER_EXPONENT] = uint(m.exponent * 2 + (m.negative ? 1 : 0));
    table[record + PARAMETER_BIAS] = uint(b);
    table[record + PARAMETER_FILTER_ZERO_POINT] = uint(zero_w);
    table[record + PARAMETER_INPUT_ZERO_POINT] = uint(zero_x);
    table[record + PARAMETER_OUTPUT_ZERO_POINT] = uint(zero_y);
}
