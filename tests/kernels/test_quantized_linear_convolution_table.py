"""QUANTIZED_LINEAR_CONVOLUTION_TABLE on devices: a table in the last step of a kernel, and by a kernel of its own."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import dmlvk
from dmlvk import DataType, TensorFlags
from dmlvk.conformance.cases.quantized_linear_convolution_add import SHAPES, SHAPES_APART
from dmlvk.conformance.cases.quantized_linear_convolution_table import BIASES, last_step
from dmlvk.conformance.profiles import narrow
from dmlvk.operators import QuantizedLinearConvolutionTableDesc
from dmlvk.planning import device_traits, plan
from dmlvk.reference import run
from tests.kernels.harness import check
from tests.kernels.test_quantized_linear_convolution_add import laid_out

Work = tuple[QuantizedLinearConvolutionTableDesc, dict[str, np.ndarray]]


def work(shape: str, layout: str, seed: int, accumulators: str = "narrow") -> Work:
    """A descriptor and its inputs; types and zero points follow from the seed."""
    p = SimpleNamespace(
        shape={**SHAPES, **SHAPES_APART}[shape],
        layout=layout,
        type=[DataType.UINT8, DataType.INT8][seed % 2],
        accumulators=BIASES[accumulators],
        parameters="owned",
        device=None,
    )
    made = last_step(np.random.default_rng(seed), p)
    assert isinstance(made.desc, QuantizedLinearConvolutionTableDesc)
    return made.desc, dict(made.inputs)


def dispatches(device: dmlvk.Device, desc: QuantizedLinearConvolutionTableDesc, path: str | None) -> list[str]:
    return [dispatch.kernel for dispatch in plan(desc, device.profile, path=path).dispatches]


def check_work(device: dmlvk.Device, made: Work, path: str | None, seed: int = 0) -> None:
    desc, inputs = made
    check(
        device,
        desc,
        np.ascontiguousarray(run(desc, **inputs)),
        laid_out(desc, inputs),
        offset=16 * (seed % 5),
        seed=seed,
        path=path,
    )


@pytest.mark.parametrize("accumulators", ["narrow", "wide"])
@pytest.mark.parametrize(
    ("shape", "layout"), [("whole", "channels_last"), ("odd", "packed"), ("seven", "channels_last")]
)
@pytest.mark.parametrize("path", ["vectors", "matrix", "split_k", "halo"])
def test_the_last_step_looks_up(device: dmlvk.Device, path: str, shape: str, layout: str, accumulators: str) -> None:
    """In the form in floats, and in that in integers where a sum may not fit 32 bits."""
    made = work(shape, layout, len(shape), accumulators)
    try:
        kernels = dispatches(device, made[0], path)
    except dmlvk.PathError:
        pytest.skip(f"no path {path}")
    assert not any(kernel.startswith("byte_table/") for kernel in kernels)
    check_work(device, made, path)


@pytest.mark.parametrize("path", [None, "direct", "general"])
def test_kernels_that_do_not_look_up(device: dmlvk.Device, path: str | None) -> None:
    check_work(device, work("odd", "channels_last", 2), path)


def test_a_table_that_may_change(device: dmlvk.Device) -> None:
    desc, inputs = work("odd", "channels_last", 3)
    bound = replace(desc, table_tensor=replace(desc.table_tensor, flags=TensorFlags.NONE))
    assert dispatches(device, bound, "vectors")[-1].startswith("byte_table/")
    check_work(device, (bound, inputs), "vectors")


@pytest.mark.parametrize("accumulators", ["narrow", "wide"])
@pytest.mark.parametrize("layout", ["channels_last", "packed"])
@pytest.mark.parametrize("form", ["accelerated-dot-product", "few-registers"])
def test_a_depthwise_convolution_looks_up(device: dmlvk.Device, form: str, layout: str, accumulators: str) -> None:
    """As on a GPU, where channels are prepared once; with weights in registers, and in shared memory."""
    made = work("depthwise", layout, 1, accumulators)
    with dmlvk.Device(device.name, profile=narrow(device.profile, form)) as gpu:
        if device_traits.ROUNDING in gpu.profile.properties:
            assert not any(kernel.startswith("byte_table/") for kernel in dispatches(gpu, made[0], "depthwise"))
        check_work(gpu, made, "depthwise")
