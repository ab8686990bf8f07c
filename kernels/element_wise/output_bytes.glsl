// The output of an element-wise kernel whose elements are bytes: binding 0, in two views, words and vectors of four.

layout(set = 0, binding = 0) buffer OutputWords { uint output_words[]; };
layout(set = 0, binding = 0) buffer OutputVectors { uvec4 output_vectors[]; };

// Writes the elements of a unit, four in a word, and no other byte. The other bytes of a word may belong to another
// run, to another dispatch, or to a gap that has to keep its value. Two atomics leave them alone, whatever other
// invocations do to the word in between.
void store_unit(Unit unit, uvec4 value) {
    if (HAS_ONLY_WHOLE_UNITS || unit.last - unit.first == UNIT) {
        if (UNIT == 16)
            output_vectors[unit.start / 16] = value;
        else
            output_words[unit.start / 4] = value.x;
        return;
    }
    [[unroll]] for (uint word = 0; word < UNIT / 4; ++word) {
        uint start = unit.start + 4 * word;
        uint begin = clamp(unit.first, start, start + 4) - start;
        uint end = clamp(unit.last, start, start + 4) - start;
        if (begin == 0 && end == 4) {
            output_words[start / 4] = value[word];
        } else if (begin < end) {
            uint mask = ((1u << (8 * (end - begin))) - 1) << (8 * begin);
            atomicAnd(output_words[start / 4], ~mask);
            atomicOr(output_words[start / 4], value[word] & mask);
        }
    }
}
