// A tensor of 32-bit words that steps along with an element-wise output, in units of four elements. The kernel defines
// OPERAND, BINDING, STEP and STRIDE before each inclusion, as for bytes.glsl.

#ifndef JOINED
#define JOINED_AS_IS(A, B) A##B
#define JOINED(A, B) JOINED_AS_IS(A, B)
#endif

layout(set = 0, binding = BINDING) readonly buffer JOINED(OPERAND, _Words) { uint JOINED(OPERAND, _words)[]; };
layout(set = 0, binding = BINDING) readonly buffer JOINED(OPERAND, _Vectors) { uvec4 JOINED(OPERAND, _vectors)[]; };

// The elements of a unit inside a row.
uvec4 JOINED(OPERAND, _unit)(uint offset) {
    if (STEP == 0)
        return uvec4(JOINED(OPERAND, _words)[offset]);
    if (STEP == 1 && offset % 4 == 0)
        return JOINED(OPERAND, _vectors)[offset / 4];
    uint stride = STEP == 1 ? 1 : STRIDE;
    return uvec4(JOINED(OPERAND, _words)[offset], JOINED(OPERAND, _words)[offset + stride],
        JOINED(OPERAND, _words)[offset + 2 * stride], JOINED(OPERAND, _words)[offset + 3 * stride]);
}

#undef OPERAND
#undef BINDING
#undef STEP
#undef STRIDE
