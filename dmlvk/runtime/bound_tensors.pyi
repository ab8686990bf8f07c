# Written by `python -m tools.stubs` from the operators' declarations.

from collections.abc import Callable
from typing import Any, TypeAlias, TypedDict, TypeVar, overload

import numpy.typing as npt
from typing_extensions import NotRequired, Unpack
from typing_extensions import TypeVar as TypeVarWithDefault

from dmlvk import operators
from dmlvk.runtime.binding import Binding
from dmlvk.runtime.compiled_operator import CompiledOperator
from dmlvk.runtime.submission import Submission
from dmlvk.runtime.tensor import Tensor

Method = TypeVar("Method")
Described = TypeVarWithDefault("Described", bound=operators.OperatorDesc, default=Any)
Elements: TypeAlias = Tensor | npt.ArrayLike
Compiled = TypeVar(
    "Compiled",
    operators.Slice1Desc,
    operators.OneHotDesc,
    operators.DiagonalMatrix1Desc,
    operators.QuantizedLinearConvolutionDesc,
    operators.SliceDesc,
    operators.DiagonalMatrixDesc,
    operators.ByteTableDesc,
    operators.ElementWiseQuantizedLinearAddDesc,
    operators.ElementWiseQuantizeLinearDesc,
    operators.ElementWiseDequantizeLinearDesc,
    operators.MaxPooling2Desc,
    operators.QuantizedLinearAveragePoolingDesc,
    operators.QuantizedLinearConvolutionAddDesc,
    operators.ByteTableMeanDesc,
    operators.ElementWiseAddDesc,
    operators.ActivationReluDesc,
    operators.ByteSoftmaxDesc,
    operators.ByteResampleDesc,
    operators.ByteLayerNormalizationDesc,
    operators.QuantizedLinearConvolutionTableDesc,
    operators.OperatorDesc,
)

class Slice1Inputs(TypedDict, total=False):
    input_tensor: Elements

class Slice1InputTensors(TypedDict, total=False):
    input_tensor: Tensor

class Slice1Tensors(Slice1InputTensors):
    output_tensor: Tensor

class OneHotInputs(TypedDict, total=False):
    indices_tensor: Elements
    values_tensor: Elements

class OneHotInputTensors(TypedDict, total=False):
    indices_tensor: Tensor
    values_tensor: Tensor

class OneHotTensors(OneHotInputTensors):
    output_tensor: Tensor

class DiagonalMatrix1Inputs(TypedDict, total=False):
    input_tensor: Elements

class DiagonalMatrix1InputTensors(TypedDict, total=False):
    input_tensor: Tensor

class DiagonalMatrix1Tensors(DiagonalMatrix1InputTensors):
    output_tensor: Tensor

class QuantizedLinearConvolutionInputs(TypedDict, total=False):
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
    output_tensor: Tensor

class SliceInputs(TypedDict, total=False):
    input_tensor: Elements

class SliceInputTensors(TypedDict, total=False):
    input_tensor: Tensor

class SliceTensors(SliceInputTensors):
    output_tensor: Tensor

class DiagonalMatrixInputs(TypedDict, total=False):
    pass

class DiagonalMatrixInputTensors(TypedDict, total=False):
    pass

class DiagonalMatrixTensors(DiagonalMatrixInputTensors):
    output_tensor: Tensor

class ByteTableInputs(TypedDict, total=False):
    input_tensor: Elements
    second_input_tensor: Elements
    table_tensor: Elements

class ByteTableInputTensors(TypedDict, total=False):
    input_tensor: Tensor
    second_input_tensor: Tensor
    table_tensor: Tensor

class ByteTableTensors(ByteTableInputTensors):
    output_tensor: Tensor

class ElementWiseQuantizedLinearAddInputs(TypedDict, total=False):
    a_tensor: Elements
    a_scale_tensor: Elements
    a_zero_point_tensor: Elements
    b_tensor: Elements
    b_scale_tensor: Elements
    b_zero_point_tensor: Elements
    output_scale_tensor: Elements
    output_zero_point_tensor: Elements

class ElementWiseQuantizedLinearAddInputTensors(TypedDict, total=False):
    a_tensor: Tensor
    a_scale_tensor: Tensor
    a_zero_point_tensor: Tensor
    b_tensor: Tensor
    b_scale_tensor: Tensor
    b_zero_point_tensor: Tensor
    output_scale_tensor: Tensor
    output_zero_point_tensor: Tensor

class ElementWiseQuantizedLinearAddTensors(ElementWiseQuantizedLinearAddInputTensors):
    output_tensor: Tensor

class ElementWiseQuantizeLinearInputs(TypedDict, total=False):
    input_tensor: Elements
    scale_tensor: Elements
    zero_point_tensor: Elements

class ElementWiseQuantizeLinearInputTensors(TypedDict, total=False):
    input_tensor: Tensor
    scale_tensor: Tensor
    zero_point_tensor: Tensor

class ElementWiseQuantizeLinearTensors(ElementWiseQuantizeLinearInputTensors):
    output_tensor: Tensor

class ElementWiseDequantizeLinearInputs(TypedDict, total=False):
    input_tensor: Elements
    scale_tensor: Elements
    zero_point_tensor: Elements

class ElementWiseDequantizeLinearInputTensors(TypedDict, total=False):
    input_tensor: Tensor
    scale_tensor: Tensor
    zero_point_tensor: Tensor

class ElementWiseDequantizeLinearTensors(ElementWiseDequantizeLinearInputTensors):
    output_tensor: Tensor

class MaxPooling2Inputs(TypedDict, total=False):
    input_tensor: Elements

class MaxPooling2InputTensors(TypedDict, total=False):
    input_tensor: Tensor

class MaxPooling2Tensors(MaxPooling2InputTensors):
    output_tensor: Tensor
    output_indices_tensor: NotRequired[Tensor]

class QuantizedLinearAveragePoolingInputs(TypedDict, total=False):
    input_tensor: Elements
    input_scale_tensor: Elements
    input_zero_point_tensor: Elements
    output_scale_tensor: Elements
    output_zero_point_tensor: Elements

class QuantizedLinearAveragePoolingInputTensors(TypedDict, total=False):
    input_tensor: Tensor
    input_scale_tensor: Tensor
    input_zero_point_tensor: Tensor
    output_scale_tensor: Tensor
    output_zero_point_tensor: Tensor

class QuantizedLinearAveragePoolingTensors(QuantizedLinearAveragePoolingInputTensors):
    output_tensor: Tensor

class QuantizedLinearConvolutionAddInputs(TypedDict, total=False):
    input_tensor: Elements
    input_scale_tensor: Elements
    input_zero_point_tensor: Elements
    filter_tensor: Elements
    filter_scale_tensor: Elements
    filter_zero_point_tensor: Elements
    bias_tensor: Elements
    output_scale_tensor: Elements
    output_zero_point_tensor: Elements
    addend_tensor: Elements
    addend_scale_tensor: Elements
    addend_zero_point_tensor: Elements
    sum_scale_tensor: Elements
    sum_zero_point_tensor: Elements

class QuantizedLinearConvolutionAddInputTensors(TypedDict, total=False):
    input_tensor: Tensor
    input_scale_tensor: Tensor
    input_zero_point_tensor: Tensor
    filter_tensor: Tensor
    filter_scale_tensor: Tensor
    filter_zero_point_tensor: Tensor
    bias_tensor: Tensor
    output_scale_tensor: Tensor
    output_zero_point_tensor: Tensor
    addend_tensor: Tensor
    addend_scale_tensor: Tensor
    addend_zero_point_tensor: Tensor
    sum_scale_tensor: Tensor
    sum_zero_point_tensor: Tensor

class QuantizedLinearConvolutionAddTensors(QuantizedLinearConvolutionAddInputTensors):
    output_tensor: Tensor

class ByteTableMeanInputs(TypedDict, total=False):
    input_tensor: Elements
    table_tensor: Elements

class ByteTableMeanInputTensors(TypedDict, total=False):
    input_tensor: Tensor
    table_tensor: Tensor

class ByteTableMeanTensors(ByteTableMeanInputTensors):
    output_tensor: Tensor

class ElementWiseAddInputs(TypedDict, total=False):
    a_tensor: Elements
    b_tensor: Elements

class ElementWiseAddInputTensors(TypedDict, total=False):
    a_tensor: Tensor
    b_tensor: Tensor

class ElementWiseAddTensors(ElementWiseAddInputTensors):
    output_tensor: Tensor

class ActivationReluInputs(TypedDict, total=False):
    input_tensor: Elements

class ActivationReluInputTensors(TypedDict, total=False):
    input_tensor: Tensor

class ActivationReluTensors(ActivationReluInputTensors):
    output_tensor: Tensor

class ByteSoftmaxInputs(TypedDict, total=False):
    input_tensor: Elements
    table_tensor: Elements

class ByteSoftmaxInputTensors(TypedDict, total=False):
    input_tensor: Tensor
    table_tensor: Tensor

class ByteSoftmaxTensors(ByteSoftmaxInputTensors):
    output_tensor: Tensor

class ByteResampleInputs(TypedDict, total=False):
    input_tensor: Elements
    coordinate_tensor: Elements
    threshold_tensor: Elements

class ByteResampleInputTensors(TypedDict, total=False):
    input_tensor: Tensor
    coordinate_tensor: Tensor
    threshold_tensor: Tensor

class ByteResampleTensors(ByteResampleInputTensors):
    output_tensor: Tensor

class ByteLayerNormalizationInputs(TypedDict, total=False):
    input_tensor: Elements
    scale_tensor: Elements
    bias_tensor: Elements

class ByteLayerNormalizationInputTensors(TypedDict, total=False):
    input_tensor: Tensor
    scale_tensor: Tensor
    bias_tensor: Tensor

class ByteLayerNormalizationTensors(ByteLayerNormalizationInputTensors):
    output_tensor: Tensor

class QuantizedLinearConvolutionTableInputs(TypedDict, total=False):
    input_tensor: Elements
    input_scale_tensor: Elements
    input_zero_point_tensor: Elements
    filter_tensor: Elements
    filter_scale_tensor: Elements
    filter_zero_point_tensor: Elements
    bias_tensor: Elements
    output_scale_tensor: Elements
    output_zero_point_tensor: Elements
    table_tensor: Elements

class QuantizedLinearConvolutionTableInputTensors(TypedDict, total=False):
    input_tensor: Tensor
    input_scale_tensor: Tensor
    input_zero_point_tensor: Tensor
    filter_tensor: Tensor
    filter_scale_tensor: Tensor
    filter_zero_point_tensor: Tensor
    bias_tensor: Tensor
    output_scale_tensor: Tensor
    output_zero_point_tensor: Tensor
    table_tensor: Tensor

class QuantizedLinearConvolutionTableTensors(QuantizedLinearConvolutionTableInputTensors):
    output_tensor: Tensor

@overload
def call(
    self: CompiledOperator[operators.Slice1Desc], **tensors: Unpack[Slice1Tensors]
) -> Submission: ...

@overload
def call(
    self: CompiledOperator[operators.OneHotDesc], **tensors: Unpack[OneHotTensors]
) -> Submission: ...

@overload
def call(
    self: CompiledOperator[operators.DiagonalMatrix1Desc], **tensors: Unpack[DiagonalMatrix1Tensors]
) -> Submission: ...

@overload
def call(
    self: CompiledOperator[operators.QuantizedLinearConvolutionDesc], **tensors: Unpack[QuantizedLinearConvolutionTensors]
) -> Submission: ...

@overload
def call(
    self: CompiledOperator[operators.SliceDesc], **tensors: Unpack[SliceTensors]
) -> Submission: ...

@overload
def call(
    self: CompiledOperator[operators.DiagonalMatrixDesc], **tensors: Unpack[DiagonalMatrixTensors]
) -> Submission: ...

@overload
def call(
    self: CompiledOperator[operators.ByteTableDesc], **tensors: Unpack[ByteTableTensors]
) -> Submission: ...

@overload
def call(
    self: CompiledOperator[operators.ElementWiseQuantizedLinearAddDesc], **tensors: Unpack[ElementWiseQuantizedLinearAddTensors]
) -> Submission: ...

@overload
def call(
    self: CompiledOperator[operators.ElementWiseQuantizeLinearDesc], **tensors: Unpack[ElementWiseQuantizeLinearTensors]
) -> Submission: ...

@overload
def call(
    self: CompiledOperator[operators.ElementWiseDequantizeLinearDesc], **tensors: Unpack[ElementWiseDequantizeLinearTensors]
) -> Submission: ...

@overload
def call(
    self: CompiledOperator[operators.MaxPooling2Desc], **tensors: Unpack[MaxPooling2Tensors]
) -> Submission: ...

@overload
def call(
    self: CompiledOperator[operators.QuantizedLinearAveragePoolingDesc], **tensors: Unpack[QuantizedLinearAveragePoolingTensors]
) -> Submission: ...

@overload
def call(
    self: CompiledOperator[operators.QuantizedLinearConvolutionAddDesc], **tensors: Unpack[QuantizedLinearConvolutionAddTensors]
) -> Submission: ...

@overload
def call(
    self: CompiledOperator[operators.ByteTableMeanDesc], **tensors: Unpack[ByteTableMeanTensors]
) -> Submission: ...

@overload
def call(
    self: CompiledOperator[operators.ElementWiseAddDesc], **tensors: Unpack[ElementWiseAddTensors]
) -> Submission: ...

@overload
def call(
    self: CompiledOperator[operators.ActivationReluDesc], **tensors: Unpack[ActivationReluTensors]
) -> Submission: ...

@overload
def call(
    self: CompiledOperator[operators.ByteSoftmaxDesc], **tensors: Unpack[ByteSoftmaxTensors]
) -> Submission: ...

@overload
def call(
    self: CompiledOperator[operators.ByteResampleDesc], **tensors: Unpack[ByteResampleTensors]
) -> Submission: ...

@overload
def call(
    self: CompiledOperator[operators.ByteLayerNormalizationDesc], **tensors: Unpack[ByteLayerNormalizationTensors]
) -> Submission: ...

@overload
def call(
    self: CompiledOperator[operators.QuantizedLinearConvolutionTableDesc], **tensors: Unpack[QuantizedLinearConvolutionTableTensors]
) -> Submission: ...

@overload
def call(self: CompiledOperator[operators.OperatorDesc], **tensors: Tensor) -> Submission: ...

@overload
def bind(
    self: CompiledOperator[operators.Slice1Desc], **tensors: Unpack[Slice1Tensors]
) -> Binding: ...

@overload
def bind(
    self: CompiledOperator[operators.OneHotDesc], **tensors: Unpack[OneHotTensors]
) -> Binding: ...

@overload
def bind(
    self: CompiledOperator[operators.DiagonalMatrix1Desc], **tensors: Unpack[DiagonalMatrix1Tensors]
) -> Binding: ...

@overload
def bind(
    self: CompiledOperator[operators.QuantizedLinearConvolutionDesc], **tensors: Unpack[QuantizedLinearConvolutionTensors]
) -> Binding: ...

@overload
def bind(
    self: CompiledOperator[operators.SliceDesc], **tensors: Unpack[SliceTensors]
) -> Binding: ...

@overload
def bind(
    self: CompiledOperator[operators.DiagonalMatrixDesc], **tensors: Unpack[DiagonalMatrixTensors]
) -> Binding: ...

@overload
def bind(
    self: CompiledOperator[operators.ByteTableDesc], **tensors: Unpack[ByteTableTensors]
) -> Binding: ...

@overload
def bind(
    self: CompiledOperator[operators.ElementWiseQuantizedLinearAddDesc], **tensors: Unpack[ElementWiseQuantizedLinearAddTensors]
) -> Binding: ...

@overload
def bind(
    self: CompiledOperator[operators.ElementWiseQuantizeLinearDesc], **tensors: Unpack[ElementWiseQuantizeLinearTensors]
) -> Binding: ...

@overload
def bind(
    self: CompiledOperator[operators.ElementWiseDequantizeLinearDesc], **tensors: Unpack[ElementWiseDequantizeLinearTensors]
) -> Binding: ...

@overload
def bind(
    self: CompiledOperator[operators.MaxPooling2Desc], **tensors: Unpack[MaxPooling2Tensors]
) -> Binding: ...

@overload
def bind(
    self: CompiledOperator[operators.QuantizedLinearAveragePoolingDesc], **tensors: Unpack[QuantizedLinearAveragePoolingTensors]
) -> Binding: ...

@overload
def bind(
    self: CompiledOperator[operators.QuantizedLinearConvolutionAddDesc], **tensors: Unpack[QuantizedLinearConvolutionAddTensors]
) -> Binding: ...

@overload
def bind(
    self: CompiledOperator[operators.ByteTableMeanDesc], **tensors: Unpack[ByteTableMeanTensors]
) -> Binding: ...

@overload
def bind(
    self: CompiledOperator[operators.ElementWiseAddDesc], **tensors: Unpack[ElementWiseAddTensors]
) -> Binding: ...

@overload
def bind(
    self: CompiledOperator[operators.ActivationReluDesc], **tensors: Unpack[ActivationReluTensors]
) -> Binding: ...

@overload
def bind(
    self: CompiledOperator[operators.ByteSoftmaxDesc], **tensors: Unpack[ByteSoftmaxTensors]
) -> Binding: ...

@overload
def bind(
    self: CompiledOperator[operators.ByteResampleDesc], **tensors: Unpack[ByteResampleTensors]
) -> Binding: ...

@overload
def bind(
    self: CompiledOperator[operators.ByteLayerNormalizationDesc], **tensors: Unpack[ByteLayerNormalizationTensors]
) -> Binding: ...

@overload
def bind(
    self: CompiledOperator[operators.QuantizedLinearConvolutionTableDesc], **tensors: Unpack[QuantizedLinearConvolutionTableTensors]
) -> Binding: ...

@overload
def bind(self: CompiledOperator[operators.OperatorDesc], **tensors: Tensor) -> Binding: ...

@overload
def initialize(
    self: CompiledOperator[operators.Slice1Desc], **tensors: Unpack[Slice1Inputs]
) -> Submission: ...

@overload
def initialize(
    self: CompiledOperator[operators.OneHotDesc], **tensors: Unpack[OneHotInputs]
) -> Submission: ...

@overload
def initialize(
    self: CompiledOperator[operators.DiagonalMatrix1Desc], **tensors: Unpack[DiagonalMatrix1Inputs]
) -> Submission: ...

@overload
def initialize(
    self: CompiledOperator[operators.QuantizedLinearConvolutionDesc], **tensors: Unpack[QuantizedLinearConvolutionInputs]
) -> Submission: ...

@overload
def initialize(
    self: CompiledOperator[operators.SliceDesc], **tensors: Unpack[SliceInputs]
) -> Submission: ...

@overload
def initialize(
    self: CompiledOperator[operators.DiagonalMatrixDesc], **tensors: Unpack[DiagonalMatrixInputs]
) -> Submission: ...

@overload
def initialize(
    self: CompiledOperator[operators.ByteTableDesc], **tensors: Unpack[ByteTableInputs]
) -> Submission: ...

@overload
def initialize(
    self: CompiledOperator[operators.ElementWiseQuantizedLinearAddDesc], **tensors: Unpack[ElementWiseQuantizedLinearAddInputs]
) -> Submission: ...

@overload
def initialize(
    self: CompiledOperator[operators.ElementWiseQuantizeLinearDesc], **tensors: Unpack[ElementWiseQuantizeLinearInputs]
) -> Submission: ...

@overload
def initialize(
    self: CompiledOperator[operators.ElementWiseDequantizeLinearDesc], **tensors: Unpack[ElementWiseDequantizeLinearInputs]
) -> Submission: ...

@overload
def initialize(
    self: CompiledOperator[operators.MaxPooling2Desc], **tensors: Unpack[MaxPooling2Inputs]
) -> Submission: ...

@overload
def initialize(
    self: CompiledOperator[operators.QuantizedLinearAveragePoolingDesc], **tensors: Unpack[QuantizedLinearAveragePoolingInputs]
) -> Submission: ...

@overload
def initialize(
    self: CompiledOperator[operators.QuantizedLinearConvolutionAddDesc], **tensors: Unpack[QuantizedLinearConvolutionAddInputs]
) -> Submission: ...

@overload
def initialize(
    self: CompiledOperator[operators.ByteTableMeanDesc], **tensors: Unpack[ByteTableMeanInputs]
) -> Submission: ...

@overload
def initialize(
    self: CompiledOperator[operators.ElementWiseAddDesc], **tensors: Unpack[ElementWiseAddInputs]
) -> Submission: ...

@overload
def initialize(
    self: CompiledOperator[operators.ActivationReluDesc], **tensors: Unpack[ActivationReluInputs]
) -> Submission: ...

@overload
def initialize(
    self: CompiledOperator[operators.ByteSoftmaxDesc], **tensors: Unpack[ByteSoftmaxInputs]
) -> Submission: ...

@overload
def initialize(
    self: CompiledOperator[operators.ByteResampleDesc], **tensors: Unpack[ByteResampleInputs]
) -> Submission: ...

@overload
def initialize(
    self: CompiledOperator[operators.ByteLayerNormalizationDesc], **tensors: Unpack[ByteLayerNormalizationInputs]
) -> Submission: ...

@overload
def initialize(
    self: CompiledOperator[operators.QuantizedLinearConvolutionTableDesc], **tensors: Unpack[QuantizedLinearConvolutionTableInputs]
) -> Submission: ...

@overload
def initialize(self: CompiledOperator[operators.OperatorDesc], **tensors: Any) -> Submission: ...

def typed_as(signature: Method) -> Callable[[Callable[..., Any]], Method]: ...
