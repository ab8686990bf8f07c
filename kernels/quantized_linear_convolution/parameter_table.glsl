// The parameters of QUANTIZED_LINEAR_CONVOLUTION's output channels, from the records of parameters.glsl. These are the
// functions of parameter_sources.glsl for kernels on devices with too few storage buffers for that file.

#include "parameters.glsl"

uint record_of(uint channel) {
    return push.table_start + channel * PARAMETER_WORDS;
}

int input_zero_point(uint channel) {
    return int(table[record_of(channel) + PARAMETER_INPUT_ZERO_POINT]);
}

int filter_zero_point(uint channel) {
    return int(table[record_of(channel) + PARAMETER_FILTER_ZERO_POINT]);
}

int output_zero_point(uint channel) {
    return int(table[record_of(channel) + PARAMETER_OUTPUT_ZERO_POINT]);
}

int bias_of(uint channel) {
    return int(table[record_of(channel) + PARAMETER_BIAS]);
}

Binary32 exact_multiplier_of(uint channel) {
    int exponent = int(table[record_of(channel) + PARAMETER_EXPONENT]);
    return Binary32(table[record_of(channel) + PARAMETER_MANTISSA], exponent >> 1, (exponent & 1) != 0);
}
