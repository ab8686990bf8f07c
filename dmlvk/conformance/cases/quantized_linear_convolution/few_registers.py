"""Cases of QUANTIZED_LINEAR_CONVOLUTION for the kernels of devices with few registers, such as Intel's."""

from __future__ import annotations

from collections.abc import Mapping

from dmlvk.conformance.cases.combinations import Group
from dmlvk.conformance.cases.quantized_linear_convolution.convolution import OPERATOR, TYPE_PARAMETERS
from dmlvk.conformance.cases.quantized_linear_convolution.kinds import (
    depthwise,
    first_layer,
    planned_for,
    tiles_of_vectors,
    with_tiles,
)

PROFILE = "few-registers"
# Pixels, channels and bytes of K of a tile; pixels and channels of a subgroup. The first four are
# for subgroups of 8 and matrices of 8 x 8, the others for subgroups of 32 and matrices of 16 x 16. Of each four the
# first two fetch a step ahead, and the last two fetch it when they need it. Of each two the first one is for words of
# channels, the second one for words of pixels.
TILES = (
    *("64x64x32:8x32", "64x64x32:32x8", "64x32x64:8x32", "64x32x64:32x8"),
    *("128x128x64:16x64", "128x128x64:64x16", "32x64x128:16x64", "64x64x128:64x16"),
)


def _packs_as_the_tile(labels: Mapping[str, str]) -> bool:
    """Whether the output has the words that the tile is for."""
    tiles = list(with_tiles("matrix", TILES))
    number = tiles.index(labels["path"])
    return number == 0 or (number % 2 == 1) == (labels["output"] == "channels_last")


GROUPS = (
    Group(
        f"{OPERATOR}:tiles_of_few_registers",
        planned_for(PROFILE, tiles_of_vectors),
        {
            **TYPE_PARAMETERS,
            "channels": (16, 80),
            "filters": (7, 70),
            "width": (8, 13),
            "kernel": {f"{a}x{b}": (a, b) for a, b in ((1, 1), (3, 3))},
            "strides": {f"{a}x{b}": (a, b) for a, b in ((1, 1), (2, 2))},
            "bias": ("narrow", "wide"),
            "input": ("packed", "channels_last"),
            "output": ("packed", "channels_last"),
            "path": with_tiles("matrix", TILES),
        },
        keep=_packs_as_the_tile,
        about="Tiles on matrix units for few registers, with few steps of K and many, fetched ahead and not.",
    ),
    Group(
        f"{OPERATOR}:depthwise_of_few_registers",
        planned_for(PROFILE, depthwise),
        {
            **TYPE_PARAMETERS,
            "channels": (8, 36),
            "multiplier": (1,),
            "width": (9, 37),
            "kernel": {f"{a}x{b}": (a, b) for a, b in ((3, 3), (5, 5))},
            "strides": {f"{a}x{b}": (a, b) for a, b in ((1, 1), (2, 2))},
            "dilations": {"1x1": (1, 1)},
            "padding": (0, 1),
            "layout": ("packed", "channels_last"),
            "path": ("depthwise",),
        },
        about="Weights that stay in shared memory.",
    ),
    Group(
        f"{OPERATOR}:first_layer_of_few_registers",
        planned_for(PROFILE, first_layer),
        {
            **TYPE_PARAMETERS,
            "channels": (1, 3),
            "filters": (7, 65),
            "width": (18, 67),
            "kernel": {f"{a}x{b}": (a, b) for a, b in ((3, 3), (7, 7))},
            "strides": {f"{a}x{b}": (a, b) for a, b in ((1, 1), (2, 2))},
            "padding": (1,),
            "input": ("packed", "channels_last"),
            "output": ("packed", "channels_last"),
            "path": ("first_layer",),
        },
        about="One row of taps at a time.",
    ),
)
