#version 450

// Benchmark, the mark of operators that read next to nothing: a plain fill, 16 bytes an invocation.
//
// Maths. destination[i] = value.
//
// Loop structure. One vector an invocation and no loop, as in copy.comp. Workgroups are numbered along x, then y.
//
// Layout. Packed, in whole vectors, so that each subgroup writes whole cache lines.
//
// Preconditions. The last workgroups may lie past the end.

layout(local_size_x_id = 0) in;

layout(set = 0, binding = 0) writeonly buffer Destination { uvec4 destination[]; };

layout(push_constant) uniform PushConstants {
    uint destination_start;  // in vectors, as the following
    uint count;
    uint value;
} push;

void main() {
    uint workgroup = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    uint index = workgroup * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (index < push.count)
        destination[push.destination_start + index] = uvec4(push.value);
}
