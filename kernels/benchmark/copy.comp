#version 450

// Benchmark: a plain copy, 16 bytes an invocation. It is the mark of all data movement.
//
// Maths. destination[i] = source[i].
//
// Loop structure. One vector an invocation and no loop: on an NVIDIA H200, two, four or eight vectors an invocation
// are slower. Workgroups are numbered along x, then y, because an axis has at most 65,535 of them.
//
// Layout. Both buffers are packed, in whole vectors, so that each subgroup reads and writes whole cache lines.
//
// Preconditions. The buffers do not overlap. The last workgroups may lie past the end.

layout(local_size_x_id = 0) in;

layout(set = 0, binding = 0) readonly buffer Source { uvec4 source[]; };
layout(set = 0, binding = 1) writeonly buffer Destination { uvec4 destination[]; };

layout(push_constant) uniform PushConstants {
    uint source_start;  // in vectors, like those that follow
    uint destination_start;
    uint count;
} push;

void main() {
    uint workgroup = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    uint index = workgroup * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (index < push.count)
        destination[push.destination_start + index] = source[push.source_start + index];
}
