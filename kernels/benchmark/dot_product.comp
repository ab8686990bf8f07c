#version 450

// Benchmark: chains of packed dot products of four signed bytes, from registers. It is the mark of this instruction.
//
// Maths. x <- dot(bytes of x, bytes of factor) + addend, eight operations each. The addend fills all four bytes again,
// so that no step is known beforehand. An invocation stores the sum of the last x of its chains, which is then
// compared.
//
// Loop structure. Each invocation runs CHAINS independent chains side by side, so that it never waits for the unit. No
// memory is accessed before the end.
//
// Layout. One word an invocation.
//
// Preconditions. There are as many invocations as words. The number of iterations is a push constant, so that no
// compiler unrolls the loop or foresees its result.

#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_integer_dot_product : require

layout(local_size_x_id = 0) in;

layout(set = 0, binding = 0) writeonly buffer Result { uint result[]; };

layout(push_constant) uniform PushConstants {
    uint start;  // in words
    uint iterations;
    uint factor;
    uint addend;
} push;

const uint CHAINS = 8;

void main() {
    uint invocation = gl_WorkGroupID.x * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    uint x[CHAINS];
    [[unroll]] for (uint i = 0; i < CHAINS; ++i)
        x[i] = invocation * CHAINS + i;
    [[dont_unroll]] for (uint iteration = 0; iteration < push.iterations; ++iteration) {
        [[unroll]] for (uint i = 0; i < CHAINS; ++i)
            x[i] = uint(dotPacked4x8EXT(int(x[i]), int(push.factor))) + push.addend;
    }
    uint sum = 0;
    [[unroll]] for (uint i = 0; i < CHAINS; ++i)
        sum += x[i];
    result[push.start + invocation] = sum;
}
