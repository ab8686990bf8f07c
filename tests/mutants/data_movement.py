"""Mistakes in the kernels of SLICE1, ONE_HOT and DIAGONAL_MATRIX1."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "begin == end is filled",
        "diagonal_matrix1/fill.glsl",
        (
            (
                "return (t - BAND_BEGIN < BAND_LENGTH) != FILL_OUTSIDE;",
                "return (t - BAND_BEGIN <= BAND_LENGTH) != FILL_OUTSIDE;",
            ),
        ),
        ("diagonal_matrix1:layout:band=empty;*", "diagonal_matrix1:ends"),
    ),
    Mutant(
        "begin > end fills the band itself",
        "diagonal_matrix1/fill.glsl",
        (("return (t - BAND_BEGIN < BAND_LENGTH) != FILL_OUTSIDE;", "return t - BAND_BEGIN < BAND_LENGTH;"),),
        ("diagonal_matrix1:ends", "diagonal_matrix1:page"),
    ),
    Mutant(
        "without an input the value everywhere",
        "diagonal_matrix1/fill.glsl",
        (
            (
                "return HAS_INPUT ? load_element_word(cursor.source, part) : 0;",
                "return HAS_INPUT ? load_element_word(cursor.source, part) : VALUE_LOW;",
            ),
        ),
        ("diagonal_matrix1:layout:input=absent;*",),
    ),
    Mutant(
        "the low word of a 64-bit value twice",
        "diagonal_matrix1/fill.glsl",
        (("return part == 0 ? VALUE_LOW : VALUE_HIGH;", "return VALUE_LOW;"),),
        ("diagonal_matrix1:value", "diagonal_matrix1:bits"),
    ),
    Mutant(
        "the low 32 bits of an index alone",
        "one_hot/element.glsl",
        (("return high == 0 && low < DEPTH ? low : NOWHERE;", "return low < DEPTH ? low : NOWHERE;"),),
        ("one_hot:index",),
    ),
    Mutant(
        "unsigned indices read as signed",
        "one_hot/element.glsl",
        (("    if (INDEX_IS_SIGNED && int(high) < 0) {", "    if (int(high) < 0) {"),),
        ("one_hot:index",),
    ),
    Mutant(
        "an index past the depth starts again from 0",
        "one_hot/element.glsl",
        (("return high == 0 && low < DEPTH ? low : NOWHERE;", "return high == 0 ? low % DEPTH : NOWHERE;"),),
        ("one_hot:index",),
    ),
    Mutant(
        "a negative index counts from the end until it is in range",
        "one_hot/element.glsl",
        (
            (
                "return high == 0 && low < DEPTH ? low : NOWHERE;",
                "return int(high) < 0 ? DEPTH - 1 - (~low) % DEPTH : high == 0 && low < DEPTH ? low : NOWHERE;",
            ),
        ),
        ("one_hot:index",),
    ),
    Mutant(
        "a gap is written",
        "data_movement/output_block.glsl",
        (("    if (is_whole(block)) {", "    if (block.first < block.last) {"),),
        ("slice1:layout:output=rows;*", "slice1:binding"),
    ),
    Mutant(
        "a shared word is written without atomics",
        "data_movement/output_block.glsl",
        (
            (
                "    atomicAnd(output_words[word], ~mask);\n    atomicOr(output_words[word], bits & mask);\n",
                "    uint old = output_words[word];\n    output_words[word] = (old & ~mask) | (bits & mask);\n",
            ),
        ),
        ("slice1:layout", "diagonal_matrix1:layout"),
    ),
    Mutant(
        "the end of a row overwrites what follows",
        "data_movement/loop_nest.glsl",
        (
            (
                "    block.last = min(block.start + ELEMENTS_PER_BLOCK, run_start + run_length());",
                "    block.last = block.start + ELEMENTS_PER_BLOCK;",
            ),
            (
                "    block.last = min(block.start + ELEMENTS_PER_BLOCK, run_end);",
                "    block.last = block.start + ELEMENTS_PER_BLOCK;",
            ),
        ),
        ("slice1:layout:output=rows;*", "slice1:binding"),
    ),
    Mutant(
        "a negative window stride starts at the window's begin",
        "data_movement/loop_nest.glsl",
        (
            (
                "    block.cursor.source = push.source_start;\n",
                "    block.cursor.source = push.source_start;\n"
                "    if (RUN_RANK != 0 && int(push.source_strides[0]) < 0)\n"
                "        block.cursor.source += (push.sizes[0] - 1) * push.source_strides[0];\n",
            ),
        ),
        ("slice1:window", "slice1:smaller_output"),
    ),
    Mutant(
        "an invocation's next block is the first one again",
        "data_movement/loop_nest.glsl",
        (("    block.start += block.step;\n", ""),),
        ("one_hot:depth", "one_hot:layout"),
    ),
    Mutant(
        "rows of the grid beyond 65,535 workgroups are done again",
        "data_movement/loop_nest.glsl",
        (("    return gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;", "    return gl_WorkGroupID.x;"),),
        ("slice1:long",),
    ),
    Mutant(
        "a carry into the next dimension does not step back",
        "data_movement/loop_nest.glsl",
        (
            (
                "            cursor.source -= push.sizes[dimension] * push.source_strides[dimension];\n".replace(
                    "            ", "                ", 1
                ),
                "",
            ),
        ),
        ("slice1:layout",),
    ),
    Mutant(
        "a signalling NaN becomes a quiet one",
        "data_movement/source_elements.glsl",
        (
            (
                "        return source_words[element * WORDS_PER_ELEMENT + word_of_element];",
                "    {\n"
                "        uint bits = source_words[element * WORDS_PER_ELEMENT + word_of_element];\n"
                "        return (bits & 0x7FFFFFFFu) > 0x7F800000u ? bits | 0x400000u : bits;\n"
                "    }",
            ),
        ),
        ("slice1:bits",),
    ),
    Mutant(
        "reads from whole words only",
        "data_movement/source_elements.glsl",
        (("    uint shift = uint(address & 3) * 8;\n", "    uint shift = 0;\n"),),
        ("slice1:window",),
    ),
    Mutant(
        "16-bit elements backwards in swapped pairs",
        "data_movement/source_elements.glsl",
        (("        return value << 16 | value >> 16;", "        return value;"),),
        ("slice1:window", "slice1:layout"),
    ),
    Mutant(
        "a missing barrier between the reads and the writes of a tile",
        "slice1/tiles.comp",
        (("    barrier();\n", ""),),
        ("slice1:transpose",),
    ),
    Mutant(
        "16-bit elements of a tile that are not turned over",
        "slice1/tiles.comp",
        (("rows.xy = uvec2((rows.x & 0xFFFF) | rows.y << 16, rows.x >> 16 | (rows.y & 0xFFFF0000));", ";"),),
        ("slice1:transpose_whole_blocks",),
    ),
    Mutant(
        "bytes of a tile that are not turned over",
        "slice1/tiles.comp",
        (("rows = turned(rows);", ";"),),
        ("slice1:transpose_whole_blocks",),
    ),
    Mutant(
        "a tile's row of several dimensions with a single stride",
        "slice1/tiles.comp",
        (("uint rest = dimension + 1 < ROW_RANK ? divide_by_size(element, dimension) : 0;", "uint rest = 0;"),),
        ("slice1:transpose_narrow",),
    ),
    Mutant(
        "a tile's columns of several dimensions with a single stride",
        "slice1/tiles.comp",
        (("column_dimension(place + 1) != 0 ? divide_by_size(element, dimension) : 0;", "false ? 1 : 0;"),),
        ("slice1:transpose_narrow",),
    ),
    Mutant(
        "a missing barrier between the reads and the writes of a box",
        "slice1/boxes.comp",
        (("    barrier();\n", ""),),
        ("slice1:permutation", "slice1:transpose"),
        "boxes",
    ),
    Mutant(
        "spans that all begin with a vector",
        "slice1/boxes.comp",
        (("source * SOURCE_SIZE % BLOCK_SIZE +", "0 +"),),
        ("slice1:permutation", "slice1:transpose"),
        "boxes",
    ),
    Mutant(
        "a box at a dimension's end as large as the others",
        "slice1/boxes.comp",
        (("count = min(whole, push.sizes[dimension] - first);", "count = whole;"),),
        ("slice1:permutation", "slice1:transpose"),
        "boxes",
    ),
    Mutant(
        "boxes backwards from where they are forwards",
        "slice1/boxes.comp",
        (("                    box.origin += reach;\n", ""),),
        ("slice1:permutation", "slice1:transpose"),
        "boxes",
    ),
    Mutant(
        "a row's first period again and again",
        "slice1/boxes.comp",
        (("            bytes += periods * bytes_of_period;\n", ""),),
        ("slice1:permutation",),
        "boxes",
    ),
    Mutant(
        "rows of a group beyond their number",
        "slice1/boxes.comp",
        (("        if (row < rows) {", "        if (rows != 0) {"),),
        ("slice1:rows_together",),
        "boxes",
    ),
    Mutant(
        "16-bit elements of a group's rows that are not turned over",
        "slice1/boxes.comp",
        (("values.xy = uvec2((values.x & 0xFFFF) | values.y << 16, values.x >> 16 | (values.y & 0xFFFF0000));", ";"),),
        ("slice1:permutation", "slice1:transpose_whole_blocks"),
        "boxes",
    ),
    Mutant(
        "bytes of a group's rows that are not turned over",
        "slice1/boxes.comp",
        (("values = turned(values);", ";"),),
        ("slice1:permutation", "slice1:transpose_whole_blocks"),
        "boxes",
    ),
    Mutant(
        "a row's last word written whole by a box",
        "slice1/boxes.comp",
        (("if (MOST_LEAD == 0 || end - begin == 32)", "if (end != 0)"),),
        ("slice1:permutation", "slice1:transpose"),
        "boxes",
    ),
    Mutant(
        "vectors of a box beyond those that an invocation loads at once",
        "slice1/boxes.comp",
        (("first < vector_count; first += step)", "first < 0; first += step)"),),
        ("slice1:permutation",),
        "boxes",
    ),
    Mutant(
        "words of a box that do not begin with a word of the source",
        "slice1/boxes.comp",
        (("return low >> shift | high << 1 << (31 - shift);", "return low;"),),
        ("slice1:permutation", "slice1:window"),
        "boxes",
    ),
    Mutant(
        "an invocation's first unit again in place of the others",
        "slice1/elements.comp",
        (
            (
                "load_unit(source + min(place + i * distance, size - 1) * source_stride)",
                "load_unit(source + place * source_stride)",
            ),
        ),
        ("slice1:window", "slice1:layout"),
        "elements",
    ),
    Mutant(
        "units past the end of a dimension",
        "slice1/elements.comp",
        (("        if (has_units && coordinate < size) {", "        {"),),
        ("slice1:layout:output=rows;*", "slice1:window"),
        "elements",
    ),
    Mutant(
        "the elements of a word as far apart as words",
        "slice1/elements.comp",
        (("uint(int(push.source_strides[0]) / int(PARTS));", "push.source_strides[0];"),),
        ("slice1:layout", "slice1:short_rows"),
        "elements",
    ),
    Mutant(
        "as many units along a dimension as invocations",
        "slice1/elements.comp",
        (("(push.sizes[dimension] + UNITS - 1) / UNITS : push", "push.sizes[dimension] / UNITS : push"),),
        ("slice1:layout", "slice1:window"),
        "elements",
    ),
    Mutant(
        "the indices of the first block for all blocks of a workgroup",
        "one_hot/chunks.comp",
        (("uint index = blocks[word / DISTANCE_WORDS].x;", "uint index = blocks[0].x;"),),
        ("one_hot:rows_of_bytes",),
    ),
    Mutant(
        "the chunk of the first block for all blocks of a workgroup",
        "one_hot/chunks.comp",
        (("blocks[word / DISTANCE_WORDS].y);", "blocks[0].y);"),),
        ("one_hot:rows_of_bytes",),
    ),
    Mutant(
        "each part of a block's chunk as if it were the first",
        "one_hot/chunks.comp",
        (("distances -= repeat_element(first, 0);", ""),),
        ("one_hot:rows_of_bytes",),
    ),
    Mutant(
        "a block's first indices for all of its elements",
        "one_hot/chunks.comp",
        (("index_vectors[first / 4 + i]", "index_vectors[first / 4]"),),
        ("one_hot",),
    ),
    Mutant(
        "a missing barrier between the indices of a workgroup and its rows",
        "one_hot/rows.comp",
        (("    barrier();\n", ""),),
        ("one_hot:whole_rows",),
    ),
    Mutant(
        "the first half of a vector of indices alone",
        "one_hot/rows.comp",
        (("hot_coordinate(vector[j * INDEX_WORDS],", "hot_coordinate(vector[0],"),),
        ("one_hot:whole_rows",),
    ),
    Mutant(
        "each workgroup the indices of the first one",
        "one_hot/rows.comp",
        (("uint index = push.source_start + first * push.source_strides[1];", "uint index = push.source_start;"),),
        ("one_hot:whole_rows",),
    ),
    Mutant(
        "rows of bytes that all begin with a word",
        "one_hot/words.comp",
        (("uint lead = -row_start % ELEMENTS_PER_WORD;", "uint lead = 0;"),),
        ("one_hot:rows",),
    ),
    Mutant(
        "no elements before a row's first whole word",
        "one_hot/words.comp",
        (("if (place == 0 && lead != 0)", "if (place == 0 && lead == ELEMENTS_PER_WORD)"),),
        ("one_hot:rows",),
    ),
    Mutant(
        "a row's last word written whole",
        "one_hot/words.comp",
        (("if (left >= int(ELEMENTS_PER_WORD))", "if (left > 0)"),),
        ("one_hot:rows",),
    ),
    Mutant(
        "blocks across short rows gathered as if they were inside one",
        "data_movement/loop_nest.glsl",
        (("return ROWS_ARE_LONG && is_whole(block) && is_in_one_row(block);", "return is_whole(block);"),),
        ("slice1:short_rows", "diagonal_matrix1:small_matrices"),
    ),
)
