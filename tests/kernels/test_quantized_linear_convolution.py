"""QUANTIZED_LINEAR_CONVOLUTION on devices, every path: against ONNX Runtime's QLinearConv, or the reference."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dmlvk
from dmlvk import DataType, QuantizedLinearConvolutionDesc, TensorDesc, TensorFlags
from dmlvk.operators.quantized_linear_convolution import output_size
from dmlvk.planning.quantized_linear_convolution.choice import convolution_paths
from dmlvk.planning.quantized_linear_convolution.registry import PATH_NAMES
from tests.convolution_cases import TYPES, qlinear_conv, random_case
from tests.kernels.harness import check
from tests.layouts import examples, random_bytes, view

# The paths that take any convolution that is not too large, and the paths that take only some.
PATHS = ("matrix", "dot4", "integer", "float", "direct")
MADE_FOR_SOME = ("depthwise", "first_layer", "halo")
KINDS = st.sampled_from(list(TYPES))
PLAIN = {"strides": (1, 1), "dilations": (1, 1), "start_padding": (0, 0), "end_padding": (0, 0), "group_count": 1}


def describe(
    arrays: dict[str, np.ndarray],
    output_dtype: Any,
    attributes: dict[str, Any],
    layouts: np.random.Generator | None = None,
    flags: dict[str, TensorFlags] | None = None,
) -> QuantizedLinearConvolutionDesc:
    """The descriptor that the arrays imply; with random layouts if a generator is given."""
    x, w = arrays["input_tensor"], arrays["filter_tensor"]
    fields = [attributes[name] for name in ("strides", "dilations", "start_padding", "end_padding")]
    spatial = [output_size(x.shape[2 + k], w.shape[2 + k], *(f[k] for f in fields)) for k in range(x.ndim - 2)]
    tensors = {
        name: TensorDesc(array.dtype, array.shape, strides_of(array, layouts), flags=(flags or {}).get(name, 0))
        for name, array in arrays.items()
    }
    sizes = (x.shape[0], w.shape[0], *spatial)
    output = TensorDesc(output_dtype, sizes, strides_of(np.empty(sizes, np.int8), layouts))
    return QuantizedLinearConvolutionDesc(**tensors, output_tensor=output, **attributes)  # type: ignore[arg-type]


def strides_of(array: np.ndarray, generator: np.random.Generator | None) -> list[int] | None:
    """Packed, channels last, or any order of the dimensions with gaps; all 0 if all elements are equal."""
    if generator is None or generator.integers(3) == 0:
        return None
    if array.size > 1 and array.dtype != np.int8 and (array == array.flat[0]).all():
        return [0] * array.ndim
    order = list(generator.permutation(array.ndim))
    if array.ndim > 2 and generator.integers(2):
        order = [1, *range(array.ndim - 1, 1, -1), 0]
    strides, step = [0] * array.ndim, 1
    for dimension in order:
        strides[dimension] = step
        step = step * array.shape[dimension] + int(generator.choice([0, 0, 1, 3]))
    return strides


def run(
    device: dmlvk.Device,
    desc: QuantizedLinearConvolutionDesc,
    arrays: dict[str, np.ndarray],
    expected: np.ndarray,
    path: str | None,
    seed: int = 0,
) -> None:
    """Check on one path, or on all paths of the device if the path is None."""
    inputs = {}
    for name, array in arrays.items():
        tensor = desc.tensors[name]
        inputs[name] = random_bytes(seed, tensor.total_size_in_bytes)
        view(inputs[name], tensor)[...] = array.view(f"u{array.itemsize}")
    for each in (path,) if path else (None, *(path for path in paths_of(device) if takes(device, desc, path))):
        check(device, desc, expected, inputs, offset=16 * (seed % 19), seed=seed, path=each)


def paths_of(device: dmlvk.Device) -> tuple[str, ...]:
    return convolution_paths(device.profile)


def test_every_path_is_named_here() -> None:
    assert sorted((*PATHS, *MADE_FOR_SOME)) == sorted(PATH_NAMES)


def takes(device: dmlvk.Device, desc: QuantizedLinearConvolutionDesc, path: str) -> bool:
    """Whether a path that takes only some convolutions takes this one; the other paths take any."""
    if path in MADE_FOR_SOME:
        try:
            device.plan(desc, path)
        except ValueError as error:
            assert "cannot take path" in str(error)
            return False
    return True


def one_path(device: dmlvk.Device, desc: QuantizedLinearConvolutionDesc, number: int) -> str:
    """A path made for such convolutions if there is one, otherwise any path."""
    paths = [path for path in paths_of(device) if takes(device, desc, path)]
    made_for_it = [path for path in paths if path in MADE_FOR_SOME]
    return (made_for_it or paths)[number % len(made_for_it or paths)]


@given(KINDS, KINDS, KINDS, st.integers(0, 1 << 30))
@examples(4)
def test_any_convolution_is_onnx_runtime_s(
    device: dmlvk.Device, x_type: str, w_type: str, y_type: str, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    arrays, attributes = random_case(seed, x_type, w_type)
    if generator.integers(4):
        limits = np.iinfo(TYPES[y_type])
        point = generator.choice(np.array([limits.min, limits.max, generator.integers(limits.min, limits.max + 1)]))
        arrays["output_zero_point_tensor"] = np.array([point], TYPES[y_type])
    desc = describe(arrays, TYPES[y_type], attributes, generator)
    expected = qlinear_conv(arrays, TYPES[y_type], **attributes)
    run(device, desc, arrays, expected, one_path(device, desc, seed), seed)


@given(KINDS, KINDS, KINDS, st.integers(0, 1 << 30))
@examples(0.6)
def test_windows_across_cuts_in_memory(
    tight_device: dmlvk.Device, x_type: str, w_type: str, y_type: str, seed: int
) -> None:
    arrays, attributes = random_case(seed, x_type, w_type)
    desc = describe(arrays, TYPES[y_type], attributes, np.random.default_rng(seed))
    expected = dmlvk.reference.run(desc, **arrays)
    # Operands that do not fit such windows when packed are read in place; a path that packs is then refused.
    run(tight_device, desc, arrays, expected, tight_device.plan(desc).path, seed)


def hard_case(seed: int, x_type: str, w_type: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Extreme bytes and zero points, sums far above 2^24, scales over all magnitudes of binary32, exact ties."""
    generator = np.random.default_rng(seed)
    arrays, attributes = random_case(seed, x_type, w_type)
    filters = arrays["filter_tensor"].shape[0]
    for name, kind in (("input", x_type), ("filter", w_type)):
        limits = np.iinfo(TYPES[kind])
        edges = np.array([limits.min, limits.min + 1, -1 & 0xFF if kind == "u8" else -1, 0, 1, limits.max], np.int64)
        shape = arrays[f"{name}_tensor"].shape
        if generator.integers(2):
            arrays[f"{name}_tensor"] = generator.choice(edges, shape).astype(TYPES[kind])
        arrays[f"{name}_zero_point_tensor"] = generator.choice(edges, 1).astype(TYPES[kind])
    style = generator.integers(3)
    if style == 0:  # any binary32 number that is not negative, including denormals and the largest ones
        bits = generator.integers(1, 0x7F800000, filters + 2).astype(np.uint32)
        scales = bits.view(np.float32)
    elif style == 1:  # powers of two around a ratio that leaves results in range: half of them ties
        scales = (2.0 ** generator.integers(-12, 3, filters + 2)).astype(np.float32)
    else:
        scales = (10.0 ** generator.uniform(-6, 1, filters + 2)).astype(np.float32)
    arrays["input_scale_tensor"] = scales[:1]
    arrays["output_scale_tensor"] = scales[1:2]
    arrays["filter_scale_tensor"] = scales[2:]
    bias = generator.choice([0, 1, -1, 2**24 + 1, -(2**24) - 3, 2**31 - 1, -(2**31)], filters)
    arrays["bias_tensor"] = bias.astype(np.int32).reshape((1, filters, 1, 1)[: arrays["input_tensor"].ndim])
    return arrays, attributes


@given(KINDS, KINDS, KINDS, st.integers(0, 1 << 30))
@examples(3)
def test_hard_values(device: dmlvk.Device, x_type: str, w_type: str, y_type: str, seed: int) -> None:
    arrays, attributes = hard_case(seed, x_type, w_type)
    desc = describe(arrays, TYPES[y_type], attributes)
    run(device, desc, arrays, dmlvk.reference.run(desc, **arrays), one_path(device, desc, seed), seed)


@pytest.mark.parametrize("scale", [0.0, -0.0, np.inf, -np.inf, np.nan, -1.0])
@pytest.mark.parametrize("place", ["input", "filter", "output"])
def test_undefined_scales_give_some_value_and_touch_nothing_else(
    device: dmlvk.Device, scale: float, place: str
) -> None:
    arrays, attributes = random_case(5, "u8", "s8")
    arrays[f"{place}_scale_tensor"] = np.array([scale], np.float32)
    desc = describe(arrays, np.int8, attributes)
    for path in paths_of(device):
        buffer = device.buffer(desc.output_tensor.total_size_in_bytes + 64)
        everything = buffer.tensor(TensorDesc(DataType.UINT8, [buffer.size_in_bytes]))
        before = random_bytes(1, buffer.size_in_bytes)
        everything.write_bytes(before.tobytes())
        tensors = {name: device.tensor(array) for name, array in arrays.items()}
        output = buffer.tensor(desc.output_tensor, offset=16)
        device.compile(desc, path=path)(output_tensor=output, **tensors).wait(timeout=60)
        after = np.frombuffer(everything.read_bytes(), np.uint8)
        changed = np.flatnonzero(before != after)
        assert changed.size == 0 or 16 <= changed[0] <= changed[-1] < 16 + desc.output_tensor.element_count


def quantized(x: np.ndarray, w: np.ndarray, **others: np.ndarray) -> dict[str, np.ndarray]:
    scales = {f"{name}_scale_tensor": np.ones(1, np.float32) for name in ("input", "filter", "output")}
    return {"input_tensor": x, "filter_tensor": w, **scales, **others}


@pytest.mark.parametrize("channels", [33_026, 70_001])
def test_sums_past_32_bits_do_not_wrap(device: dmlvk.Device, channels: int) -> None:
    generator = np.random.default_rng(channels)
    arrays = quantized(
        np.full((2, channels, 1, 2), 255, np.uint8),
        np.full((3, channels, 1, 1), 255, np.uint8),
        bias_tensor=np.array([2**31 - 1, 0, -(2**31)], np.int32).reshape(1, 3, 1, 1),
        output_scale_tensor=np.array([2.0**26], np.float32),
    )
    arrays["filter_tensor"][1] = generator.integers(0, 256, (channels, 1, 1))
    desc = describe(arrays, np.uint8, PLAIN)
    expected = dmlvk.reference.run(desc, **arrays)
    assert expected.max() >= 32  # 2^31 / 2^26
    run(device, desc, arrays, expected, "direct")
    run(device, desc, arrays, expected, device.compile(desc).plan.path)


def test_products_near_32_bits_on_every_path(device: dmlvk.Device) -> None:
    """The most taps of the largest products that fit 32 bits, and a bias with which the sum exceeds 32 bits."""
    arrays = quantized(
        np.full((1, 33_024, 1, 1), 255, np.uint8),
        np.full((2, 33_024, 1, 1), 255, np.uint8),
        bias_tensor=np.array([2**31 - 1, -(2**31)], np.int32).reshape(1, 2, 1, 1),
        output_scale_tensor=np.array([2.0**25], np.float32),
    )
    desc = describe(arrays, np.uint8, PLAIN)
    expected = dmlvk.reference.run(desc, **arrays)
    for path in paths_of(device):
        try:
            device.plan(desc, path)
        except ValueError as error:
            if path in ("depthwise", "first_layer"):  # meant for few channels
                assert re.search(r"input channels( of a group)? = 33024, possible: ", str(error))
            else:
                assert "words of four taps that an output sums up in 32 bits = 33024" in str(error)
        else:
            run(device, desc, arrays, expected, path)


@pytest.mark.parametrize("x_type", TYPES)
@pytest.mark.parametrize("w_type", TYPES)
def test_depthwise_and_wide_layers_on_every_path(device: dmlvk.Device, x_type: str, w_type: str) -> None:
    generator = np.random.default_rng(2)

    def data(kind: str, shape: tuple[int, ...]) -> np.ndarray:
        return np.frombuffer(generator.bytes(int(np.prod(shape))), TYPES[kind]).reshape(shape)

    for groups, channels, filters in ((24, 24, 24), (1, 40, 36), (2, 18, 130), (1, 3, 20)):
        arrays = quantized(
            data(x_type, (2, channels, 11, 9)),
            data(w_type, (filters, channels // groups, 3, 3)),
            input_zero_point_tensor=data(x_type, (1,)),
            filter_zero_point_tensor=data(w_type, (filters,)),
            output_scale_tensor=np.array([2.0**8 * channels / groups], np.float32),
        )
        attributes = {**PLAIN, "strides": (2, 1), "start_padding": (1, 1), "end_padding": (1, 1), "group_count": groups}
        desc = describe(arrays, np.int8, attributes)
        run(device, desc, arrays, dmlvk.reference.run(desc, **arrays), None, groups)


@pytest.mark.parametrize("x_type", TYPES)
@pytest.mark.parametrize(
    ("channels", "filters", "kernel", "stride", "padding", "groups"),
    [(32, 40, 3, 1, 1, 1), (32, 40, 3, 2, 1, 1), (64, 33, 1, 2, 0, 1), (32, 48, 3, 1, 0, 2), (3, 20, 7, 2, 3, 1)],
)
def test_channels_last_on_every_path(
    device: dmlvk.Device,
    channels: int,
    filters: int,
    kernel: int,
    stride: int,
    padding: int,
    groups: int,
    x_type: str,
) -> None:
    """Whole vectors of channels side by side, which a kernel may read in place, and rows of few channels."""
    generator = np.random.default_rng(channels)
    kind, size = TYPES[x_type], 11
    arrays = quantized(
        np.frombuffer(generator.bytes(2 * channels * size * size), kind).reshape(2, channels, size, size),
        generator.integers(-128, 128, (filters, channels // groups, kernel, kernel)).astype(np.int8),
        input_zero_point_tensor=np.array([17], kind),
        filter_zero_point_tensor=generator.integers(-9, 9, filters).astype(np.int8),
        output_scale_tensor=np.array([2.0**7 * channels * kernel / groups], np.float32),
    )
    attributes = {
        **PLAIN,
        "strides": (stride, stride),
        "start_padding": (padding, padding),
        "end_padding": (padding, padding),
        "group_count": groups,
    }
    desc = describe(arrays, np.uint8, attributes)
    last: dict[str, Any] = {
        name: TensorDesc(tensor.data_type, tensor.sizes, [s[1] * s[2] * s[3], 1, s[3] * s[1], s[1]])
        for name, tensor in desc.tensors.items()
        if name in ("input_tensor", "output_tensor")
        for s in [tensor.sizes]
    }
    expected = dmlvk.reference.run(desc, **arrays)
    run(device, replace(desc, **last), arrays, expected, None)


def last(sizes: Any, gap: int = 0) -> list[int]:
    """Strides of channels last, with a gap after each pixel's channels."""
    step = sizes[1] + gap
    return [sizes[2] * sizes[3] * step, 1, sizes[3] * step, step]


def special_case(
    seed: int, x_type: str, groups: int, channels: int, filters: int, size: tuple[int, int], **attributes: Any
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """All ten tensors, zero points that differ by channel; every second scale a power of two, for ties."""
    generator = np.random.default_rng(seed)
    kernel = attributes.pop("kernel")
    taps = channels // groups * kernel[0] * kernel[1]
    kind = TYPES[x_type]
    factors = np.where(np.arange(filters) % 2 == 0, 1, generator.uniform(0.5, 2, filters))
    arrays = quantized(
        np.frombuffer(generator.bytes(2 * channels * size[0] * size[1]), kind).reshape(2, channels, *size),
        generator.integers(-128, 128, (filters, channels // groups, *kernel)).astype(np.int8),
        input_zero_point_tensor=generator.choice(np.array([np.iinfo(kind).min, np.iinfo(kind).max, 5], kind), 1),
        filter_scale_tensor=factors.astype(np.float32),
        output_zero_point_tensor=np.array([-20], np.int8),
        output_scale_tensor=np.array([2.0 ** round(np.log2(60 * taps**0.5))], np.float32),
        bias_tensor=generator.integers(-2000, 2000, (1, filters, 1, 1)).astype(np.int32),
    )
    if seed % 2:
        arrays["filter_zero_point_tensor"] = generator.integers(-128, 128, filters).astype(np.int8)
    if seed % 3 == 0:
        arrays["bias_tensor"][0, ::3] = 2**31 - 1  # sums that exceed 32 bits
    return arrays, {**PLAIN, **attributes, "group_count": groups}


@pytest.mark.parametrize(
    ("channels", "multiplier", "is_last", "gap", "attributes"),
    [
        (12, 1, True, 0, {"kernel": (3, 3), "start_padding": (1, 1), "end_padding": (1, 1)}),
        (7, 1, True, 1, {"kernel": (2, 5), "strides": (2, 1), "dilations": (2, 1), "start_padding": (0, 3)}),
        (5, 1, False, 0, {"kernel": (3, 3), "start_padding": (1, 1), "end_padding": (1, 1)}),
        (3, 2, False, 3, {"kernel": (3, 4), "strides": (1, 2), "dilations": (1, 2), "start_padding": (2, 5)}),
    ],
)
def test_depthwise_by_words(
    device: dmlvk.Device,
    gpu_device: dmlvk.Device,
    channels: int,
    multiplier: int,
    is_last: bool,
    gap: int,
    attributes: dict[str, Any],
) -> None:
    """Channels or columns in words, with partial words, rows that begin anywhere, and borders on all sides."""
    # With the plan for a CPU, and with the plan for a GPU, which has larger batches of rows.
    for seed, x_type, planned_for in ((channels, "u8", device), (channels + 1, "s8", gpu_device)):
        arrays, others = special_case(seed, x_type, channels, channels, channels * multiplier, (19, 13), **attributes)
        desc = describe(arrays, np.int8, others)
        sizes, output_sizes = desc.input_tensor.sizes, desc.output_tensor.sizes
        width = sizes[3] + gap
        strides = last(sizes, gap) if is_last else [channels * 19 * width, 19 * width, width, 1]
        desc = replace(
            desc,
            input_tensor=TensorDesc(desc.input_tensor.data_type, sizes, strides),
            output_tensor=TensorDesc(DataType.INT8, output_sizes, last(output_sizes) if is_last else None),
        )
        run(planned_for, desc, arrays, dmlvk.reference.run(desc, **arrays), "depthwise", seed)


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
        run(device, desc, arrays, dmlvk.reference.run(desc, **arrays), "first_layer", seed)


def test_per_channel_tensors_may_be_broadcast_views(device: dmlvk.Device) -> None:
    """Sizes {1, C, 1, 1} with all strides 0: one element in memory for every channel."""
    arrays = quantized(
        np.frombuffer(random_bytes(1, 2 * 8 * 49).tobytes(), np.uint8).reshape(2, 8, 7, 7),
        np.frombuffer(random_bytes(2, 6 * 8 * 9).tobytes(), np.int8).reshape(6, 8, 3, 3),
        filter_scale_tensor=np.full((1, 6, 1, 1), 2.0**-9, np.float32),
        filter_zero_point_tensor=np.full((1, 6, 1, 1), -5, np.int8),
        bias_tensor=np.full((1, 6, 1, 1), 777, np.int32),
    )
    desc = describe(arrays, np.uint8, PLAIN)
    names = ("filter_scale_tensor", "filter_zero_point_tensor", "bias_tensor")
    views: dict[str, Any] = {
        name: TensorDesc(desc.tensors[name].data_type, (1, 6, 1, 1), (0, 0, 0, 0)) for name in names
    }
    run(device, replace(desc, **views), arrays, dmlvk.reference.run(desc, **arrays), None)


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
