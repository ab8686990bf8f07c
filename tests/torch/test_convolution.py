"""QUANTIZED_LINEAR_CONVOLUTION on torch tensors: the reference's bits, and those of torch's own convolution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import dmlvk
import dmlvk.torch
from dmlvk import DataType, TensorDesc
from tests.torch.tensors import LAYOUTS, assert_same_bits, random_tensor

INTEGER_TYPES = (torch.int8, torch.uint8)


def torch_convolution(tensors: dict[str, Any], dtype: Any, **fields: Any) -> Any:
    """The operator by torch's own convolution in float64, whose sums are exact here, and the fixed steps after it."""
    number = {name: tensor.double() if tensor.dtype in INTEGER_TYPES else tensor for name, tensor in tensors.items()}
    columns = number["filter_zero_point"].reshape(-1, 1, 1, 1)
    padding = [*zip(fields["start_padding"], fields["end_padding"], strict=True)]
    padded = torch.nn.functional.pad(number["input"] - number["input_zero_point"], [*padding[1], *padding[0]])
    sums = torch.nn.functional.conv2d(
        padded,
        number["filter"] - columns,
        tensors["bias"].double(),
        stride=fields["strides"],
        dilation=fields["dilations"],
        groups=fields["group_count"],
    )
    scale = (tensors["input_scale"] * tensors["filter_scale"]) / tensors["output_scale"]
    rounded = torch.round(sums.float() * scale.reshape(1, -1, 1, 1)) + number["output_zero_point"]
    limits = torch.iinfo(dtype)
    return rounded.clamp(limits.min, limits.max).to(dtype)


def random_tensors(input_dtype: Any, filter_dtype: Any, output_dtype: Any) -> dict[str, Any]:
    """A convolution of 8 channels in 2 groups to 6 channels, with parameters for each channel."""
    random = torch.Generator().manual_seed(5)
    return {
        "input": random_tensor((2, 8, 9, 7), input_dtype, 1),
        "input_scale": torch.tensor(0.0213),
        "input_zero_point": random_tensor((1,), input_dtype, 2)[0],
        "filter": random_tensor((6, 4, 3, 2), filter_dtype, 3),
        "filter_scale": torch.rand(6, generator=random) * 0.01 + 1e-4,
        "filter_zero_point": random_tensor((6,), filter_dtype, 4),
        "bias": torch.randint(-5000, 5000, (6,), generator=random, dtype=torch.int32),
        "output_scale": torch.tensor([1.9]),
        "output_zero_point": torch.tensor(99, dtype=output_dtype),
    }


FIELDS: dict[str, Any] = {
    "strides": (2, 1),
    "dilations": (1, 2),
    "start_padding": (1, 0),
    "end_padding": (0, 3),
    "group_count": 2,
}


def run(tensors: dict[str, Any], device: dmlvk.Device, **fields: Any) -> Any:
    return dmlvk.torch.quantized_linear_convolution(**tensors, **(FIELDS | fields), device=device)


def expected(tensors: dict[str, Any], output_dtype: Any) -> np.ndarray:
    """What the reference makes of the tensors."""
    arrays = {f"{name}_tensor": tensor.numpy() for name, tensor in tensors.items()}
    for field, array in arrays.items():
        if array.ndim < 2:
            arrays[field] = array.reshape(1, -1, 1, 1)
    described: dict[str, Any] = {
        name: TensorDesc(DataType.from_numpy(array.dtype), array.shape) for name, array in arrays.items()
    }
    desc = dmlvk.QuantizedLinearConvolutionDesc(
        **described,
        output_tensor=TensorDesc(str(output_dtype).removeprefix("torch."), (2, 6, 4, 8)),
        **FIELDS,
    )
    return dmlvk.reference.run(desc, **arrays)


@pytest.mark.parametrize("output_dtype", INTEGER_TYPES, ids=str)
@pytest.mark.parametrize("filter_dtype", INTEGER_TYPES, ids=str)
@pytest.mark.parametrize("input_dtype", INTEGER_TYPES, ids=str)
def test_every_type(device: dmlvk.Device, input_dtype: Any, filter_dtype: Any, output_dtype: Any) -> None:
    tensors = random_tensors(input_dtype, filter_dtype, output_dtype)
    found = run(tensors, device)
    assert_same_bits(found, expected(tensors, output_dtype))
    assert found.equal(torch_convolution(tensors, output_dtype, **FIELDS))
    assert len(found.unique()) > 30


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("field", ["input", "filter"])
def test_every_layout(device: dmlvk.Device, layout: str, field: str) -> None:
    tensors = random_tensors(torch.uint8, torch.int8, torch.uint8)
    tensors[field] = LAYOUTS[layout](tensors[field])
    assert_same_bits(run(tensors, device), expected(tensors, torch.uint8))


def test_channels_last(device: dmlvk.Device) -> None:
    tensors = random_tensors(torch.uint8, torch.int8, torch.uint8)
    last = {name: tensors[name].to(memory_format=torch.channels_last) for name in ("input", "filter")}
    assert not last["input"].is_contiguous()
    assert_same_bits(run(tensors | last, device), expected(tensors, torch.uint8))


@pytest.mark.parametrize(
    "convert",
    [
        lambda tensor: tensor.reshape(1, -1, 1, 1),
        lambda tensor: tensor.double() if tensor.dtype.is_floating_point else tensor.long(),
        lambda tensor: tensor.repeat_interleave(2)[::2].reshape(tensor.shape),
    ],
    ids=["in four dimensions", "of wider types", "with gaps"],
)
def test_parameters_in_other_forms(device: dmlvk.Device, convert: Any) -> None:
    tensors = random_tensors(torch.uint8, torch.int8, torch.uint8)
    converted = {name: convert(tensor) for name, tensor in tensors.items() if name not in ("input", "filter")}
    found = run(tensors | converted, device, output_dtype=torch.uint8)
    assert_same_bits(found, expected(tensors, torch.uint8))


@pytest.mark.parametrize("kind", [float, np.float32, np.float64])
def test_parameters_that_are_numbers(device: dmlvk.Device, kind: Any) -> None:
    tensors = random_tensors(torch.uint8, torch.int8, torch.int8)
    tensors["filter_scale"], tensors["filter_zero_point"] = torch.tensor(0.0031), torch.tensor(-3, dtype=torch.int8)
    integer = int if kind is float else np.int16
    numbers = {name: kind(tensors[name].item()) for name in ("input_scale", "filter_scale", "output_scale")}
    for name in ("input_zero_point", "filter_zero_point", "output_zero_point"):
        numbers[name] = integer(tensors[name].item())
    found = run(tensors | numbers, device, output_dtype=torch.int8)
    assert_same_bits(found, expected(tensors, torch.int8))


def test_absent_parameters_are_zeros(device: dmlvk.Device) -> None:
    tensors = random_tensors(torch.uint8, torch.int8, torch.uint8)
    for name in ("input_zero_point", "filter_zero_point", "output_zero_point", "bias"):
        tensors[name] = torch.zeros_like(tensors[name])
    given = {name: tensor for name, tensor in tensors.items() if tensor.any()}
    assert len(given) == 5
    assert_same_bits(run(given, device), expected(tensors, torch.uint8))


@pytest.mark.parametrize(
    ("zero_point", "output_dtype", "found"),
    [
        (torch.tensor(3, dtype=torch.int8), None, torch.int8),
        (torch.tensor(3), None, torch.uint8),
        (3, None, torch.uint8),
        (None, None, torch.uint8),
        (3, torch.int8, torch.int8),
        (torch.tensor(3, dtype=torch.int8), DataType.INT8, torch.int8),
        (torch.tensor(3, dtype=torch.uint8), np.int8, torch.int8),
    ],
)
def test_type_of_the_output(device: dmlvk.Device, zero_point: Any, output_dtype: Any, found: Any) -> None:
    tensors = random_tensors(torch.uint8, torch.int8, torch.uint8)
    tensors["output_zero_point"] = torch.tensor(0 if zero_point is None else 3, dtype=found)
    output = run(tensors | {"output_zero_point": zero_point}, device, output_dtype=output_dtype)
    assert_same_bits(output, expected(tensors, found))


@pytest.mark.parametrize("fields", [{"strides": (2,), "end_padding": (1,)}, {"strides": (1, 2), "end_padding": (0, 1)}])
def test_rank_3(device: dmlvk.Device, fields: dict[str, Any]) -> None:
    input, filter = random_tensor((2, 4, 9), torch.uint8), random_tensor((5, 4, 3), torch.int8, 1)
    found = dmlvk.torch.quantized_linear_convolution(input, 0.02, filter, 0.01, 0.5, **fields, device=device)
    padded = torch.nn.functional.pad(input.double(), (0, 1))
    sums = torch.nn.functional.conv1d(padded, filter.double(), stride=2)
    scale = torch.tensor(0.02) * torch.tensor(0.01) / torch.tensor(0.5)
    assert found.equal(torch.round(sums.float() * scale).clamp(0, 255).byte())
    assert len(found.unique()) > 5
