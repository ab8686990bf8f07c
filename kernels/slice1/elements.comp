#version 460

// SLICE1: output[c] = input[start + stride * c], one element or one word of the output at a time.
//
// Maths. A strided copy of bits, as in blocks.comp. Consecutive invocations read elements that follow each other in a
// row and write what follows each other in the output. So a load of a subgroup touches as few lines as its elements
// lie in, whatever their step. In blocks.comp, it touches four times as many for elements of a word, and sixteen times
// as many for bytes.
//
// Loop structure. An invocation copies UNITS units of the output: words of elements smaller than a word, otherwise
// elements. They are evenly spaced along SPLIT_DIMENSION. So the invocation divides for its coordinates once, and
// starts all of its loads before it uses the first. A unit past the end is read as the last one and not written.
//
// Layout. The nest counts the output in units, and the source in elements of SOURCE_SIZE bytes. Dimensions are sorted
// by output stride.
//
// Preconditions. Output units do not overlap, and are whole: rows of elements smaller than a word begin and end with
// words. Elements have at most 8 bytes. There is at least one dimension. The source window holds every element.
#extension GL_GOOGLE_include_directive : require
#include "data_movement/loop_nest.glsl"

layout(constant_id = 7) const uint SOURCE_SIZE = 4;  // bytes of an element of the source
layout(constant_id = 8) const uint SPLIT_DIMENSION = 0;

layout(set = 0, binding = 0) writeonly buffer OutputWords { uint output_words[]; };
layout(set = 0, binding = 0) writeonly buffer OutputPairs { uvec2 output_pairs[]; };
layout(set = 0, binding = 1) readonly buffer SourceWords { uint source_words[]; };
layout(set = 0, binding = 1) readonly buffer SourcePairs { uvec2 source_pairs[]; };

const uint UNITS = 4;
const uint PARTS = ELEMENT_SIZE / SOURCE_SIZE;  // elements of a unit
const uint PART_BITS = 8 * SOURCE_SIZE & 31;

uvec2 load_unit(uint source) {
    if (ELEMENT_SIZE == 8)
        return source_pairs[source];
    if (SOURCE_SIZE == 4)
        return uvec2(source_words[source], 0);
    // The elements of a unit lie in a row, which is innermost.
    uint step = uint(int(push.source_strides[0]) / int(PARTS));
    uint word = 0;
    [[unroll]] for (uint part = 0; part < PARTS; ++part, source += step) {
        uint bits = source_words[source / PARTS] >> (source % PARTS * PART_BITS);
        word |= (bits & (1u << PART_BITS) - 1) << (part * PART_BITS);
    }
    return uvec2(word, 0);
}

void main() {
    uint index = block_index();
    // Invocations without units load the last, so that no branch keeps the loads back.
    bool has_units = index < push.block_count;
    index = min(index, push.block_count - 1);
    uint unit = push.output_start;
    uint source = push.source_start;
    uint size = 1;  // along SPLIT_DIMENSION, like the others
    uint place = 0;
    uint distance = 1;  // from one of the invocation's units to the next
    uint output_stride = 0;
    uint source_stride = 0;
    [[unroll]] for (uint dimension = 0; dimension < 8; ++dimension) {
        if (dimension < RANK) {
            bool is_split = dimension == SPLIT_DIMENSION;
            uint count = is_split ? (push.sizes[dimension] + UNITS - 1) / UNITS : push.sizes[dimension];
            // The outermost dimension needs no division: its coordinate is the rest.
            uint rest = dimension + 1 < RANK
                ? quotient(index, count, push.sizes[dimension + 4 & 7], push.output_strides[dimension + 4 & 7])
                : 0;
            uint coordinate = index - rest * count;
            index = rest;
            if (is_split) {
                size = push.sizes[dimension];
                place = coordinate;
                distance = count;
                output_stride = push.output_strides[dimension];
                source_stride = push.source_strides[dimension];
            } else {
                unit += coordinate * push.output_strides[dimension];
                source += coordinate * push.source_strides[dimension];
            }
        }
    }

    uvec2 values[UNITS];
    [[unroll]] for (uint i = 0; i < UNITS; ++i)
        values[i] = load_unit(source + min(place + i * distance, size - 1) * source_stride);
    [[unroll]] for (uint i = 0; i < UNITS; ++i) {
        uint coordinate = place + i * distance;
        if (has_units && coordinate < size) {
            if (ELEMENT_SIZE == 8)
                output_pairs[unit + coordinate * output_stride] = values[i];
            else
                output_words[unit + coordinate * output_stride] = values[i].x;
        }
    }
}
