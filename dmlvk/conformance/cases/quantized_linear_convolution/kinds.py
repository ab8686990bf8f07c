"""Cases of QUANTIZED_LINEAR_CONVOLUTION for the kinds of convolution that have kernel paths of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from dmlvk.conformance.case import Way, Workload
from dmlvk.conformance.cases.combinations import GPU_AND_OWN, PLANNERS_CHOICE, Build, Groups, Parameters, by_sizes, only
from dmlvk.conformance.cases.quantized_linear_convolution.convolution import (
    APART,
    GENERAL_PATHS,
    OPERATOR,
    PATHS,
    SHAPES,
    TYPE_PARAMETERS,
    CaseShape,
    convolution_of,
    shape_of,
    suits,
)
from dmlvk.planning import GENERAL_PATH

# Pixels, channels and bytes of K of a tile; pixels and channels of an invocation, both multiples of four, for words of
# four pixels and for words of four channels; tiles of a workgroup.
TILES_OF_VECTORS = (
    "16x16x32:4x4", "32x16x64:4x4*2", "16x64x64:4x8", "64x32x64:8x4*3", "128x64x64:8x8", "32x64x64:4x4",
)  # fmt: skip


def with_tiles(path: str, tiles: Iterable[str]) -> dict[str, str]:
    """A path without a tile, and with each of some tiles, by labels without colons and stars, which names obey."""
    return {
        path: path,
        **{f"{path}_{tile.replace(':', '_').replace('*', '_turns')}": f"{path}:{tile}" for tile in tiles},
    }


def planned_for(profile: str, build: Build) -> Build:
    """The same workload, planned for a device of a profile: it gives the kernels of other devices."""

    def built(numbers: np.random.Generator, p: Parameters) -> Workload:
        return replace(build(numbers, p), profile=profile)

    return built


def _fits(labels: Mapping[str, str]) -> bool:
    """Whether the dilated filter fits the padded input."""
    kernel, dilation = (int(labels[name].split("x")[0]) for name in ("kernel", "dilations"))
    return (kernel - 1) * dilation < 7 + 2 * int(labels["padding"])


def _joined_by_halo(labels: Mapping[str, str]) -> bool:
    """Whether the path takes the groups: the halo kernel wants stride 1, several taps and whole vectors of channels."""
    whole = int(labels["channels"]) * int(labels["groups"]) % 16 == 0
    return labels["path"] != "halo" or (labels["strides"] == "1x1" and labels["kernel"] != "1x1" and whole)


def _fits_whole(labels: Mapping[str, str]) -> bool:
    """Whether the dilated filter fits the input without padding."""
    kernel, dilations = ([int(size) for size in labels[name].split("x")] for name in ("kernel", "dilations"))
    sizes = (7, int(labels["width"]))
    return all((k - 1) * d < size for k, d, size in zip(kernel, dilations, sizes, strict=True))


GROUPS = Groups(OPERATOR)


@GROUPS.of(
    **TYPE_PARAMETERS,
    channels=(1, 3, 16, 33),
    multiplier=(1, 2),
    width=(9, 18, 37),
    kernel=by_sizes((1, 1), (3, 3), (5, 4), (7, 7)),
    strides=by_sizes((1, 1), (2, 2), (3, 1), (4, 4)),
    dilations=by_sizes((1, 1), (2, 2)),
    padding=(0, 1, 6),
    layout=("packed", "channels_last", "rows"),
    device=GPU_AND_OWN,
    path=(PLANNERS_CHOICE, "depthwise"),
    keep=_fits,
)
def depthwise(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Convolutions of each channel alone, into one output channel or several.

    The bias "wide" makes sums that do not fit 32 bits.
    """
    shape = CaseShape(
        *(2, p.channels, (7, p.width), p.channels * p.multiplier, p.kernel),
        strides=p.strides,
        dilations=p.dilations,
        start_padding=(p.padding, p.padding // 2),
        end_padding=(p.padding, p.padding),
        groups=p.channels,
    )
    return convolution_of(numbers, p, shape, past=True, offsets=APART)


GROUPS.add(
    "depthwise_in_registers",
    planned_for("accelerated-dot-product", depthwise),
    filter=("u8",),
    channels=(68,),
    multiplier=(1,),
    width=(13,),
    kernel={"3x3": (3, 3)},
    strides={"1x1": (1, 1)},
    dilations={"1x1": (1, 1)},
    padding=(1,),
    bias=("narrow", "wide"),
    constants=("bound", "owned"),
    layout=("packed", "channels_last"),
    path=("depthwise",),
    default="all",
    about="Weights in registers, which each workgroup works out, or which were worked out once.",
)


@GROUPS.of(
    **TYPE_PARAMETERS,
    channels=(1, 2, 3, 4),
    filters=(1, 7, 32, 65),
    width=(18, 67, 131),
    kernel=by_sizes((1, 1), (3, 3), (7, 7), (5, 11)),
    strides=by_sizes((1, 1), (2, 2), (4, 4), (2, 1)),
    padding=(0, 1, 5),
    input=("packed", "channels_last", "rows"),
    output=("packed", "channels_last"),
    path=(PLANNERS_CHOICE, "matrix", "split_k"),
)
def first_layer(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Filters over the few channels of a picture."""
    padding = (p.padding, p.padding // 2), (p.padding, p.padding)
    return convolution_of(numbers, p, shape_of(p, (9, p.width), padding), offsets=APART)


@GROUPS.of(
    **TYPE_PARAMETERS,
    batch=(1, 3),
    channels=(16, 48, 144),
    filters=(1, 40, 70),
    size=by_sizes((4, 5), (6, 6), (7, 12)),
    output=("packed", "channels_last"),
    path=(PLANNERS_CHOICE, "matrix", "vectors", "split_k"),
)
def whole_planes(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Filters of one tap over planes of whole words, which a kernel may transpose while it reads them."""
    return convolution_of(numbers, p, CaseShape(p.batch, p.channels, p.size, p.filters, (1, 1)))


@GROUPS.of(
    **TYPE_PARAMETERS,
    batch=(1, 3),
    channels=(16, 48, 80, 144),
    filters=(1, 40, 70),
    groups=(1, 2),
    width=(6, 15),
    kernel=by_sizes((3, 3), (1, 2), (5, 4)),
    dilations=by_sizes((1, 1), (1, 2)),
    padding={"none": ((0, 0), (0, 0)), "same": ((1, 1), (1, 1)), "sides": ((2, 0), (1, 3))},
    bias=("narrow", "wide"),
    input=("channels_last", "packed", "rows"),
    output=("packed", "channels_last", "rows"),
    path=("halo",),
    keep=_fits_whole,
)
def halo(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Filters of several taps at stride 1 over whole vectors of channels; the padding differs from side to side.

    The bias "wide" makes sums that do not fit 32 bits.
    """
    return convolution_of(numbers, p, shape_of(p, (7, p.width), p.padding), offsets=APART)


@GROUPS.of(
    **TYPE_PARAMETERS,
    channels=(1, 5),
    filters=(1, 6),
    groups=(1, 3),
    width=(8, 13),
    kernel=by_sizes((1, 1), (3, 3), (2, 5)),
    strides=by_sizes((1, 1), (2, 3)),
    dilations=by_sizes((1, 1), (3, 1)),
    padding=(0, 3),
    input=("packed", "channels_last", "rows"),
    output=("packed", "channels_last", "rows"),
    device=GPU_AND_OWN,
    path=(GENERAL_PATH, PLANNERS_CHOICE),
)
def general(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Convolutions of any sizes and types on pipelines that they all share."""
    padding = (p.padding, p.padding // 2), (p.padding // 2, p.padding)
    return convolution_of(numbers, p, shape_of(p, (9, p.width), padding), offsets=APART)


@GROUPS.of(
    **TYPE_PARAMETERS,
    shape=only(SHAPES, "odd", "vectors", "groups", "depthwise", "first_layer_small"),
    constants=("bound", "filter", "owned"),
    layout=("packed", "channels_last"),
    path=(PLANNERS_CHOICE, *PATHS),
    keep=suits,
)
def take_over(numbers: np.random.Generator, p: Parameters) -> Workload:
    """A row of calls, each with its own data: in the middle a special kernel takes over from the general one.

    Bindings, lists and sequences that were made before it run on both sides too.
    """
    return convolution_of(numbers, p, p.shape, way=Way.TAKE_OVER)


@GROUPS.of(
    **TYPE_PARAMETERS,
    channels=(16, 48, 144),
    filters=(1, 40),
    groups=(1, 2),
    kernel=by_sizes((1, 1), (3, 3)),
    bias=("narrow", "wide"),
    filter_zero_point=("none", "each"),
    constants=("bound", "owned"),
    layout=("packed", "channels_last"),
    way={way.value: way for way in (Way.ALONE, Way.SEQUENCE, Way.BESIDE)},
    path=tuple(f"{path}{parts}" for path in ("split_k", "vectors") for parts in ("", "/2", "/3", "/7", "/50")),
)
def parts_of_k(numbers: np.random.Generator, p: Parameters) -> Workload:
    """K cut over workgroups: any number of parts, parts of nothing, and what one call leaves to the next.

    The bias "wide" makes sums that do not fit 32 bits.
    """
    return convolution_of(numbers, p, shape_of(p, (5, 7)), past=True, way=p.way)


GROUPS.add(
    "parts_of_vectors",
    parts_of_k,
    channels=(144,),
    filters=(40,),
    groups=(1,),
    kernel={"3x3": (3, 3)},
    bias=("narrow", "wide"),
    filter_zero_point=("each",),
    constants=("owned",),
    layout=("packed", "channels_last"),
    way={way.value: way for way in (Way.ALONE, Way.SEQUENCE)},
    path=("vectors/2", "vectors/3", "vectors/7"),
    about="Parts of K by vectors, none of them empty: 2, 3 and 7 parts of eleven steps, one call after another.",
)


@GROUPS.of(
    **TYPE_PARAMETERS,
    channels=(16, 80),
    filters=(7, 40, 70),
    width=(8, 13),
    kernel=by_sizes((1, 1), (3, 3)),
    strides=by_sizes((1, 1), (2, 2)),
    bias=("narrow", "wide"),
    input=("packed", "channels_last"),
    output=("packed", "channels_last", "rows"),
    path=with_tiles("vectors", TILES_OF_VECTORS),
)
def tiles_of_vectors(numbers: np.random.Generator, p: Parameters) -> Workload:
    """The product by vectors of K in tiles of any form, of whose outputs an invocation has any part.

    The bias "wide" makes sums that do not fit 32 bits.
    """
    return convolution_of(numbers, p, shape_of(p, (9, p.width)), offsets=APART)


@GROUPS.of(
    **TYPE_PARAMETERS,
    channels=(1, 2, 3, 4, 8),
    filters=(1, 3, 4, 8),
    groups=(3, 8, 32),
    kernel=by_sizes((1, 1), (3, 3), (1, 5)),
    strides=by_sizes((1, 1), (2, 2)),
    filter_zero_point=("none", "each"),
    constants=("bound", "filter", "owned"),
    layout=("packed", "channels_last"),
    path=(PLANNERS_CHOICE, *GENERAL_PATHS, "halo"),
    keep=_joined_by_halo,
)
def joined_groups(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Groups of few channels, which a kernel may join: no channel sees another group's."""
    return convolution_of(numbers, p, shape_of(p, (6, 9)))
