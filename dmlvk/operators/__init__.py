"""The operators: descriptors, their rules and their minimum feature levels. No Vulkan and no arrays."""

from dmlvk.operators import descriptors as _descriptors
from dmlvk.operators.declared import OperatorDesc
from dmlvk.operators.descriptors import *  # noqa: F403 - the registry finds them
from dmlvk.operators.feature_level import FeatureLevel
from dmlvk.operators.quantized_linear_convolution import ConvolutionGeometry

__all__ = ["ConvolutionGeometry", "FeatureLevel", "OperatorDesc"]
__all__ += _descriptors.__all__
