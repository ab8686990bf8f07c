// The addends of strips on matrix units: see store_strip.
//
// If units are vectors, the addends of all strips of a subgroup are loaded when its products are done: registers that held
// operands are free then, and all loads are under way at a time. Loaded as a matrix, in the layout of the sums, they took
// four times as long. They wait in shared memory for the loop over strips, each for the invocation that has loaded it. With
// few registers, each strip loads its own: those of all strips, beside the sums, did not fit the registers of Intel's
// Xe-HPG and Xe2.

#ifdef ONE_SET
const bool FETCHES_ADDENDS = false;
#else
const bool FETCHES_ADDENDS = STORE_UNIT == 16;
#endif
const uint OWN_ADDENDS = FETCHES_ADDENDS ? STRIPS_OF_SUBGROUP * STORES : 0;
uvec4 fetched_addends[FETCHES_ADDENDS ? OWN_ADDENDS : 1];

// Where the addends of the i-th unit of a strip wait.
uint addend_place(uint strip, uint i) {
    return STRIPS + (gl_SubgroupID * STRIPS_OF_SUBGROUP + strip) * (STRIP_LINES * UNITS) + i;
}

// In place of the addends of a unit that is not to be stored, others are loaded: a condition would take twice as many
// instructions as the load.
void fetch_addends() {
    [[unroll]] for (uint n = 0; n < OWN_ADDENDS; ++n) {
        uvec2 place = place_of_unit(n / STORES, n % STORES);
        uint last_channel = push.channels - (STORE_CHANNELS != 0 ? UNIT : 1);
        uint channel = clamp(first_channel + place.y, push.first_channel, last_channel);
        uint address = address_at(min(place.x, TILE_PIXELS - 1), channel);
        fetched_addends[n] = addend_vectors[addend_address(address) / 16];
    }
}

void put_addends() {
    [[unroll]] for (uint n = 0; n < OWN_ADDENDS; ++n) {
        uint i = gl_SubgroupInvocationID + n % STORES * LANES;
        if (STRIP_LINES * UNITS % LANES == 0 || i < STRIP_LINES * UNITS)
            tile[addend_place(n / STORES, i)] = fetched_addends[n];
    }
}

uvec4 added_vector(uvec4 vector, uvec4 addends) {
    [[unroll]] for (uint i = 0; i < 4; ++i)
        vector[i] = added(vector[i], addends[i], true);
    return vector;
}

#define VECTOR_WITH_ADDENDS(vector, address, place)                                                                    \
    added_vector(vector, FETCHES_ADDENDS ? tile[place] : addend_vectors[addend_address(address) / 16])

// A single byte.
#define BYTE_WITH_ADDEND(byte, address, in_floats) added(byte, uint(addend_bytes[addend_address(address)]), in_floats)
