"""Mistakes in the kernel split_k, and in what it shares with others, which few devices with matrix units run."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

PREFIX = "quantized_linear_convolution"
KERNEL = f"{PREFIX}/split_k.glsl"
FETCH = f"{PREFIX}/matrix_fetch.glsl"
WORKGROUP = f"{PREFIX}/matrix_workgroup.glsl"
# Of these, only cases on the path itself: others run the same code on other paths.
CASES = tuple(f"quantized_linear_convolution:{group}:path=split_k*;*" for group in ("parts_of_k", "split_k", "words"))
BYTES_CASES = tuple(
    f"quantized_linear_convolution:{group}:path=split_k*;*" for group in ("bytes", "split_k", "parts_of_k")
)

MUTANTS = (
    Mutant(
        "split_k: an addition of a part is lost",
        KERNEL,
        (
            (
                "                add_to_part_sums(part_sum_at(own_word(n), i), sums[n][i]);",
                "                if (part != 1 || i != 2)\n"
                "                    add_to_part_sums(part_sum_at(own_word(n), i), sums[n][i]);",
            ),
        ),
        CASES,
    ),
    Mutant(
        "split_k: a part is added twice",
        KERNEL,
        (
            (
                "                add_to_part_sums(part_sum_at(own_word(n), i), sums[n][i]);",
                "                add_to_part_sums(part_sum_at(own_word(n), i), (part == 1 ? 2 : 1) * sums[n][i]);",
            ),
        ),
        CASES,
    ),
    Mutant(
        "split_k: the last but one to arrive does the last step",
        f"{PREFIX}/parts.glsl",
        (
            ("        if (arrived.x == SIZE(PARTS, parts) - 1)", "        if (arrived.x == SIZE(PARTS, parts) - 2)"),
            ("    return arrived.x == SIZE(PARTS, parts) - 1;", "    return arrived.x == SIZE(PARTS, parts) - 2;"),
        ),
        CASES,
    ),
    Mutant(
        "split_k: sums are left to the next dispatch",
        KERNEL,
        (
            (
                "                part_sums[part_sum_at(own_word(n), i)] = 0;",
                "                if (i != 3)\n                    part_sums[part_sum_at(own_word(n), i)] = 0;",
            ),
        ),
        CASES,
    ),
    Mutant(
        "split_k: sums of the input are those of one part",
        KERNEL,
        (("    if (counts)\n        add_input_sums();", "    if (counts && part == 0)\n        add_input_sums();"),),
        CASES,
    ),
    Mutant(
        "split_k: the last subgroup's sums are lost",
        KERNEL,
        (
            (
                "    [[unroll]] for (uint s = 0; s < SUBGROUPS; ++s)",
                "    [[unroll]] for (uint s = 0; s == 0 || s + 1 < SUBGROUPS; ++s)",
            ),
        ),
        CASES,
    ),
    Mutant(
        "split_k: a subgroup begins where the one before it ends, and a step late",
        KERNEL,
        (
            (
                "    uint step = (part * SUBGROUPS + gl_SubgroupID) * own_steps;",
                "    uint step = (part * SUBGROUPS + gl_SubgroupID) * own_steps + (gl_SubgroupID == 1 ? 1 : 0);",
            ),
        ),
        CASES,
    ),
    Mutant(
        "split_k: a part has the steps of one subgroup less",
        KERNEL,
        (("(part * SUBGROUPS + gl_SubgroupID) * own_steps", "(part * (SUBGROUPS - 1) + gl_SubgroupID) * own_steps"),),
        CASES,
    ),
    Mutant(
        "split_k: a step past the end of K counts",
        FETCH,
        (
            (
                "        bool inside = WHOLE_STEPS != 0 || vector < SIZE(VECTORS_OF_K, vectors_of_k);",
                "        bool inside = WHOLE_STEPS != 0 || vector < SIZE(VECTORS_OF_K, vectors_of_k) + STEP;",
            ),
        ),
        CASES,
    ),
    Mutant(
        "split_k: a step of bytes past the end of K counts",
        FETCH,
        (
            (
                "        bool is_step = WHOLE_STEPS != 0 || vector < SIZE(VECTORS_OF_K, vectors_of_k);",
                "        bool is_step = true;",
            ),
        ),
        BYTES_CASES,
    ),
    Mutant(
        "bytes in place: the channel behind the last one counts",
        FETCH,
        (
            (
                "&& (PIXEL_CHANNELS == 0 || channel < PIXEL_CHANNELS);",
                "&& (PIXEL_CHANNELS == 0 || channel <= PIXEL_CHANNELS);",
            ),
        ),
        BYTES_CASES,
    ),
    Mutant(
        "bytes in place: the tap behind the last one of a row counts",
        FETCH,
        (("(RUN_WORDS % 4 == 0 || byte < 4 * RUN_WORDS)", "true"),),
        BYTES_CASES,
    ),
    Mutant(
        "bytes in place: the border holds 0",
        FETCH,
        (("(border ^ FLIP) & 0xFF;", "FLIP & 0xFF;"),),
        BYTES_CASES,
    ),
    Mutant(
        "bytes in place: a row of taps lies in the border if its first tap does",
        FETCH,
        (
            (
                "(inside_taps[f] >> run & 1) != 0 : is_inside(f, tap_row, tap_column));\n            }\n"
                "            if (is_inside_tensor)",
                "(inside_taps[f] >> run & 1) != 0 : is_inside(f, tap_row, 0));\n            }\n"
                "            if (is_inside_tensor)",
            ),
        ),
        BYTES_CASES,
    ),
    Mutant(
        "bytes in place: two bytes of a word change places",
        FETCH,
        (("next_bytes[at + 1] << 8 | next_bytes[at + 2] << 16", "next_bytes[at + 2] << 8 | next_bytes[at + 1] << 16"),),
        BYTES_CASES,
    ),
    Mutant(
        "split_k: the sums are added up before all subgroups have stored theirs",
        KERNEL,
        (("    barrier();\n\n    ivec4 whole[OWN_WORDS];", "    ivec4 whole[OWN_WORDS];"),),
        CASES,
    ),
    Mutant(
        "split_k: an exact last step takes the sums of the first subgroup",
        KERNEL,
        (("tile[place_of_sum(n, i) / 4][place_of_sum(n, i) % 4] = uint(whole[n][i]);", ";"),),
        CASES,
    ),
    Mutant(
        "split_k: sums outside of 32 bits wrap",
        KERNEL,
        (("    if (takes_integers) {", "    if (false) {"),),
        CASES,
    ),
    Mutant(
        "split_k: an output's last step is for its neighbour's channel",
        KERNEL,
        (
            (
                "        int sum = sums[i] + constants[at.y];",
                "        int sum = sums[i] + constants[at.y ^ 1];",
            ),
        ),
        CASES,
    ),
    Mutant(
        "split_k: the sums of an input are left out",
        KERNEL,
        (("            sum -= filter_zero_points[at.y] * input_sums[at.x];", "            ;"),),
        CASES,
    ),
    Mutant(
        "split_k: channels of the next group are stored",
        KERNEL,
        ((" && channel >= push.first_channel && channel < push.channels;", ";"),),
        CASES,
    ),
    Mutant(
        "split_k: pixels past the last one are stored",
        KERNEL,
        (("return first_pixel + at.x < push.pixels && ", "return "),),
        CASES,
    ),
    Mutant(
        "split_k: the four bytes of an invocation are one",
        KERNEL,
        (("n * (INVOCATIONS / LINE) + i * (LINES / 4), id % LINE);", "n * (INVOCATIONS / LINE), id % LINE);"),),
        CASES,
    ),
    Mutant(
        "split_k: the four bytes of an invocation of a small workgroup are one",
        KERNEL,
        (("own_word(n) / LINE + i * (LINES / 4), own_word(n) % LINE);", "own_word(n) / LINE, own_word(n) % LINE);"),),
        CASES,
    ),
    Mutant(
        "split_k: two of the four bytes of an invocation change places",
        KERNEL,
        (
            (
                "output_bytes[address] = uint8_t(word >> (8 * i));",
                "output_bytes[address] = uint8_t(word >> (8 * (i ^ 1)));",
            ),
        ),
        CASES,
    ),
    Mutant(
        "words in place: the next group's channels count in the sums of an input",
        FETCH,
        (
            ("RUN_WORDS % 4 == 0 ? 3 : RUN_WORDS - 1 - 4 * in_run;", "3;"),
            ("uvec4(0, 1, 2, 3), uvec4(RUN_WORDS)));", "uvec4(0, 1, 2, 3), uvec4(RUN_WORDS + 3)));"),
        ),
        tuple(f"quantized_linear_convolution:words:groups=2;path={path}*;*" for path in ("split_k", "matrix")),
    ),
    Mutant(
        "words in place: what follows a run counts in the sums of an input",
        FETCH,
        (
            (
                "4 * ((step * STEP + own_vector) % SIZE(RUN, run)) + uvec4(0, 1, 2, 3), uvec4(RUN_WORDS)));",
                "4 * ((step * STEP + own_vector) % SIZE(RUN, run)) + uvec4(0, 1, 2, 3), uvec4(RUN_WORDS + 1)));",
            ),
        ),
        CASES,
    ),
    Mutant(
        "words in place: the first word of a run is read for its last ones",
        FETCH,
        (("RUN_WORDS - 1 - 4 * in_run;", "(RUN_WORDS - 1 - 4 * in_run) & 2;"),),
        CASES,
    ),
    Mutant(
        "even pixels: each second one is read in its neighbour's place",
        FETCH,
        (
            (
                "            sources[f] = group_start + index * SIZE(INPUT_STRIDE_W, input_stride_w);",
                "            sources[f] = group_start + (index & ~1u) * SIZE(INPUT_STRIDE_W, input_stride_w);",
            ),
        ),
        CASES,
    ),
    Mutant(
        "even pixels: an image is stored behind the row of the one before",
        FETCH,
        (
            (
                "            own_destinations[round] = start + index * SIZE(OUTPUT_STRIDE_W, output_stride_w);",
                "            own_destinations[round] = start + index % SIZE(COLUMNS, columns) * SIZE(OUTPUT_STRIDE_W, "
                "output_stride_w);",
            ),
        ),
        CASES,
    ),
    Mutant(
        "a border of many taps: a tap's row is taken for its column",
        FETCH,
        (("|= (has_row(f, i) ? columns : 0) << (i * RUNS_W);", "|= (has_row(f, i) ? columns : 0) << i;"),),
        CASES,
    ),
    Mutant(
        "prepared channels: the border holds 0",
        WORKGROUP,
        (("            border = (properties.z & 0xFF) * ONES;", "            border = 0;"),),
        CASES,
    ),
    Mutant(
        "prepared channels: the output's zero point is the input's",
        f"{PREFIX}/matrix_parameters.comp",
        (
            (
                "panel_words[vector + 1] = uint(output_zero_point(first_channel));",
                "panel_words[vector + 1] = uint(input_zero_point(first_channel));",
            ),
        ),
        CASES,
    ),
    Mutant(
        "prepared channels: filter zero points are taken for 0",
        f"{PREFIX}/matrix_parameters.comp",
        (("        uint own = (zero_point != 0 ? PANEL_HAS_FILTER_ZERO_POINT : 0)", "        uint own = 0"),),
        CASES,
    ),
    Mutant(
        "prepared channels: a panel's properties are those of the panel before",
        WORKGROUP,
        (
            (
                "uvec4 properties = filter_vectors[sums_vector + TILE_CHANNELS];",
                "uvec4 properties = filter_vectors[sums_vector + TILE_CHANNELS - min(1, gl_WorkGroupID.x)"
                " * push.panel_stride];",
            ),
        ),
        CASES,
    ),
)
