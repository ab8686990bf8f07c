// Which numbers may be added in floats, their sums, and the mean of a sum: for kernels of BYTE_TABLE_MEAN. Include this file
// after windows/sum.glsl, and after the definition of ROUNDS_TO_NEAREST, if the device does.

const uint NO_NUMBER = 0x7FC00000;
const uint LEAST_ORDINARY = (127 - 60) << 23, LARGEST_ORDINARY = (127 + 60) << 23;
const uint LEAST_SUM = (127 - 100) << 23, LARGEST_SUM = (127 + 100) << 23;

bool is_between(uint bits, uint least, uint largest) {
    uint magnitude = bits & 0x7FFFFFFF;
    return magnitude == 0 || magnitude - least <= largest - least;
}

shared uint are_odd;  // whether a number of the table is of no ordinary size

// f32(a + b), from bits to bits.
uint sum_of_two(uint a, uint b) {
#ifdef ROUNDS_TO_NEAREST
    if (are_odd == 0) {
        precise float sum = uintBitsToFloat(a) + uintBitsToFloat(b);
        return floatBitsToUint(sum);
    }
#endif
    return added(a, b);
}

// f32(total / count), from bits to bits.
uint quotient_of(uint total, uint count) {
    if (kind_of(total) != FINITE)
        return kind_of(total) == NOT_A_NUMBER ? NO_NUMBER : total;
    return to_bits(divide(from_bits(total), from_count(count)));
}
