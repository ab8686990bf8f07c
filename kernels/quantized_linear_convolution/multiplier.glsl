// The multiplier of QUANTIZED_LINEAR_CONVOLUTION, m = f32(f32(sx * sw) / sy), from the bits of the three scales.
//
// It is computed in integers, which are exact on every device, with denormals, infinities and signs. This runs once
// for each channel in some hundred workgroups, so short code matters more than few steps.

const uint ZERO = 0, FINITE = 1, INFINITE = 2, NOT_A_NUMBER = 3;

uint kind_of(uint bits) {
    uint magnitude = bits & 0x7FFFFFFF;
    return magnitude == 0 ? ZERO : magnitude < 0x7F800000 ? FINITE : magnitude == 0x7F800000 ? INFINITE : NOT_A_NUMBER;
}

Binary32 from_bits(uint bits) {
    uint biased = (bits >> 23) & 0xFF;
    uint mantissa = bits & 0x7FFFFF;
    if (biased != 0)
        mantissa |= 1u << 23;
    else
        biased = 1;
    int top = max(findMSB(mantissa), 0);
    return Binary32(mantissa << (31 - top), int(biased) - 127 - 23 + top, int(bits) < 0);
}

Binary32 infinity(bool negative) {
    return Binary32(1u << 31, INFINITE_EXPONENT, negative);
}

uint kind_of(Binary32 value) {
    return value.mantissa == 0 ? ZERO : value.exponent == INFINITE_EXPONENT ? INFINITE : FINITE;
}

Binary32 multiply(Binary32 a, Binary32 b) {
    uint high, low;
    umulExtended(a.mantissa, b.mantissa, high, low);
    int exponent = a.exponent + b.exponent;
    if (int(high) < 0) {
        ++exponent;
    } else {
        high = (high << 1) | (low >> 31);
        low <<= 1;
    }
    return rounded_to_binary32(high, low != 0, exponent, a.negative != b.negative);
}

Binary32 divide(Binary32 a, Binary32 b) {
    uint dividend = a.mantissa >> 8;
    uint divisor = b.mantissa >> 8;
    int exponent = a.exponent - b.exponent;
    if (dividend < divisor) {
        dividend <<= 1;
        --exponent;
    }
    // Now 1 <= dividend / divisor < 2. Every float unit divides to within 2.5 units in the last place, so the estimate
    // of 24 bits is close, and the remainder of the dividend corrects it. The remainder is small: its low 32 bits are
    // all of it.
    uint quotient = uint(float(dividend) / float(divisor) * 8388608.0);
    int left = int((dividend << 23) - quotient * divisor);
    while (left < 0) {
        left += int(divisor);
        --quotient;
    }
    while (left >= int(divisor)) {
        left -= int(divisor);
        ++quotient;
    }
    left <<= 1;
    bool half_step = left >= int(divisor);
    if (half_step)
        left -= int(divisor);
    return rounded_to_binary32(quotient << 8 | (half_step ? 0x80 : 0), left != 0, exponent, a.negative != b.negative);
}

// f32(f32(x * w) / y); a mantissa of 0 if that is 0 or not a number.
Binary32 multiplier(uint x, uint w, uint y) {
    Binary32 nothing = Binary32(0, 0, false);
    uint kind_x = kind_of(x), kind_w = kind_of(w), kind_y = kind_of(y);
    if (max(max(kind_x, kind_w), kind_y) == NOT_A_NUMBER)
        return nothing;
    bool negative = int(x ^ w) < 0;
    Binary32 t;
    if (kind_x == ZERO || kind_w == ZERO)
        return nothing;  // 0; or not a number: 0 times infinity, or 0 / 0
    if (kind_x == INFINITE || kind_w == INFINITE)
        t = infinity(negative);
    else
        t = multiply(from_bits(x), from_bits(w));
    negative = negative != (int(y) < 0);
    uint kind_t = kind_of(t);
    if (kind_t == ZERO || kind_y == INFINITE)
        return nothing;  // 0; or not a number: 0 / 0, or infinity / infinity
    if (kind_t == INFINITE || kind_y == ZERO)
        return infinity(negative);
    return divide(t, from_bits(y));
}

int signed_byte(uint word, uint element, uint flip) {
    uint bits = (word >> (8 * (element & 3))) ^ flip;
    return bitfieldExtract(int(bits), 0, 8);
}

// 0x80 if a tensor (0: input, 1: filter, 2: output) is UINT8, otherwise 0. The kernel defines UNSIGNED_TYPES.
uint flip_of(uint tensor) {
    return (UNSIGNED_TYPES >> tensor & 1) != 0 ? 0x80 : 0;
}
