// The frame of element-wise kernels from one or two tensors of bytes to bytes, in units of 16 elements.
//
// The kernel defines, before it includes this file, HAS_SECOND (a specialization constant), and
//     void prepare(): what a workgroup or an invocation does first. It may wait for the workgroup, so all invocations call
//         it, after they have started to load their units: memory is far;
//     uint combine(uint first, uint second, uvec4 third): four elements of the output in a word, from those of the two
//         tensors and from the offsets of the third tensor for each of them;
//     if that has a quicker form which is not always right: IS_QUICK, whether it is, and `combine_quickly`.

#ifndef IS_QUICK
#define IS_QUICK true
#define combine_quickly combine
#endif

uvec4 unit_inside_row(Unit unit, uvec4 first, uvec4 second) {
    uint stride = THIRD_STEP == 0 ? 0 : push.strides[0].w;
    uvec4 third = unit.offsets.w + uvec4(0, 1, 2, 3) * stride;
    uvec4 value;
    [[unroll]] for (uint word = 0; word < 4; ++word) {
        value[word] = combine_quickly(first[word], second[word], third);
        third += 4 * stride;
    }
    return value;
}

// The same, always right. It stays a loop: only where there is a quicker form does it differ from it.
uvec4 unit_inside_row_always_right(Unit unit, uvec4 first, uvec4 second) {
    uint stride = THIRD_STEP == 0 ? 0 : push.strides[0].w;
    uvec4 third = unit.offsets.w + uvec4(0, 1, 2, 3) * stride;
    uvec4 value = uvec4(0);
    [[dont_unroll]] for (uint word = 0; word < 4; ++word) {
        value = uvec4(value.yzw, combine(first.x, second.x, third));
        first = first.yzwx;
        second = second.yzwx;
        third += 4 * stride;
    }
    return value;
}

// Element by element. The loop over words stays a loop: the code for an element is long, and so is its compilation.
uvec4 unit_across_rows(Unit unit) {
    uvec4 value = uvec4(0);
    [[dont_unroll]] for (uint word = 0; word < 4; ++word) {
        uint first = 0;
        uint second = 0;
        uvec4 third = unit.offsets.wwww;
        [[unroll]] for (uint slot = 0; slot < 4; ++slot) {
            uint element = unit.start + 4 * word + slot;
            if (element >= unit.first && element < unit.last) {
                first |= first_byte(unit.offsets.y) << (8 * slot);
                if (HAS_SECOND)
                    second |= second_byte(unit.offsets.z) << (8 * slot);
                third[slot] = unit.offsets.w;
                if (element + 1 < unit.last)
                    advance(unit);
            }
        }
        // Not value[word] = ...: some compilers move a vector to memory if its index is not a constant.
        value |= mix(uvec4(0), uvec4(combine(first, second, third)), equal(uvec4(0, 1, 2, 3), uvec4(word)));
    }
    return value;
}

void main() {
    Unit unit;
    bool is_found = find_unit(unit);
    bool is_inside = is_found && is_inside_row(unit);
    uvec4 first = uvec4(0);
    uvec4 second = uvec4(0);
    if (is_inside) {
        first = first_unit(unit.offsets.y);
        if (HAS_SECOND)
            second = second_unit(unit.offsets.z);
    }
    prepare();
    if (is_inside && IS_QUICK)
        store_unit(unit, unit_inside_row(unit, first, second));
    else if (is_inside)
        store_unit(unit, unit_inside_row_always_right(unit, first, second));
    else if (is_found)
        store_unit(unit, unit_across_rows(unit));
}
