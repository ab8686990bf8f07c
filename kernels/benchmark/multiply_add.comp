#version 450

// Benchmark: chains of 32-bit multiply-adds, float or integer, from registers. It is the mark of these operations.
//
// Maths. x <- x * factor + addend, two operations each. An invocation stores the sum of the last x of its chains,
// which is then compared. For floats, the caller passes a factor of 1 and small integers, which are exact whether or
// not the driver fuses the two.
//
// Loop structure. Each invocation runs CHAINS independent chains side by side, so that it never waits for the unit. No
// memory is accessed before the end.
//
// Layout. One word an invocation.
//
// Preconditions. There are as many invocations as words. Factor, addend and iterations are push constants, so that no
// compiler knows the result.

#extension GL_EXT_control_flow_attributes : require

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const bool FLOAT = true;

layout(set = 0, binding = 0) writeonly buffer Result { uint result[]; };

layout(push_constant) uniform PushConstants {
    uint start;  // in words
    uint iterations;
    uint factor;  // with FLOAT, the bits of a float
    uint addend;
} push;

const uint CHAINS = 8;

void main() {
    uint invocation = gl_WorkGroupID.x * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (FLOAT) {
        float factor = uintBitsToFloat(push.factor), addend = uintBitsToFloat(push.addend);
        float x[CHAINS];
        [[unroll]] for (uint i = 0; i < CHAINS; ++i)
            x[i] = float((invocation * CHAINS + i) & 0xFFu);
        [[dont_unroll]] for (uint iteration = 0; iteration < push.iterations; ++iteration) {
            [[unroll]] for (uint i = 0; i < CHAINS; ++i)
                x[i] = x[i] * factor + addend;
        }
        uint sum = 0;
        [[unroll]] for (uint i = 0; i < CHAINS; ++i)
            sum += uint(int(x[i]));
        result[push.start + invocation] = sum;
    } else {
        uint x[CHAINS];
        [[unroll]] for (uint i = 0; i < CHAINS; ++i)
            x[i] = invocation * CHAINS + i;
        [[dont_unroll]] for (uint iteration = 0; iteration < push.iterations; ++iteration) {
            [[unroll]] for (uint i = 0; i < CHAINS; ++i)
                x[i] = x[i] * push.factor + push.addend;
        }
        uint sum = 0;
        [[unroll]] for (uint i = 0; i < CHAINS; ++i)
            sum += x[i];
        result[push.start + invocation] = sum;
    }
}
