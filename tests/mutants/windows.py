"""Mistakes in the kernels of pooling operators."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MAX_CASES = ("max_pooling2:windows",)
MEAN_CASES = ("quantized_linear_average_pooling:windows",)
MEAN = "quantized_linear_average_pooling"

MUTANTS = (
    Mutant(
        "blocks of rows: rows behind the input are read",
        "windows/strips.glsl",
        (("clamp(top + int(row), 0, push.limit_h - 1)", "max(top + int(row), 0)"),),
        MAX_CASES,
    ),
    Mutant(
        "blocks of rows: the second row of a block has the first one's taps",
        "windows/strips.glsl",
        (("return output_row * STRIDE_H + (", "return ("),),
        MAX_CASES,
    ),
    Mutant(
        "maxima of vectors: a block does not take the rows that it shares with the one before",
        "max_pooling2/vectors.comp",
        (("rows[row] = rows[row + NEW_ROWS];", "rows[row] = rows[row];"),),
        MAX_CASES,
    ),
    Mutant(
        "maxima of vectors: a column outside the input is read",
        "max_pooling2/vectors.comp",
        (("clamp(w, taps.low.z, taps.high.z - 1)", "w"),),
        MAX_CASES,
    ),
    Mutant(
        "maxima of vectors: a row's last tap is left out",
        "max_pooling2/vectors.comp",
        (("if (w < WINDOW_W)", "if (w < max(WINDOW_W - 1, 1))"),),
        MAX_CASES,
    ),
    Mutant(
        "rows of words: columns outside the input count",
        "windows/rows.glsl",
        (("columns.masks[i] = bits_from(-first) & ~bits_from(push.limit_w - first);", "columns.masks[i] = ~0u;"),),
        MEAN_CASES,
    ),
    Mutant(
        "rows of words: the second word of a pair is the first one",
        "windows/rows.glsl",
        (("segment.words[i + 1] = pair.y;", "segment.words[i + 1] = pair.x;"),),
        MEAN_CASES,
    ),
    Mutant(
        "a mean is compared with the threshold beside its own",
        f"{MEAN}/thresholds.glsl",
        (("thresholds[(below & 0xFF) + 1])", "thresholds[below & 0xFF])"),),
        MEAN_CASES,
    ),
    Mutant(
        "a threshold is the middle itself",
        f"{MEAN}/thresholds.glsl",
        (("    for (int step = 0; step < STEPS; ++step) {", "    for (int step = 0; step < 1; ++step) {"),),
        MEAN_CASES,
    ),
    Mutant(
        "means of rows: a row of taps outside the input counts",
        f"{MEAN}/rows.glsl",
        (("uint(top + int(row)) < uint(push.limit_h) ? sums_of_row(rows[row])", "true ? sums_of_row(rows[row])"),),
        MEAN_CASES,
    ),
    Mutant(
        "means of rows: the second output of a pair has the first one's columns",
        f"{MEAN}/rows.glsl",
        (
            (
                "uint low = place_in_segment(first, tap), high = place_in_segment(first + PARTNER, tap);",
                "uint low = place_in_segment(first, tap), high = low;",
            ),
        ),
        MEAN_CASES,
    ),
    Mutant(
        "means of rows: an output that is made again is the first row's",
        f"{MEAN}/rows.glsl",
        (("        one.h += i / 4;\n", ""),),
        MEAN_CASES,
    ),
    Mutant(
        "means of vectors: a column of taps outside the input counts",
        f"{MEAN}/vectors.glsl",
        ((" && w >= taps.low.z && w < taps.high.z;", ";"),),
        MEAN_CASES,
    ),
    Mutant(
        "means of vectors: another byte is made again",
        f"{MEAN}/vectors.glsl",
        (("uint byte = findLSB(uncertain);", "uint byte = findLSB(uncertain) ^ 1;"),),
        MEAN_CASES,
    ),
    Mutant(
        "means of rows: an invocation makes its first plane again and again",
        f"{MEAN}/rows.glsl",
        (("        ++first.c;\n", ""),),
        MEAN_CASES,
    ),
    Mutant(
        "means that lie in the middle count as certain",
        f"{MEAN}/mean.glsl",
        (("p.certainty = 0.5 - error;", "p.certainty = 0.5;"),),
        MEAN_CASES,
    ),
    Mutant(
        "means of planes: bytes of the planes beside count",
        f"{MEAN}/planes.comp",
        (("        sum -= int(sum_outside(push.input_start + plane * TAPS_OF_MEAN));\n", ""),),
        MEAN_CASES,
    ),
    Mutant(
        "means of small planes: bytes of the plane before count",
        f"{MEAN}/planes.comp",
        (("                word &= ~bytes_below(-place);\n", "                word &= ~0u;\n"),),
        MEAN_CASES,
    ),
    Mutant(
        "means of planes: half of the parts are left out",
        f"{MEAN}/planes.comp",
        (("            sums[local] += sums[local + parts];\n", ""),),
        MEAN_CASES,
    ),
)
