#version 450

// Benchmark, the mark of the packed dot product of four signed bytes: chains of it from registers.
//
// Maths. x <- dot(bytes of x, bytes of factor) + addend, eight operations each; the addend fills all four bytes again, so
// that no step is known beforehand. The last x of each chain, added up, is what is stored and compared.
//
// Loop structure. Each invocation runs CHAINS chains that do not depend on each other, side by side, so that the unit is
// never waited for. No memory is touched before the end.
//
// Layout. One word an invocation.
//
// Preconditions. As many invocations as words; the iterations are a push constant, so that no compiler unrolls or foresees
// them.

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
