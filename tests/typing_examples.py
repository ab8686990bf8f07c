"""What type checkers know of dmlvk: programs that they accept, and mistakes that they find.

`make lint` runs mypy and basedpyright on this file. Both report an ignore comment that ignores nothing, so each mistake
below is one that both find. `tests/test_typing.py` runs the programs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

import dmlvk
from dmlvk.operators import OperatorDesc

if TYPE_CHECKING:
    from typing_extensions import assert_type

    from dmlvk.runtime.bound_tensors import QuantizedLinearConvolutionTensors
else:

    def assert_type(value: Any, kind: Any) -> Any:
        return value


WINDOW = dmlvk.TensorDesc("int16", (4, 5))


def describe_slice() -> dmlvk.Slice1Desc:
    """Without an output, which is there all the same."""
    desc = dmlvk.Slice1Desc(
        input_tensor=WINDOW,
        input_window_offsets=(0, 0),
        input_window_sizes=(4, 5),
        input_window_strides=(2, -1),
    )
    assert_type(desc.output_tensor, dmlvk.TensorDesc)
    return desc


def describe_one_hot() -> dmlvk.OneHotDesc:
    return dmlvk.OneHotDesc(
        indices_tensor=dmlvk.TensorDesc(dmlvk.DataType.INT32, (2, 1)),
        values_tensor=dmlvk.TensorDesc(np.float32, [1, 2]),
        output_tensor=dmlvk.TensorDesc(np.dtype("f4"), np.array([2, 3])),
        axis=1,
    )


def describe_convolution() -> dmlvk.QuantizedLinearConvolutionDesc:
    one = dmlvk.TensorDesc("float32", (1,))
    return dmlvk.QuantizedLinearConvolutionDesc(
        input_tensor=dmlvk.TensorDesc("uint8", (1, 2, 5, 5)),
        input_scale_tensor=one,
        filter_tensor=dmlvk.TensorDesc("int8", (3, 2, 2, 2), flags=dmlvk.TensorFlags.OWNED_BY_DML),
        filter_scale_tensor=one,
        output_scale_tensor=one,
        strides=(1, 1),
        dilations=(1, 1),
        start_padding=(0, 0),
        end_padding=(0, 0),
        group_count=1,
    )


def one_liners_of_arrays(device: dmlvk.Device) -> None:
    """Arrays in, arrays out: of the input's type where that is known."""
    image = np.arange(20, dtype=np.int16).reshape(4, 5)
    named: dmlvk.Device | int | str = device
    window = dmlvk.slice1(
        image, input_window_offsets=(0, 0), input_window_sizes=(4, 5), input_window_strides=(1, -1), device=named
    )
    assert_type(window, npt.NDArray[np.int16])
    nested = dmlvk.slice1(
        [[1, 2], [3, 4]],
        input_window_offsets=np.array([0, 0]),
        input_window_sizes=[2, 2],
        input_window_strides=iter((1, 1)),
        device=device.name,
    )
    assert_type(nested, npt.NDArray[Any])
    mask = dmlvk.diagonal_matrix1(image, value=0, diagonal_fill_begin=0, diagonal_fill_end=np.int8(1), device=device)
    assert_type(mask, npt.NDArray[np.int16])
    eye = dmlvk.diagonal_matrix1(
        sizes=(3, 3), value=1, diagonal_fill_begin=0, diagonal_fill_end=1, dtype="uint8", device=device
    )
    assert_type(eye, npt.NDArray[Any])
    on = dmlvk.one_hot([[1], [0]], np.array([0.0, 1.0], np.float32), output_length=2, axis=1, device=device)
    assert_type(on, npt.NDArray[np.float32])
    assert_type(dmlvk.one_hot([[1]], [0, 1], output_length=2, axis=1, device=device), npt.NDArray[Any])
    pixels, weights = np.zeros((1, 2, 5, 5), np.uint8), np.zeros((3, 2, 2, 2), np.int8)
    output = dmlvk.quantized_linear_convolution(
        pixels, 0.5, weights, [0.1, 0.2, 0.3], np.float32(1), input_zero_point=128, bias=[1, 2, 3], device=device
    )
    assert_type(output, npt.NDArray[Any])
    assert isinstance(output, np.ndarray) and isinstance(window, np.ndarray)


def one_liners_of_tensors(device: dmlvk.Device) -> None:
    """A Tensor in, a Tensor out."""
    image = device.tensor(np.arange(20, dtype=np.int16).reshape(4, 5))
    window = dmlvk.slice1(image, input_window_offsets=(0, 0), input_window_sizes=(4, 5), input_window_strides=(1, -1))
    assert_type(window, dmlvk.Tensor)
    mask = dmlvk.diagonal_matrix1(image, value=0, diagonal_fill_begin=0, diagonal_fill_end=1)
    assert_type(mask, dmlvk.Tensor)
    indices, values = device.tensor(np.array([[1]], np.int32)), device.tensor(np.array([[0.0, 1.0]]))
    assert_type(dmlvk.one_hot(indices, [0, 1], output_length=2, axis=1), dmlvk.Tensor)
    assert_type(dmlvk.one_hot([[1]], values, output_length=2, axis=1), dmlvk.Tensor)
    pixels, weights = np.zeros((1, 2, 5, 5), np.uint8), np.zeros((3, 2, 2, 2), np.int8)
    first = dmlvk.quantized_linear_convolution(device.tensor(pixels), 0.5, weights, 0.1, 1.0)
    assert_type(first, dmlvk.Tensor)
    second = dmlvk.quantized_linear_convolution(pixels, 0.5, device.tensor(weights), 0.1, 1.0)
    assert_type(second, dmlvk.Tensor)
    # Which it is cannot be seen where only a scale, a zero point or the bias is a Tensor.
    scale = device.tensor(np.array([0.5], np.float32))
    third = dmlvk.quantized_linear_convolution(pixels, scale, weights, 0.1, 1.0)
    assert_type(third, npt.NDArray[Any] | dmlvk.Tensor)
    assert isinstance(third, dmlvk.Tensor) and isinstance(window, dmlvk.Tensor)


def either_in(device: dmlvk.Device, image: npt.NDArray[np.int16] | dmlvk.Tensor) -> None:
    """Where an argument may be either, so may the result."""
    window = dmlvk.slice1(
        image, input_window_offsets=(0, 0), input_window_sizes=(4, 5), input_window_strides=(1, 1), device=device
    )
    assert_type(window, npt.NDArray[Any] | dmlvk.Tensor)


def operators(device: dmlvk.Device) -> None:
    """A compiled operator knows the names of its tensors."""
    slice1 = device.compile(describe_slice())
    assert_type(slice1, dmlvk.CompiledOperator[dmlvk.Slice1Desc])
    assert_type(slice1.desc.input_window_strides, Sequence[int])
    source, target = device.tensor(WINDOW), device.tensor(slice1.desc.output_tensor)
    assert_type(slice1(input_tensor=source, output_tensor=target), dmlvk.Submission)
    assert_type(slice1.bind(input_tensor=source, output_tensor=target), dmlvk.Binding)
    bound = {"input_tensor": source}
    slice1(output_tensor=target, **bound).wait()


def operators_with_tensors_of_their_own(device: dmlvk.Device) -> None:
    """What is OWNED_BY_DML is given to `initialize`, and not to a call."""
    convolution = device.compile(describe_convolution())
    desc = convolution.desc
    convolution.initialize(filter_tensor=device.tensor(np.zeros((3, 2, 2, 2), np.int8)))
    tensors: QuantizedLinearConvolutionTensors = {
        "input_tensor": device.tensor(desc.input_tensor),
        "output_tensor": device.tensor(desc.output_tensor),
    }
    tensors["input_scale_tensor"] = tensors["filter_scale_tensor"] = device.tensor(np.ones(1, np.float32))
    tensors["output_scale_tensor"] = device.tensor(np.ones(1, np.float32))
    convolution(**tensors).wait()


def any_operator(device: dmlvk.Device) -> None:
    """Where it is not known which operator it is, tensors may have any names."""
    descriptors: list[OperatorDesc] = [describe_slice(), describe_one_hot()]
    for desc in descriptors:
        compiled: dmlvk.CompiledOperator = device.compile(desc)
        compiled.bind(**{name: device.tensor(tensor) for name, tensor in desc.tensors.items()})
    for known in (describe_slice(), describe_one_hot()):
        device.compile(known).bind(**{name: device.tensor(tensor) for name, tensor in known.tensors.items()})


def data_types() -> None:
    assert_type(dmlvk.DataType("uint8"), dmlvk.DataType)
    assert_type(dmlvk.DataType(np.uint8), dmlvk.DataType)
    assert_type(dmlvk.TensorDesc.of(np.zeros(3), strides="array"), dmlvk.TensorDesc)
    assert_type(dmlvk.devices(), list[dmlvk.DeviceInfo])
    assert_type(dmlvk.is_available(), bool)
    assert_type(dmlvk.__version__, str)


def mistakes(device: dmlvk.Device) -> None:
    """Never run. Both checkers find each of them."""
    image, tensor = np.zeros((4, 5), np.int16), device.tensor(WINDOW)
    operator = device.compile(describe_slice())
    operator(inputs=tensor, output_tensor=tensor)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    operator(input_tensor=tensor)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    operator(tensor, tensor)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    operator(input_tensor=image, output_tensor=tensor)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    operator.bind(source=tensor, output_tensor=tensor)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    operator.initialize(output_tensor=tensor)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    one_hot = device.compile(describe_one_hot())
    one_hot(input_tensor=tensor, output_tensor=tensor)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    convolution = device.compile(describe_convolution())
    convolution(biases=tensor, output_tensor=tensor)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    dmlvk.OneHotDesc(  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
        indices_tensor=WINDOW, values_tensor=WINDOW, axis=0
    )
    dmlvk.DiagonalMatrixDesc(offset=0, value=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    dmlvk.diagonal_matrix1(  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
        value=1, diagonal_fill_begin=0, diagonal_fill_end=1
    )
    dmlvk.slice1(  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
        image, input_window_offsets=(0, 0), input_window_sizes=(4, 5)
    )
    window = dmlvk.slice1(image, input_window_offsets=(0, 0), input_window_sizes=(4, 5), input_window_strides=(1, 1))
    window.numpy()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    dmlvk.one_hot([[1]], [0, 1], output_length="3", axis=1)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
