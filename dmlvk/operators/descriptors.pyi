# Written by `python -m tools.stubs` from the operators' declarations.
from dmlvk.operators.activation_relu import ActivationReluDesc as ActivationReluDesc
from dmlvk.operators.byte_layer_normalization import ByteLayerNormalizationDesc as ByteLayerNormalizationDesc
from dmlvk.operators.byte_resample import ByteResampleDesc as ByteResampleDesc
from dmlvk.operators.byte_softmax import ByteSoftmaxDesc as ByteSoftmaxDesc
from dmlvk.operators.byte_table import ByteTableDesc as ByteTableDesc
from dmlvk.operators.byte_table_mean import ByteTableMeanDesc as ByteTableMeanDesc
from dmlvk.operators.diagonal_matrix import DiagonalMatrixDesc as DiagonalMatrixDesc
from dmlvk.operators.diagonal_matrix1 import DiagonalMatrix1Desc as DiagonalMatrix1Desc
from dmlvk.operators.element_wise_add import ElementWiseAddDesc as ElementWiseAddDesc
from dmlvk.operators.element_wise_dequantize_linear import ElementWiseDequantizeLinearDesc as ElementWiseDequantizeLinearDesc
from dmlvk.operators.element_wise_quantize_linear import ElementWiseQuantizeLinearDesc as ElementWiseQuantizeLinearDesc
from dmlvk.operators.element_wise_quantized_linear_add import ElementWiseQuantizedLinearAddDesc as ElementWiseQuantizedLinearAddDesc
from dmlvk.operators.max_pooling2 import MaxPooling2Desc as MaxPooling2Desc
from dmlvk.operators.one_hot import OneHotDesc as OneHotDesc
from dmlvk.operators.quantized_linear_average_pooling import QuantizedLinearAveragePoolingDesc as QuantizedLinearAveragePoolingDesc
from dmlvk.operators.quantized_linear_convolution import QuantizedLinearConvolutionDesc as QuantizedLinearConvolutionDesc
from dmlvk.operators.quantized_linear_convolution_add import QuantizedLinearConvolutionAddDesc as QuantizedLinearConvolutionAddDesc
from dmlvk.operators.quantized_linear_convolution_table import QuantizedLinearConvolutionTableDesc as QuantizedLinearConvolutionTableDesc
from dmlvk.operators.slice import SliceDesc as SliceDesc
from dmlvk.operators.slice1 import Slice1Desc as Slice1Desc

__all__ = [
    "ActivationReluDesc",
    "ByteLayerNormalizationDesc",
    "ByteResampleDesc",
    "ByteSoftmaxDesc",
    "ByteTableDesc",
    "ByteTableMeanDesc",
    "DiagonalMatrix1Desc",
    "DiagonalMatrixDesc",
    "ElementWiseAddDesc",
    "ElementWiseDequantizeLinearDesc",
    "ElementWiseQuantizeLinearDesc",
    "ElementWiseQuantizedLinearAddDesc",
    "MaxPooling2Desc",
    "OneHotDesc",
    "QuantizedLinearAveragePoolingDesc",
    "QuantizedLinearConvolutionAddDesc",
    "QuantizedLinearConvolutionDesc",
    "QuantizedLinearConvolutionTableDesc",
    "Slice1Desc",
    "SliceDesc",
]
