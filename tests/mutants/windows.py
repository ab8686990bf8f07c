"""Mistakes in the kernels of pooling operators."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MAX_CASES = ("max_pooling2:windows",)
MEAN_CASES = ("quantized_linear_average_pooling:windows",)
MEAN = "quantized_linear_average_pooling"

MUTANTS = (
    Mutant(
        "maxima of rows: a row outside the input counts as the nearest one inside",
        "max_pooling2/rows.comp",
        (("columns, position == top + int(row));", "columns, true);"),),
        MAX_CASES,
    ),
    Mutant(
        "maxima of rows: the second row of an invocation begins with the first one's taps",
        "max_pooling2/rows.comp",
        (("uint distance = row - output_row * STRIDE_H;", "uint distance = row;"),),
        MAX_CASES,
    ),
    Mutant(
        "maxima of vectors: a column outside the input is read",
        "max_pooling2/vectors.comp",
        (("clamp(w, taps.low.z, taps.high.z - 1)", "w"),),
        MAX_CASES,
    ),
    Mutant(
        "maxima of vectors: the last row of taps is left out",
        "max_pooling2/vectors.comp",
        (("row >= first && row - first < WINDOW_H) {", "row >= first && row - first < max(WINDOW_H - 1, 1)) {"),),
        MAX_CASES,
    ),
    Mutant(
        "rows of words: columns outside the input count",
        "windows/rows.glsl",
        (("columns.masks[i] = bits_from(-first) & ~bits_from(push.limit_w - first);", "columns.masks[i] = ~0u;"),),
        MEAN_CASES,
    ),
    Mutant(
        "a mean is compared with the threshold beside its own",
        f"{MEAN}/thresholds.glsl",
        (("thresholds[place])", "thresholds[place - 1])"),),
        MEAN_CASES,
    ),
    Mutant(
        "a threshold is the middle itself",
        f"{MEAN}/thresholds.glsl",
        (("    for (int step = 0; step < STEPS; ++step) {", "    for (int step = 0; step < 1; ++step) {"),),
        MEAN_CASES,
    ),
)
