// y of a whole sum in integers alone.
uint exact_byte(Wide accumulator, uint record) {
    int exponent = int(table[record + PARAMETER_EXPONENT]);
    int value = scaled(accumulator, table[record + PARAMETER_MANTISSA], exponent >> 1, (exponent & 1) != 0);
    return clamped_byte(value + int(table[record + PARAMETER_OUTPUT_ZERO_POINT]));
}
