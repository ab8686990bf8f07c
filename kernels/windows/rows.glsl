// Rows of the input, packed along the columns, for kernels whose invocations make one word of each of some rows of the output.
//
// The taps of a row, for all outputs of the word, lie in a segment of consecutive elements. It is read as words, and cleared
// outside the input: every tap then is at a place that is known when the kernel is compiled. Most tensors' rows begin with
// words, so that a segment begins at the same place of a word in all of them (IS_ALIGNED). Other segments are shifted. If rows
// consist of pairs of words, and segments begin at the same place of a pair (HAS_PAIRS), both words of a pair are one load.
//
// Include this file after window.glsl; the kernel defines ELEMENT_SIZE (1 or 2) and FLIP, which is applied to words. The
// planner takes this kernel for segments of at most 8 words and windows of at most 8 columns.

layout(set = 0, binding = 0) readonly buffer Input { uint input_words[]; };
layout(set = 0, binding = 0) readonly buffer InputPairs { uvec2 input_pairs[]; };
layout(set = 0, binding = 1) buffer Output { uint output_words[]; };

const uint PER_WORD = 4 / ELEMENT_SIZE;
const uint ELEMENT_BITS = 8 * ELEMENT_SIZE;
// Elements of a segment's first word that lie before it.
const uint LEAD = IS_ALIGNED != 0 ? FIRST_W_OF_PAIR % PER_WORD : 0;
// Whether that word is the second one of a pair.
const uint IS_ODD = FIRST_W_OF_PAIR / PER_WORD;
const uint SEGMENT = (PER_WORD - 1) * STRIDE_W + (WINDOW_W - 1) * DILATION_W + 1;  // elements
const uint SEGMENT_WORDS = (LEAD + SEGMENT + PER_WORD - 1) / PER_WORD;
const uint MOST_WORDS = 9;
const uint MOST_COLUMNS = 8;

struct Segment { uint words[MOST_WORDS]; };

// Where an invocation's segments lie in rows: the same place in each.
struct Columns {
    int position;  // of the first element, counted as in window.glsl
    uint words[MOST_WORDS];  // IS_ALIGNED: of the row; words outside it are the nearest ones inside
    uint masks[MOST_WORDS];  // of the elements inside the input
    bool is_all;  // whether all of them are
};

// Bits of the elements of a word from the place of an element on, which may lie before the word or after it.
uint bits_from(int element) {
    // By half as many bits, twice: a shift by all 32 is undefined.
    uint half_bits = uint(clamp(element, 0, int(PER_WORD))) * (ELEMENT_BITS / 2);
    return 0xFFFFFFFFu << half_bits << half_bits;
}

// Of the word of a row that begins with the `column`-th output.
Columns columns_of(uint column) {
    Columns columns;
    columns.position = push.first_w + int(column * STRIDE_W);
    int begin = columns.position - int(LEAD);
    int word = begin >> (ELEMENT_SIZE == 1 ? 2 : 1);
    int last_word = (push.limit_w - 1) >> (ELEMENT_SIZE == 1 ? 2 : 1);
    columns.is_all = columns.position >= 0 && columns.position + int(SEGMENT) <= push.limit_w;
    [[unroll]] for (uint i = 0; i < MOST_WORDS; ++i) {
        int first = begin + int(i * PER_WORD);
        columns.words[i] = uint(clamp(word + int(i), 0, last_word));
        columns.masks[i] = bits_from(-first) & ~bits_from(push.limit_w - first);
    }
    return columns;
}

// A row's segment, from the offset of the row's element at position 0.
Segment load_segment(uint row, Columns columns) {
    Segment segment;
    if (IS_ALIGNED != 0) {
        [[unroll]] for (uint i = 0; i < MOST_WORDS; ++i) {
            bool is_second = HAS_PAIRS != 0 && i > 0 && i % 2 != IS_ODD;
            if (HAS_PAIRS != 0 && i % 2 == IS_ODD && i + 1 < SEGMENT_WORDS) {
                uvec2 pair = input_pairs[(row / PER_WORD + columns.words[i]) / 2] ^ FLIP;
                segment.words[i] = pair.x;
                segment.words[i + 1] = pair.y;
            } else if (!is_second) {
                segment.words[i] = i < SEGMENT_WORDS ? input_words[row / PER_WORD + columns.words[i]] ^ FLIP : 0;
            }
        }
    } else {
        // What is read outside the input may lie outside the window, too: then the nearest word inside is read.
        int address = (int(row) + columns.position) * int(ELEMENT_SIZE);
        int word = address >> 2;
        uint shift = uint(address & 3) * 8;
        int last_word = input_words.length() - 1;
        uint words[MOST_WORDS + 1];
        [[unroll]] for (uint i = 0; i <= MOST_WORDS; ++i)
            words[i] = i <= SEGMENT_WORDS ? input_words[clamp(word + int(i), 0, last_word)] : 0;
        [[unroll]] for (uint i = 0; i < MOST_WORDS; ++i)
            segment.words[i] = (words[i] >> shift | words[i + 1] << 1 << (31 - shift)) ^ FLIP;
    }
    [[unroll]] for (uint i = 0; i < MOST_WORDS; ++i)
        segment.words[i] &= columns.masks[i];
    return segment;
}

// The place of a tap's element in the segment, for one of the outputs.
uint place_in_segment(uint output_of_word, uint tap) {
    return LEAD + output_of_word * STRIDE_W + tap * DILATION_W;
}
