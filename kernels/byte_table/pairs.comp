#version 460

// BYTE_TABLE with one table of pairs, as much of which as there is room for in shared memory: output = table[256 input +
// second input].
//
// Maths. As in buffer.comp.
//
// Loops: a workgroup takes neighbouring vectors of 16 elements:
//     the first vectors are on their way, while the table comes into shared memory
//     for each vector: 16 loads from shared memory, and 16 of the table where it lies; one store
//
// Layout: inputs and output have the same order of dimensions and no gaps. An element of the table that is in shared memory is
// not read from the other: all such invocations read the first word behind it there, which is one access for all of them. A
// cache takes an access for each line that a subgroup reads, some 30 if it reads all of the table at random places; banks
// of shared memory, 3 or 4.
//
// Preconditions: whole vectors; so are all starts.
#extension GL_EXT_control_flow_attributes : require

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint SHARED_WORDS = 4096;  // from the table's first one on

layout(push_constant) uniform PushConstants {
    uint output_start;  // in vectors, like all of these
    uint first_start;
    uint second_start;
    uint table_start;
    uint count;
    uint vectors_of_workgroup;
} push;

layout(set = 0, binding = 0) writeonly buffer Output { uvec4 output_vectors[]; };
layout(set = 0, binding = 1) readonly buffer First { uvec4 first_vectors[]; };
layout(set = 0, binding = 2) readonly buffer Second { uvec4 second_vectors[]; };
layout(set = 0, binding = 3) readonly buffer Table { uint table_words[]; };
layout(set = 0, binding = 3) readonly buffer TableVectors { uvec4 table_vectors[]; };

const uint TABLE_WORDS = 16384;

shared uint words[SHARED_WORDS];

// Four elements in a word.
uint looked_up(uint first, uint second) {
    uint value = 0;
    [[unroll]] for (uint slot = 0; slot < 4; ++slot) {
        uint place = (first >> 8 * slot & 0xFF) << 8 | (second >> 8 * slot & 0xFF);
        uint word = words[min(place / 4, SHARED_WORDS - 1)];
        if (SHARED_WORDS < TABLE_WORDS) {
            uint far = table_words[4 * push.table_start + max(place / 4, SHARED_WORDS)];
            word = place / 4 < SHARED_WORDS ? word : far;
        }
        value |= (word >> place % 4 * 8 & 0xFF) << 8 * slot;
    }
    return value;
}

void main() {
    uint workgroup = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    uint begin = min(workgroup * push.vectors_of_workgroup, push.count);
    uint end = min(begin + push.vectors_of_workgroup, push.count);
    uint at = begin + gl_LocalInvocationID.x;
    uvec4 first = uvec4(0), second = uvec4(0);
    if (at < end) {
        first = first_vectors[push.first_start + at];
        second = second_vectors[push.second_start + at];
    }
    for (uint i = gl_LocalInvocationID.x; i < SHARED_WORDS / 4; i += gl_WorkGroupSize.x) {
        uvec4 vector = table_vectors[push.table_start + i];
        [[unroll]] for (uint word = 0; word < 4; ++word)
            words[4 * i + word] = vector[word];
    }
    barrier();
    while (at < end) {
        uint next = at + gl_WorkGroupSize.x;
        uvec4 next_first = uvec4(0), next_second = uvec4(0);
        if (next < end) {
            next_first = first_vectors[push.first_start + next];
            next_second = second_vectors[push.second_start + next];
        }
        uvec4 value;
        [[unroll]] for (uint word = 0; word < 4; ++word)
            value[word] = looked_up(first[word], second[word]);
        output_vectors[push.output_start + at] = value;
        first = next_first;
        second = next_second;
        at = next;
    }
}
