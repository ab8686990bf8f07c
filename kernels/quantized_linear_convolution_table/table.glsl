// The last step of QUANTIZED_LINEAR_CONVOLUTION_TABLE: each byte of the convolution's output becomes the table's byte at it.
//
// Loops: an invocation loads its words of the table together with the first operands, stores them to shared memory when
// it stores what it has loaded of its channels, and looks up four bytes for each word of the output.
//
// Layout: the table's 256 bytes are bound in place of the input's scale, from the first word on. With PREPARED no kernel
// reads a scale. So there is neither a binding nor a push constant more.
//
// Preconditions: the kernel defines TABLE_CONSTANT, the specialization constant that says whether there is a table, and
// TABLE_INVOCATIONS, the number of invocations. A table needs PREPARED. A barrier has to follow `begin_table` before the
// last step. Include this file after parameter_sources.glsl.

layout(constant_id = TABLE_CONSTANT) const uint HAS_TABLE = 0;

const uint TABLE_WORDS = 64;
const uint TABLE_ROUNDS = (TABLE_WORDS + TABLE_INVOCATIONS - 1) / TABLE_INVOCATIONS;

// Whole vectors: see quantized_linear_convolution/matrix.glsl.
shared uint shared_table[HAS_TABLE != 0 ? TABLE_WORDS : 4];
uint fetched_table[HAS_TABLE != 0 ? TABLE_ROUNDS : 1];

// Loads have no condition: behind a branch they would wait for the loads before it.
void fetch_table() {
    if (HAS_TABLE == 0)
        return;
    [[unroll]] for (uint round = 0; round < TABLE_ROUNDS; ++round)
        fetched_table[round] = input_scales[min(gl_LocalInvocationID.x + round * TABLE_INVOCATIONS, TABLE_WORDS - 1)];
}

void begin_table() {
    if (HAS_TABLE == 0)
        return;
    [[unroll]] for (uint round = 0; round < TABLE_ROUNDS; ++round) {
        uint i = gl_LocalInvocationID.x + round * TABLE_INVOCATIONS;
        if (i < TABLE_WORDS)
            shared_table[i] = fetched_table[round];
    }
}

uint looked_up_byte(uint byte) {
    return HAS_TABLE != 0 ? bitfieldExtract(shared_table[byte / 4], int(8 * (byte % 4)), 8) : byte;
}

uint looked_up(uint word) {
    if (HAS_TABLE == 0)
        return word;
    uint found = 0;
    [[unroll]] for (int bit = 0; bit < 32; bit += 8)
        found |= looked_up_byte(bitfieldExtract(word, bit, 8)) << bit;
    return found;
}
