// A tensor of bytes that steps along with an element-wise output. The kernel defines, before each inclusion, OPERAND:
// the name of the tensor; BINDING; STEP, its step along the innermost dimension (0, 1 or 2: any other); and STRIDE,
// the step itself. It undefines none of them: this file does. The names that it declares begin with the tensor's.

#ifndef JOINED
#define JOINED_AS_IS(A, B) A##B
#define JOINED(A, B) JOINED_AS_IS(A, B)
#endif

layout(set = 0, binding = BINDING) readonly buffer JOINED(OPERAND, _Words) { uint JOINED(OPERAND, _words)[]; };
layout(set = 0, binding = BINDING) readonly buffer JOINED(OPERAND, _Vectors) { uvec4 JOINED(OPERAND, _vectors)[]; };

// One element, in the low bits.
uint JOINED(OPERAND, _byte)(uint offset) {
    return JOINED(OPERAND, _words)[offset / 4] >> (offset % 4 * 8) & 0xFF;
}

// The elements of a unit inside a row, four in a word; with a UNIT of 4, all words are the same. Only words that hold
// some of the elements are read.
uvec4 JOINED(OPERAND, _unit)(uint offset) {
    if (STEP == 0)
        return uvec4(JOINED(OPERAND, _byte)(offset) * 0x01010101u);
    if (STEP == 1) {
        uint word = offset / 4;
        uint shift = offset % 4 * 8;
        if (UNIT == 4) {
            uint low = JOINED(OPERAND, _words)[word];
            return uvec4(shift == 0 ? low : low >> shift | JOINED(OPERAND, _words)[word + 1] << (32 - shift));
        }
        if (offset % 16 == 0)
            return JOINED(OPERAND, _vectors)[offset / 16];
        uvec4 low = uvec4(JOINED(OPERAND, _words)[word], JOINED(OPERAND, _words)[word + 1],
            JOINED(OPERAND, _words)[word + 2], JOINED(OPERAND, _words)[word + 3]);
        if (shift == 0)
            return low;
        return low >> shift | uvec4(low.yzw, JOINED(OPERAND, _words)[word + 4]) << (32 - shift);
    }
    uvec4 value = uvec4(0);
    [[unroll]] for (uint word = 0; word < UNIT / 4; ++word) {
        [[unroll]] for (uint slot = 0; slot < 32; slot += 8) {
            value[word] |= JOINED(OPERAND, _byte)(offset) << slot;
            offset += STRIDE;
        }
    }
    return value;
}

#undef OPERAND
#undef BINDING
#undef STEP
#undef STRIDE
