// Windows over a tensor {N, C, D, H, W}, which MAX_POOLING2 and QUANTIZED_LINEAR_AVERAGE_POOLING share.
//
// A dispatch makes a box of the output from a box of taps. Output o of a spatial dimension has its taps at the positions
// first + o * stride + t * dilation, for t below the window's size. Positions are counted from the first one that any tap
// of the box meets inside the input, so that they fit 32 bits; those from 0 to the limit, excluding, are inside.
//
// Loops. Invocations run along the lane first, which is the channels or the columns, whichever is packed in the output;
// then along the other dimensions, so that neighbouring invocations store neighbouring words. Only taps inside the input
// are visited, in the order of the window's rows.
//
// Layout. Only words of 32 bits are read and written, so that no 8-bit, 16-bit or 64-bit feature is needed. Offsets and
// strides count units (the kernel says which) from the start of their window; sums wrap modulo 2^32 to the right one.
//
// Include this file first. MORE_PUSH_CONSTANTS may name further members.

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint WINDOW_D = 1;  // taps of the box
layout(constant_id = 2) const uint WINDOW_H = 1;
layout(constant_id = 3) const uint WINDOW_W = 1;
layout(constant_id = 4) const uint STRIDE_D = 1;
layout(constant_id = 5) const uint STRIDE_H = 1;
layout(constant_id = 6) const uint STRIDE_W = 1;
layout(constant_id = 7) const uint DILATION_D = 1;
layout(constant_id = 8) const uint DILATION_H = 1;
layout(constant_id = 9) const uint DILATION_W = 1;
// Extents of the box of outputs, along the lane in units; 0 if it is a push constant. Division by a constant is quick.
layout(constant_id = 10) const uint EXTENT_C = 0;
layout(constant_id = 11) const uint EXTENT_D = 0;
layout(constant_id = 12) const uint EXTENT_H = 0;
layout(constant_id = 13) const uint EXTENT_W = 0;
layout(constant_id = 14) const uint LANE_IS_CHANNELS = 0;
#define FIRST_OWN_CONSTANT 15

const uint WINDOW_TAPS = WINDOW_D * WINDOW_H * WINDOW_W;

#ifndef MORE_PUSH_CONSTANTS
#define MORE_PUSH_CONSTANTS
#endif

layout(push_constant) uniform PushConstants {
    uint input_start;  // of the first output's first tap
    uint output_start;
    uint count;  // invocations
    uint extent_c;
    uint extent_d;
    uint extent_h;
    uint extent_w;
    uint input_stride_n;
    uint input_stride_c;
    uint input_stride_d;
    uint input_stride_h;
    uint input_stride_w;
    uint output_stride_n;
    uint output_stride_c;
    uint output_stride_d;
    uint output_stride_h;
    uint output_stride_w;
    int first_d;
    int first_h;
    int first_w;
    int limit_d;
    int limit_h;
    int limit_w;
    MORE_PUSH_CONSTANTS
} push;

#define EXTENT(NAME, name) (NAME != 0 ? NAME : push.name)

// Coordinates in the box of outputs.
struct Place {
    uint n;
    uint c;
    uint d;
    uint h;
    uint w;
};

uint invocation_index() {
    uint workgroup = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    return workgroup * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
}

uint taken(inout uint rest, uint extent) {
    uint quotient = rest / extent;
    uint remainder = rest - quotient * extent;
    rest = quotient;
    return remainder;
}

// The coordinates of the index-th unit, along the lane first.
Place place_of(uint index) {
    Place place;
    if (LANE_IS_CHANNELS != 0)
        place.c = taken(index, EXTENT(EXTENT_C, extent_c));
    place.w = taken(index, EXTENT(EXTENT_W, extent_w));
    place.h = taken(index, EXTENT(EXTENT_H, extent_h));
    place.d = taken(index, EXTENT(EXTENT_D, extent_d));
    if (LANE_IS_CHANNELS == 0)
        place.c = taken(index, EXTENT(EXTENT_C, extent_c));
    place.n = index;
    return place;
}

uint output_offset(Place place) {
    return push.output_start + place.n * push.output_stride_n + place.c * push.output_stride_c
        + place.d * push.output_stride_d + place.h * push.output_stride_h + place.w * push.output_stride_w;
}

// Where the tensor has the first tap of an output, whose other two coordinates' taps are counted apart; may lie outside.
uint input_offset(Place place) {
    return push.input_start + place.n * push.input_stride_n + place.c * push.input_stride_c
        + place.d * STRIDE_D * push.input_stride_d + place.h * STRIDE_H * push.input_stride_h
        + place.w * STRIDE_W * push.input_stride_w;
}

// The taps inside the input along each spatial dimension: low <= tap < high.
struct Taps {
    uvec3 low;
    uvec3 high;
};

uvec2 taps_along(int first, int limit, uint window, uint dilation) {
    uint low = first < 0 ? (uint(-first) + (dilation - 1)) / dilation : 0;
    uint high = first < limit ? min(window, uint(limit - 1 - first) / dilation + 1) : 0;
    return uvec2(low, max(low, high));
}

Taps taps_of(Place place) {
    uvec2 d = taps_along(push.first_d + int(place.d * STRIDE_D), push.limit_d, WINDOW_D, DILATION_D);
    uvec2 h = taps_along(push.first_h + int(place.h * STRIDE_H), push.limit_h, WINDOW_H, DILATION_H);
    uvec2 w = taps_along(push.first_w + int(place.w * STRIDE_W), push.limit_w, WINDOW_W, DILATION_W);
    return Taps(uvec3(d.x, h.x, w.x), uvec3(d.y, h.y, w.y));
}

uint number_of(Taps taps) {
    uvec3 counts = taps.high - taps.low;
    return counts.x * counts.y * counts.z;
}
