// The loop nest of the element-wise kernels: an output and up to three tensors that step along with it.
//
// An output is a set of dimensions sorted by output stride; dimension 0 is the innermost. The RUN_RANK innermost
// dimensions are packed in memory, so that they form runs of consecutive elements. The other dimensions, and the other
// tensors, may have any strides: 0 broadcasts. One invocation owns a unit: the UNIT elements of the output that begin
// at a multiple of UNIT, or the part of them that lies in one run. So a whole unit is one store.
//
//     for each run (one for each coordinate of the outer dimensions)
//         for each unit that the run touches               <- one invocation
//             for each element of the run in that unit
//
// If a whole unit lies inside a row (the innermost dimension), each tensor's elements for it are consecutive, equal or
// evenly spaced, which a specialization constant says, and are loaded together. A unit across rows takes its elements
// one after the other.
//
// All offsets count elements from the start of their window. Windows have at most 2^31 bytes. Negative strides are in
// two's complement: sums wrap modulo 2^32 to the right non-negative offset.
//
// Only 32-bit words are read and written, so no 8-bit, 16-bit or 64-bit feature is needed.
//
// The four innermost dimensions are push constants, with multipliers and shifts in place of divisions. After merging,
// networks' tensors have at most three. Further dimensions, up to eight, are specialization constants, because 128
// bytes of push constants, which every device allows, do not hold them.
//
// Loops over dimensions run to the constant 8 with a condition inside, so that any compiler unrolls them and keeps the
// arrays that they index in registers.
//
// The kernel defines UNIT before it includes this file: 4 or 16 elements.

#extension GL_EXT_control_flow_attributes : require

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint RANK = 1;  // dimensions in use, 0 to 8
layout(constant_id = 2) const uint RUN_RANK = 1;  // innermost dimensions that are packed in the output
layout(constant_id = 3) const bool HAS_ONLY_WHOLE_UNITS = false;  // whole, and inside a row
// The steps of the tensors along the innermost dimension: 0, 1, or 2 for any other step.
layout(constant_id = 4) const uint FIRST_STEP = 1;
layout(constant_id = 5) const uint SECOND_STEP = 1;
layout(constant_id = 6) const uint THIRD_STEP = 1;

// The size and the strides of the further dimensions.
layout(constant_id = 7) const uint FIFTH_SIZE = 1;
layout(constant_id = 8) const uint FIFTH_STRIDE_0 = 0;
layout(constant_id = 9) const uint FIFTH_STRIDE_1 = 0;
layout(constant_id = 10) const uint FIFTH_STRIDE_2 = 0;
layout(constant_id = 11) const uint FIFTH_STRIDE_3 = 0;
layout(constant_id = 12) const uint SIXTH_SIZE = 1;
layout(constant_id = 13) const uint SIXTH_STRIDE_0 = 0;
layout(constant_id = 14) const uint SIXTH_STRIDE_1 = 0;
layout(constant_id = 15) const uint SIXTH_STRIDE_2 = 0;
layout(constant_id = 16) const uint SIXTH_STRIDE_3 = 0;
layout(constant_id = 17) const uint SEVENTH_SIZE = 1;
layout(constant_id = 18) const uint SEVENTH_STRIDE_0 = 0;
layout(constant_id = 19) const uint SEVENTH_STRIDE_1 = 0;
layout(constant_id = 20) const uint SEVENTH_STRIDE_2 = 0;
layout(constant_id = 21) const uint SEVENTH_STRIDE_3 = 0;
layout(constant_id = 22) const uint EIGHTH_SIZE = 1;
layout(constant_id = 23) const uint EIGHTH_STRIDE_0 = 0;
layout(constant_id = 24) const uint EIGHTH_STRIDE_1 = 0;
layout(constant_id = 25) const uint EIGHTH_STRIDE_2 = 0;
layout(constant_id = 26) const uint EIGHTH_STRIDE_3 = 0;
// The kernel's own specialization constants follow.
#define FIRST_OWN_CONSTANT 27

layout(push_constant) uniform PushConstants {
    uvec4 starts;  // of the output and the other tensors
    uint unit_count;
    uint grouping;  // the most units that a run touches
    uint grouping_multiplier;
    uint shifts;  // five bits each, for divisions by the four sizes and by grouping
    uvec4 sizes;
    uvec4 multipliers;
    uvec4 strides[4];  // by dimension: of the output and the other tensors
} push;

// The elements first <= element < last of the output window, all in one unit and one run.
struct Unit {
    uint start;  // the unit's own first element, a multiple of UNIT
    uint first;
    uint last;
    uint coordinates[8];
    uvec4 offsets;  // of the first element in each tensor
};

uint size_of(uint dimension) {
    return dimension < 4 ? push.sizes[dimension & 3]
        : dimension == 4 ? FIFTH_SIZE
        : dimension == 5 ? SIXTH_SIZE
        : dimension == 6 ? SEVENTH_SIZE
                         : EIGHTH_SIZE;
}

#define OUTER_STRIDES(NAME) uvec4(NAME##_STRIDE_0, NAME##_STRIDE_1, NAME##_STRIDE_2, NAME##_STRIDE_3)

uvec4 strides_of(uint dimension) {
    return dimension < 4 ? push.strides[dimension & 3]
        : dimension == 4 ? OUTER_STRIDES(FIFTH)
        : dimension == 5 ? OUTER_STRIDES(SIXTH)
        : dimension == 6 ? OUTER_STRIDES(SEVENTH)
                         : OUTER_STRIDES(EIGHTH);
}

// dividend / divisor, for a dividend below 2^31, by the multiplier and the shift that belong to the divisor.
uint quotient(uint dividend, uint divisor, uint multiplier, uint shift) {
    uint high;
    uint low;
    umulExtended(dividend, multiplier, high, low);
    return divisor == 1 ? dividend : high >> shift;
}

uint divide_by_size(uint dividend, uint dimension) {
    if (dimension >= 4)
        return dividend / size_of(dimension);
    return quotient(dividend, push.sizes[dimension & 3], push.multipliers[dimension & 3],
        push.shifts >> (5 * (dimension & 3)) & 31);
}

// Finds an invocation's unit; false if it has none. Grids are folded along y, so that no axis has more than 65,535
// workgroups, which every device allows.
bool find_unit(out Unit unit) {
    uint workgroup = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    uint index = workgroup * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    uint run = RUN_RANK < RANK ? quotient(index, push.grouping, push.grouping_multiplier, push.shifts >> 20 & 31) : 0;
    uint unit_of_run = index - run * push.grouping;
    uint run_length = 1;
    unit.offsets = push.starts;
    [[unroll]] for (uint dimension = 0; dimension < 8; ++dimension) {
        unit.coordinates[dimension] = 0;
        if (dimension < RUN_RANK) {
            run_length *= size_of(dimension);
        } else if (dimension < RANK) {
            // The outermost dimension needs no division: its coordinate is the rest.
            uint rest = dimension + 1 < RANK ? divide_by_size(run, dimension) : 0;
            unit.offsets += (run - rest * size_of(dimension)) * strides_of(dimension);
            run = rest;
        }
    }
    uint run_start = unit.offsets.x;
    unit.start = (run_start / UNIT + unit_of_run) * UNIT;
    unit.first = HAS_ONLY_WHOLE_UNITS ? unit.start : max(unit.start, run_start);
    unit.last = HAS_ONLY_WHOLE_UNITS ? unit.start + UNIT : min(unit.start + UNIT, run_start + run_length);
    uint position = unit.first - run_start;
    [[unroll]] for (uint dimension = 0; dimension < 8; ++dimension) {
        if (dimension < RUN_RANK) {
            uint rest = dimension + 1 < RUN_RANK ? divide_by_size(position, dimension) : 0;
            uint coordinate = position - rest * size_of(dimension);
            position = rest;
            unit.coordinates[dimension] = coordinate;
            unit.offsets += coordinate * strides_of(dimension);
        }
    }
    return index < push.unit_count && unit.first < unit.last;
}

// Moves the unit's offsets on by one element of its run.
void advance(inout Unit unit) {
    bool carries = true;
    [[unroll]] for (uint dimension = 0; dimension < 8; ++dimension) {
        if (dimension < RUN_RANK && carries) {
            unit.offsets += strides_of(dimension);
            ++unit.coordinates[dimension];
            carries = unit.coordinates[dimension] == size_of(dimension);
            if (carries) {
                unit.coordinates[dimension] = 0;
                unit.offsets -= size_of(dimension) * strides_of(dimension);
            }
        }
    }
}

// Whether all UNIT elements are there and lie along the innermost dimension, so that no coordinate carries.
bool is_inside_row(Unit unit) {
    return HAS_ONLY_WHOLE_UNITS
        || RUN_RANK > 0 && unit.last - unit.first == UNIT && unit.coordinates[0] + UNIT <= push.sizes.x;
}
