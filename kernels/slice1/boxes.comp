// SLICE1 for dimensions in any order, of which some are small:
//     output[.., a, b, c] = input[start + i * a + j * b + k * c ..]
//
// Maths. A strided copy of bits, as in blocks.comp. There, each element of a block may take an access of its own, of 32
// bytes or more, and the same bytes of the input are read again and again. A box is some coordinates of each dimension,
// so chosen that they are long pieces of the output, which are called rows, and long pieces of the input, which are
// called spans. A dimension can be part of both.
//
// Loop structure. A workgroup moves a box. It reads each span into shared memory as whole 16-byte vectors, wherever in
// a vector the span begins. An invocation starts four loads before it uses the first vector. While they are under way,
// the workgroup makes two tables: where in shared memory the elements of a row are, and what each row adds to that.
// After a barrier an invocation writes a word, or a larger element, at a time. So neighbouring invocations write
// neighbouring words, and only words in which rows of 8-bit and 16-bit elements begin and end are merged. Elements of
// neighbouring rows that are neighbours in the input, too, are read together: four or two rows have their words from as
// many reads of shared memory, and are turned over in registers.
//
// Layout. A span is in shared memory as it is in the input, gaps included, from the beginning of its first vector on.
// One more word follows each 32 words. So elements that lie any power of two apart are in different banks. If a row's
// last dimension is one of a span's, the places of the row's elements repeat, at a distance. Then the table has one
// period of them.
//
// Numbers inside a box are small, so that they may be divided as float32 numbers: (n + 1/2) / d is at least 1 / 2d away
// from any whole number, far more than a division and a multiplication are off while n is below 2^20.
//
// Preconditions. The first ROW_RANK dimensions are a row's, packed in the output. A box has all coordinates along them
// but the last one, and a single coordinate along dimensions that are neither a row's nor a span's. An element of the
// output is one of the source, or several consecutive ones. Output elements do not overlap. The tables have room for
// the box. With ROWS_ARE_WHOLE, rows begin and end with words.
//
// Compiler bugs avoided. All invocations take as many rounds of each loop (lavapipe-loses-stores-after-loops).
#version 460
#extension GL_GOOGLE_include_directive : require
#include "data_movement/loop_nest.glsl"
#define OUTPUT_BINDING 0
#include "data_movement/output_block.glsl"
#define SOURCE_BINDING 1
#include "data_movement/source_elements.glsl"
#include "data_movement/byte_matrices.glsl"

layout(set = 0, binding = OUTPUT_BINDING) buffer OutputPairs { uvec2 output_pairs[]; };

layout(constant_id = 7) const uint SOURCE_SIZE = 4;  // bytes of the source's elements: ELEMENT_SIZE or a part of it
layout(constant_id = 8) const uint ROW_RANK = 1;  // dimensions of a row
layout(constant_id = 9) const uint SPAN_DIMENSIONS = 1;  // a bit for each dimension of a span
layout(
    constant_id = 10) const uint GRID_DIMENSIONS = 1;  // a bit for each dimension along which there are several boxes
layout(constant_id = 11) const uint CUT_DIMENSION = NO_DIMENSION;  // of spans, not of rows: a box has a part of it
layout(constant_id = 12) const uint TURNED_DIMENSION = NO_DIMENSION;  // of spans, not of rows: rows are read together
layout(constant_id = 13) const bool ROWS_ARE_WHOLE = false;  // for elements smaller than a word
layout(constant_id = 14) const bool WORDS_ARE_WHOLE = false;  // what is read together is in one word of the tile
layout(constant_id = 15) const uint MOST_VECTORS = 512;  // of all spans
layout(constant_id = 16) const uint MOST_PLACES = 512;  // of the table of a row's elements
layout(constant_id = 17) const uint MOST_GROUPS = 256;  // of the table of rows

#define ROW_EXTENT push.arguments[0]  // coordinates of a box along the last dimension of a row
#define ROW_BOXES push.arguments[1]  // boxes along this dimension
#define CUT_EXTENT push.arguments[2]  // the same for CUT_DIMENSION
#define CUT_BOXES push.arguments[3]
#define VECTORS_OF_SPAN push.grouping

const uint LAST = ROW_RANK - 1;
const bool IS_PERIODIC = (SPAN_DIMENSIONS >> LAST & 1) != 0;
const bool IS_LINEAR = IS_PERIODIC && ROW_RANK == 1;  // a period is one element, so no table is needed
const bool IS_PART = ELEMENT_SIZE < 4;
const bool IS_TURNED = TURNED_DIMENSION != NO_DIMENSION;
const uint GROUP = IS_TURNED ? ELEMENTS_PER_WORD : 1;  // rows whose elements are read together
const uint BANKS = 32;
const uint TOGETHER = 4;  // vectors that an invocation loads at a time
// Elements of a row's first word that may lie before the row.
const uint MOST_LEAD = IS_PART && !ROWS_ARE_WHOLE ? ELEMENTS_PER_WORD - 1 : 0;
// Elements of the table beside its period: those before a row, and those of the word that begins last in the period.
const uint MORE_PLACES = IS_PART ? MOST_LEAD + ELEMENTS_PER_WORD - 2 : 0;
const uint NO_ROW = 0xFFFFFFFFu;

shared uint tile_words[MOST_VECTORS * 4 + MOST_VECTORS * 4 / BANKS + 2];
// By position in a row, from -MOST_LEAD on: the byte of the tile where the first row's element is. Of elements smaller
// than a word, the lower half is for this position, the upper half for the next.
shared uint places[MOST_PLACES + MOST_PLACES / BANKS + 1];
// Of each group of rows: its first element of the output, from that of the box on, or NO_ROW; and in the lower half the
// bytes of the tile from the first row to this one, in the upper half the group's number of rows.
shared uvec2 groups[MOST_GROUPS];

struct Box {
    uint output_start;  // the first row's first element of the output
    uint source_start;  // the first span's first element of the source
    uint origin;  // elements from there to the first row's first element, if a stride is negative
    uint span_bytes;
    uint lengths[8];  // coordinates along each dimension; fewer at the dimension's end
    float inverses[8];  // of the coordinates of a whole box
};

bool is_of_span(uint dimension) {
    return (SPAN_DIMENSIONS >> dimension & 1) != 0;
}

// Coordinates of a whole box along a dimension.
uint extent(uint dimension) {
    if (dimension == LAST)
        return ROW_EXTENT;
    if (dimension == CUT_DIMENSION)
        return CUT_EXTENT;
    return dimension < ROW_RANK || is_of_span(dimension) ? push.sizes[dimension] : 1;
}

// Groups of rows along a dimension.
uint group_extent(uint dimension) {
    return dimension == TURNED_DIMENSION ? (extent(dimension) + GROUP - 1) / GROUP : extent(dimension);
}

uint small_quotient(uint dividend, float inverse_divisor) {
    return uint((float(dividend) + 0.5) * inverse_divisor);
}

// Divides what the planner knows the divisors of.
uint quotient_by_units(uint dividend, uint units) {
    return IS_QUICK ? divide_by_first(dividend, units) : small_quotient(dividend, 1.0 / float(units));
}

uint quotient_by_period(uint dividend, uint period) {
    return IS_QUICK ? divide_by_second(dividend, period) : small_quotient(dividend, 1.0 / float(period));
}

uint banked(uint word) {
    return word + word / BANKS;
}

Box find_box(uint index) {
    Box box;
    box.output_start = push.output_start;
    box.source_start = push.source_start;
    box.origin = 0;
    box.span_bytes = ELEMENT_SIZE;
    [[unroll]] for (uint dimension = 0; dimension < 8; ++dimension) {
        box.lengths[dimension] = 1;
        box.inverses[dimension] = 1.0;
        if (dimension < RANK) {
            uint whole = extent(dimension);
            uint count = whole;
            if ((GRID_DIMENSIONS >> dimension & 1) != 0) {
                uint boxes = dimension == LAST   ? ROW_BOXES
                    : dimension == CUT_DIMENSION ? CUT_BOXES
                                                 : push.sizes[dimension];
                // The outermost dimension needs no division: its coordinate is the rest.
                uint rest = GRID_DIMENSIONS >> dimension == 1
                    ? 0
                    : quotient(index, boxes, push.sizes[dimension + 4 & 7], push.output_strides[dimension + 4 & 7]);
                uint first = (index - rest * boxes) * whole;
                index = rest;
                box.output_start += first * push.output_strides[dimension];
                box.source_start += first * push.source_strides[dimension];
                count = min(whole, push.sizes[dimension] - first);
            }
            box.lengths[dimension] = count;
            box.inverses[dimension] = 1.0 / float(dimension < ROW_RANK ? whole : group_extent(dimension));
            if (is_of_span(dimension)) {
                uint stride = push.source_strides[dimension];
                uint reach = (count - 1) * (int(stride) < 0 ? -stride : stride);
                box.span_bytes += reach * SOURCE_SIZE;
                if (int(stride) < 0) {
                    box.source_start -= reach;
                    box.origin += reach;
                }
            }
        }
    }
    return box;
}

// Loads vectors of the spans, if there are as many: one for each invocation, TOGETHER times.
void load_vectors(Box box, uint first, uint count, out uvec4 values[TOGETHER]) {
    float inverse = 1.0 / float(VECTORS_OF_SPAN);
    [[unroll]] for (uint n = 0; n < TOGETHER; ++n) {
        uint index = first + n * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
        uint span = small_quotient(index, inverse);
        uint vector = index - span * VECTORS_OF_SPAN;
        uint source = box.source_start;
        bool is_inside = index < count;
        [[unroll]] for (uint dimension = 0; dimension < 8; ++dimension) {
            if (dimension < ROW_RANK && !is_of_span(dimension)) {
                uint rest = dimension == LAST ? 0 : small_quotient(span, box.inverses[dimension]);
                uint coordinate = span - rest * extent(dimension);
                span = rest;
                source += coordinate * push.source_strides[dimension];
                if (dimension == LAST)
                    is_inside = is_inside && coordinate < box.lengths[dimension];
            }
        }
        uint begin = source * SOURCE_SIZE;
        vector += begin / BLOCK_SIZE;
        values[n] = uvec4(0);
        if (is_inside && vector * BLOCK_SIZE < begin + box.span_bytes)
            values[n] = source_vectors[vector];
    }
}

void put_vectors(uint first, uint count, uvec4 values[TOGETHER]) {
    [[unroll]] for (uint n = 0; n < TOGETHER; ++n) {
        uint index = first + n * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
        if (index < count) {
            uint word = banked(index * 4);
            [[unroll]] for (uint i = 0; i < 4; ++i)
                tile_words[word + i] = values[n][i];
        }
    }
}

// The byte of the tile where the first row's element at a position is.
uint place_of(Box box, uint position) {
    uint source = box.source_start;
    uint in_span = box.origin;
    uint span = 0;
    uint spans = 1;
    [[unroll]] for (uint dimension = 0; dimension < 8; ++dimension) {
        if (dimension < ROW_RANK) {
            uint rest = dimension == LAST ? 0 : small_quotient(position, box.inverses[dimension]);
            uint coordinate = position - rest * extent(dimension);
            position = rest;
            if (is_of_span(dimension)) {
                in_span += coordinate * push.source_strides[dimension];
            } else {
                source += coordinate * push.source_strides[dimension];
                span += coordinate * spans;
                spans *= extent(dimension);
            }
        }
    }
    return span * VECTORS_OF_SPAN * BLOCK_SIZE + source * SOURCE_SIZE % BLOCK_SIZE + in_span * SOURCE_SIZE;
}

void make_places(Box box, uint period) {
    uint count = IS_LINEAR ? 0 : period + MORE_PLACES;
    for (uint first = 0; first < count; first += gl_WorkGroupSize.x) {
        uint i = first + gl_LocalInvocationID.x;
        if (i < count) {
            uint position = max(i, MOST_LEAD) - MOST_LEAD;
            uint place = place_of(box, position);
            if (IS_PART)
                place = (place & 0xFFFF) | place_of(box, position + (i < MOST_LEAD ? 0 : 1)) << 16;
            places[banked(i)] = place;
        }
    }
}

void make_groups(Box box, uint count) {
    for (uint first = 0; first < count; first += gl_WorkGroupSize.x) {
        uint i = first + gl_LocalInvocationID.x;
        if (i < count) {
            uint rest = i;
            uint offset = 0;
            uint bytes = 0;
            uint rows = 1;
            bool is_inside = true;
            [[unroll]] for (uint dimension = 0; dimension < 8; ++dimension) {
                if (dimension >= ROW_RANK && dimension < RANK && is_of_span(dimension)) {
                    uint next = small_quotient(rest, box.inverses[dimension]);
                    uint coordinate = rest - next * group_extent(dimension);
                    rest = next;
                    if (dimension == TURNED_DIMENSION) {
                        coordinate *= GROUP;
                        rows = box.lengths[dimension] - coordinate;
                    }
                    offset += coordinate * push.output_strides[dimension];
                    bytes += coordinate * push.source_strides[dimension] * SOURCE_SIZE;
                    is_inside = is_inside && coordinate < box.lengths[dimension];
                }
            }
            groups[i] = uvec2(is_inside ? offset : NO_ROW, (bytes & 0xFFFF) | min(rows, GROUP) << 16);
        }
    }
}

// The four bytes of the tile from a byte on.
uint tile_word(uint place) {
    uint word = place / 4;
    uint low = tile_words[banked(word)];
    if (SOURCE_SIZE >= 4 || WORDS_ARE_WHOLE)
        return low;
    uint high = tile_words[banked(word + 1)];
    uint shift = place % 4 * 8;
    return low >> shift | high << 1 << (31 - shift);
}

// The element of one or two bytes at a byte of the tile.
uint tile_part(uint place) {
    return tile_words[banked(place / 4)] >> (place % 4 * 8) & ELEMENT_MASK;
}

void write_element(uint element, uint place) {
    if (ELEMENT_SIZE == 4) {
        output_words[element] = tile_word(place);
    } else if (ELEMENT_SIZE == 8) {
        output_pairs[element] = uvec2(tile_word(place), tile_word(place + 4));
    } else {
        output_vectors[element] =
            uvec4(tile_word(place), tile_word(place + 4), tile_word(place + 8), tile_word(place + 12));
    }
}

// Writes a word of each row of a group.
//   position: in the row, of the first element that comes into the word; below 0 if the word begins before the row
//   left: elements of the row from there on
//   element_places: where the elements are in the tile
void write_words(uint row_start, uint rows, int position, int left, uvec4 element_places) {
    uvec4 values = uvec4(0);
    if (IS_TURNED) {
        [[unroll]] for (uint k = 0; k < ELEMENTS_PER_WORD; ++k)
            values[k] = tile_word(element_places[k]);
        if (ELEMENT_SIZE == 1)
            values = turned(values);
        else
            values.xy = uvec2((values.x & 0xFFFF) | values.y << 16, values.x >> 16 | (values.y & 0xFFFF0000));
    } else {
        [[unroll]] for (uint k = 0; k < ELEMENTS_PER_WORD; ++k)
            values.x |= tile_part(element_places[k]) << (k * ELEMENT_BITS);
    }
    uint word = uint(int(row_start) + position) / ELEMENTS_PER_WORD;
    uint begin = uint(max(-position, 0)) * ELEMENT_BITS;
    uint end = uint(min(left, int(ELEMENTS_PER_WORD))) * ELEMENT_BITS;
    [[unroll]] for (uint row = 0; row < GROUP; ++row) {
        if (row < rows) {
            if (MOST_LEAD == 0 || end - begin == 32)
                output_words[word] = values[row];
            else
                store_bits(word, 0xFFFFFFFFu >> (32 - (end - begin)) << begin, values[row]);
        }
        word += IS_TURNED ? push.output_strides[TURNED_DIMENSION & 7] / ELEMENTS_PER_WORD : 0;
    }
}

void main() {
    uint index = workgroup_index();
    if (index >= push.block_count)
        return;
    Box box = find_box(index);
    uint span_count = 1;
    uint group_count = 1;
    uint row_length = 1;
    uint whole_row_length = 1;
    uint period = 1;
    [[unroll]] for (uint dimension = 0; dimension < 8; ++dimension) {
        if (dimension < ROW_RANK) {
            row_length *= box.lengths[dimension];
            whole_row_length *= extent(dimension);
            span_count *= is_of_span(dimension) ? 1 : extent(dimension);
            period *= dimension == LAST && IS_PERIODIC ? 1 : extent(dimension);
        } else if (dimension < RANK && is_of_span(dimension)) {
            group_count *= group_extent(dimension);
        }
    }

    uint vector_count = span_count * VECTORS_OF_SPAN;
    uvec4 values[TOGETHER];
    load_vectors(box, 0, vector_count, values);
    make_places(box, period);
    make_groups(box, group_count);
    put_vectors(0, vector_count, values);
    uint step = TOGETHER * gl_WorkGroupSize.x;
    [[dont_unroll]] for (uint first = step; first < vector_count; first += step) {
        load_vectors(box, first, vector_count, values);
        put_vectors(first, vector_count, values);
    }
    barrier();

    uint bytes_of_period = push.source_strides[LAST] * SOURCE_SIZE;
    uint first_place = IS_LINEAR ? place_of(box, 0) : 0;
    // A row is shorter at the end of its last dimension. The invocations past its end then have nothing to do.
    uint units = (whole_row_length + 2 * MOST_LEAD) / ELEMENTS_PER_WORD;
    uint unit_count = group_count * units;
    for (uint first = 0; first < unit_count; first += gl_WorkGroupSize.x) {
        uint i = min(first + gl_LocalInvocationID.x, unit_count - 1);
        uint number = quotient_by_units(i, units);
        uvec2 group = groups[number];
        uint row_start = box.output_start + group.x;
        uint lead = MOST_LEAD == 0 ? 0 : row_start % ELEMENTS_PER_WORD;
        int position = int((i - number * units) * ELEMENTS_PER_WORD - lead);
        int left = int(row_length) - position;
        // The number of the first element in the table, and the bytes of the tile that come to what is there.
        uint place = uint(position + int(MOST_LEAD));
        uint bytes = group.y & 0xFFFF;
        if (IS_LINEAR) {
            bytes += first_place + uint(position) * bytes_of_period;
        } else if (IS_PERIODIC) {
            uint periods = quotient_by_period(uint(max(position, 0)), period);
            place -= periods * period;
            bytes += periods * bytes_of_period;
        }
        uvec4 element_places = uvec4(bytes);
        if (IS_LINEAR) {
            element_places += uvec4(0, 1, 2, 3) * bytes_of_period;
        } else if (IS_PART) {
            [[unroll]] for (uint k = 0; k < ELEMENTS_PER_WORD; k += 2) {
                uint two = places[banked(place + k)];
                element_places[k] += two;
                element_places[k + 1] += two >> 16;
            }
        } else {
            element_places += places[banked(place)];
        }
        // Sums of halves of words may be 2^16 too large.
        element_places &= 0xFFFF;
        // Before the row and past its end there is nothing to read.
        if (MOST_LEAD != 0)
            element_places = min(element_places, uvec4(MOST_VECTORS * BLOCK_SIZE - 1));
        bool is_inside = first + gl_LocalInvocationID.x < unit_count && left > 0
            && (CUT_DIMENSION == NO_DIMENSION || group.x != NO_ROW);
        if (is_inside) {
            if (IS_PART)
                write_words(row_start, group.y >> 16, position, left, element_places);
            else
                write_element(row_start + uint(position), element_places.x);
        }
    }
}
