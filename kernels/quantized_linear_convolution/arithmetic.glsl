// The arithmetic of QUANTIZED_LINEAR_CONVOLUTION that has to give the same result on every device, in integers only.
//
// m = f32(f32(sx * sw) / sy) and y = clamp(nearest_even(f32(f32(acc) * m)) + zy), where f32() rounds to binary32,
// nearest even, keeping denormals. Vulkan promises none of that for float: the rounding mode of a product is open, a
// division may be 2.5 ULP off, denormals may be flushed, and drivers contract and reassociate. Integers are exact
// everywhere, so binary32 is computed in integers. This costs some 45 instructions an output, against K / 4 dot
// products for its sum. A second route through the float unit, for devices that declare RTE, would save little here
// and double what has to be proven. (Kernels on matrix units and depthwise_dot4 have that route: float32.glsl.)

// A binary32 value. Bit 31 of the mantissa is set, so that |value| = mantissa * 2^(exponent - 31). A mantissa of 0
// stands for 0, and also for NaN, whose result is the output's zero point. The exponent of infinity is so large that
// any result saturates.
struct Binary32 {
    uint mantissa;
    int exponent;
    bool negative;
};

const int INFINITE_EXPONENT = 4096;

// Rounds fraction * 2^(exponent - 31) to binary32. Bit 31 of the fraction is set. `sticky` tells whether the exact
// value has further bits below the fraction.
Binary32 rounded_to_binary32(uint fraction, bool sticky, int exponent, bool negative) {
    Binary32 result = Binary32(0, 0, negative);
    // A normal number keeps 24 bits, and one bit less for each power of two below 2^-126.
    int dropped = 8 + max(0, -126 - exponent);
    if (dropped > 32)
        return result;
    uint kept = dropped == 32 ? 0 : fraction >> dropped;
    uint rest = dropped == 32 ? fraction : fraction & ((1u << dropped) - 1);
    uint half_step = 1u << (dropped - 1);
    if (rest > half_step || (rest == half_step && (sticky || (kept & 1) != 0)))
        ++kept;
    if (kept == 0)
        return result;
    int top = findMSB(kept);
    result.mantissa = kept << (31 - top);
    result.exponent = exponent - 31 + dropped + top;
    if (result.exponent > 127)
        result.exponent = INFINITE_EXPONENT;
    return result;
}

// An accumulator of 64 bits, two's complement.
struct Wide {
    uint low;
    uint high;
};

Wide widened(int value) {
    return Wide(uint(value), uint(value >> 31));
}

Wide add(Wide a, Wide b) {
    uint carry;
    uint low = uaddCarry(a.low, b.low, carry);
    return Wide(low, a.high + b.high + carry);
}

Wide negated(Wide a) {
    return Wide(0u - a.low, ~a.high + (a.low == 0 ? 1u : 0u));
}

Wide product(int a, int b) {
    int high, low;
    imulExtended(a, b, high, low);
    return Wide(uint(low), uint(high));
}

// nearest_even(f32(f32(accumulator) * multiplier)), clamped to [-1024, 1024]. Beyond that, every output saturates.
int scaled(Wide accumulator, uint multiplier_mantissa, int multiplier_exponent, bool multiplier_negative) {
    bool negative = int(accumulator.high) < 0;
    if (negative)
        accumulator = negated(accumulator);
    if ((accumulator.low | accumulator.high) == 0)
        return 0;

    // f32(accumulator): 24 bits, nearest even.
    uint fraction;
    uint sticky = 0;
    int exponent;
    if (accumulator.high == 0) {
        exponent = findMSB(accumulator.low);
        fraction = accumulator.low << (31 - exponent);
    } else {
        int top = findMSB(accumulator.high);
        fraction = (accumulator.high << (31 - top)) | (accumulator.low >> 1 >> top);
        sticky = (accumulator.low << (31 - top)) != 0 ? 1 : 0;
        exponent = 32 + top;
    }
    uint kept = fraction >> 8;
    kept += (((fraction & 0xFF) << 1) | sticky) + (kept & 1) > 256 ? 1 : 0;
    if (kept == 1u << 24) {
        kept = 1u << 23;
        ++exponent;
    }

    // f32(that * multiplier). Below 2^-126 binary32 rounds more coarsely, but such values become 0 in the next step.
    uint high, low;
    umulExtended(kept << 8, multiplier_mantissa, high, low);
    exponent += multiplier_exponent;
    if (int(high) < 0) {
        ++exponent;
    } else {
        high = (high << 1) | (low >> 31);
        low <<= 1;
    }
    kept = high >> 8;
    kept += (((high & 0xFF) << 1) | (low != 0 ? 1 : 0)) + (kept & 1) > 256 ? 1 : 0;

    // nearest_even(kept * 2^(exponent - 23)).
    int result;
    if (multiplier_mantissa == 0 || exponent < -1) {
        result = 0;
    } else if (exponent > 9) {
        result = 1024;
    } else {
        int shift = 23 - exponent;
        uint whole = kept >> shift;
        uint rest = kept & ((1u << shift) - 1);
        whole += rest + (whole & 1) > 1u << (shift - 1) ? 1 : 0;
        result = int(whole);
    }
    return negative != multiplier_negative ? -result : result;
}
