// The elements of an output in any layout, for kernels whose invocations make the elements of one word.
//
// If the output is packed in the order of the loops (IS_FLAT), an invocation owns a word of memory, in which rows may begin
// and end: its elements have coordinates of their own. Otherwise its elements follow each other along the lane.
//
// Include this file after window.glsl and words.glsl. The extents are those of elements, along the lane in words if not
// IS_FLAT. The kernel declares LANE_EXTENT, the elements along the lane, and `element_count`, those of the box.

struct Elements {
    Place first;
    uint index;  // IS_FLAT: of the first element
};

Elements elements_of(uint index) {
    Elements elements;
    if (IS_FLAT != 0) {
        elements.index = index * PER_WORD - push.output_start % PER_WORD;
        elements.first = place_of(0);
    } else {
        elements.index = 0;
        elements.first = place_of(index);
        if (LANE_IS_CHANNELS != 0)
            elements.first.c *= PER_WORD;
        else
            elements.first.w *= PER_WORD;
    }
    return elements;
}

// The place of one of the elements; false if it is none.
bool find_place(Elements elements, uint i, out Place place) {
    place = elements.first;
    if (IS_FLAT != 0) {
        uint index = elements.index + i;
        if (index >= push.element_count)
            return false;
        place = place_of(index);
        return true;
    }
    if (LANE_IS_CHANNELS != 0) {
        place.c += i;
        return place.c < push.lane_extent;
    }
    place.w += i;
    return place.w < push.lane_extent;
}
