#version 450

// Benchmark: a plain fill, 16 bytes an invocation. It is the mark of operators that read next to nothing.
//
// Maths. destination[i] = value.
//
// Loop structure. One vector an invocation and no loop, as in copy.comp. Workgroups are numbered along x, then y.
//
// Layout. The buffer is packed, in whole vectors, so that each subgroup writes whole cache lines.
//
// Preconditions. The last workgroups may lie past the end.

layout(local_size_x_id = 0) in;

layout(set = 0, binding = 0) writeonly buffer Destination { uvec4 destination[]; };

layout(push_constant) uniform PushConstants {
    uint destination_start;  // in vectors, like those that follow
    uint count;
    uint value;
} push;

void main() {
    uint workgroup = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    uint index = workgroup * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (index < push.count)
        destination[push.destination_start + index] = uvec4(push.value);
}
