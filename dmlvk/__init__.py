"""DirectML operators as Vulkan compute kernels: the convolution of quantized tensors, what networks have beside it,
SLICE1, DIAGONAL_MATRIX1 and ONE_HOT. `docs/operators.md` lists them.
"""

import dmlvk.runtime.pickling  # noqa: F401 - tells pickle about compiled operators
from dmlvk import dxdispatch, reference
from dmlvk.data_type import DataType
from dmlvk.device_profile import DeviceProfile, DeviceType
from dmlvk.errors import (
    BindingError,
    DescriptorError,
    DeviceError,
    DeviceLostError,
    OutOfMemoryError,
    PathError,
    ReentryError,
    ValidationError,
    WaitTimeoutError,
)
from dmlvk.functional import (
    byte_table,
    dequantize_linear,
    diagonal_matrix1,
    max_pooling2,
    one_hot,
    quantize_linear,
    quantized_linear_add,
    quantized_linear_average_pooling,
    quantized_linear_convolution,
    slice1,
)
from dmlvk.layers import QuantizedLinearConvolution
from dmlvk.operators import FeatureLevel
from dmlvk.operators import descriptors as _descriptors
from dmlvk.operators.descriptors import *  # noqa: F403 - the registry finds them
from dmlvk.runtime.binding import Binding
from dmlvk.runtime.compiled_operator import CompiledOperator
from dmlvk.runtime.device import Device
from dmlvk.runtime.device_info import DeviceInfo, devices, is_available, rejected_devices
from dmlvk.runtime.sequence import Sequence
from dmlvk.runtime.submission import Submission
from dmlvk.runtime.tensor import Buffer, Tensor
from dmlvk.tensor_desc import TensorDesc, TensorFlags
from dmlvk.version import __version__ as __version__

__all__ = [
    "Binding",
    "BindingError",
    "Buffer",
    "CompiledOperator",
    "DataType",
    "DescriptorError",
    "Device",
    "DeviceError",
    "DeviceInfo",
    "DeviceLostError",
    "DeviceProfile",
    "DeviceType",
    "FeatureLevel",
    "OutOfMemoryError",
    "PathError",
    "QuantizedLinearConvolution",
    "ReentryError",
    "Sequence",
    "Submission",
    "Tensor",
    "TensorDesc",
    "TensorFlags",
    "ValidationError",
    "WaitTimeoutError",
    "byte_table",
    "dequantize_linear",
    "devices",
    "diagonal_matrix1",
    "dxdispatch",
    "is_available",
    "max_pooling2",
    "one_hot",
    "quantize_linear",
    "quantized_linear_add",
    "quantized_linear_average_pooling",
    "quantized_linear_convolution",
    "reference",
    "rejected_devices",
    "slice1",
]
__all__ += _descriptors.__all__

# Modules with public names of their own, shown once they are imported.
_MODULES = ("benchmark", "conformance", "cuda", "dask", "demo", "onnx", "planning", "torch")


def __dir__() -> list[str]:
    """The public names alone: what `dir(dmlvk)` and completion show. Inner modules are there, and can be imported."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__") or name in _MODULES)})
