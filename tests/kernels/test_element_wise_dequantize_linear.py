"""ELEMENT_WISE_DEQUANTIZE_LINEAR on devices; test_element_wise_quantize_linear.py has what the two share."""

from __future__ import annotations

import numpy as np
import pytest

import dmlvk
from dmlvk import DataType, TensorDesc
from tests.kernels.element_wise import both, check_against_reference, memory_of


@pytest.mark.every_driver
@pytest.mark.parametrize("data_type", [DataType.UINT8, DataType.INT8])
def test_every_difference_by_scales_of_every_exponent(device: dmlvk.Device, data_type: DataType) -> None:
    """Products that are denormal, that round to the next power of two, and that become infinite."""
    exponents = np.arange(256, dtype=np.uint32) << 23
    mantissas = np.random.default_rng(8).integers(0, 1 << 23, 256, np.uint32)
    mantissas[::4] = 0x7FFFFF
    scale = exponents | mantissas
    sizes = (256, 256)
    _, desc = both(sizes, TensorDesc(DataType.FLOAT32, sizes, (1, 0)), data_type)
    memory = memory_of(desc, 2, 0)
    memory["input_tensor"] = np.tile(np.arange(256, dtype=np.uint8), 256)
    for path in (None, "integers"):
        check_against_reference(device, desc, memory | {"scale_tensor": scale.view(np.uint8)}, path=path)
