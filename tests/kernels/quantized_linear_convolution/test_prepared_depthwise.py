"""The path `depthwise` where nothing but the input changes: what its kernel loads was worked out at initialization."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import dmlvk
from dmlvk import QuantizedLinearConvolutionDesc, TensorDesc, TensorFlags
from dmlvk.planning import device_traits
from dmlvk.planning.kernel_interface import kernel_interface
from dmlvk.planning.quantized_linear_convolution import depthwise
from tests.convolution_cases import TYPES
from tests.kernels.quantized_linear_convolution.arrays import PLAIN, describe, last, quantized
from tests.kernels.quantized_linear_convolution.paths import run

KERNEL = "quantized_linear_convolution/depthwise_dot4"
PREPARATION = "quantized_linear_convolution/depthwise_prepare"
# The forms of the kernel by the conformance suite's profiles: whether weights are held in registers.
FORMS = {"accelerated-dot-product": 1, "few-registers": 0}


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> str:
    """The name of a GPU's form."""
    return str(request.param)


def case(
    x_type: str,
    w_type: str,
    channels: int,
    size: tuple[int, int],
    taps: tuple[int, int],
    *,
    multiplier: int = 1,
    is_last: bool = False,
    zero_points: str = "each",
    has_wide_sums: bool = False,
    batch: int = 2,
    **attributes: Any,
) -> tuple[QuantizedLinearConvolutionDesc, dict[str, np.ndarray]]:
    """A depthwise layer whose tensors, but for input and output, are OWNED_BY_DML.

    Parameters
    ----------
    zero_points : str
        Filter zero points: "each" has one for each channel, from the whole range; "one" is near the middle of the
        range, so that no weight leaves a signed byte; "none" has none.
    has_wide_sums : bool
        The sums of every third channel are so large that the last step has to be computed in integers.
    """
    filters = channels * multiplier
    generator = np.random.default_rng([channels, *size, *taps, has_wide_sums])
    x, w = TYPES[x_type], TYPES[w_type]
    low, high = np.iinfo(w).min, np.iinfo(w).max + 1
    margin = 16 if zero_points == "one" else 0
    others: dict[str, np.ndarray] = {}
    if zero_points != "none":
        points = {"each": generator.integers(low, high, filters), "one": np.array([(low + high) // 2 + 9])}
        others["filter_zero_point_tensor"] = points[zero_points].astype(w)
    bias = generator.integers(-2000, 2000, filters).astype(np.int32)
    output_scale = 2.0 ** round(np.log2(60 * (taps[0] * taps[1]) ** 0.5))
    scales = generator.uniform(0.5, 2, filters).astype(np.float32)
    if has_wide_sums:
        # Such sums lie near halves, so that the products decide to which side they are rounded.
        wide = np.arange(1, filters, 3)
        bias[wide] = generator.choice(np.array([2**31 - 1, -(2**31), 2**30 + 2**24, -(2**30) - 2**24]), wide.size)
        scales[wide] = (wide % 100 + 0.5) * output_scale / np.abs(bias[wide].astype(np.float64))
    arrays = quantized(
        np.frombuffer(generator.bytes(batch * channels * size[0] * size[1]), x).reshape(batch, channels, *size),
        generator.integers(low + margin, high - margin, (filters, 1, *taps)).astype(w),
        input_zero_point_tensor=np.array([np.iinfo(x).min + 117], x),
        filter_scale_tensor=scales if multiplier == 1 or has_wide_sums else scales[:1],
        output_scale_tensor=np.array([output_scale], np.float32),
        output_zero_point_tensor=np.array([-20], np.int8),
        bias_tensor=bias.reshape(1, filters, 1, 1),
        **others,
    )
    flags = dict.fromkeys((name for name in arrays if name != "input_tensor"), TensorFlags.OWNED_BY_DML)
    desc = describe(arrays, np.int8, {**PLAIN, **attributes, "group_count": channels}, flags=flags)
    if is_last:
        source, output = desc.input_tensor, desc.output_tensor
        # The input's pixels begin at words.
        strides = last(source.sizes, -channels % 4), last(output.sizes)
        desc = replace(
            desc,
            input_tensor=TensorDesc(source.data_type, source.sizes, strides[0]),
            output_tensor=TensorDesc(output.data_type, output.sizes, strides[1]),
        )
    return desc, arrays


def check(gpu: dmlvk.Device, form: str, desc: QuantizedLinearConvolutionDesc, arrays: dict[str, np.ndarray]) -> None:
    """Compare the results with the reference's. A device without the kernel makes another plan, which others test."""
    made = gpu.plan(desc, "depthwise")
    if device_traits.ROUNDING not in gpu.profile.properties:
        assert KERNEL not in {dispatch.kernel for dispatch in made.dispatches}
        return
    assert PREPARATION in {dispatch.kernel for stage in made.initialization for dispatch in stage}
    for dispatch in made.dispatches:
        assert dispatch.kernel == KERNEL
        names = kernel_interface(KERNEL).specialization_constants
        constants = dict(zip(names, dispatch.specialization, strict=True))
        held = 0 if device_traits.has_few_registers(gpu.profile) else FORMS[form]  # whatever the profile, on such a GPU
        assert (constants["PREPARED"], constants["HELD"]) == (1, held)
    expected = dmlvk.reference.run(desc, **arrays)
    assert len(np.unique(expected)) > 20
    run(gpu, desc, arrays, expected, "depthwise")


@pytest.mark.quarter_by_day
@pytest.mark.parametrize("is_last", [False, True])
@pytest.mark.parametrize(
    ("x_type", "w_type", "zero_points"),
    [("u8", "s8", "none"), ("s8", "s8", "each"), ("u8", "u8", "each"), ("s8", "u8", "one"), ("u8", "u8", "none")],
)
@pytest.mark.parametrize("has_wide_sums", [False, True])
def test_types_and_zero_points(
    gpu: dmlvk.Device, form: str, x_type: str, w_type: str, zero_points: str, has_wide_sums: bool, is_last: bool
) -> None:
    """A last panel that is not full, and last channels that do not fill a word."""
    desc, arrays = case(
        x_type,
        w_type,
        70,
        (9, 11),
        (3, 3),
        is_last=is_last,
        zero_points=zero_points,
        has_wide_sums=has_wide_sums,
        start_padding=(1, 1),
        end_padding=(1, 1),
    )
    check(gpu, form, desc, arrays)


@pytest.mark.quarter_by_day
@pytest.mark.parametrize(
    ("channels", "size", "taps", "attributes"),
    [
        (7, (19, 13), (2, 5), {"strides": (2, 1), "dilations": (2, 1), "start_padding": (0, 3)}),
        (
            12,
            (15, 16),
            (3, 4),
            {"strides": (1, 2), "dilations": (1, 2), "start_padding": (2, 5), "end_padding": (4, 1)},
        ),
        (66, (7, 7), (7, 7), {"start_padding": (6, 6), "end_padding": (6, 6)}),
        (2, (30, 37), (3, 3), {"strides": (3, 4)}),
        (5, (6, 8), (1, 1), {"end_padding": (3, 0)}),
    ],
)
@pytest.mark.parametrize("is_last", [False, True])
def test_geometries(
    gpu: dmlvk.Device,
    form: str,
    channels: int,
    size: tuple[int, int],
    taps: tuple[int, int],
    attributes: dict[str, Any],
    is_last: bool,
) -> None:
    # With words of channels, last steps in integers come in place of all others.
    for multiplier, has_wide_sums in ((1, False), (1, True)) if is_last else ((1, True), (3, True)):
        desc, arrays = case(
            *("u8", "u8", channels, size, taps),
            multiplier=multiplier,
            is_last=is_last,
            has_wide_sums=has_wide_sums,
            **attributes,
        )
        check(gpu, form, desc, arrays)


@pytest.mark.parametrize("has_wide_sums", [False, True])
def test_constants_that_are_given_once_and_not_prepared(
    gpu: dmlvk.Device, has_wide_sums: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in planes of many outputs: each workgroup works out its channels."""
    monkeypatch.setattr(depthwise, "MOST_PREPARED_PLANES", 0)
    desc, arrays = case(
        *("u8", "s8", 70, (10, 12), (3, 3)),
        is_last=False,
        has_wide_sums=has_wide_sums,
        start_padding=(1, 1),
        end_padding=(1, 1),
    )
    made = gpu.plan(desc, "depthwise")
    assert PREPARATION not in {dispatch.kernel for stage in made.initialization for dispatch in stage}
    run(gpu, desc, arrays, dmlvk.reference.run(desc, **arrays), "depthwise")


@pytest.mark.half_by_day
@pytest.mark.parametrize("is_last", [False, True])
@pytest.mark.parametrize("has_wide_sums", [False, True])
def test_parts_of_the_channels(
    gpu: dmlvk.Device, form: str, has_wide_sums: bool, is_last: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each dispatch has a part of the channels. Most parts begin inside a panel."""
    desc, arrays = case(
        *("s8", "u8", 150, (10, 12), (3, 3)),
        is_last=is_last,
        has_wide_sums=has_wide_sums,
        batch=1,
        start_padding=(1, 1),
    )
    longest = gpu.plan(desc, "depthwise").dispatches[-1].seconds
    monkeypatch.setattr(depthwise, "DISPATCH_SECONDS", longest / 3)
    assert len(gpu.plan(desc, "depthwise").dispatches) == 4
    check(gpu, form, desc, arrays)
