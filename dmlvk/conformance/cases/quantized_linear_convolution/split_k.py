"""Cases of QUANTIZED_LINEAR_CONVOLUTION whose K is split over subgroups, and of inputs that are read by words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dmlvk.conformance.case import Workload
from dmlvk.conformance.cases.combinations import Groups, Parameters, by_sizes, only
from dmlvk.conformance.cases.quantized_linear_convolution.arithmetic import sums, zero_point_of
from dmlvk.conformance.cases.quantized_linear_convolution.convolution import (
    ALL_CONSTANTS,
    APART,
    OPERATOR,
    TYPE_PARAMETERS,
    CaseShape,
    convolution,
    kind,
    shape_of,
    wide_sums,
)
from dmlvk.conformance.cases.quantized_linear_convolution.kinds import with_tiles

# Pixels, channels and bytes of K of a tile; subgroups that share its K. A driver for a CPU takes minutes to compile
# larger ones. GPUs whose matrices have 32 bytes of K take the last tile alone.
TILES = ("8x8x16:5", "16x8x16:3", "8x16x32:2", "16x16x32:3")
# The last tile with parts too: of several steps, of one step, and of nothing.
TILE_IN_PARTS = {"split_k_16x16x32_2_parts_9": "split_k:16x16x32:2/9"}
# How many of the last channels have zero points of their own, and how many have sums that do not fit 32 bits.
LAST_ZERO_POINTS, LAST_WIDE = 8, 4


def tiles(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Tiles whose K is split over the subgroups of a workgroup, evenly or not, with or without parts of K too.

    The last channels, and so one tile of several, may have sums that do not fit 32 bits, or zero points that are not 0.
    """
    shape = shape_of(p, (5, 7))
    layouts = {"input_tensor": p.input, "output_tensor": p.output}
    arrays = dict(convolution(numbers, p, shape).inputs)
    from_end = p.filters - np.arange(p.filters).reshape(shape.per_channel)
    if p.bias == "wide":
        wide = wide_sums(numbers, shape)
        wide["bias_tensor"].flat[::2] = 2**31 - 1  # past which every second sum lies
        ratio = arrays["output_scale_tensor"] / arrays["input_scale_tensor"]
        wide["filter_scale_tensor"] = wide["filter_scale_tensor"] * ratio
        for name in ("bias_tensor", "filter_scale_tensor"):
            arrays[name] = np.where(from_end <= LAST_WIDE, wide[name], arrays[name])
    zero_points = arrays.pop("filter_zero_point_tensor")
    if p.filter_zero_point == "one":
        arrays["filter_zero_point_tensor"] = zero_points.ravel()[:1].reshape(1, 1, 1, 1)
    elif p.filter_zero_point == "last":
        zero = zero_point_of("middle", kind(p, "filter"))
        arrays["filter_zero_point_tensor"] = np.where(from_end <= LAST_ZERO_POINTS, zero_points, zero)
    owned = [name for name in ALL_CONSTANTS if name in arrays] if p.constants == "owned" else []
    absent = ("filter_zero_point_tensor",)  # if it is not given
    return convolution(numbers, p, shape, arrays=arrays, layouts=layouts, absent=absent, owned=owned, offsets=APART)


def single_bytes(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Inputs in layouts that are read byte by byte: channels of a tap, or few channels of a row of taps."""
    shape = CaseShape(
        *(2, p.channels, (7, 9), 40, p.kernel),
        strides=(1, 2),
        dilations=(2, 1),
        start_padding=(2, 1),
        end_padding=(0, 3),
    )
    layouts = {"input_tensor": p.input, "output_tensor": "channels_last"}
    return convolution(numbers, p, shape, layouts=layouts, offsets=APART)


def _is_in_words(labels: Mapping[str, str]) -> bool:
    """Whether the channels are not whole vectors, or do not all begin at one."""
    return int(labels["channels"]) % 16 != 0 or labels["apart"] != "0"


GROUPS = Groups(OPERATOR)
GROUPS.add(
    "split_k",
    tiles,
    **TYPE_PARAMETERS,
    channels=(5, 16, 70),
    filters=(7, 40),
    kernel=by_sizes((1, 1), (3, 3)),
    bias=("narrow", "wide"),
    filter_zero_point=("none", "one", "last"),
    constants=("bound", "owned"),
    strides=by_sizes((1, 1), (2, 1)),
    input=("packed", "channels_last", "gaps"),
    output=("packed", "channels_last", "rows"),
    path={
        **{label: path for label, path in with_tiles("split_k", TILES).items() if path != "split_k"},
        **TILE_IN_PARTS,
    },
)


@GROUPS.of(
    **only(TYPE_PARAMETERS, "in", "out"),
    channels=(12, 64, 100),
    groups=(1, 2),
    apart=(4, 0),
    filters=(7, 40),
    width=(5, 8),
    kernel=by_sizes((1, 1), (3, 3)),
    strides=by_sizes((1, 1), (2, 2)),
    output=("packed", "channels_last"),
    path=("matrix", "split_k", "split_k/3", "vectors"),
    keep=_is_in_words,
)
def words(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Inputs with their channels side by side, in whole words but not in whole vectors of 16 bytes.

    Other bytes follow a pixel's channels, or another group's channels: what counts a word more is seen.
    """
    shape = shape_of(p, (6, p.width))
    step = p.groups * p.channels + p.apart
    row = p.width * step + 2 * p.apart
    tensors: Mapping[str, Mapping[str, Any]] = {"input_tensor": {"strides": (6 * row + p.apart, 1, row, step)}}
    return convolution(numbers, p, shape, tensors=tensors, layouts={"output_tensor": p.output}, offsets=APART)


GROUPS.add(
    "bytes",
    single_bytes,
    channels=(3, 21),
    kernel=by_sizes((3, 3), (2, 5)),
    input=("permuted", "sheared"),
    path=("split_k",),
)
GROUPS.add(
    "sums_of_parts",
    sums,
    sum=("33",),
    in_=("u8",),
    filter=("s8",),
    sign=("both",),
    bias=("given",),
    path=("split_k", "split_k/7"),
    about="Sums of more than 32 bits, of which each subgroup, or each part of K, has a share.",
)
