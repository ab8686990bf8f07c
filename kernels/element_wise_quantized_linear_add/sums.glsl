// The sums of four pairs of bytes: in floats, where check.comp has found that they are those of the table for all pairs of
// bytes; otherwise from the table. Maths and the table's layout: table.glsl.
//
// Vulkan promises neither that fma rounds once nor how. So sums in floats are right on some devices and with some
// factors, and only the device itself can tell. `precise` makes the same fma of the same operands the same number in every
// kernel.
//
// A kernel takes sums in floats where its code is unrolled, and those of the table in a loop that is not: many copies of
// the code for both cost an NVIDIA H100 as much as the sums themselves. Conversions and roundings would take four to eight
// times as long as sums on NVIDIA's GPUs, so bytes become floats, and floats integers, by way of the lowest bits of 2^23 and
// of 1.5 * 2^23. A byte in the second place of a word is taken where it lies, as 256 times the number, with a factor that is
// 256 times smaller: check.comp looks at each pair in either place.
//
// Include this file after the declaration of SUM_UNSIGNED_TYPES (bits 0 to 2: A, B, output), of `sum_table_words`, and of
// `sum_table_start()`: where the record before the table begins, in bytes.

const uint A_FLIP = (SUM_UNSIGNED_TYPES & 1) != 0 ? 0 : 0x80808080;
const uint B_FLIP = (SUM_UNSIGNED_TYPES & 2) != 0 ? 0 : 0x80808080;
const uint SUM_FLIP = (SUM_UNSIGNED_TYPES & 4) != 0 ? 0 : 0x80808080;
// What a byte's number, and 256 times the number, are 0 at.
const float A_ORIGIN = (SUM_UNSIGNED_TYPES & 1) != 0 ? 8388608.0 : 8388736.0;
const float B_ORIGIN = (SUM_UNSIGNED_TYPES & 2) != 0 ? 8388608.0 : 8388736.0;
const float A_ORIGIN_ABOVE = (SUM_UNSIGNED_TYPES & 1) != 0 ? 8388608.0 : 8421376.0;
const float B_ORIGIN_ABOVE = (SUM_UNSIGNED_TYPES & 2) != 0 ? 8388608.0 : 8421376.0;
const float LEAST_SUM = (SUM_UNSIGNED_TYPES & 4) != 0 ? 0.0 : -128.0;
const float TO_DISTANCE = (SUM_UNSIGNED_TYPES & 4) != 0 ? 12582912.0 : 12583040.0;  // 1.5 * 2^23 - LEAST_SUM
const uint BITS_ABOVE_DISTANCE = 0x4B400000;

// The sum of two bytes, whose sign bits are flipped if they are signed: its distance from LEAST_SUM, with the bits of
// 1.5 * 2^23 above it.
uint sum_in_floats(uint a, uint b, float a_origin, float b_origin, vec3 factors) {
    precise float x = uintBitsToFloat(0x4B000000 | a) - a_origin;
    precise float y = uintBitsToFloat(0x4B000000 | b) - b_origin;
    precise float inner = fma(y, factors.y, factors.z);
    precise float sum = fma(x, factors.x, inner);
    precise float shifted = clamp(sum, LEAST_SUM, LEAST_SUM + 255.0) + TO_DISTANCE;
    return floatBitsToUint(shifted);
}

// The record has ra, rb and k, and 0 as its last number if sums in floats may not be used.
uint sums_in_floats(uint first, uint second, vec4 record) {
    vec3 factors = record.xyz;
    vec3 factors_above = vec3(record.xy * (1.0 / 256.0), record.z);
    first ^= A_FLIP;
    second ^= B_FLIP;
    uint value = 0u - BITS_ABOVE_DISTANCE * 0x01010101u;
    [[unroll]] for (uint slot = 0; slot < 32; slot += 16) {
        uint a = first >> slot, b = second >> slot;
        value += sum_in_floats(a & 0xFF, b & 0xFF, A_ORIGIN, B_ORIGIN, factors) << slot;
        value += sum_in_floats(a & 0xFF00, b & 0xFF00, A_ORIGIN_ABOVE, B_ORIGIN_ABOVE, factors_above) << (slot + 8);
    }
    return value ^ SUM_FLIP;
}

uint sums_from_table(uint first, uint second) {
    uint value = 0;
    [[unroll]] for (uint slot = 0; slot < 32; slot += 8) {
        uint place = sum_table_start() + 16 + ((first >> slot & 0xFF) << 8 | (second >> slot & 0xFF));
        value |= (sum_table_words[place / 4] >> (place % 4 * 8) & 0xFF) << slot;
    }
    return value;
}
