#version 450

// QUANTIZED_LINEAR_CONVOLUTION, preparation for matrix units: bytes with any strides to contiguous channels (NHWC).
// This is for planes that are not whole words, and for filters of one tap that step over most pixels: only pixels that
// such a filter sees are moved. channels_last.comp moves whole planes faster.
//
//     output[image][row][column][channel] = input[image][channel][row][column]
//
// Loops: one invocation moves one pixel of 16 channels. It loads 16 bytes, each from its own word, and stores one
// vector.
//
// Layout: VECTORS neighbouring invocations move neighbouring vectors of the same pixel, and the invocations after them
// the next pixels. So neighbours read neighbouring bytes of a plane and write whole sectors.
//
// Preconditions: the number of channels is a multiple of 16 x VECTORS. There are `count` invocations.

#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint VECTORS = 1;
layout(constant_id = 2) const uint CHANNELS = 16;
layout(constant_id = 3) const uint ROWS = 1;
layout(constant_id = 4) const uint COLUMNS = 1;
layout(constant_id = 5) const uint STRIDE_N = 1;  // bytes
layout(constant_id = 6) const uint STRIDE_C = 1;
layout(constant_id = 7) const uint STRIDE_H = 1;
layout(constant_id = 8) const uint STRIDE_W = 1;

layout(set = 0, binding = 0) readonly buffer Input { uint input_words[]; };
layout(set = 0, binding = 1) buffer Output { uvec4 output_vectors[]; };

layout(push_constant) uniform PushConstants {
    uint input_start;   // bytes
    uint output_start;  // vectors
    uint count;
} push;

const uint PIXELS = ROWS * COLUMNS;
const uint RUNS = CHANNELS / 16 / VECTORS;

void main() {
    uint workgroup = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    uint index = workgroup * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (index >= push.count)
        return;
    uint vector = index % VECTORS;
    uint rest = index / VECTORS;
    uint pixel = rest % PIXELS;
    rest /= PIXELS;
    vector += rest % RUNS * VECTORS;
    uint image = rest / RUNS;

    uint source = push.input_start + image * STRIDE_N + 16 * vector * STRIDE_C + pixel / COLUMNS * STRIDE_H
        + pixel % COLUMNS * STRIDE_W;
    uvec4 bytes = uvec4(0);
    [[unroll]] for (uint i = 0; i < 16; ++i) {
        uint address = source + i * STRIDE_C;
        bytes[i / 4] |= (input_words[address >> 2] >> (8 * (address & 3)) & 0xFF) << (8 * (i % 4));
    }
    output_vectors[push.output_start + (image * PIXELS + pixel) * (CHANNELS / 16) + vector] = bytes;
}
