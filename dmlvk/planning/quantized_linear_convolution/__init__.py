"""How QUANTIZED_LINEAR_CONVOLUTION runs: kernel paths, and the choice between them."""

from dmlvk.planning.quantized_linear_convolution.choice import DIRECT
from dmlvk.planning.quantized_linear_convolution.choice import plan_quantized_linear_convolution as plan
from dmlvk.planning.quantized_linear_convolution.depthwise import DEPTHWISE
from dmlvk.planning.quantized_linear_convolution.first_layer import FIRST_LAYER
from dmlvk.planning.quantized_linear_convolution.halo import HALO
from dmlvk.planning.quantized_linear_convolution.matrix import MATRIX
from dmlvk.planning.quantized_linear_convolution.product import PATHS as PRODUCT_PATHS

__all__ = ["PATHS", "plan"]

PATHS = (DEPTHWISE, FIRST_LAYER, HALO, MATRIX, *PRODUCT_PATHS, DIRECT)
