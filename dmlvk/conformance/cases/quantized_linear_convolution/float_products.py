"""Cases of QUANTIZED_LINEAR_CONVOLUTION for devices that lack packed dot products, where most multiply floats."""

from __future__ import annotations

from dmlvk.conformance.case import Way
from dmlvk.conformance.cases.combinations import by_sizes, group
from dmlvk.conformance.cases.quantized_linear_convolution.arithmetic import cancellation
from dmlvk.conformance.cases.quantized_linear_convolution.convolution import OPERATOR, TYPE_PARAMETERS
from dmlvk.conformance.cases.quantized_linear_convolution.kinds import (
    parts_of_k,
    planned_for,
    tiles_of_vectors,
    with_tiles,
)

# Pixels, channels and bytes of K of a tile; pixels and channels of an invocation; tiles of a workgroup.
TILES = ("16x16x16:4x4", "32x64x64:4x4", "64x64x32:4x8", "64x64x32:8x8*2")


GROUPS = (
    group(
        f"{OPERATOR}:tiles_of_floats",
        planned_for("no-dot-product", tiles_of_vectors),
        **TYPE_PARAMETERS,
        channels=(16, 80),
        filters=(7, 40, 70),
        width=(8, 13),
        kernel=by_sizes((1, 1), (3, 3)),
        strides=by_sizes((1, 1), (2, 2)),
        bias=("narrow", "wide"),
        input=("packed", "channels_last"),
        output=("packed", "channels_last"),
        path=with_tiles("vectors", TILES),
        about="Tiles of any form, of whose outputs an invocation has any part, where bytes are multiplied as floats.",
    ),
    group(
        f"{OPERATOR}:parts_of_floats",
        planned_for("no-dot-product", parts_of_k),
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
    ),
    group(
        f"{OPERATOR}:sums_of_floats",
        planned_for("no-dot-product", cancellation),
        path=("vectors", "vectors/7"),
        about="Partial sums far above 2^24, past which float32 holds no odd number.",
    ),
)
