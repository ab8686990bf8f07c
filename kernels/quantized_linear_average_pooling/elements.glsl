// QUANTIZED_LINEAR_AVERAGE_POOLING in any layout.
//
// Maths: mean.glsl.
//
// Loops: one invocation makes the elements of one word of the output, one after the other:
//     for each tap inside the input: one load, one addition; then the estimate, and if need be all taps once more
//
// Layout: input and output are read and written in place, at any strides (windows/elements.glsl).
//
// Preconditions: windows/window.glsl. If no dispatch shows all taps of a window, several add to a state of two words for
// each output, in the order of the taps: its sum t (of a whole plane: the low word of its sum), and the number of its taps
// (the high word). TAKES_STATE: there were taps before. LEAVES_STATE: there are taps to follow.
//
// Driver bugs avoided: lavapipe ends the loops of an invocation after 65,535 iterations in all. The planner gives a
// dispatch a box of taps with fewer.

#define MORE_PUSH_CONSTANTS                                                                                            \
    uint element_count; /* 0 unless IS_FLAT */                                                                         \
    uint lane_extent;                                                                                                  \
    uint state_start;                                                                                                  \
    uint input_scale_start;                                                                                            \
    uint input_zero_point_start;                                                                                       \
    uint output_scale_start;                                                                                           \
    uint output_zero_point_start;
#include "windows/window.glsl"

const uint ELEMENT_SIZE = 1;
layout(constant_id = FIRST_OWN_CONSTANT) const uint IS_FLAT = 0;
layout(constant_id = FIRST_OWN_CONSTANT + 1) const uint IS_GLOBAL = 0;
layout(constant_id = FIRST_OWN_CONSTANT + 2) const uint TAKES_STATE = 0;
layout(constant_id = FIRST_OWN_CONSTANT + 3) const uint LEAVES_STATE = 0;
#define FIRST_PARAMETER_CONSTANT 19
#define FIRST_PARAMETER_BINDING 3

layout(set = 0, binding = 0) readonly buffer Input { uint input_words[]; };
layout(set = 0, binding = 1) buffer Output { uint output_words[]; };
layout(set = 0, binding = 2) buffer State { uint state[]; };

#include "windows/words.glsl"
#include "windows/elements.glsl"
#include "parameters.glsl"
#include "mean.glsl"
#include "again.glsl"

uint state_of(Place place) {
    uint channels = LANE_IS_CHANNELS != 0 ? push.lane_extent : EXTENT(EXTENT_C, extent_c);
    uint columns = LANE_IS_CHANNELS != 0 ? EXTENT(EXTENT_W, extent_w) : push.lane_extent;
    uint plane = (place.n * channels + place.c) * EXTENT(EXTENT_D, extent_d) + place.d;
    return push.state_start + 2 * ((plane * EXTENT(EXTENT_H, extent_h) + place.h) * columns + place.w);
}

uint mean_of(Place place) {
    Taps taps = taps_of(place);
    uint source = input_offset(place);
    Parameters p = parameters_of(place.c);
    uvec3 strides = uvec3(DILATION_D, DILATION_H, DILATION_W)
        * uvec3(push.input_stride_d, push.input_stride_h, push.input_stride_w);
    uint taps_inside = number_of(taps);

    int sum = 0;
    if (IS_GLOBAL != 0 || TAKES_STATE + LEAVES_STATE == 0)
        sum = sum_of_integers(source, strides, taps) - p.input_zero_point * int(taps_inside);
    if (TAKES_STATE + LEAVES_STATE == 0) {
        uint n = TAPS_OF_MEAN != 0 ? TAPS_OF_MEAN : taps_inside;
        bool is_certain;
        uint byte = estimated_mean(sum, 1.0 / float(n), p, is_certain);
        return is_certain ? byte : exact_mean(source, strides, taps, p);
    }

    uint at = state_of(place);
    Wide before = TAKES_STATE != 0 ? Wide(state[at], state[at + 1]) : Wide(0, 0);
    bool is_usable = is_usable(p.input_scale) && is_usable(p.output_scale);
    if (IS_GLOBAL != 0) {
        Wide all = add(before, widened(sum));
        if (LEAVES_STATE == 0)
            return is_usable ? finished_plane(all, p) : uint(LOWEST) & 0xFF;
        state[at] = all.low;
        state[at + 1] = all.high;
        return 0;
    }
    Binary32 t = Binary32(0, 0, false);
    if (is_usable)
        t = sum_of_taps(loaded(before.low), source, strides, taps, p);
    uint n = before.high + taps_inside;
    if (LEAVES_STATE == 0)
        return is_usable ? finished_mean(t, TAPS_OF_MEAN != 0 ? TAPS_OF_MEAN : n, p) : uint(LOWEST) & 0xFF;
    state[at] = to_bits(t);
    state[at + 1] = n;
    return 0;
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
            packed |= mean_of(place) << 8 * i;
            places[i] = output_offset(place);
            valid[i] = true;
        }
    }
    if (LEAVES_STATE == 0)
        store_elements(packed, places, valid);
}
