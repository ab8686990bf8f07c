"""A convolution as a layer of a network: its constants are given once, its inputs at each call."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, overload

from dmlvk._common.arguments import named_arguments
from dmlvk._operands import Array, as_operand, convolution_desc, convolution_operands, described_tensor
from dmlvk.errors import DescriptorError
from dmlvk.operators.declared import EIGHT_BIT_TYPES
from dmlvk.operators.quantized_linear_convolution import QuantizedLinearConvolutionDesc
from dmlvk.runtime.compiled_operator import CompiledOperator
from dmlvk.runtime.copying import NotCopied
from dmlvk.runtime.shared_devices import DeviceName, device_of
from dmlvk.runtime.tensor import Tensor
from dmlvk.tensor_desc import TensorDesc, TensorFlags

if TYPE_CHECKING:
    from dmlvk._operands import Argument, DType, Integers, Plain
    from dmlvk.runtime.device import Device

# A layer keeps operators for this many kinds of inputs; each has the filter in memory of its own.
OPERATORS_KEPT = 16


class QuantizedLinearConvolution(NotCopied):
    """A convolution whose filter, scales, zero points and bias are given once, and rearranged for the device once.

    Args:
        filter (array_like or Tensor): int8 or uint8, {M, C / group_count, H, W} or {M, C / group_count, W}.
        input_scale (float or array_like or Tensor): The scale of the input, one number.
        filter_scale (float or array_like or Tensor): The scale of the filter: one number, or one for each output
            channel, {M} or {1, M, 1, 1}.
        output_scale (float or array_like or Tensor): The scale of the output, one number.
        input_zero_point (int or array_like or Tensor, optional): The input element that stands for 0, in the range of
            the input's type. It is 0 by default.
        filter_zero_point (int or array_like or Tensor, optional): The filter element that stands for 0: one number, or
            one for each output channel. It is 0 by default.
        bias (array_like or Tensor, optional): Integers in the range of int32, {M} or {1, M, 1, 1}, which are added to
            the sums of products.
        output_zero_point (int or array_like or Tensor, optional): The output element that stands for 0, in the range of
            the output's type. It is 0 by default.
        output_dtype (dtype, optional): int8 or uint8. By default the type of `output_zero_point` if that has one of
            these, else that of each input.
        strides (sequence of int, optional): How far the window moves from one output element to the next, (height,
            width).
        dilations (sequence of int, optional): How far apart neighbouring filter elements are on the input, (height,
            width).
        start_padding (sequence of int, optional): How many rows and columns of zeros stand before the input, (height,
            width).
        end_padding (sequence of int, optional): How many rows and columns of zeros stand behind the input, (height,
            width).
        group_count (int, optional): Into how many groups the channels fall; each output channel sees the input channels
            of its own group.
        device (Device, DeviceInfo, str or int, optional): Where the layer runs, as for `quantized_linear_convolution`.

    Attributes:
        device (Device):

    Raises:
        DescriptorError: The filter is no filter. What depends on the input is checked at the first call with an input
            of its kind.
        TypeError: For a scale that is not a real number, or a zero point or bias that is not an integer.

    The first call with an input of another size, type or layout compiles an operator for it; the layer keeps the
    last 16 of them, each with the filter in memory of its own. Arrays are copied when the layer is made; a Tensor is
    read when such an operator is made. A layer may be used from several threads.

    >>> edges = np.array([[[[-1, 0, 1]]]], dtype=np.int8)
    >>> scales = {"input_scale": 1, "filter_scale": 1, "output_scale": 1}
    >>> layer = dmlvk.QuantizedLinearConvolution(edges, **scales, output_dtype="int8")
    >>> layer(np.array([[[[0, 10, 30, 90]]]], dtype=np.uint8))
    array([[[[30, 80]]]], dtype=int8)
    """

    in_place_of_a_copy = "make another one from the same arrays"

    @named_arguments
    def __init__(
        self,
        filter: Argument,
        *,
        input_scale: Argument,
        filter_scale: Argument,
        output_scale: Argument,
        input_zero_point: Argument | None = None,
        filter_zero_point: Argument | None = None,
        bias: Argument | None = None,
        output_zero_point: Argument | None = None,
        output_dtype: DType | None = None,
        strides: Integers = (1, 1),
        dilations: Integers = (1, 1),
        start_padding: Integers = (0, 0),
        end_padding: Integers = (0, 0),
        group_count: int = 1,
        device: DeviceName = None,
    ) -> None:
        self._filter = as_operand("filter", _own(filter))
        constants: dict[str, Any] = {
            "input_scale": input_scale,
            "filter_scale": filter_scale,
            "output_scale": output_scale,
            "input_zero_point": input_zero_point,
            "filter_zero_point": filter_zero_point,
            "output_zero_point": output_zero_point,
            "bias": bias,
        }
        self._constants = {name: _own(value) for name, value in constants.items()}
        self._windows: dict[str, Any] = {
            "strides": tuple(strides),
            "dilations": tuple(dilations),
            "start_padding": tuple(start_padding),
            "end_padding": tuple(end_padding),
        }
        self._group_count = group_count
        self._output_dtype = output_dtype
        given = {"filter": self._filter, **self._constants}
        self.device: Device = device_of({k: v for k, v in given.items() if isinstance(v, Tensor)}, device)
        self._operators: OrderedDict[TensorDesc, CompiledOperator[QuantizedLinearConvolutionDesc]] = OrderedDict()
        described = described_tensor(self._filter)
        if described.data_type not in EIGHT_BIT_TYPES or described.rank not in (3, 4):
            found = f"{described.data_type.name} {described.sizes}"
            expected = "int8 or uint8, {M, C / group_count, H, W} or {M, C / group_count, W}"
            raise DescriptorError("QuantizedLinearConvolution", "filter", found, "must be a filter", expected)
        # All that needs no input is refused here. The zero points of input and output are in the range of their types.
        known = {**self._constants, "input_zero_point": None, "output_zero_point": None}
        convolution_operands(described, self._filter, known, output_dtype)

    def __repr__(self) -> str:
        sizes = described_tensor(self._filter).sizes
        return f"<dmlvk.QuantizedLinearConvolution with the filter {sizes} on {self.device.name}>"

    def compile(self, input: TensorDesc | Argument) -> CompiledOperator[QuantizedLinearConvolutionDesc]:
        """The operator for inputs of one kind, with its constants given: it takes input_tensor and output_tensor.

        Args:
            input (TensorDesc, array_like or Tensor): The input, or one like it.

        Returns:
            CompiledOperator: To be bound and recorded. `desc.output_tensor` describes its output.

        Raises:
            DescriptorError: The filter, scales or zero points do not belong to such an input.
            DeviceError: The device is closed, lost or out of memory.
        """
        described = input if isinstance(input, TensorDesc) else described_tensor(as_operand("input", input))
        found = self._operators.get(described)
        if found is not None:
            with suppress(KeyError):  # another thread has just removed it to make room
                self._operators.move_to_end(described)
            return found
        operands = convolution_operands(described, self._filter, self._constants, self._output_dtype)
        owned = {
            name: replace(described_tensor(operand), flags=TensorFlags.OWNED_BY_DML)
            for name, operand in operands.items()
        }
        desc = convolution_desc(
            described,
            owned,
            self._constants["output_zero_point"],
            self._output_dtype,
            self._windows,
            self._group_count,
        )
        operator = self.device.compile(desc)
        operator.initialize(**operands)
        self._operators[described] = operator
        while len(self._operators) > OPERATORS_KEPT:
            self._operators.popitem(last=False)
        return operator

    @overload
    def __call__(self, input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
    @overload
    def __call__(self, input: Plain, *, out: None = None) -> Array: ...
    @overload
    def __call__(self, input: Any, *, out: Tensor) -> Tensor: ...
    def __call__(self, input: Any, *, out: Tensor | None = None) -> Any:
        """Convolve an input.

        Args:
            input (array_like or Tensor): int8 or uint8, {N, C, H, W} or {N, C, W}, of any sizes that the filter fits
                on.
            out (Tensor, optional): Where the output goes. Without it, each call makes a tensor.

        Returns:
            numpy.ndarray or Tensor: A Tensor for a Tensor or with `out`, for which the call does not wait; else an
                array.

        Raises:
            DescriptorError, DeviceError: As `compile`.
            BindingError: A tensor is of another device, or `out` is no such output or shares memory with the input.
        """
        operand = as_operand("input", input)
        operator = self.compile(operand)
        source = operand if isinstance(operand, Tensor) else self.device.tensor(operand)
        result = self.device.tensor(operator.desc.output_tensor) if out is None else out
        operator(input_tensor=source, output_tensor=result)
        return result if isinstance(operand, Tensor) or out is not None else result.numpy()


def _own(value: Any) -> Any:
    """A copy, which the caller cannot change."""
    return value if isinstance(value, Tensor) else deepcopy(value)
