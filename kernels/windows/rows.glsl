// Rows of the input, packed along the columns, for kernels whose invocations make one word of a row of the output.
//
// The taps of a row, for all outputs of the word, lie in a segment of consecutive elements. It is read as words, shifted to
// begin with the first element, and cleared outside the input. Then every tap is at a place that is known when the kernel is
// compiled. Include this file after window.glsl; the kernel defines ELEMENT_SIZE (1 or 2) and FLIP, which is applied to words.
// The planner takes this kernel for segments of at most 8 words and windows of at most 8 columns.

layout(set = 0, binding = 0) readonly buffer Input { uint input_words[]; };
layout(set = 0, binding = 1) buffer Output { uint output_words[]; };

const uint PER_WORD = 4 / ELEMENT_SIZE;
const uint ELEMENT_BITS = 8 * ELEMENT_SIZE;
const uint SEGMENT = (PER_WORD - 1) * STRIDE_W + (WINDOW_W - 1) * DILATION_W + 1;  // elements
const uint SEGMENT_WORDS = (SEGMENT + PER_WORD - 1) / PER_WORD;
const uint MOST_WORDS = 8;
const uint MOST_COLUMNS = 8;

struct Segment { uint words[MOST_WORDS]; };

// The elements first <= element < last of a segment that lie inside the input.
struct Inside {
    int first;
    int last;
    bool is_all;
};

Inside inside_of(Place place) {
    int position = push.first_w + int(place.w * PER_WORD * STRIDE_W);
    int first = clamp(-position, 0, int(SEGMENT));
    int last = clamp(push.limit_w - position, 0, int(SEGMENT));
    return Inside(first, last, first == 0 && last == int(SEGMENT));
}

// Bits of the elements of a word from the place of an element on, which may lie before the word or after it.
uint bits_from(int element) {
    return element <= 0 ? 0xFFFFFFFFu : element >= int(PER_WORD) ? 0 : 0xFFFFFFFFu << uint(element) * ELEMENT_BITS;
}

// The segment from an element of the input on. What is read outside the input may lie outside the window, too: then the
// nearest word inside is read, and cleared.
Segment load_segment(uint element, Inside inside) {
    int address = int(element * ELEMENT_SIZE);
    int word = address >> 2;
    uint shift = uint(address & 3) * 8;
    int last_word = input_words.length() - 1;
    uint words[MOST_WORDS + 1];
    [[unroll]] for (uint i = 0; i <= MOST_WORDS; ++i)
        words[i] = i <= SEGMENT_WORDS ? input_words[clamp(word + int(i), 0, last_word)] : 0;
    Segment segment;
    [[unroll]] for (uint i = 0; i < MOST_WORDS; ++i)
        segment.words[i] = (words[i] >> shift | words[i + 1] << 1 << (31 - shift)) ^ FLIP;
    if (!inside.is_all) {
        [[unroll]] for (uint i = 0; i < MOST_WORDS; ++i) {
            int begin = int(i * PER_WORD);
            segment.words[i] &= bits_from(inside.first - begin) & ~bits_from(inside.last - begin);
        }
    }
    return segment;
}

// The place of a tap's element in the segment, for one of the outputs.
uint place_in_segment(uint output_of_word, uint tap) {
    return output_of_word * STRIDE_W + tap * DILATION_W;
}
