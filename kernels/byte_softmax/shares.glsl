// The shares of a row's terms in their sum, and what the kernels of BYTE_SOFTMAX have in common: their constants, buffers and
// push constants. The kernel declares IS_SIGNED.
//
// The quotient is exact. With mantissas e and s of 24 bits, and s's exponent d beyond e's, it is above k + 1/2 if
//     2 * e * steps > (2k + 1) * s * 2^d,
// which are integers of 64 bits. An estimate in floats says where to begin; no rounding of it matters. d is not negative:
// no sum is less than one of its terms.

layout(push_constant) uniform PushConstants {
    uint input_start;  // bytes
    uint table_start;
    uint output_start;
    uint state_start;
    uint rows;  // of the dispatch
    uint inner;  // of these, those along the second dimension
    uint count;  // elements of a row
    uint largest_term;  // ordinary terms are not larger, so that all of a row's are less than 2^126 together
    uint steps;
    uint zero_point;
    uint input_strides[3];
    uint output_strides[3];
} push;

layout(set = 0, binding = 0) readonly buffer Input { uint input_words[]; };
layout(set = 0, binding = 1) readonly buffer Table { uint table[]; };
layout(set = 0, binding = 2) buffer Output { uint output_words[]; };

const uint UNSIGNED_TYPES = 0;
const uint ELEMENT_SIZE = 1;
#include "windows/words.glsl"
#include "quantized_linear_convolution/arithmetic.glsl"
#include "quantized_linear_convolution/multiplier.glsl"
#include "windows/sum.glsl"

const uint INFINITY_BITS = 0x7F800000;
const uint LEAST_ORDINARY = 1 << 23, LARGEST_SUM = (127 + 126) << 23;
const uint FLIP = IS_SIGNED != 0 ? 0x80 : 0;
const int LEAST = IS_SIGNED != 0 ? -128 : 0;
const uint MOST_STEPS_OF_BYTES = 511;  // with any zero point it is beyond every byte

bool is_ordinary(uint bits, uint largest) {
    return bits == 0 || bits - LEAST_ORDINARY <= largest - LEAST_ORDINARY;
}

// Whether a dividend of 64 bits is above (k + 1/2) * divisor * 2^shift, or so much and k is odd.
bool rounds_above(uint high, uint low, uint k, uint divisor, uint shift) {
    uint its_high, its_low;
    umulExtended(divisor, 2 * k + 1, its_high, its_low);
    its_high = its_high << shift | its_low >> 1 >> (31 - shift);
    its_low <<= shift;
    if (high != its_high)
        return high > its_high;
    return low != its_low ? low > its_low : (k & 1) != 0;
}

uint quotient(uint term, uint sum) {
    if (term == 0 || sum == 0 || sum >= INFINITY_BITS)
        return 0;
    Binary32 e = from_bits(term), s = from_bits(sum);
    uint shift = uint(s.exponent - e.exponent), divisor = s.mantissa >> 8;
    if (shift > 25)  // 2^24 steps of it are less than a half
        return 0;
    uint high, low;
    umulExtended(e.mantissa >> 7, push.steps, high, low);
    float share = float(e.mantissa >> 8) / float(divisor) * uintBitsToFloat((127 - shift) << 23);
    uint k = max(uint(min(share * float(push.steps), float(MOST_STEPS_OF_BYTES))), 1) - 1;
    while (k < MOST_STEPS_OF_BYTES && rounds_above(high, low, k, divisor, shift))
        ++k;
    return k;
}
