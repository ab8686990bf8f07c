"""The tensors that each operator is bound to, by name: what type checkers know of `CompiledOperator`.

Of each operator there are the inputs, which `initialize` takes as tensors or arrays, and all tensors, which a call and
`bind` take. An input may be missing: a call takes no input that is OWNED_BY_DML, and some are optional.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, TypeVar

import numpy.typing as npt

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

Elements: TypeAlias = "Tensor | npt.ArrayLike"


class Slice1Inputs(TypedDict, total=False):
    """Inputs of SLICE1."""

    input_tensor: Elements


class Slice1InputTensors(TypedDict, total=False):
    """Inputs of SLICE1."""

    input_tensor: Tensor


class Slice1Tensors(Slice1InputTensors):
    """Tensors of SLICE1."""

    output_tensor: Tensor


class OneHotInputs(TypedDict, total=False):
    """Inputs of ONE_HOT."""

    indices_tensor: Elements
    values_tensor: Elements


class OneHotInputTensors(TypedDict, total=False):
    """Inputs of ONE_HOT."""

    indices_tensor: Tensor
    values_tensor: Tensor


class OneHotTensors(OneHotInputTensors):
    """Tensors of ONE_HOT."""

    output_tensor: Tensor


class DiagonalMatrix1Inputs(TypedDict, total=False):
    """Inputs of DIAGONAL_MATRIX1."""

    input_tensor: Elements


class DiagonalMatrix1InputTensors(TypedDict, total=False):
    """Inputs of DIAGONAL_MATRIX1."""

    input_tensor: Tensor


class DiagonalMatrix1Tensors(DiagonalMatrix1InputTensors):
    """Tensors of DIAGONAL_MATRIX1."""

    output_tensor: Tensor


class QuantizedLinearConvolutionInputs(TypedDict, total=False):
    """Inputs of QUANTIZED_LINEAR_CONVOLUTION."""

    input_tensor: Elements
    input_scale_tensor: Elements
    input_zero_point_tensor: Elements
    filter_tensor: Elements
    filter_scale_tensor: Elements
    filter_zero_point_tensor: Elements
    bias_tensor: Elements
    output_scale_tensor: Elements
    output_zero_point_tensor: Elements


class QuantizedLinearConvolutionInputTensors(TypedDict, total=False):
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


class QuantizedLinearConvolutionTensors(QuantizedLinearConvolutionInputTensors):
    """Tensors of QUANTIZED_LINEAR_CONVOLUTION."""

    output_tensor: Tensor


class SliceInputs(TypedDict, total=False):
    """Inputs of SLICE."""

    input_tensor: Elements


class SliceInputTensors(TypedDict, total=False):
    """Inputs of SLICE."""

    input_tensor: Tensor


class SliceTensors(SliceInputTensors):
    """Tensors of SLICE."""

    output_tensor: Tensor


class DiagonalMatrixInputs(TypedDict, total=False):
    """Inputs of DIAGONAL_MATRIX: none."""


class DiagonalMatrixTensors(TypedDict):
    """Tensors of DIAGONAL_MATRIX."""

    output_tensor: Tensor
