// One record of 8 words for each output channel. The parameter dispatches write it, and the last step reads it.
//
//     0  mantissa of the multiplier m, bit 31 set (0: m is 0)      4  input zero point, as a signed byte
//     1  its exponent times 2, plus 1 if m is negative             5  output zero point
//     2  bias                                                      6  unused
//     3  filter zero point, as a signed byte                       7  unused
//
// "As a signed byte": UINT8 data are taken as INT8 by flipping the top bit, which subtracts 128 from both data and
// zero point. So x - zx does not change, and one signed kernel serves all eight combinations of types.
const uint PARAMETER_WORDS = 8;
const uint PARAMETER_MANTISSA = 0;
const uint PARAMETER_EXPONENT = 1;
const uint PARAMETER_BIAS = 2;
const uint PARAMETER_FILTER_ZERO_POINT = 3;
const uint PARAMETER_INPUT_ZERO_POINT = 4;
const uint PARAMETER_OUTPUT_ZERO_POINT = 5;
