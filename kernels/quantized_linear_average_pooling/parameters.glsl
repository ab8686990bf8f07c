// The scales and zero points of QUANTIZED_LINEAR_AVERAGE_POOLING, read from the (at most four) tensors that hold them. On a
// device with four storage buffers a stage they are all in one (PARAMETERS_IN_ONE_BUFFER).
//
// Include this file after the push constants, which have the four starts, in elements, at the dispatch's first channel. The
// kernel defines FIRST_PARAMETER_CONSTANT, the first of seven specialization constants, and FIRST_PARAMETER_BINDING.

// Elements from one channel to the next; 0 if all channels have the same element.
layout(constant_id = FIRST_PARAMETER_CONSTANT) const uint INPUT_SCALE_STRIDE = 0;
layout(constant_id = FIRST_PARAMETER_CONSTANT + 1) const uint INPUT_ZERO_POINT_STRIDE = 0;
layout(constant_id = FIRST_PARAMETER_CONSTANT + 2) const uint OUTPUT_SCALE_STRIDE = 0;
layout(constant_id = FIRST_PARAMETER_CONSTANT + 3) const uint OUTPUT_ZERO_POINT_STRIDE = 0;
layout(
    constant_id = FIRST_PARAMETER_CONSTANT + 4) const uint PRESENT = 0;  // bits 0 and 1: zero points of input, output
layout(constant_id = FIRST_PARAMETER_CONSTANT + 5) const uint UNSIGNED_TYPES = 0;  // bits 0 and 1: input, output
// Taps by which a sum is divided; 0: those inside the input.
layout(constant_id = FIRST_PARAMETER_CONSTANT + 6) const uint TAPS_OF_MEAN = 0;

layout(set = 0, binding = FIRST_PARAMETER_BINDING) readonly buffer InputScale { uint input_scales[]; };
#ifdef PARAMETERS_IN_ONE_BUFFER
#define input_zero_points input_scales
#define output_scales input_scales
#define output_zero_points input_scales
#else
layout(set = 0, binding = FIRST_PARAMETER_BINDING + 1) readonly buffer InputZeroPoint { uint input_zero_points[]; };
layout(set = 0, binding = FIRST_PARAMETER_BINDING + 2) readonly buffer OutputScale { uint output_scales[]; };
layout(set = 0, binding = FIRST_PARAMETER_BINDING + 3) readonly buffer OutputZeroPoint { uint output_zero_points[]; };
#endif

const bool IS_PER_CHANNEL =
    (INPUT_SCALE_STRIDE | INPUT_ZERO_POINT_STRIDE | OUTPUT_SCALE_STRIDE | OUTPUT_ZERO_POINT_STRIDE) != 0;

// Signed bytes become unsigned ones in the same order by their top bit, so that sums of bytes are sums of positive numbers.
const uint FLIP = (UNSIGNED_TYPES & 1) != 0 ? 0 : 0x80808080u;
const int FLIPPED_ZERO = (UNSIGNED_TYPES & 1) != 0 ? 0 : 128;

// A byte of the input or of the output as the number that it stands for.
int input_number(uint byte) {
    return (UNSIGNED_TYPES & 1) != 0 ? int(byte) : bitfieldExtract(int(byte), 0, 8);
}

int output_number(uint byte) {
    return (UNSIGNED_TYPES & 2) != 0 ? int(byte) : bitfieldExtract(int(byte), 0, 8);
}

uint byte_of(uint word, uint address) {
    return word >> 8 * (address & 3) & 0xFF;
}

int input_zero_point(uint channel) {
    uint at = push.input_zero_point_start + channel * INPUT_ZERO_POINT_STRIDE;
    return (PRESENT & 1) != 0 ? input_number(byte_of(input_zero_points[at >> 2], at)) : 0;
}

int output_zero_point(uint channel) {
    uint at = push.output_zero_point_start + channel * OUTPUT_ZERO_POINT_STRIDE;
    return (PRESENT & 2) != 0 ? output_number(byte_of(output_zero_points[at >> 2], at)) : 0;
}

// The bits of the scales.
uint input_scale(uint channel) {
    return input_scales[push.input_scale_start + channel * INPUT_SCALE_STRIDE];
}

uint output_scale(uint channel) {
    return output_scales[push.output_scale_start + channel * OUTPUT_SCALE_STRIDE];
}
