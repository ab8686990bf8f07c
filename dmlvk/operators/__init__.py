"""The operators: descriptors, their rules and their minimum feature levels. No Vulkan and no arrays."""

from dmlvk.operators.diagonal_matrix import DiagonalMatrixDesc
from dmlvk.operators.diagonal_matrix1 import DiagonalMatrix1Desc
from dmlvk.operators.feature_level import FeatureLevel
from dmlvk.operators.one_hot import OneHotDesc
from dmlvk.operators.quantized_linear_convolution import ConvolutionGeometry, QuantizedLinearConvolutionDesc
from dmlvk.operators.rules import OperatorDesc
from dmlvk.operators.slice import SliceDesc
from dmlvk.operators.slice1 import Slice1Desc

__all__ = [
    "ConvolutionGeometry",
    "DiagonalMatrix1Desc",
    "DiagonalMatrixDesc",
    "FeatureLevel",
    "OneHotDesc",
    "OperatorDesc",
    "QuantizedLinearConvolutionDesc",
    "Slice1Desc",
    "SliceDesc",
]
