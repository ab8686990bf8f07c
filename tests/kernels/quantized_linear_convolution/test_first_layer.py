"""The path `first_layer` against the reference."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import dmlvk
from dmlvk import DataType, TensorDesc
from tests.kernels.quantized_linear_convolution.arrays import describe, last, special_case
from tests.kernels.quantized_linear_convolution.paths import paths_of, run, takes


@pytest.mark.parametrize(
    ("channels", "filters", "is_last", "attributes"),
    [
        (3, 20, False, {"kernel": (7, 7), "strides": (2, 2), "start_padding": (3, 3), "end_padding": (3, 3)}),
        (3, 32, True, {"kernel": (3, 3), "strides": (2, 2), "start_padding": (1, 1), "end_padding": (0, 1)}),
        (4, 5, True, {"kernel": (2, 9), "strides": (3, 3)}),
        (1, 8, False, {"kernel": (5, 5), "start_padding": (2, 2), "end_padding": (2, 2)}),
    ],
)
def test_first_layers_on_matrix_units(
    device: dmlvk.Device, channels: int, filters: int, is_last: bool, attributes: dict[str, Any]
) -> None:
    """Rows of pixels as overlapping rows of matrices, at every stride of columns; other devices refuse the path."""
    for seed, x_type in enumerate(("u8", "s8"), filters):
        arrays, others = special_case(seed, x_type, 1, channels, filters, (17, 45), **attributes)
        desc = describe(arrays, np.int8, others)
        if "first_layer" not in paths_of(device):
            with pytest.raises(ValueError, match="no kernel path"):
                device.compile(desc, path="first_layer")
            continue
        if is_last:
            sizes, output_sizes = desc.input_tensor.sizes, desc.output_tensor.sizes
            desc = replace(
                desc,
                input_tensor=TensorDesc(desc.input_tensor.data_type, sizes, last(sizes)),
                output_tensor=TensorDesc(DataType.INT8, output_sizes, last(output_sizes)),
            )
        if takes(device, desc, "first_layer"):  # not where its rows need more shared memory than the device has
            run(device, desc, arrays, dmlvk.reference.run(desc, **arrays), "first_layer", seed)
