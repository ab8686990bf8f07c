#version 460

// BYTE_TABLE with a table of 256 bytes for each index along an axis, in shared memory: output = table[index][input].
//
// Maths. An input's byte is an index from 0 to 255 by its bits: -1 in INT8 is 255, a table's last element. So any
// function of a byte is exact by construction.
//
// Loops: a workgroup takes some neighbouring tables, and of the elements that they are for those at several neighbouring
// coordinates outside the axis:
//     the first vectors are on their way, while the tables come into shared memory
//     for each vector of 16 elements, BATCH at a time: the load of a next one; 16 loads from shared memory, one store
//
// Layout: input and output have the same order of dimensions, {outer, axis, inner}, and no gaps. Tables are packed. A
// table has a word more than it needs in shared memory, so that equal bytes for neighbouring tables lie in different
// banks.
//
// Preconditions: the elements of a workgroup's tables, at one outer coordinate, are whole vectors; so are all starts.
// Shared memory: 260 bytes a table.
#extension GL_EXT_control_flow_attributes : require

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint TABLES = 16;  // of a workgroup; they divide those of the axis
layout(constant_id = 2) const uint INNER = 1;  // elements inside the axis

layout(push_constant) uniform PushConstants {
    uint input_start;  // in vectors, like the next two
    uint output_start;
    uint table_start;
    uint outer_count;
    uint outer_of_workgroup;
    uint groups;  // of tables
} push;

layout(set = 0, binding = 0) writeonly buffer Output { uvec4 output_vectors[]; };
layout(set = 0, binding = 1) readonly buffer Input { uvec4 input_vectors[]; };
layout(set = 0, binding = 2) readonly buffer Table { uvec4 table_vectors[]; };

const uint VECTORS = TABLES * INNER / 16;  // at one outer coordinate
const uint TABLE_VECTORS = 16;
const uint TABLE_PITCH = 4 * TABLE_VECTORS + 1;  // words
const uint BATCH = 2;

shared uint tables[TABLES * TABLE_PITCH];

void load_tables(uint first_table) {
    uint start = push.table_start + first_table * TABLE_VECTORS;
    for (uint i = gl_LocalInvocationID.x; i < TABLES * TABLE_VECTORS; i += gl_WorkGroupSize.x) {
        uvec4 vector = table_vectors[start + i];
        uint at = i / TABLE_VECTORS * TABLE_PITCH + i % TABLE_VECTORS * 4;
        [[unroll]] for (uint word = 0; word < 4; ++word)
            tables[at + word] = vector[word];
    }
    barrier();
}

// The elements of a vector, which begins with the workgroup's `first` one at its outer coordinate.
uvec4 looked_up(uvec4 bytes, uint first) {
    uvec4 value;
    uint table_of_all = first / INNER * TABLE_PITCH;
    [[unroll]] for (uint word = 0; word < 4; ++word) {
        uint packed = 0;
        [[unroll]] for (uint slot = 0; slot < 4; ++slot) {
            uint table = table_of_all;
            if (INNER == 1)
                table += (4 * word + slot) * TABLE_PITCH;
            else if (INNER % 16 != 0)
                table = (first + 4 * word + slot) / INNER * TABLE_PITCH;
            uint byte = bytes[word] >> 8 * slot & 0xFF;
            packed |= (tables[table + byte / 4] >> byte % 4 * 8 & 0xFF) << 8 * slot;
        }
        value[word] = packed;
    }
    return value;
}

struct Batch { uvec4 vectors[BATCH]; };

Batch load_batch(uint start, uint row, uint first, uint count) {
    Batch batch;
    [[unroll]] for (uint i = 0; i < BATCH; ++i) {
        uint at = first + i * gl_WorkGroupSize.x;
        batch.vectors[i] =
            at < count ? input_vectors[push.input_start + start + at / VECTORS * row + at % VECTORS] : uvec4(0);
    }
    return batch;
}

void main() {
    uint workgroup = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    uint block = workgroup / push.groups;
    uint group = workgroup - block * push.groups;
    uint first_outer = min(block * push.outer_of_workgroup, push.outer_count);
    uint count = min(push.outer_of_workgroup, push.outer_count - first_outer) * VECTORS;
    uint row = push.groups * VECTORS;
    uint start = first_outer * row + group * VECTORS;

    uint first = gl_LocalInvocationID.x;
    Batch next = load_batch(start, row, first, count);
    load_tables(group * TABLES);
    while (first < count) {
        Batch now = next;
        uint begin = first;
        first += BATCH * gl_WorkGroupSize.x;
        next = load_batch(start, row, first, count);
        [[unroll]] for (uint i = 0; i < BATCH; ++i) {
            uint at = begin + i * gl_WorkGroupSize.x;
            if (at < count)
                output_vectors[push.output_start + start + at / VECTORS * row + at % VECTORS] =
                    looked_up(now.vectors[i], at % VECTORS * 16);
        }
    }
}
