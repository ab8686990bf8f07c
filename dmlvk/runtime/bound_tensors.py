"""The tensors that each operator is bound to, by name: what type checkers know of `CompiledOperator`.

An operator has its inputs, as `initialize` takes them, and with its output all its tensors, as a call and `bind` take
them. An input may be missing: a call takes none that is OWNED_BY_DML, and some are optional.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from dmlvk.operators import (
    DiagonalMatrix1Desc,
    DiagonalMatrixDesc,
    OneHotDesc,
    OperatorDesc,
    QuantizedLinearConvolutionDesc,
    Slice1Desc,
    SliceDesc,
)
from dmlvk.runtime.tensor import Tensor

# The descriptor of a compiled operator. Where nothing is known of it, tensors may have any names.
if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    Described = TypeVarWithDefault("Described", bound=OperatorDesc, default=Any)
else:
    Described = TypeVar("Described", bound=OperatorDesc)

# A descriptor that is compiled. Its type is the first of these that fits, so it may be one of several operators too.
Compiled = TypeVar(
    "Compiled",
    Slice1Desc,
    OneHotDesc,
    DiagonalMatrix1Desc,
    QuantizedLinearConvolutionDesc,
    SliceDesc,
    DiagonalMatrixDesc,
    OperatorDesc,
)


class Slice1Inputs(TypedDict, total=False):
    """Inputs of SLICE1."""

    input_tensor: Tensor


class Slice1Tensors(Slice1Inputs):
    """Tensors of SLICE1."""

    output_tensor: Tensor


class OneHotInputs(TypedDict, total=False):
    """Inputs of ONE_HOT."""

    indices_tensor: Tensor
    values_tensor: Tensor


class OneHotTensors(OneHotInputs):
    """Tensors of ONE_HOT."""

    output_tensor: Tensor


class DiagonalMatrix1Inputs(TypedDict, total=False):
    """Inputs of DIAGONAL_MATRIX1."""

    input_tensor: Tensor


class DiagonalMatrix1Tensors(DiagonalMatrix1Inputs):
    """Tensors of DIAGONAL_MATRIX1."""

    output_tensor: Tensor


class QuantizedLinearConvolutionInputs(TypedDict, total=False):
    """Inputs of QUANTIZED_LINEAR_CONVOLUTION."""

    input_tensor: Tensor
    input_scale_tensor: Tensor
    input_zero_point_tensor: Tensor
    filter_tensor: Tensor
    filter_scale_tensor: Tensor
    filter_zero_point_tensor: Tensor
    bias_tensor: Tensor
    output_scale_tensor: Tensor
    output_zero_point_tensor: Tensor


class QuantizedLinearConvolutionTensors(QuantizedLinearConvolutionInputs):
    """Tensors of QUANTIZED_LINEAR_CONVOLUTION."""

    output_tensor: Tensor


class SliceInputs(TypedDict, total=False):
    """Inputs of SLICE."""

    input_tensor: Tensor


class SliceTensors(SliceInputs):
    """Tensors of SLICE."""

    output_tensor: Tensor


class DiagonalMatrixInputs(TypedDict, total=False):
    """Inputs of DIAGONAL_MATRIX: none."""


class DiagonalMatrixTensors(DiagonalMatrixInputs):
    """Tensors of DIAGONAL_MATRIX."""

    output_tensor: Tensor
