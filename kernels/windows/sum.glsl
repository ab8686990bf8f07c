// Sums of binary32 numbers in integers, which are exact on every device. See quantized_linear_convolution/arithmetic.glsl for
// why. Include this file after it and multiplier.glsl.

// The bits of a number; NaN is infinity here: both end as the least value.
uint to_bits(Binary32 value) {
    uint sign = value.negative ? 1u << 31 : 0;
    if (value.mantissa == 0)
        return sign;
    if (value.exponent == INFINITE_EXPONENT)
        return sign | 0x7F800000u;
    if (value.exponent < -126)
        return sign | value.mantissa >> (8 - 126 - value.exponent);
    return sign | uint(value.exponent + 127) << 23 | value.mantissa >> 8 & 0x7FFFFFu;
}

// f32(a + b). An infinite operand gives infinity.
Binary32 sum_of(Binary32 a, Binary32 b) {
    if (a.mantissa == 0)
        return b;
    if (b.mantissa == 0)
        return a;
    if (a.exponent < b.exponent || a.exponent == b.exponent && a.mantissa < b.mantissa) {
        Binary32 other = a;
        a = b;
        b = other;
    }
    int distance = a.exponent - b.exponent;
    // Beyond that b is too small to change a. Nearer, no bit of b is lost in 64 bits: it has 24.
    if (a.exponent == INFINITE_EXPONENT || distance > 40)
        return a;
    uint high = distance < 32 ? b.mantissa >> distance : 0;
    uint low = distance == 0 ? 0 : distance < 32 ? b.mantissa << (32 - distance) : b.mantissa >> (distance - 32);
    int exponent = a.exponent;
    if (a.negative == b.negative) {
        high += a.mantissa;
        if (high < a.mantissa) {
            low = low >> 1 | (low & 1) | high << 31;
            high = high >> 1 | 1u << 31;
            ++exponent;
        }
    } else {
        high = a.mantissa - high - (low != 0 ? 1 : 0);
        low = 0u - low;
        if (high == 0) {
            if (low == 0)
                return Binary32(0, 0, false);
            high = low;
            low = 0;
            exponent -= 32;
        }
        int top = findMSB(high);
        if (top < 31) {
            high = high << (31 - top) | low >> 1 >> top;
            low <<= 31 - top;
            exponent -= 31 - top;
        }
    }
    return rounded_to_binary32(high, low != 0, exponent, a.negative);
}

// f32(a + b), from bits to bits. What is no number has the bits that x86-64 gives it: those of b, or else of a, made quiet.
uint added(uint a, uint b) {
    uint kind_a = kind_of(a), kind_b = kind_of(b);
    if (max(kind_a, kind_b) == NOT_A_NUMBER)
        return (kind_b == NOT_A_NUMBER ? b : a) | 1u << 22;
    if (kind_a == INFINITE && kind_b == INFINITE && a != b)
        return 0xFFC00000;
    if (max(kind_a, kind_b) == INFINITE)
        return kind_a == INFINITE ? a : b;
    Binary32 sum = sum_of(from_bits(a), from_bits(b));
    return sum.mantissa == 0 ? a & b & 0x80000000 : to_bits(sum);
}

// f32(n), for n > 0.
Binary32 from_count(uint n) {
    int top = findMSB(n);
    return rounded_to_binary32(n << (31 - top), false, top, false);
}
