#version 460

// MAX_POOLING2: the largest element of each window, and its index, in any layout and for integers of any size.
//
// Maths: the maximum of the taps inside the input. Signed integers become unsigned ones in the same order by their top
// bit. The index is that of the packed input; of equal elements the first one counts, which the order of the taps gives.
//
// Loops: one invocation makes the elements of one word of the output, one after the other:
//     for each tap row inside the input, for each tap of it: one load, one comparison
//
// Layout: input and output are read and written in place, at any strides (windows/elements.glsl). Neighbouring invocations
// read neighbouring elements, and caches serve the overlap between windows.
//
// Preconditions: windows/window.glsl. With MERGES the output already holds the results of earlier taps; an index of
// NO_INDEX means that there were none. Three storage buffers.
//
// Driver bugs avoided: lavapipe ends the loops of an invocation after 65,535 iterations in all. The planner gives a
// dispatch a box of taps with fewer.

#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

#define MORE_PUSH_CONSTANTS                                                                                            \
    uint element_count; /* 0 unless IS_FLAT */                                                                         \
    uint lane_extent;                                                                                                  \
    uint indices_start;                                                                                                \
    uint first_index; /* of the element at the first output's first tap */                                             \
    uint indices_stride_n;                                                                                             \
    uint indices_stride_c;                                                                                             \
    uint indices_stride_d;                                                                                             \
    uint indices_stride_h;                                                                                             \
    uint indices_stride_w;
#include "windows/window.glsl"

layout(constant_id = FIRST_OWN_CONSTANT) const uint ELEMENT_SIZE = 4;
layout(constant_id = FIRST_OWN_CONSTANT + 1) const uint IS_FLAT = 0;
layout(constant_id = FIRST_OWN_CONSTANT + 2) const uint IS_SIGNED = 0;
layout(constant_id = FIRST_OWN_CONSTANT + 3) const uint MERGES = 0;
layout(constant_id = FIRST_OWN_CONSTANT + 4) const uint HAS_INDICES = 0;
// The strides of the packed input, for its indices.
layout(constant_id = FIRST_OWN_CONSTANT + 5) const uint PACKED_N = 0;
layout(constant_id = FIRST_OWN_CONSTANT + 6) const uint PACKED_C = 0;
layout(constant_id = FIRST_OWN_CONSTANT + 7) const uint PACKED_D = 0;
layout(constant_id = FIRST_OWN_CONSTANT + 8) const uint PACKED_H = 0;

layout(set = 0, binding = 0) readonly buffer Input { uint input_words[]; };
layout(set = 0, binding = 1) buffer Output { uint output_words[]; };
layout(set = 0, binding = 2) buffer Indices { uint indices[]; };

#include "windows/words.glsl"
#include "windows/elements.glsl"

const uint NO_INDEX = 0xFFFFFFFFu;
const uint FLIP = IS_SIGNED != 0 ? 1u << (ELEMENT_BITS - 1) : 0;

// Changes between signed integers and unsigned ones in the same order.
uvec2 flipped(uvec2 value) {
    return ELEMENT_SIZE == 8 ? uvec2(value.x, value.y ^ FLIP) : uvec2(value.x ^ FLIP, 0);
}

bool is_larger(uvec2 a, uvec2 b) {
    return a.y > b.y || a.y == b.y && a.x > b.x;
}

uvec2 load_output(uint element) {
    if (ELEMENT_SIZE == 8)
        return uvec2(output_words[2 * element], output_words[2 * element + 1]);
    if (ELEMENT_SIZE == 4)
        return uvec2(output_words[element], 0);
    // Other invocations change other bytes of the word.
    uint word = atomicOr(output_words[element / PER_WORD], 0);
    return uvec2(word >> element % PER_WORD * ELEMENT_BITS & ELEMENT_MASK, 0);
}

uint indices_offset(Place place) {
    return push.indices_start + place.n * push.indices_stride_n + place.c * push.indices_stride_c
        + place.d * push.indices_stride_d + place.h * push.indices_stride_h + place.w * push.indices_stride_w;
}

uvec2 largest(Place place, uint stored_at) {
    Taps taps = taps_of(place);
    uint source = input_offset(place);
    uint first_index = push.first_index + place.n * PACKED_N + place.c * PACKED_C + place.d * STRIDE_D * PACKED_D
        + place.h * STRIDE_H * PACKED_H + place.w * STRIDE_W;
    uvec2 best = uvec2(0);
    uint index = NO_INDEX;
    if (MERGES != 0) {
        best = flipped(load_output(stored_at));
        if (HAS_INDICES != 0)
            index = indices[indices_offset(place)];
    }
    for (uint d = taps.low.x; d < taps.high.x; ++d) {
        for (uint h = taps.low.y; h < taps.high.y; ++h) {
            uint row = source + d * DILATION_D * push.input_stride_d + h * DILATION_H * push.input_stride_h;
            uint row_index = first_index + d * DILATION_D * PACKED_D + h * DILATION_H * PACKED_H;
            for (uint w = taps.low.z; w < taps.high.z; ++w) {
                uvec2 value = flipped(load_element(row + w * DILATION_W * push.input_stride_w));
                if (is_larger(value, best) || HAS_INDICES != 0 && index == NO_INDEX) {
                    best = value;
                    index = row_index + w * DILATION_W;
                }
            }
        }
    }
    if (HAS_INDICES != 0)
        indices[indices_offset(place)] = index;
    return flipped(best);
}

void main() {
    uint index = invocation_index();
    if (index >= push.count)
        return;
    Elements elements = elements_of(index);
    uint packed = 0;
    uvec4 places = uvec4(0);
    bvec4 valid = bvec4(false);
    for (uint i = 0; i < PER_WORD; ++i) {
        Place place;
        if (find_place(elements, i, place)) {
            uint at = output_offset(place);
            uvec2 value = largest(place, at);
            if (ELEMENT_SIZE == 8) {
                output_words[2 * at] = value.x;
                output_words[2 * at + 1] = value.y;
            } else if (ELEMENT_SIZE == 4) {
                output_words[at] = value.x;
            }
            packed |= value.x << i * ELEMENT_BITS;
            places[i] = at;
            valid[i] = true;
        }
    }
    if (ELEMENT_SIZE < 4)
        store_elements(packed, places, valid);
}
