"""Wrong tensors and numbers are refused with the argument's name and what to do instead, before any device is asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses import FakeTensorMode

import dmlvk
import dmlvk.torch
from dmlvk import BindingError, DescriptorError
from dmlvk.torch import devices
from tests.torch.tensors import assert_same_bits

X = torch.randn(4, 5)
WINDOW: dict[str, Any] = {
    "input_window_offsets": (1, 0),
    "input_window_sizes": (3, 5),
    "input_window_strides": (1, 1),
}
IMAGE = torch.randint(0, 255, (1, 2, 6, 6), dtype=torch.uint8)
FILTER = torch.randint(-9, 9, (3, 2, 2, 2), dtype=torch.int8)


@pytest.fixture(autouse=True)
def _no_device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "device" not in request.fixturenames:
        monkeypatch.setattr(devices, "named_device", lambda *_: pytest.fail("a device was asked"))


def slice1(input: Any, **change: Any) -> Any:
    return dmlvk.torch.slice1(input, **(WINDOW | change))


def diagonal_matrix1(input: Any = X, **change: Any) -> Any:
    fields = {"value": 1.0, "diagonal_fill_begin": 0, "diagonal_fill_end": 1}
    return dmlvk.torch.diagonal_matrix1(input, **(fields | change))


def one_hot(**change: Any) -> Any:
    fields = {"indices": torch.tensor([[1]]), "values": torch.tensor([0.0, 1.0]), "output_length": 3, "axis": 1}
    return dmlvk.torch.one_hot(**(fields | change))


def convolution(**change: Any) -> Any:
    fields: dict[str, Any] = {"input": IMAGE, "filter": FILTER}
    fields |= {"input_scale": 0.1, "filter_scale": 0.1, "output_scale": 0.1}
    return dmlvk.torch.quantized_linear_convolution(**(fields | change))


with pytest.warns(UserWarning):  # of torch: these kinds are old, or in development
    QUANTIZED = torch.quantize_per_tensor(X, 0.1, 3, torch.quint8)
    COMPRESSED = X.to_sparse_csr()
    NESTED = torch.nested.nested_tensor([X, X])


@pytest.mark.parametrize(
    ("tensor", "error", "message"),
    [
        (
            X > 0,
            TypeError,
            r"input has dtype bool, .*: input.view\(torch.uint8\) has its bytes, .* supported are float32",
        ),
        (
            X.bfloat16(),
            TypeError,
            r"bfloat16, .*: input.float\(\) keeps its values, input.view\(torch.int16\) its bits",
        ),
        (torch.complex(X, X), TypeError, r"complex64, .*: torch.view_as_real\(input\) has"),
        (torch.complex(X, X).conj(), TypeError, r"complex64, .*: torch.view_as_real\(input\) has"),
        (X.to(torch.float8_e5m2), TypeError, r"float8_e5m2, .*: input.float\(\) converts"),
        (QUANTIZED, TypeError, r"quint8, .*: input.int_repr\(\) has its integers"),
        (X.to_sparse(), TypeError, r"input is a sparse_coo tensor; .*: pass input.to_dense\(\)"),
        (COMPRESSED, TypeError, r"input is a sparse_csr tensor; .*: pass input.to_dense\(\)"),
        (NESTED, TypeError, r"input is a nested tensor; .*to_padded_tensor\(input, 0\)"),
        (X.to("meta"), BindingError, "input is a meta tensor, which has no elements: pass a tensor on the CPU"),
        (X.clone().requires_grad_(), BindingError, r"input requires a gradient, .*: pass input.detach\(\)"),
        (X.clone().requires_grad_() * 2, BindingError, "input requires a gradient"),
        (X.numpy(), TypeError, r"input has type numpy.ndarray, .*: pass torch.as_tensor\(input\)"),
        ([[1.0]], TypeError, r"input has type list, .*: pass torch.as_tensor\(input\)"),
        (None, TypeError, r"input has type NoneType"),
    ],
)
def test_tensors(tensor: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        slice1(tensor)


@pytest.mark.parametrize(
    ("call", "change", "name"),
    [
        (diagonal_matrix1, "input", "input"),
        (one_hot, "values", "values"),
        (convolution, "input_scale", "input_scale"),
        (convolution, "filter_scale", "filter_scale"),
        (convolution, "output_scale", "output_scale"),
    ],
)
def test_each_tensor_that_requires_a_gradient_is_named(call: Callable[..., Any], change: str, name: str) -> None:
    with pytest.raises(BindingError, match=rf"^{name} requires a gradient, .*: pass {name}.detach\(\)"):
        call(**{change: torch.rand(1, 1).requires_grad_()})


@pytest.mark.parametrize("name", ["input", "filter", "bias", "input_zero_point", "output_scale"])
def test_each_argument_of_the_convolution_is_checked(name: str) -> None:
    with pytest.raises(TypeError, match=f"^{name} has dtype bool"):
        convolution(**{name: torch.tensor(True)})


def test_tensors_of_two_devices() -> None:
    """Fake tensors may be on CUDA without any GPU."""
    with FakeTensorMode():
        image, scale = torch.empty(1, 2, 6, 6, dtype=torch.uint8, device="cuda:1"), torch.empty(3)
        filter = torch.empty(3, 2, 2, 2, dtype=torch.int8, device="cuda:1")
        message = r"filter_scale is on cpu, and input on cuda:1; .*: pass filter_scale.to\('cuda:1'\)"
        with pytest.raises(BindingError, match=message):
            convolution(input=image, filter=filter, filter_scale=scale)
        with pytest.raises(BindingError, match="filter is on cpu, and input on cuda:1"):
            convolution(input=image, filter=filter.cpu())
        with pytest.raises(BindingError, match="filter is on cuda:0, and input on cuda:1"):
            convolution(input=image, filter=filter.to("cuda:0"))
        found = convolution(input=image, filter=filter, filter_scale=scale[0])  # a number may stay on the CPU
        assert found.device == torch.device("cuda:1") and found.shape == (1, 3, 5, 5)


@pytest.mark.parametrize(
    ("call", "change", "error", "message"),
    [
        (slice1, {"input_window_offsets": (1.0, 0)}, DescriptorError, r"input_window_offsets\[0\] = 1.0: .*not float"),
        (
            slice1,
            {"input_window_offsets": (True, 0)},
            DescriptorError,
            r"input_window_offsets\[0\] = True: .*not a bool",
        ),
        (
            slice1,
            {"input_window_offsets": (2**63, 0)},
            DescriptorError,
            r"input_window_offsets\[0\].*integer of 64 bits",
        ),
        (slice1, {"input_window_sizes": 3}, DescriptorError, "input_window_sizes = 3: must be a sequence"),
        (slice1, {"output_sizes": "ab"}, DescriptorError, "output_sizes = 'ab': must be a sequence"),
        (slice1, {"device": 2.5}, TypeError, "device is a float: pass None, a dmlvk.Device, an index"),
        (diagonal_matrix1, {"value": torch.tensor(1.0)}, TypeError, r"value is a tensor, .*: pass value.item\(\)"),
        (diagonal_matrix1, {"value": True}, DescriptorError, "value = True: must be one number, not bool"),
        (diagonal_matrix1, {"value": 1j}, DescriptorError, "value = 1j: must be one number, not complex"),
        (diagonal_matrix1, {"value": 2**64}, DescriptorError, r"value = 18446744073709551616: .*or a float"),
        (diagonal_matrix1, {"diagonal_fill_end": 0.5}, DescriptorError, "diagonal_fill_end = 0.5: .*not float"),
        (diagonal_matrix1, {"dtype": torch.bool}, TypeError, "dtype = torch.bool: must be one of .*torch.uint8"),
        (diagonal_matrix1, {"dtype": "bool"}, TypeError, "bool has no DirectML data type"),
        (diagonal_matrix1, {"input": None}, TypeError, "needs input or sizes"),
        (one_hot, {"output_length": None}, DescriptorError, "output_length = None: .*not NoneType"),
        (one_hot, {"axis": "1"}, DescriptorError, "axis = '1': .*not str"),
        (one_hot, {"values": [0.0, 1.0]}, TypeError, "values has type list"),
        (
            convolution,
            {"filter_scale": [0.1]},
            TypeError,
            r"filter_scale must be a real number or a torch.Tensor, not list",
        ),
        (convolution, {"output_scale": None}, TypeError, "output_scale must be a real number .* not NoneType"),
        (convolution, {"input_zero_point": 3.0}, TypeError, "input_zero_point must be an integer .* not float 3.0"),
        (convolution, {"input_zero_point": torch.tensor(3.0)}, TypeError, r"input_zero_point must have integers"),
        (convolution, {"bias": torch.zeros(3)}, TypeError, r"bias must have integers, .*: pass bias.round\(\).to\("),
        (convolution, {"bias": 3}, TypeError, "bias has type int"),
        (convolution, {"strides": (1, 0.5)}, DescriptorError, r"strides\[1\] = 0.5: .*not float"),
        (convolution, {"output_dtype": torch.bfloat16}, TypeError, "output_dtype = torch.bfloat16: must be one of"),
    ],
)
def test_numbers(call: Callable[..., Any], change: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(**({"input": X} if call is slice1 else {}), **change)


@pytest.mark.parametrize(
    ("call", "change", "field"),
    [
        (slice1, {"input": torch.tensor(1.0)}, "input_window_offsets"),
        (diagonal_matrix1, {"input": torch.tensor(1.0)}, "DimensionCount|dimensions"),
        (slice1, {"input": torch.empty(0, 5)}, r"sizes\[0\] = 0"),
        (slice1, {"input": torch.empty((1,) * 9)}, "1 to 8 dimensions"),
        (slice1, {"input": X, "input_window_sizes": (4, 5)}, r"input_window_sizes\[0\]"),
        (slice1, {"input": X, "input_window_strides": (1, 0)}, r"input_window_strides\[1\]"),
        (diagonal_matrix1, {"input": X.byte(), "value": 300}, "value = 300"),
        (diagonal_matrix1, {"dtype": torch.int8, "value": 3}, "input_tensor.data_type"),
        (one_hot, {"axis": 2}, "axis"),
        (one_hot, {"indices": torch.tensor([[1.0]])}, "indices_tensor.data_type"),
        (convolution, {"input_zero_point": 256}, "input_zero_point = 256"),
        (convolution, {"input_zero_point": torch.tensor(-1)}, "input_zero_point = -1"),
        (convolution, {"bias": torch.tensor([2**31, 0, 0])}, "bias = 2147483648"),
        (convolution, {"filter_scale": torch.rand(2)}, "filter_scale_tensor.sizes"),
        (convolution, {"output_dtype": torch.float32}, "output_dtype|output_tensor.data_type"),
        (convolution, {"filter": FILTER[:, :1]}, "filter_tensor.sizes"),
        (convolution, {"strides": (1,)}, "strides"),
    ],
)
def test_rules_of_the_descriptors(
    device: dmlvk.Device, call: Callable[..., Any], change: dict[str, Any], field: str
) -> None:
    with pytest.raises(DescriptorError, match=field):
        call(**change, device=device)


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_gradients_are_of_no_account_where_torch_keeps_none(device: dmlvk.Device, context: Callable[[], Any]) -> None:
    weights = X.clone().requires_grad_()
    with context():
        found = slice1(weights, device=device)
        assert_same_bits(found, X[1:].numpy())
        scales = torch.full((3,), 0.1).requires_grad_()
        assert convolution(filter_scale=scales, device=device).equal(convolution(device=device))


def test_a_negation_that_is_left_to_do_is_done(device: dmlvk.Device) -> None:
    pending = torch.complex(X, X).conj().imag
    assert pending.is_neg()
    assert_same_bits(slice1(pending, device=device), -X[1:].numpy())
    assert_same_bits(
        slice1(pending.mT, input_window_offsets=(0, 0), input_window_sizes=(5, 4), device=device), -X.T.numpy()
    )


def test_an_output_shares_no_memory_with_an_input(device: dmlvk.Device) -> None:
    whole = {"input_window_offsets": (0, 0), "input_window_sizes": (4, 5)}
    source = torch.arange(20).reshape(4, 5)
    found = slice1(source, **whole, device=device)
    found += 1
    again = slice1(found, **whole, device=device)  # found lies in the device's memory, where the host reaches that
    again += 1
    assert source.equal(torch.arange(20).reshape(4, 5))
    assert found.equal(source + 1) and again.equal(source + 2)


def test_numpy_scalars_are_numbers(device: dmlvk.Device) -> None:
    found = diagonal_matrix1(value=np.float32(0.1), device=device)
    assert found.diagonal().equal(torch.full((4,), 0.1))
