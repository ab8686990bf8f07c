"""BYTE_RESAMPLE: planes of networks to twice and to eight times their sides, channels last and first."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from dmlvk import ByteResampleDesc, DataType, TensorDesc
from dmlvk.benchmark.cases.max_pooling2 import CHANNELS, LAYOUTS, images_of, random_images, repeating
from dmlvk.benchmark.cases.scale import Scale
from dmlvk.conformance.case import Case, Workload
from dmlvk.conformance.cases.byte_resample import coordinates_of, thresholds_of
from dmlvk.conformance.cases.max_pooling2 import laid_out

# Factor and side of the output.
FACTORS = (2, 8)
SIDE = 128


def workload(batch: int, factor: int, layout: str) -> Workload:
    """Random images, and the reference's output for those that differ."""
    side, numbers, scale = SIDE // factor, np.random.default_rng(0), 0.0371
    source = laid_out(DataType.UINT8, (batch, CHANNELS, side, side), layout)
    desc = ByteResampleDesc(
        input_tensor=source,
        coordinate_tensor=TensorDesc(DataType.FLOAT32, (2 * SIDE,)),
        threshold_tensor=TensorDesc(DataType.FLOAT32, (255,)),
        output_tensor=laid_out(DataType.UINT8, (batch, CHANNELS, SIDE, SIDE), layout),
        input_scale=scale,
        input_zero_point=128,
    )
    parameters = {
        "coordinate_tensor": np.tile(coordinates_of("half_pixel", side, SIDE, numbers), 2),
        "threshold_tensor": thresholds_of("steps", scale, numbers),
    }
    return repeating(desc, random_images("byte_resample", source), **parameters)


def cases(scale: Scale) -> Iterator[Case]:
    """Cases whose outputs have about as many bytes as the scale says."""
    for factor in FACTORS:
        for layout in LAYOUTS:
            build = partial(workload, images_of(scale.data_bytes, 1, SIDE), factor, layout)
            yield Case(f"byte_resample:{factor}x:layout={layout}", build, is_default=True)
