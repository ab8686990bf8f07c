#version 450

// QUANTIZED_LINEAR_CONVOLUTION, preparation: copies the elements of a strided tensor to memory of dmlvk's own, where
// they are contiguous. This is for tensors that are OWNED_BY_DML, which are given once and not bound again, and for
// filters whose strides no window can show.
//
// Maths: destination[c] = source[c].
//
// Loops: one invocation copies one element of a box of up to four dimensions. Copies are rare and small, so the kernel
// is plain.
//
// Layout: 8-bit elements are merged into their word by two atomics, because several invocations share a word.
//
// Preconditions: offsets, strides and sizes are in elements, counted inside the windows.

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint ELEMENT_SIZE = 4;  // bytes: 1 or 4

layout(set = 0, binding = 0) readonly buffer Source { uint source_words[]; };
layout(set = 0, binding = 1) buffer Destination { uint destination_words[]; };

layout(push_constant) uniform PushConstants {
    uint source_start;
    uint destination_start;
    uint count;
    uint unused;
    uvec4 sizes;
    uvec4 source_strides;
    uvec4 destination_strides;
} push;

void main() {
    uint workgroup = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    uint index = workgroup * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (index >= push.count)
        return;
    uint source = push.source_start;
    uint destination = push.destination_start;
    for (int i = 3; i >= 0; --i) {
        uint rest = index / push.sizes[i];
        uint coordinate = index - rest * push.sizes[i];
        index = rest;
        source += coordinate * push.source_strides[i];
        destination += coordinate * push.destination_strides[i];
    }
    if (ELEMENT_SIZE == 4) {
        destination_words[destination] = source_words[source];
    } else {
        uint value = (source_words[source >> 2] >> (8 * (source & 3))) & 0xFF;
        uint shift = 8 * (destination & 3);
        atomicAnd(destination_words[destination >> 2], ~(0xFFu << shift));
        atomicOr(destination_words[destination >> 2], value << shift);
    }
}
