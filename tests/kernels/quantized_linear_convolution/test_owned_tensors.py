"""Tensors that are OWNED_BY_DML."""

from __future__ import annotations

import numpy as np
import pytest

import dmlvk
from dmlvk import TensorFlags
from tests.convolution_cases import random_case
from tests.kernels.quantized_linear_convolution.arrays import describe
from tests.kernels.quantized_linear_convolution.paths import PATHS, paths_of


class TestOwnedByDml:
    """Tensors that are given once, at initialization, and not bound again."""

    @pytest.mark.parametrize("path", PATHS)
    @pytest.mark.parametrize("owned", [("filter_tensor",), ("filter_tensor", "bias_tensor", "filter_scale_tensor")])
    def test_it_is_bound_at_initialization_only(self, device: dmlvk.Device, path: str, owned: tuple[str, ...]) -> None:
        arrays, attributes = random_case(2, "u8", "s8")
        arrays.setdefault(
            "bias_tensor",
            np.ones((1, len(arrays["filter_tensor"]), 1, 1), np.int32)[
                (...,) + (0,) * (4 - arrays["input_tensor"].ndim)
            ],
        )
        desc = describe(arrays, np.uint8, attributes, flags=dict.fromkeys(owned, TensorFlags.OWNED_BY_DML))
        if path not in paths_of(device):
            with pytest.raises(ValueError, match="no kernel path"):
                device.compile(desc, path=path)
            return
        operator = device.compile(desc, path=path)
        tensors = {name: device.tensor(desc.tensors[name]) for name in arrays}
        for name, array in arrays.items():
            tensors[name].write(array)
        output = device.tensor(desc.output_tensor)
        others = {name: tensor for name, tensor in tensors.items() if name not in owned}

        with pytest.raises(dmlvk.BindingError, match="initialize"):
            operator(output_tensor=output, **others)
        operator.initialize(**{name: tensors[name] for name in owned})
        for name in owned:
            tensors[name].write(np.zeros_like(arrays[name]))  # the operator has its contents now
        with pytest.raises(dmlvk.BindingError, match="OWNED_BY_DML"):
            operator(output_tensor=output, **tensors)
        expected = dmlvk.reference.run(desc, **arrays)
        for _ in range(2):
            output.write(np.full(desc.output_tensor.sizes, 0xA5, np.uint8))
            operator(output_tensor=output, **others).wait()
            np.testing.assert_array_equal(output.numpy(), expected)
