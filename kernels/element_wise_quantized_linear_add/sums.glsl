// The sums of four pairs of bytes: in floats, where check.comp has found that they are those of the table for all pairs of
// bytes; otherwise from the table. Maths and the table's layout: table.glsl.
//
// Vulkan promises neither that fma rounds once nor how. So sums in floats are right on some devices and with some
// factors, and only the device itself can tell. `precise` makes the same fma of the same operands the same number in every
// kernel.
//
// A kernel takes sums in floats where its code is unrolled, and those of the table in a loop that is not: many copies of
// the code for both cost an NVIDIA H100 as much as the sums themselves. Conversions and roundings would take four to eight times as long as sums on NVIDIA's GPUs, so bytes become
// floats, and floats integers, by way of the lowest bits of 2^23 and of 1.5 * 2^23.
//
// Include this file after the declaration of SUM_UNSIGNED_TYPES (bits 0 to 2: A, B, output), of `sum_table_words`, and of
// `sum_table_start()`: where the record before the table begins, in bytes.

const uint A_FLIP = (SUM_UNSIGNED_TYPES & 1) != 0 ? 0 : 0x80808080;
const uint B_FLIP = (SUM_UNSIGNED_TYPES & 2) != 0 ? 0 : 0x80808080;
const float A_ORIGIN = (SUM_UNSIGNED_TYPES & 1) != 0 ? 8388608.0 : 8388736.0;
const float B_ORIGIN = (SUM_UNSIGNED_TYPES & 2) != 0 ? 8388608.0 : 8388736.0;
const float LEAST_SUM = (SUM_UNSIGNED_TYPES & 4) != 0 ? 0.0 : -128.0;

// A byte, whose sign bit is flipped if it is signed, as the integer that it stands for.
float addend_of(uint word, int byte, float origin) {
    precise float number = uintBitsToFloat(0x4B000000 | (word >> (8 * byte) & 0xFF)) - origin;
    return number;
}

// The record has ra, rb and k, and 0 as its last number if sums in floats may not be used.
uint sums_in_floats(uint first, uint second, vec4 record) {
    first ^= A_FLIP;
    second ^= B_FLIP;
    uint value = 0;
    [[unroll]] for (int byte = 0; byte < 4; ++byte) {
        precise float inner = fma(addend_of(second, byte, B_ORIGIN), record.y, record.z);
        precise float sum = fma(addend_of(first, byte, A_ORIGIN), record.x, inner);
        precise float shifted = clamp(sum, LEAST_SUM, LEAST_SUM + 255.0) + 12582912.0;
        value |= (floatBitsToUint(shifted) & 0xFF) << (8 * byte);
    }
    return value;
}

uint sums_from_table(uint first, uint second) {
    uint value = 0;
    [[unroll]] for (uint slot = 0; slot < 32; slot += 8) {
        uint place = sum_table_start() + 16 + ((first >> slot & 0xFF) << 8 | (second >> slot & 0xFF));
        value |= (sum_table_words[place / 4] >> (place % 4 * 8) & 0xFF) << slot;
    }
    return value;
}
