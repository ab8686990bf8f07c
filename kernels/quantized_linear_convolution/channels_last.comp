#version 450

// QUANTIZED_LINEAR_CONVOLUTION, preparation for matrix units: planes of bytes (NCHW) to contiguous channels (NHWC).
//
//     output[image][pixel][channel] = input[image][channel][pixel]
//
// Loops: one invocation moves four pixels of 16 channels. It loads 16 words, transposes them 4 x 4 bytes at a time,
// and stores one vector for each pixel. It uses no shared memory.
//
// Layout: VECTORS neighbouring invocations move neighbouring vectors of the same pixels, and the invocations after
// them the next pixels. So 8 neighbours along the pixels read 32 bytes of a plane, and VECTORS neighbours write
// VECTORS x 16 bytes of a pixel.
//
// Preconditions: the number of channels is a multiple of 16 x VECTORS. The number of pixels and all strides, in bytes,
// are multiples of 4. Rows lie one after the other. There are `count` invocations.

#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "data_movement/byte_matrices.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint VECTORS = 1;
layout(constant_id = 2) const uint PIXELS = 4;
layout(constant_id = 3) const uint CHANNELS = 16;
layout(constant_id = 4) const uint STRIDE_N = 1;  // words
layout(constant_id = 5) const uint STRIDE_C = 1;

layout(set = 0, binding = 0) readonly buffer Input { uint input_words[]; };
layout(set = 0, binding = 1) buffer Output { uvec4 output_vectors[]; };

layout(push_constant) uniform PushConstants {
    uint input_start;   // words
    uint output_start;  // vectors
    uint count;
} push;

const uint QUADS = PIXELS / 4;

void main() {
    uint workgroup = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    uint index = workgroup * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (index >= push.count)
        return;
    uint vector = index % VECTORS;
    uint rest = index / VECTORS;
    uint quad = rest % QUADS;
    rest /= QUADS;
    vector += rest % (CHANNELS / 16 / VECTORS) * VECTORS;
    uint image = rest / (CHANNELS / 16 / VECTORS);

    uint source = push.input_start + image * STRIDE_N + 16 * vector * STRIDE_C + quad;
    uvec4 pixels[4];
    [[unroll]] for (uint i = 0; i < 4; ++i) {
        uvec4 words;
        [[unroll]] for (uint j = 0; j < 4; ++j)
            words[j] = input_words[source + (4 * i + j) * STRIDE_C];
        words = turned(words);
        [[unroll]] for (uint j = 0; j < 4; ++j)
            pixels[j][i] = words[j];
    }
    uint place = push.output_start + (image * PIXELS + 4 * quad) * (CHANNELS / 16) + vector;
    [[unroll]] for (uint j = 0; j < 4; ++j)
        output_vectors[place + j * (CHANNELS / 16)] = pixels[j];
}
