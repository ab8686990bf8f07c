// The addends of strips on matrix units: see store_strip.
//
// If units are vectors, the addends of all strips of a subgroup are loaded when its products are done: registers that held
// operands are free then, and all loads are under way at a time. Loaded as a matrix, in the layout of the sums, they took
// four times as long. With few registers, each strip loads its own: those of all strips, beside the sums, did not fit
// the registers of Intel's Xe-HPG and Xe2.

const uint STRIPS_OF_SUBGROUP = MATRIX_ROWS * MATRIX_COLUMNS / 4;
#ifdef ONE_SET
const bool FETCHES_ADDENDS = false;
#else
const bool FETCHES_ADDENDS = STORE_UNIT == 16 && STORES <= 4;
#endif
uvec4 fetched_addends[FETCHES_ADDENDS ? STRIPS_OF_SUBGROUP * STORES : 1];
uvec4 strip_addends[FETCHES_ADDENDS ? STORES : 1];

void fetch_addends(uint first_pixel) {
    if (!FETCHES_ADDENDS)
        return;
    [[unroll]] for (uint strip = 0; strip < STRIPS_OF_SUBGROUP; ++strip) {
        // As make_tile counts them.
        uint line = STORE_CHANNELS != 0 ? subgroup_pixel + strip % MATRIX_ROWS * MATRIX_PIXELS
                                        : subgroup_channel + strip / (MATRIX_ROWS / 4) * MATRIX_CHANNELS;
        uint first_byte = STORE_CHANNELS != 0 ? subgroup_channel + strip / MATRIX_ROWS * 4 * MATRIX_CHANNELS
                                              : subgroup_pixel + strip % (MATRIX_ROWS / 4) * 4 * MATRIX_PIXELS;
        [[unroll]] for (uint n = 0; n < STORES; ++n) {
            uint i = gl_SubgroupInvocationID + n * LANES;
            uint address;
            if ((STRIP_LINES * UNITS % LANES == 0 || i < STRIP_LINES * UNITS)
                && has_unit(n, first_pixel, line, first_byte, address))
                fetched_addends[strip * STORES + n] = addend_vectors[addend_address(address) / 16];
        }
    }
}

#define USE_ADDENDS_OF(strip)                                                                                          \
    if (FETCHES_ADDENDS) [[unroll]]                                                                                    \
        for (uint n = 0; n < STORES; ++n)                                                                              \
            strip_addends[n] = fetched_addends[(strip) * STORES + n];

uvec4 added_vector(uvec4 vector, uvec4 addends) {
    [[unroll]] for (uint i = 0; i < 4; ++i)
        vector[i] = added(vector[i], addends[i], true);
    return vector;
}

#define VECTOR_WITH_ADDENDS(vector, address, n)                                                                        \
    added_vector(vector, FETCHES_ADDENDS ? strip_addends[n] : addend_vectors[addend_address(address) / 16])

// A single byte.
#define BYTE_WITH_ADDEND(byte, address, in_floats) added(byte, uint(addend_bytes[addend_address(address)]), in_floats)
