// ELEMENT_WISE_QUANTIZED_LINEAR_ADD, preparation: the output for each of the 65,536 pairs of bytes, and the factors of
// sums in floats.
//
// Maths, f32() and fma() being one rounding to binary32, nearest even, denormals kept:
//     ra = f32(sa / sy), rb = f32(sb / sy), k = f32(zy - fma(ra, za, f32(rb * zb)))
//     y = saturated(nearest_even(fma(a, ra, fma(b, rb, k))))
// If that sum is not a number or at least 2^31 in magnitude, y is the least number of the type, whatever its sign. It
// then never is infinite or not a number unless ra, rb, k or a sum is, and once one is, all sums after it are: so one
// mark, an infinite exponent, stands for all of them.
//
// Loops: an invocation computes four neighbouring bytes of the table, in integers, which are exact on every device.
//
// Layout: 16 bytes come first: ra, rb and k as floats, and 1, in place of which check.comp writes 0 if sums in floats may
// not be used. Byte 256 a + b of what follows is the output for the bytes a and b, by their bits.
//
// Preconditions: scales may have any bits. The kernel defines `parameter`: the bits of the scales of A, B and the output
// (0 to 2), and their zero points (3 to 5) in the low byte; and the push constants present, unsigned_types and
// table_start. These are no specialization constants, so that one pipeline serves all, and is compiled once.

layout(set = 0, binding = 0) writeonly buffer Table { uint table_words[]; };
layout(set = 0, binding = 0) writeonly buffer Record { uvec4 table_vectors[]; };

#define UNSIGNED_TYPES push.unsigned_types
#include "element_wise/exact.glsl"

const uint TABLE_WORDS = 16384;
const uint A = 0, B = 1, OUTPUT = 2;

int zero_point(uint tensor) {
    return (push.present >> tensor & 1) != 0 ? integer_of(parameter(3 + tensor), tensor) : 0;
}

bool is_infinite(Binary32 value) {
    return value.exponent == INFINITE_EXPONENT;
}

Binary32 ratio(uint x, uint y) {
    uint kind_x = kind_of(x), kind_y = kind_of(y);
    if (kind_x >= INFINITE || kind_y == ZERO || kind_y == NOT_A_NUMBER)
        return infinity(false);
    if (kind_x == ZERO || kind_y == INFINITE)
        return Binary32(0, 0, false);
    return divide(from_bits(x), from_bits(y));
}

// f32(n * r + c), for |n| < 256. The product has at most 32 bits.
Binary32 fused(int n, Binary32 r, Binary32 c) {
    if (is_infinite(r) || is_infinite(c))
        return infinity(false);
    uint product = (r.mantissa >> 8) * uint(abs(n));
    if (product == 0)
        return c;
    int top = findMSB(product);
    Binary32 large = Binary32(product << (31 - top), r.exponent + top - 23, r.negative != (n < 0));
    if (c.mantissa == 0)
        return rounded_to_binary32(large.mantissa, false, large.exponent, large.negative);
    Binary32 small = c;
    if (large.exponent < c.exponent || (large.exponent == c.exponent && large.mantissa < c.mantissa)) {
        small = large;
        large = c;
    }

    // Both as numbers of 64 bits, of which the larger one has bit 62 set. The smaller one's bits below them are joined
    // in its lowest bit: it then lies at least 30 bits below the last bit that is kept.
    uint high = large.mantissa >> 1;
    uint low = large.mantissa << 31;
    uint small_high = small.mantissa >> 1;
    uint small_low = small.mantissa << 31;
    int distance = large.exponent - small.exponent;
    if (distance >= 63) {
        small_high = 0;
        small_low = 1;
    } else if (distance >= 32) {
        bool lost = small_low != 0 || (distance > 32 && small_high << (64 - distance) != 0);
        small_low = small_high >> (distance - 32) | (lost ? 1 : 0);
        small_high = 0;
    } else if (distance > 0) {
        bool lost = small_low << (32 - distance) != 0;
        small_low = small_low >> distance | small_high << (32 - distance) | (lost ? 1 : 0);
        small_high >>= distance;
    }
    uint carry;
    if (large.negative == small.negative) {
        low = uaddCarry(low, small_low, carry);
        high += small_high + carry;
    } else {
        low = usubBorrow(low, small_low, carry);
        high -= small_high + carry;
    }
    if ((high | low) == 0)
        return Binary32(0, 0, false);
    if (high == 0) {
        top = findMSB(low);
        return rounded_to_binary32(low << (31 - top), false, large.exponent + top - 62, large.negative);
    }
    top = findMSB(high);
    uint fraction = high << (31 - top) | low >> 1 >> top;
    bool sticky = low << (31 - top) != 0;
    return rounded_to_binary32(fraction, sticky, large.exponent + top - 30, large.negative);
}

uint saturated(Binary32 value) {
    int least = (UNSIGNED_TYPES >> OUTPUT & 1) != 0 ? 0 : -128;
    return uint(value.exponent >= 31 ? least : clamp(nearest_even(value), least, least + 255)) & 0xFF;
}

// The float of a factor. Those below 2^-126 count as 0 in a sum of floats, and those that are not finite.
float factor(Binary32 value) {
    return value.exponent < -126 || value.exponent > 127 ? 0.0 : uintBitsToFloat(bits_of(value));
}

void main() {
    uint workgroup = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    uint index = workgroup * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (index >= TABLE_WORDS)
        return;
    Binary32 ra = ratio(parameter(A), parameter(OUTPUT));
    Binary32 rb = ratio(parameter(B), parameter(OUTPUT));
    Binary32 k = fused(zero_point(A), ra, fused(zero_point(B), rb, Binary32(0, 0, false)));
    k.negative = !k.negative;
    k = fused(zero_point(OUTPUT), Binary32(1u << 31, 0, false), k);

    int a = integer_of(index >> 6, A);
    uint word = 0;
    [[dont_unroll]] for (uint slot = 0; slot < 4; ++slot) {
        int b = integer_of((index << 2 & 0xFF) + slot, B);
        word |= saturated(fused(a, ra, fused(b, rb, k))) << (8 * slot);
    }
    table_words[4 * (push.table_start + 1) + index] = word;

    if (index == 0)
        table_vectors[push.table_start] = uvec4(
            floatBitsToUint(factor(ra)), floatBitsToUint(factor(rb)), floatBitsToUint(factor(k)), floatBitsToUint(1.0));
}
