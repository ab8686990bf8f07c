// The output of an element-wise kernel whose elements are 32-bit words: binding 0, in two views, words and vectors.

layout(set = 0, binding = 0) writeonly buffer OutputWords { uint output_words[]; };
layout(set = 0, binding = 0) writeonly buffer OutputVectors { uvec4 output_vectors[]; };

// Writes the elements of a unit of four, and no other byte.
void store_unit(Unit unit, uvec4 value) {
    if (HAS_ONLY_WHOLE_UNITS || unit.last - unit.first == UNIT) {
        output_vectors[unit.start / 4] = value;
        return;
    }
    [[unroll]] for (uint slot = 0; slot < 4; ++slot)
        if (unit.start + slot >= unit.first && unit.start + slot < unit.last)
            output_words[unit.start + slot] = value[slot];
}
