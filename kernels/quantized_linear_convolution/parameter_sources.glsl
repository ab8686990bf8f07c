// The parameters of QUANTIZED_LINEAR_CONVOLUTION's output channels, read from the (at most seven) tensors that hold
// them.
//
// This file is for kernels that compute the parameters themselves. On layers that take 40 us, waiting for one more
// dispatch costs more than some hundred integer operations a channel. Other kernels read the records of
// parameters.glsl.
//
// Include this file after the push constants. They have the seven starts, in elements, at the channel from which the
// kernel counts. The kernel defines FIRST_PARAMETER_CONSTANT, the first of nine specialization constants, and
// FIRST_PARAMETER_BINDING, the first of seven storage buffers.

// Elements from one output channel to the next; 0 if all channels have the same element.
layout(constant_id = FIRST_PARAMETER_CONSTANT) const uint INPUT_SCALE_STRIDE = 0;
layout(constant_id = FIRST_PARAMETER_CONSTANT + 1) const uint FILTER_SCALE_STRIDE = 1;
layout(constant_id = FIRST_PARAMETER_CONSTANT + 2) const uint OUTPUT_SCALE_STRIDE = 0;
layout(constant_id = FIRST_PARAMETER_CONSTANT + 3) const uint INPUT_ZERO_POINT_STRIDE = 0;
layout(constant_id = FIRST_PARAMETER_CONSTANT + 4) const uint FILTER_ZERO_POINT_STRIDE = 0;
layout(constant_id = FIRST_PARAMETER_CONSTANT + 5) const uint OUTPUT_ZERO_POINT_STRIDE = 0;
layout(constant_id = FIRST_PARAMETER_CONSTANT + 6) const uint BIAS_STRIDE = 1;
layout(constant_id = FIRST_PARAMETER_CONSTANT + 7) const uint PRESENT = 0;  // bits 0 to 2: zero points; bit 3: a bias
// Bits 0 to 2: input, filter, output are UINT8.
layout(constant_id = FIRST_PARAMETER_CONSTANT + 8) const uint UNSIGNED_TYPES = 0;

layout(set = 0, binding = FIRST_PARAMETER_BINDING) readonly buffer InputScale { uint input_scales[]; };
layout(set = 0, binding = FIRST_PARAMETER_BINDING + 1) readonly buffer FilterScale { uint filter_scales[]; };
layout(set = 0, binding = FIRST_PARAMETER_BINDING + 2) readonly buffer OutputScale { uint output_scales[]; };
layout(set = 0, binding = FIRST_PARAMETER_BINDING + 3) readonly buffer InputZeroPoint { uint input_zero_point_words[]; };
layout(set = 0, binding = FIRST_PARAMETER_BINDING + 4) readonly buffer FilterZeroPoint {
    uint filter_zero_point_words[];
};
layout(set = 0, binding = FIRST_PARAMETER_BINDING + 5) readonly buffer OutputZeroPoint {
    uint output_zero_point_words[];
};
layout(set = 0, binding = FIRST_PARAMETER_BINDING + 6) readonly buffer Bias { int biases[]; };

#include "multiplier.glsl"

// Zero points as signed bytes. UINT8 data are taken as INT8 by flipping the top bit, which subtracts 128 from both
// data and zero point. So x - zx does not change, and one signed kernel serves all eight combinations of types. An
// absent zero point is 0.
int input_zero_point(uint channel) {
    uint element = push.input_zero_point_start + channel * INPUT_ZERO_POINT_STRIDE;
    uint flip = flip_of(0);
    return (PRESENT & 1) != 0 ? signed_byte(input_zero_point_words[element >> 2], element, flip) : -int(flip);
}

int filter_zero_point(uint channel) {
    uint element = push.filter_zero_point_start + channel * FILTER_ZERO_POINT_STRIDE;
    uint flip = flip_of(1);
    return (PRESENT & 2) != 0 ? signed_byte(filter_zero_point_words[element >> 2], element, flip) : -int(flip);
}

// The output's zero point is not flipped, because it is added to the last step's result.
int output_zero_point(uint channel) {
    uint element = push.output_zero_point_start + channel * OUTPUT_ZERO_POINT_STRIDE;
    uint flip = flip_of(2);
    return (PRESENT & 4) != 0 ? signed_byte(output_zero_point_words[element >> 2], element, flip) + int(flip) : 0;
}

int bias_of(uint channel) {
    return (PRESENT & 8) != 0 ? biases[push.bias_start + channel * BIAS_STRIDE] : 0;
}

// The bits of the scales, for `multiplier`.
uint input_scale(uint channel) {
    return input_scales[push.input_scale_start + channel * INPUT_SCALE_STRIDE];
}

uint filter_scale(uint channel) {
    return filter_scales[push.filter_scale_start + channel * FILTER_SCALE_STRIDE];
}

uint output_scale(uint channel) {
    return output_scales[push.output_scale_start + channel * OUTPUT_SCALE_STRIDE];
}
