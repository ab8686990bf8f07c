"""Cases of QUANTIZED_LINEAR_CONVOLUTION for the kernels of devices with few registers, such as Intel's."""

from __future__ import annotations

from collections.abc import Mapping

from dmlvk.conformance.cases.combinations import group
from dmlvk.conformance.cases.quantized_linear_convolution.convolution import OPERATOR
from dmlvk.conformance.cases.quantized_linear_convolution.kinds import (
    depthwise,
    planned_for,
    tiles_of_vectors,
    with_tiles,
)

PROFILE = "few-registers"
# Pixels, channels and bytes of K of a tile; pixels and channels of a subgroup. The first four are for subgroups of 8
# and matrices of 8 x 8: two that fetch a step ahead, and two that fetch it when they need it. The last two are the
# same for subgroups of 32 and matrices of 16 x 16. The first of each two is for words of channels, the second for
# words of pixels.
TILES = (
    *("64x64x32:8x32", "64x64x32:32x8"),
    *("64x32x64:8x32", "64x32x64:32x8"),
    *("128x128x64:16x64", "64x64x128:64x16"),
)


def _packs_as_the_tile(labels: Mapping[str, str]) -> bool:
    """Whether the output has the words that the tile is for."""
    number = [*with_tiles("matrix", TILES)].index(labels["path"])
    return number > 0 and (number % 2 == 1) == (labels["output"] == "channels_last")


# A few cases with much in each: other groups have the types, sizes and layouts.
GROUPS = (
    group(
        f"{OPERATOR}:tiles_of_few_registers",
        planned_for(PROFILE, tiles_of_vectors),
        channels=(80,),
        filters=(70,),
        width=(13,),
        kernel={"3x3": (3, 3)},
        strides={"1x1": (1, 1)},
        bias=("wide",),
        input=("channels_last",),
        output=("packed", "channels_last"),
        path=with_tiles("matrix", TILES),
        default="all",
        keep=_packs_as_the_tile,
        about="Tiles on matrix units for few registers, whose steps of K are fetched ahead or not.",
    ),
    group(
        f"{OPERATOR}:depthwise_of_few_registers",
        planned_for(PROFILE, depthwise),
        channels=(36,),
        multiplier=(1,),
        width=(37,),
        kernel={"5x5": (5, 5)},
        strides={"1x1": (1, 1)},
        dilations={"1x1": (1, 1)},
        padding=(1,),
        constants=("bound", "owned"),
        layout=("packed", "channels_last"),
        path=("depthwise",),
        default="all",
        about="Weights that stay in shared memory.",
    ),
)
