"""LayerNormalization between DequantizeLinear and QuantizeLinear, as BYTE_LAYER_NORMALIZATION."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dmlvk.onnx.byte_functions import BYTES
from dmlvk.onnx.convolution import require_quantized
from dmlvk.onnx.errors import NotOnDeviceError
from dmlvk.onnx.graph import Graph, Node
from dmlvk.onnx.neighbours import check_scales, rows_of
from dmlvk.onnx.program import ProgramBuilder
from dmlvk.operators import ByteLayerNormalizationDesc
from dmlvk.operators.byte_layer_normalization import LANES, LONGEST_ROW, RANGES

# Where scale and bias are among the inputs, behind those of QLinearAveragePool.
SCALE_AND_BIAS = (5, 6)


def check_normalization(node: Node, graph: Graph) -> None:
    """Refuse floats, and scales that are not constant or have no meaning."""
    if graph.element_type(node.input(0)) not in BYTES:
        raise NotOnDeviceError(
            "it normalizes floats; on the device it does so between a DequantizeLinear and a QuantizeLinear of 8 bits, "
            "with a constant scale and bias"
        )
    for position in (1, 3):
        check_scales((position,))(node, graph)
    if node.attributes.get("stash_type", 1) != 1:
        raise NotOnDeviceError("its attribute 'stash_type' is not 1")


def plan_normalization(node: Node, builder: ProgramBuilder) -> None:
    """Rows of bytes. ONNX Runtime adds up rows of other lengths, and those of other processors, in other orders."""
    source = builder.value(node.inputs[0])
    require_quantized(builder, node.inputs[0])
    rank = len(source.shape)
    axis = node.attributes.get("axis", -1)
    axis += rank if axis < 0 else 0
    if not 0 <= axis < rank:
        raise NotOnDeviceError(f"its axis is no dimension of a tensor of rank {rank}")
    length = math.prod(source.shape[axis:])
    if length % LANES or length > LONGEST_ROW:
        raise NotOnDeviceError(
            f"its rows have {length} elements; on the device a multiple of {LANES}, to {LONGEST_ROW}"
        )
    scale, bias = (
        builder.parameter(node.input(k)) if node.input(k) else np.zeros(source.shape[axis:], np.float32)
        for k in SCALE_AND_BIAS
    )
    if {scale.shape, bias.shape} != {source.shape[axis:]} or not (np.isfinite(scale) & np.isfinite(bias)).all():
        raise NotOnDeviceError("its scale or bias has another shape than a row, or elements that are not finite")
    input_scale, input_zero, output_scale, output_zero = (builder.parameter(node.input(k)).item() for k in range(1, 5))
    numbers: dict[str, Any] = {
        "epsilon": node.attributes.get("epsilon", 1e-5),
        "input_scale": input_scale,
        "output_scale": output_scale,
    }
    for name, exponent in RANGES.items():
        if not 2.0**-exponent <= numbers[name] <= 2.0**exponent:
            raise NotOnDeviceError(
                f"its {name.replace('_', ' ')} is {numbers[name]:g}; on the device from 2^-{exponent} to 2^{exponent}"
            )
    operands, output = rows_of(builder, source, range(axis, rank), 1)
    operands.own("scale_tensor", scale.reshape(-1))
    operands.own("bias_tensor", bias.reshape(-1))
    numbers |= {"input_zero_point": int(input_zero), "output_zero_point": int(output_zero)}
    builder.dispatch(ByteLayerNormalizationDesc(**operands.tensors, **numbers), operands.places, operands.owned)
    builder.set(node.outputs[0], output)
