"""QUANTIZED_LINEAR_AVERAGE_POOLING on devices, against its reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dmlvk
from dmlvk import DataType, TensorDesc
from dmlvk.operators import QuantizedLinearAveragePoolingDesc
from dmlvk.operators.quantized_linear_average_pooling import PARAMETER_FIELDS
from dmlvk.reference.quantized_linear_average_pooling import run as reference
from tests.amount import THOROUGH, examples
from tests.kernels.pooling import layouts, run, spatial_fields, tensor_sizes
from tests.layouts import random_bytes, view

EIGHT_BITS = st.sampled_from([DataType.UINT8, DataType.INT8])


@st.composite
def descriptors(draw: st.DrawFn) -> QuantizedLinearAveragePoolingDesc:
    sizes = draw(tensor_sizes())
    if draw(st.integers(0, 3)) == 0:  # the whole plane
        count = len(sizes) - 2
        fields: dict[str, Any] = {"window_size": sizes[2:], "strides": [draw(st.integers(1, 3))] * count}
        fields |= {"start_padding": [0] * count, "end_padding": [0] * count, "dilations": [1] * count}
    else:
        fields = draw(spatial_fields(sizes[2:]))
    channels = sizes[1]
    types = {name: draw(EIGHT_BITS) for name in ("input", "output")}

    def parameter(data_type: DataType) -> TensorDesc:
        shape = draw(st.sampled_from([(1,), (1, 1, 1, 1), (1, 1, 1, 1, 1), (channels,), (1, channels, 1, 1)]))
        return TensorDesc(data_type, shape, draw(st.none() | st.just([5] * len(shape))))

    tensors: dict[str, Any] = {
        "input_tensor": TensorDesc(types["input"], sizes, draw(layouts(tuple(sizes), is_output=False)))
    }
    is_plain = draw(st.booleans())  # one scale for all, as in ONNX
    for name, data_type in types.items():
        for kind, type_of in (("scale", DataType.FLOAT32), ("zero_point", data_type)):
            if kind == "scale" or draw(st.booleans()):
                tensor = TensorDesc(type_of, (1,)) if is_plain else parameter(type_of)
                tensors[f"{name}_{kind}_tensor"] = tensor
    others: dict[str, Any] = {**fields, "include_padding": draw(st.booleans())}
    plain = QuantizedLinearAveragePoolingDesc(**tensors, **others).output_tensor.sizes
    tensors["output_tensor"] = TensorDesc(types["output"], plain, draw(layouts(plain, is_output=True)))
    return QuantizedLinearAveragePoolingDesc(**tensors, **others)


def memory_of(desc: QuantizedLinearAveragePoolingDesc, seed: int) -> dict[str, np.ndarray]:
    """Random bytes; scales near each other, often equal, sometimes of any size; many ties, few clamped values."""
    random = np.random.default_rng(seed)
    memory = {
        field: random_bytes(seed + k, desc.tensors[field].total_size_in_bytes)
        for k, field in enumerate(desc.input_fields)
        if field in desc.tensors
    }
    power = random.integers(-148, 120) if seed % 5 == 0 else random.integers(-12, 6)
    base = np.float32(random.uniform(1, 2) * 2.0**power)
    for field in ("input_scale_tensor", "output_scale_tensor"):
        scales = memory[field][: memory[field].size // 4 * 4].view(np.float32)
        factors = [1.0] if seed % 3 == 0 else [1.0, 0.5, 0.25, 2.0, 0.3, 0.77, 1.3, -1.0]
        scales[...] = (base * random.choice(factors, scales.size)).astype(np.float32)
    return memory


def check(
    device: dmlvk.Device,
    desc: QuantizedLinearAveragePoolingDesc,
    blocks: int,
    seed: int,
    path: str | None = None,
    memory: dict[str, np.ndarray] | None = None,
) -> None:
    memory = memory or memory_of(desc, seed)
    arrays = {
        field: view(content, desc.tensors[field]).view(desc.tensors[field].data_type.numpy_dtype)
        for field, content in memory.items()
    }
    expected = {"output_tensor": reference(desc, **arrays)}
    run(device, desc, memory, expected, offset=16 * blocks, seed=seed, path=path)


@given(descriptors(), st.integers(0, 20), st.integers(0, 1 << 20))
@examples(0.3)
def test_any_windows_of_any_layout(
    device: dmlvk.Device, desc: QuantizedLinearAveragePoolingDesc, blocks: int, seed: int
) -> None:
    check(device, desc, blocks, seed)


@pytest.mark.every_driver(data_type=[DataType.INT8])
@pytest.mark.parametrize("is_last", [False, True])
@pytest.mark.parametrize("data_type", [DataType.INT8, DataType.UINT8])
def test_usual_windows(device: dmlvk.Device, data_type: DataType, is_last: bool) -> None:
    """Vectors of channels and words of rows, with equal scales and others."""
    windows = ((2, 2, 0, False), (3, 2, 1, False), (3, 1, 1, True), (7, 3, 3, False))
    # By day two of them with unsigned bytes.
    for window, stride, padding, include_padding in windows if THOROUGH or data_type == DataType.INT8 else windows[1:3]:
        fields = {"strides": [stride] * 2, "window_size": [window] * 2}
        fields |= {"start_padding": [padding] * 2, "end_padding": [padding] * 2}
        desc = described((2, 48, 16, 24), is_last, data_type, **fields, include_padding=include_padding)
        kernel = device.plan(desc).dispatches[0].kernel
        assert f"/{'vectors' if is_last else 'rows'}" in kernel, kernel
        for seed in (3, 4, 5):
            check(device, desc, 1, seed)


@pytest.mark.every_driver(data_type=[DataType.UINT8])
@pytest.mark.parametrize("is_last", [False, True])
@pytest.mark.parametrize("data_type", [DataType.INT8, DataType.UINT8])
def test_whole_planes(device: dmlvk.Device, data_type: DataType, is_last: bool) -> None:
    for sizes in ((3, 48, 7, 7), (2, 20, 3, 1), (2, 144, 1, 2), (1, 4, 61, 50), (5, 3, 14, 14)):
        fields = {"strides": [1, 1], "window_size": sizes[2:], "start_padding": [0, 0], "end_padding": [0, 0]}
        desc = described(sizes, is_last, data_type, **fields)
        if sizes[1] % 4 == 0:
            kernel = f"quantized_linear_average_pooling/planes{'_of_vectors' if is_last else ''}"
            assert [dispatch.kernel for dispatch in device.plan(desc).dispatches] == [kernel]
        for seed in (3, 4):
            check(device, desc, 1, seed)


@given(descriptors(), st.integers(0, 20), st.integers(0, 1 << 20))
@examples(0.12)
def test_windows_across_cuts_in_memory(
    tight_device: dmlvk.Device, desc: QuantizedLinearAveragePoolingDesc, blocks: int, seed: int
) -> None:
    check(tight_device, desc, blocks, seed)


def described(
    sizes: tuple[int, ...], is_last: bool = False, data_type: DataType = DataType.UINT8, **fields: Any
) -> QuantizedLinearAveragePoolingDesc:
    """With zero points and one scale each."""
    fields = {"dilations": [1, 1], "include_padding": False, **fields}

    def layout(extents: tuple[int, ...]) -> tuple[int, ...] | None:
        return (extents[1] * extents[2] * extents[3], 1, extents[1] * extents[3], extents[1]) if is_last else None

    tensors: dict[str, Any] = {
        field: TensorDesc(DataType.FLOAT32 if "scale" in field else data_type, (1,)) for field in PARAMETER_FIELDS
    }
    tensors["input_tensor"] = TensorDesc(data_type, sizes, layout(sizes))
    pooled = QuantizedLinearAveragePoolingDesc(**tensors, **fields).output_tensor.sizes
    tensors["output_tensor"] = TensorDesc(data_type, pooled, layout(pooled))
    return QuantizedLinearAveragePoolingDesc(**tensors, **fields)


@pytest.mark.half_by_day
@pytest.mark.parametrize("is_last", [False, True])
@pytest.mark.parametrize("is_whole", [False, True])
def test_taps_that_no_window_shows_together(tight_device: dmlvk.Device, is_whole: bool, is_last: bool) -> None:
    """The float32 sum goes on from dispatch to dispatch, in the order of the taps."""
    fields: dict[str, Any] = {"strides": [7, 9], "window_size": [9, 25], "start_padding": [1, 0], "end_padding": [3, 2]}
    if is_whole:
        fields = {"strides": [1, 1], "window_size": [41, 30], "start_padding": [0, 0], "end_padding": [0, 0]}
    desc = described((1, 12, 41, 30), is_last, **fields)
    for seed in (3, 4):
        check(tight_device, desc, 2, seed)


@pytest.mark.parametrize("scales", [(0.0, 1.0), (1.0, 0.0), (np.inf, 1.0), (1.0, np.inf), (np.nan, 1.0), (1.0, np.nan)])
def test_undefined_scales_give_some_value_and_nothing_worse(device: dmlvk.Device, scales: tuple[float, float]) -> None:
    for window in ([2, 2], [5, 6]):
        desc = described(
            (1, 16, 5, 6), True, strides=[1, 1], window_size=window, start_padding=[0, 0], end_padding=[0, 0]
        )
        arrays = {field: random_bytes(1, tensor.total_size_in_bytes) for field, tensor in desc.tensors.items()}
        for name, scale in zip(("input", "output"), scales, strict=True):
            arrays[f"{name}_scale_tensor"] = np.array([scale], np.float32)
        tensors = {field: device.tensor(tensor) for field, tensor in desc.tensors.items()}
        for field in desc.input_fields:
            tensors[field].write_bytes(arrays[field].tobytes())
        device.compile(desc)(**tensors).wait()
        assert tensors["output_tensor"].numpy().shape == desc.output_tensor.sizes


def test_ties_of_means_of_four(device: dmlvk.Device) -> None:
    """Equal scales and windows of 2 x 2: a quarter of the means lie in the middle, where only the rounding decides."""
    desc = described((2, 32, 64, 64), strides=[2, 2], window_size=[2, 2], start_padding=[0, 0], end_padding=[0, 0])
    for seed in (3, 6, 9):
        check(device, desc, 0, seed)


@pytest.mark.parametrize("is_last", [False, True])
def test_windows_whose_sums_do_not_fit_16_bits(device: dmlvk.Device, is_last: bool) -> None:
    """Narrow and tall: 300 x 2 taps of 255."""
    spatial = {"strides": [50, 2], "window_size": [300, 2], "start_padding": [0, 0], "end_padding": [0, 0]}
    desc = described((1, 4, 400, 8), is_last, DataType.UINT8, **spatial)
    memory = memory_of(desc, 3)
    memory["input_tensor"][...] = 255
    check(device, desc, 0, 3, memory=memory)
