"""ONNX models on a device, with ONNX Runtime's own calls. Extra: `onnx`."""

try:
    import onnx as _onnx  # noqa: F401
except ImportError as error:
    raise ImportError("dmlvk.onnx needs the package onnx: pip install 'dmlvk[onnx]'") from error

from dmlvk.onnx import backend
from dmlvk.onnx.arguments import NodeArgument
from dmlvk.onnx.errors import ModelError
from dmlvk.onnx.placement import Row
from dmlvk.onnx.quantization_report import LayerLoss, OutputLoss, QuantizationReport, quantization_report
from dmlvk.onnx.quantizer import quantize
from dmlvk.onnx.repetition import Difference
from dmlvk.onnx.session import InferenceSession

__all__ = [
    "Difference",
    "InferenceSession",
    "LayerLoss",
    "ModelError",
    "NodeArgument",
    "OutputLoss",
    "QuantizationReport",
    "Row",
    "backend",
    "quantization_report",
    "quantize",
]
