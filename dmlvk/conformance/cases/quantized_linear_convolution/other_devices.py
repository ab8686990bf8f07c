"""Cases of QUANTIZED_LINEAR_CONVOLUTION for the kernels of other devices than the one at hand.

Those that lack packed dot products, where most multiply floats, and those with few registers, such as Intel's.
"""

from __future__ import annotations

from collections.abc import Mapping

from dmlvk.conformance.case import Way
from dmlvk.conformance.cases.combinations import Groups, by_sizes
from dmlvk.conformance.cases.quantized_linear_convolution.arithmetic import cancellation
from dmlvk.conformance.cases.quantized_linear_convolution.convolution import OPERATOR, TYPE_PARAMETERS
from dmlvk.conformance.cases.quantized_linear_convolution.kinds import (
    depthwise,
    parts_of_k,
    planned_for,
    tiles_of_vectors,
    with_tiles,
)

WITHOUT_DOT_PRODUCT, FEW_REGISTERS = "no-dot-product", "few-registers"
# Pixels, channels and bytes of K of a tile; pixels and channels of an invocation; tiles of a workgroup.
TILES_OF_FLOATS = ("16x16x16:4x4", "32x64x64:4x4", "64x64x32:4x8", "64x64x32:8x8*2")
# Pixels, channels and bytes of K of a tile; pixels and channels of a subgroup. The first four are for subgroups of 8
# and matrices of 8 x 8: two that fetch a step ahead, and two that fetch it when they need it. The last two are the
# same for subgroups of 32 and matrices of 16 x 16. The first of each two is for words of channels, the second for
# words of pixels.
TILES_OF_FEW_REGISTERS = (
    *("64x64x32:8x32", "64x64x32:32x8"),
    *("64x32x64:8x32", "64x32x64:32x8"),
    *("128x128x64:16x64", "64x64x128:64x16"),
)


def _packs_as_the_tile(labels: Mapping[str, str]) -> bool:
    """Whether the output has the words that the tile is for."""
    number = [*with_tiles("matrix", TILES_OF_FEW_REGISTERS)].index(labels["path"])
    return number > 0 and (number % 2 == 1) == (labels["output"] == "channels_last")


GROUPS = Groups(OPERATOR)
GROUPS.add(
    "tiles_of_floats",
    planned_for(WITHOUT_DOT_PRODUCT, tiles_of_vectors),
    **TYPE_PARAMETERS,
    channels=(16, 80),
    filters=(7, 40, 70),
    width=(8, 13),
    kernel=by_sizes((1, 1), (3, 3)),
    strides=by_sizes((1, 1), (2, 2)),
    bias=("narrow", "wide"),
    input=("packed", "channels_last"),
    output=("packed", "channels_last"),
    path=with_tiles("vectors", TILES_OF_FLOATS),
    about="Tiles of any form, of whose outputs an invocation has any part, where bytes are multiplied as floats.",
)
GROUPS.add(
    "parts_of_floats",
    planned_for(WITHOUT_DOT_PRODUCT, parts_of_k),
    channels=(144,),
    filters=(40,),
    groups=(1,),
    kernel={"3x3": (3, 3)},
    bias=("wide",),
    filter_zero_point=("each",),
    constants=("owned",),
    layout=("packed", "channels_last"),
    way={Way.SEQUENCE.value: Way.SEQUENCE},
    path=("vectors/7",),
    about="Parts of K, none of them empty, where bytes are multiplied as floats.",
)
GROUPS.add(
    "sums_of_floats",
    planned_for(WITHOUT_DOT_PRODUCT, cancellation),
    path=("vectors", "vectors/7"),
    about="Partial sums far above 2^24, past which float32 holds no odd number.",
)
# A few cases with much in each: other groups have the types, sizes and layouts.
GROUPS.add(
    "tiles_of_few_registers",
    planned_for(FEW_REGISTERS, tiles_of_vectors),
    channels=(80,),
    filters=(70,),
    width=(13,),
    kernel={"3x3": (3, 3)},
    strides={"1x1": (1, 1)},
    bias=("wide",),
    input=("channels_last",),
    output=("packed", "channels_last"),
    path=with_tiles("matrix", TILES_OF_FEW_REGISTERS),
    default="all",
    keep=_packs_as_the_tile,
    about="Tiles on matrix units for few registers, whose steps of K are fetched ahead or not.",
)
GROUPS.add(
    "depthwise_of_few_registers",
    planned_for(FEW_REGISTERS, depthwise),
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
)
