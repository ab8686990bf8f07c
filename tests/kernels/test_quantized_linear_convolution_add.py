"""QUANTIZED_LINEAR_CONVOLUTION_ADD on devices: sums in the last step of a kernel, and by a kernel of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import dmlvk
from dmlvk import DataType, TensorDesc
from dmlvk.conformance.cases.quantized_linear_convolution_add import LAYOUTS, SCALES, SHAPES, last_step
from dmlvk.operators import OperatorDesc, QuantizedLinearConvolutionAddDesc
from dmlvk.planning import plan
from dmlvk.reference import run
from tests.kernels.harness import check

Work = tuple[QuantizedLinearConvolutionAddDesc, dict[str, np.ndarray]]


def work(shape: str, scales: str, layout: str, seed: int) -> Work:
    """A descriptor and its inputs; types, order, zero points and who owns the parameters follow from the seed."""
    p = SimpleNamespace(
        shape=SHAPES[shape],
        scales=SCALES[scales],
        layout=LAYOUTS[layout],
        type=[DataType.UINT8, DataType.INT8][seed % 2],
        order=["addend_first", "addend_second"][seed // 2 % 2],
        zero_points=[(3, 121, 117), None][seed // 4 % 2],
        parameters=["owned", "bound"][seed // 8 % 2],
        device=None,
    )
    made = last_step(np.random.default_rng(seed), p)
    assert isinstance(made.desc, QuantizedLinearConvolutionAddDesc)
    return made.desc, dict(made.inputs)


def kernel_of(device: dmlvk.Device, desc: QuantizedLinearConvolutionAddDesc, path: str | None) -> str:
    """The kernel that stores the output."""
    return plan(desc, device.profile, path=path).dispatches[-1].kernel


def laid_out(desc: OperatorDesc, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The bytes of each tensor, in the order of its strides, up to its end."""
    memory = {}
    for name, array in inputs.items():
        tensor = desc.tensors[name]
        order = sorted(range(array.ndim), key=lambda k, of=tensor.element_strides: (-of[k], k))  # type: ignore[misc]
        packed = np.ascontiguousarray(array.transpose(order)).reshape(-1).view(np.uint8)
        memory[name] = np.pad(packed, (0, tensor.total_size_in_bytes - packed.size))
    return memory


def check_work(device: dmlvk.Device, made: Work, path: str | None, seed: int = 0) -> None:
    desc, inputs = made
    memory = laid_out(desc, inputs)
    check(device, desc, np.ascontiguousarray(run(desc, **inputs)), memory, offset=16 * (seed % 5), seed=seed, path=path)


@pytest.mark.parametrize(("shape", "layout"), [("whole", "nhwc"), ("odd", "nchw"), ("seven", "nhwc")])
def test_the_last_step_adds(device: dmlvk.Device, shape: str, layout: str) -> None:
    """In floats where these are right, and from the table where they are not."""
    for scales in ("ordinary", "infinite"):
        made = work(shape, scales, layout, 3 * list(SHAPES).index(shape))
        assert kernel_of(device, made[0], "vectors").startswith("quantized_linear_convolution_add/")
        check_work(device, made, "vectors")


@pytest.mark.parametrize("path", [None, "general"])
def test_kernels_that_do_not_add(device: dmlvk.Device, path: str | None) -> None:
    check_work(device, work("odd", "half", "nhwc", 2), path)


def test_an_addend_that_lies_otherwise(device: dmlvk.Device) -> None:
    """In another order of dimensions than the output."""
    desc, inputs = work("odd", "ordinary", "nhwc", 4)
    packed = replace(desc, addend_tensor=TensorDesc(desc.addend_tensor.data_type, desc.output_tensor.sizes))
    assert not kernel_of(device, packed, "vectors").startswith("quantized_linear_convolution_add/")
    check_work(device, (packed, inputs), "vectors")
