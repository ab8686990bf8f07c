"""The convolution's neighbours: tables of bytes, additions, pools, QuantizeLinear and DequantizeLinear."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from dmlvk.data_type import DataType
from dmlvk.onnx.byte_functions import BYTES, is_quantized_alone, repeated, table_of
from dmlvk.onnx.convolution import ConvolutionTensors, require_quantized, spatial_arrays
from dmlvk.onnx.errors import NotOnDeviceError
from dmlvk.onnx.graph import ROWS_OF_ONE_AXIS, Graph, Node
from dmlvk.onnx.movement import concatenate
from dmlvk.onnx.program import Array, ProgramBuilder, Value, type_name
from dmlvk.operators import (
    ActivationReluDesc,
    ByteSoftmaxDesc,
    ByteTableDesc,
    ByteTableMeanDesc,
    ElementWiseAddDesc,
    ElementWiseDequantizeLinearDesc,
    ElementWiseQuantizedLinearAddDesc,
    ElementWiseQuantizeLinearDesc,
    MaxPooling2Desc,
    QuantizedLinearAveragePoolingDesc,
)
from dmlvk.operators.byte_softmax import MOST_STEPS
from dmlvk.tensor_desc import TensorDesc

# Scales further apart than this leave the range in which all arithmetic is exact.
LEAST_RATIO = 2.0**-20
# Numbers up to this one, and 255 times this one, have sums that are numbers.
LARGEST_TERM = 2.0**100
# The arrays of a window in the order of `output_size`.
ARRAYS = ("strides", "dilations", "start_padding", "end_padding")
# In rows up to this length, every binary32 logarithm of `_terms` is the nearest one, also in C's library on Linux.
LONGEST_ROW = 1 << 15
_VALUES = np.arange(256, dtype=np.uint8)


def _laid(value: Value, shape: Sequence[int]) -> TensorDesc:
    """A value as a tensor of a shape to which it is broadcast."""
    missing = len(shape) - len(value.shape)
    strides = [0] * missing + [
        stride if size == wanted else 0
        for size, stride, wanted in zip(value.shape, value.strides, shape[missing:], strict=False)
    ]
    return TensorDesc(DataType.from_numpy(value.dtype), tuple(shape) or (1,), strides[: len(shape)] or [1])


def _new(builder: ProgramBuilder, dtype: Any, shape: tuple[int, ...], sources: Sequence[Value]) -> Value:
    """An output, in the memory order of the first source of its shape, or else in ONNX's own order."""
    like = next((source for source in sources if source.shape == shape), None)
    return builder.new(np.dtype(dtype), shape, () if like is None else like.order)


def _dtype(builder: ProgramBuilder, name: str) -> np.dtype[Any]:
    return np.dtype(helper.tensor_dtype_to_np_dtype(builder.graph.element_type(name)))


def _look_up(
    builder: ProgramBuilder, sources: Sequence[Value], table: Array, dtype: Any, axis: int | None = None
) -> Value:
    """A value that a table gives for one value or for pairs of two."""
    shape = np.broadcast_shapes(*(source.shape for source in sources))
    output = _new(builder, dtype, shape, sources)
    operands = ConvolutionTensors(builder)
    for field, source in zip(("input_tensor", "second_input_tensor"), sources, strict=False):
        operands.tensors[field] = _laid(source, shape)
        operands.places[field] = source
    operands.own("table_tensor", table.reshape(-1, 256) if axis is not None else table.reshape(-1))
    operands.tensors["output_tensor"] = _laid(output, shape)
    operands.places["output_tensor"] = output
    builder.dispatch(ByteTableDesc(**operands.tensors, axis=axis), operands.places, operands.owned)
    return output


def plan_byte_table(node: Node, builder: ProgramBuilder) -> None:
    """A chain of functions of one or two bytes: see `dmlvk.onnx.byte_functions`."""
    sources = [builder.value(name) for name in node.inputs]
    shapes = [source.shape for source in sources]
    if any(math.prod(shape) <= 1 for shape in shapes[:1]):
        raise NotOnDeviceError("a tensor has one element: the host's library may then exchange the operands")
    table = table_of(builder.graph, node, shapes)
    axis = node.attributes.get("axis")
    builder.set(node.outputs[0], _look_up(builder, sources, table, _dtype(builder, node.outputs[0]), axis))


def plan_byte_table_mean(node: Node, builder: ProgramBuilder) -> None:
    """A mean over planes of a function of bytes, in ONNX Runtime's order of additions."""
    source, mean = builder.value(node.inputs[0]), node.originals[-1]
    require_quantized(builder, node.inputs[0])
    table = table_of(builder.graph, node, [source.shape])
    if table.dtype != np.float32 or not np.isfinite(table).all():
        raise NotOnDeviceError("its input has values that are no numbers, or no float32")
    # ONNX Runtime's sum may begin at -0, which a QuantizeLinear takes for 0.
    if (np.signbit(table) & (table == 0)).any() and not is_quantized_alone(builder.graph, node.outputs[0]):
        raise NotOnDeviceError("its input has -0, and its output is not quantized")
    table = table + np.float32(0)
    axes, lanes = _order_of_mean(mean, builder, source.shape)
    operands, output = _reduced(mean, builder, source, axes, np.float32)
    operands.own("table_tensor", table)
    desc = ByteTableMeanDesc(**operands.tensors, lane_count=lanes)
    builder.dispatch(desc, operands.places, operands.owned)
    builder.set(node.outputs[0], output)


def plan_extreme(node: Node, builder: ProgramBuilder) -> None:
    """ReduceMax and ReduceMin of 8 bits: a pool over planes. The least byte has the greatest complement."""
    source = builder.value(node.inputs[0])
    dtype = require_quantized(builder, node.inputs[0])
    axes = _reduced_axes(node, builder, len(source.shape))
    is_least = node.op_type == "ReduceMin"
    if is_least:
        source = _look_up(builder, [source], (~_VALUES).view(dtype), dtype)
    operands, output = _reduced(node, builder, source, axes, dtype)
    window = operands.tensors["input_tensor"].sizes[2:]
    arrays: dict[str, Any] = {name: (0 if name.endswith("padding") else 1,) * len(window) for name in ARRAYS}
    desc = MaxPooling2Desc(**operands.tensors, **arrays, window_size=window)
    builder.dispatch(desc, operands.places, operands.owned)
    builder.set(node.outputs[0], _look_up(builder, [output], (~_VALUES).view(dtype), dtype) if is_least else output)


def _reduced(
    node: Node, builder: ProgramBuilder, source: Value, axes: Sequence[int], dtype: Any
) -> tuple[ConvolutionTensors, Value]:
    """The tensors of a reduction: planes, whose elements are reduced to one; and the output."""
    kept_axes = [k for k in range(len(source.shape)) if k not in axes]
    kept, reduced = (_merged(source, each) for each in (kept_axes, axes))
    if len(kept) > 2 or len(reduced) > 3:
        source = builder.in_own_order(source)
        kept, reduced = (_merged(source, each) for each in (kept_axes, axes))
    if len(kept) > 2 or len(reduced) > 3:
        raise NotOnDeviceError(f"its axes {list(axes)} of {list(source.shape)} have too many others between them")
    planes = [(1, 0)] * (2 - len(kept)) + kept
    pixels = [(1, 0)] * (2 - len(reduced)) + reduced
    sizes, strides = zip(*planes, *pixels, strict=True)
    keeps = node.op_type == "GlobalAveragePool" or node.attributes.get("keepdims", 1)
    shape = tuple(1 if k in axes else size for k, size in enumerate(source.shape) if keeps or k not in axes)
    output = builder.new(np.dtype(dtype), shape)
    operands = ConvolutionTensors(builder)
    operands.tensors["input_tensor"] = TensorDesc(DataType.from_numpy(source.dtype), sizes, strides)
    operands.tensors["output_tensor"] = TensorDesc(DataType.from_numpy(output.dtype), (*sizes[:2], *(1,) * len(pixels)))
    operands.places |= {"input_tensor": source, "output_tensor": output}
    return operands, output


def _reduced_axes(node: Node, builder: ProgramBuilder, rank: int) -> list[int]:
    """The dimensions that a node reduces; all of them if it names none."""
    given = builder.integers(node.input(1)) if node.input(1) else list(node.attributes.get("axes", ()))
    if not given and node.attributes.get("noop_with_empty_axes", 0):
        raise NotOnDeviceError("it reduces no dimension")
    axes = sorted({axis + rank if axis < 0 else axis for axis in given}) or list(range(rank))
    if not all(0 <= axis < rank for axis in axes):
        raise NotOnDeviceError(f"its axes {given} are no dimensions of a tensor of rank {rank}")
    return axes


def _order_of_mean(mean: Node, builder: ProgramBuilder, shape: Sequence[int]) -> tuple[list[int], int]:
    """The dimensions of a plane, and the lanes of the order in which ONNX Runtime adds up its elements."""
    rank = len(shape)
    if mean.op_type == "GlobalAveragePool":
        if rank not in (3, 4, 5):
            raise NotOnDeviceError(f"its input has rank {rank}; on the device a pool takes 3 to 5")
        return list(range(2, rank)), 4
    axes = _reduced_axes(mean, builder, rank)
    # Whether neighbouring dimensions are reduced, and their elements: ONNX Runtime chooses its loops by that.
    groups = [(reduces, [*group]) for reduces, group in groupby(range(rank), axes.__contains__)]
    if len(groups) > 2 and not groups[0][0] and math.prod(shape[k] for k in groups[0][1]) == 1:
        del groups[0]
    order = [reduces for reduces, _ in groups]
    if order in ([True], [False, True]):
        return axes, 8
    if order == [True, False] or math.prod(shape[k] for k in axes) == 1:
        return axes, 1
    raise NotOnDeviceError(
        f"a mean over the axes {axes} of {list(shape)}, neither the first nor the last: the order of ONNX Runtime's "
        "additions depends on its threads"
    )


def _merged(value: Value, axes: Sequence[int]) -> list[tuple[int, int]]:
    """Sizes and strides of some dimensions of a value, in their order, as few as they are in memory."""
    found: list[tuple[int, int]] = []
    for size, stride in ((value.shape[k], value.strides[k]) for k in axes if value.shape[k] != 1):
        if found and found[-1][1] == size * stride:
            found[-1] = found[-1][0] * size, stride
        else:
            found.append((size, stride))
    return found


def _add_parameters(operands: ConvolutionTensors, names: Mapping[str, str], rank: int) -> None:
    """Add scales and zero points of one element."""
    for field, name in names.items():
        if not name:
            continue
        shape, _ = operands.builder.kind(name)
        if math.prod(shape) != 1:
            raise NotOnDeviceError(f"{name!r} has the shape {shape}; on the device it has one element")
        operands.add(field, name, (1,) * rank)


def plan_add(node: Node, builder: ProgramBuilder) -> None:
    """QLinearAdd: ONNX Runtime takes the operand that is repeated along the last dimension second."""
    first, second = ((node.input(k), node.input(k + 1), node.input(k + 2)) for k in (0, 3))
    if repeated(*(builder.kind(operand[0])[0] for operand in (first, second))) == 0:
        first, second = second, first
    a, b = (builder.value(operand[0]) for operand in (first, second))
    shape = np.broadcast_shapes(a.shape, b.shape)
    dtype = require_quantized(builder, node.input(7)) if node.input(7) else a.dtype
    for name in (first[0], second[0]):
        require_quantized(builder, name)
    output = _new(builder, dtype, shape, (a, b))
    operands = ConvolutionTensors(builder)
    for field, value in (("a_tensor", a), ("b_tensor", b), ("output_tensor", output)):
        operands.tensors[field], operands.places[field] = _laid(value, shape), value
    names = {"output_scale_tensor": node.input(6), "output_zero_point_tensor": node.input(7)}
    for letter, operand in (("a", first), ("b", second)):
        names |= {f"{letter}_scale_tensor": operand[1], f"{letter}_zero_point_tensor": operand[2]}
    _add_parameters(operands, names, max(len(shape), 1))
    desc = ElementWiseQuantizedLinearAddDesc(**operands.tensors)
    builder.dispatch(desc, operands.places, operands.owned)
    builder.set(node.outputs[0], output)


def plan_sum(node: Node, builder: ProgramBuilder) -> None:
    """Add and Sum of float32: each operand is added to those before it, as in ONNX Runtime."""
    total, *others = (builder.value(name) for name in node.inputs)
    for other in others:
        total = _of_floats(builder, ElementWiseAddDesc, {"a_tensor": total, "b_tensor": other})
    builder.set(node.outputs[0], total)


def plan_difference(node: Node, builder: ProgramBuilder) -> None:
    """Sub of float32: a sum with the second operand's sign turned."""
    name = node.inputs[1]
    constant = builder.constant(name)
    if constant is not None:
        negative = builder.new(np.dtype(np.float32), constant.shape)
        builder.program.constants[negative.storage] = -constant
    else:
        # Its elements are four bytes, of which the last one has the sign.
        value = builder.value(name)
        rank = len(value.shape)
        order = (*value.order, rank) if value.order else ()
        single = replace(value, dtype=np.dtype(np.uint8), shape=(*value.shape, 4), order=order)
        tables = np.stack([_VALUES, _VALUES, _VALUES, _VALUES ^ 128])
        turned = _look_up(builder, [single], tables, np.uint8, rank)
        negative = replace(turned, dtype=value.dtype, shape=value.shape, order=value.order)
    operands = {"a_tensor": builder.value(node.inputs[0]), "b_tensor": negative}
    builder.set(node.outputs[0], _of_floats(builder, ElementWiseAddDesc, operands))


def plan_relu(node: Node, builder: ProgramBuilder) -> None:
    """Relu of float32."""
    source = {"input_tensor": builder.value(node.inputs[0])}
    builder.set(node.outputs[0], _of_floats(builder, ActivationReluDesc, source))


def _of_floats(builder: ProgramBuilder, kind: Any, sources: Mapping[str, Value]) -> Value:
    """What an operator on each element gives for floats, which are broadcast."""
    shape = np.broadcast_shapes(*(source.shape for source in sources.values()))
    output = _new(builder, np.float32, shape, list(sources.values()))
    places = {**sources, "output_tensor": output}
    builder.dispatch(kind(**{field: _laid(value, shape) for field, value in places.items()}), places)
    return output


def check_floats(node: Node, graph: Graph) -> None:
    """Refuse other elements than float32, and a sum of one operand."""
    element = graph.element_type(node.input(0))
    if element != TensorProto.FLOAT:
        raise NotOnDeviceError(f"it has elements of {type_name(element)}; on the device they are float32")
    if node.op_type == "Sum" and len(node.inputs) < 2:
        raise NotOnDeviceError("it has one operand")


def check_difference(node: Node, graph: Graph) -> None:
    """Refuse to subtract what may be no number, whose sign a difference keeps."""
    check_floats(node, graph)
    producers, pending = graph.producers(), [node.input(1)]
    while pending:
        name = pending.pop()
        producer, constant = producers.get(name), graph.constant(name)
        if producer is not None and producer.op_type in ("Add", "Sub"):
            pending += producer.reads
        elif constant is None and producer is not None and producer.op_type == "DequantizeLinear":
            check_dequantize(producer, graph)
            constant = graph.constant(producer.input(1))
        elif constant is None:
            raise NotOnDeviceError(f"it subtracts {name!r}, which may be no number")
        if constant is not None and not (np.abs(constant) <= LARGEST_TERM).all():
            raise NotOnDeviceError(f"it subtracts {name!r}, whose sums may be no numbers")


def check_scales(positions: Sequence[int]) -> Any:
    """Refuse a node whose scales are 0, infinite, NaN or negative, or far from the last of them, which is the output's.

    ONNX Runtime gives the type's least value where a result is beyond 2^31 steps of the output, a device its largest.
    """

    def check(node: Node, graph: Graph) -> None:
        for position in positions:
            scale = graph.constant(node.input(position))
            if scale is None:
                raise NotOnDeviceError(f"the scale {node.input(position)!r} is not constant")
            if not (np.isfinite(scale) & (scale > 0)).all():
                raise NotOnDeviceError(f"the scale {node.input(position)!r} is not a positive number")
            output = np.asarray(graph.constant(node.input(positions[-1])), np.float64).max()
            if not (np.asarray(scale, np.float64) / output >= LEAST_RATIO).all() or scale.max() > output / LEAST_RATIO:
                raise NotOnDeviceError(f"the scale {node.input(position)!r} is far from the output's, {output:g}")

    return check


def _quantization(node: Node, builder: ProgramBuilder, source: Value, operands: ConvolutionTensors) -> None:
    """Scale and zero point of a conversion: one element, or one for each index along the axis."""
    shape = source.shape or (1,)
    rank = len(shape)
    for field, position in (("scale_tensor", 1), ("zero_point_tensor", 2)):
        constant = builder.constant(node.input(position)) if node.input(position) else None
        if node.input(position) and constant is None:
            raise NotOnDeviceError(f"its input {node.input(position)!r} is not constant")
        if constant is None or (field == "zero_point_tensor" and not constant.any()):
            continue
        if constant.size == 1:
            operands.own(field, constant.reshape((1,) * rank))
        else:
            axis = node.attributes.get("axis", 1)
            axis += rank if axis < 0 else 0
            if node.attributes.get("block_size", 0) or not 0 <= axis < rank or constant.shape != (shape[axis],):
                raise NotOnDeviceError(
                    f"{node.input(position)!r} has the shape {constant.shape}, for a tensor of shape {shape}"
                )
            along = [shape[axis] if k == axis else 1 for k in range(rank)]
            # One element for each index along the axis, which the other dimensions repeat.
            value = builder.value(node.input(position))
            repeated_value = replace(value, shape=tuple(along), order=())
            operands.tensors[field] = _laid(repeated_value, shape)
            operands.places[field] = value


def plan_quantize(node: Node, builder: ProgramBuilder) -> None:
    """QuantizeLinear of float32 to 8 bits."""
    source = builder.value(node.inputs[0])
    dtype = _dtype(builder, node.outputs[0])
    if source.dtype != np.float32 or dtype not in (np.dtype(np.uint8), np.dtype(np.int8)):
        raise NotOnDeviceError(
            f"it converts {source.dtype.name} to {dtype.name}; on the device it converts float32 to 8 bits"
        )
    _plan_conversion(node, builder, source, dtype, ElementWiseQuantizeLinearDesc)


def plan_dequantize(node: Node, builder: ProgramBuilder) -> None:
    """DequantizeLinear of 8 bits to float32."""
    source = builder.value(node.inputs[0])
    require_quantized(builder, node.inputs[0])
    scale = builder.constant(node.input(1))
    if scale is None or scale.dtype != np.float32:
        raise NotOnDeviceError("its scale is not a constant of float32")
    _plan_conversion(node, builder, source, np.float32, ElementWiseDequantizeLinearDesc)


def _plan_conversion(node: Node, builder: ProgramBuilder, source: Value, dtype: Any, kind: Any) -> None:
    output = _new(builder, dtype, source.shape, (source,))
    operands = ConvolutionTensors(builder)
    for field, value in (("input_tensor", source), ("output_tensor", output)):
        operands.tensors[field], operands.places[field] = _laid(value, source.shape), value
    _quantization(node, builder, source, operands)
    builder.dispatch(kind(**operands.tensors), operands.places, operands.owned)
    builder.set(node.outputs[0], output)


def _pooled(
    node: Node, builder: ProgramBuilder, source: Value, dtype: Any, window: Sequence[int] | None
) -> tuple[ConvolutionTensors, dict[str, Any], Value]:
    """The tensors and arrays of a pool, of which ONNX may have one to three spatial dimensions; and the output."""
    channels_last = bool(node.attributes.get("channels_last", 0))
    rank = len(source.shape)
    if rank not in (3, 4, 5):
        raise NotOnDeviceError(f"its input has rank {rank}; on the device a pool takes 3 to 5")
    by_field = (0, rank - 1, *range(1, rank - 1)) if channels_last else tuple(range(rank))
    sizes = tuple(source.shape[k] for k in by_field)
    taps = tuple(sizes[2:] if window is None else window)
    if window is None:
        geometry = {"strides": (1,) * len(taps), "dilations": (1,) * len(taps)}
        geometry |= {"start_padding": (0,) * len(taps), "end_padding": (0,) * len(taps)}
    else:
        geometry = spatial_arrays(node.attributes, sizes[2:], taps)
    if node.attributes.get("ceil_mode", 0):
        geometry["end_padding"] = _ceiled(sizes[2:], taps, geometry)
    # Where no window reaches the end of the input, the device is given a smaller input, or a stride beyond its end if
    # there is one window alone: an average of a whole plane has another formula.
    unread = [max(-end, 0) for end in geometry["end_padding"]]
    strides = list(geometry["strides"])
    for k, (size, reach) in enumerate(zip(sizes[2:], reaches(taps, geometry), strict=True)):
        if unread[k] and geometry["start_padding"][k] + size - unread[k] == reach:
            strides[k], unread[k] = size + geometry["start_padding"][k], 0
    geometry["strides"] = tuple(strides)
    sizes = (*sizes[:2], *(size - rest for size, rest in zip(sizes[2:], unread, strict=True)))
    geometry["end_padding"] = tuple(max(end, 0) for end in geometry["end_padding"])
    spatial = tuple(
        (size + start + end - (tap - 1) * dilation - 1) // stride + 1
        for size, tap, stride, dilation, start, end in zip(
            sizes[2:], taps, *(geometry[name] for name in ARRAYS), strict=True
        )
    )
    if min(spatial) < 1:
        raise NotOnDeviceError(f"the padded input of sizes {sizes} is smaller than the window {taps}")
    pooled = (*sizes[:2], *spatial)
    shape = tuple(pooled[by_field.index(k)] for k in range(rank))
    output = builder.new(np.dtype(dtype), shape, source.order)
    operands = ConvolutionTensors(builder)
    for field, value in (("input_tensor", source), ("output_tensor", output)):
        laid = list(sizes if value is source else pooled), [value.strides[k] for k in by_field]
        if rank == 3:  # a row of pixels
            laid = ([*laid[0][:2], 1, laid[0][2]], [*laid[1][:2], 0, laid[1][2]])
        operands.tensors[field] = TensorDesc(DataType.from_numpy(value.dtype), *laid)
        operands.places[field] = value
    if rank == 3:
        neutral = {"strides": 1, "dilations": 1, "start_padding": 0, "end_padding": 0}
        geometry = {name: (neutral[name], *values) for name, values in geometry.items()}
        taps = (1, *taps)
    return operands, {**geometry, "window_size": taps}, output


def reaches(taps: Sequence[int], geometry: Mapping[str, Sequence[int]]) -> list[int]:
    """The elements from the first to the last tap of a window."""
    return [(tap - 1) * dilation + 1 for tap, dilation in zip(taps, geometry["dilations"], strict=True)]


def _ceiled(sizes: Sequence[int], taps: Sequence[int], geometry: Mapping[str, Sequence[int]]) -> tuple[int, ...]:
    """The end padding with which floor gives what ceil_mode asks for; negative where windows end before the input."""
    found = []
    for size, tap, stride, dilation, start, end in zip(sizes, taps, *(geometry[name] for name in ARRAYS), strict=True):
        reach = (tap - 1) * dilation + 1
        count = -(-(size + start + end - reach) // stride) + 1
        # A window that would begin behind the input and its start padding is left out.
        count -= (count - 1) * stride >= size + start
        found.append((count - 1) * stride + reach - size - start)
    return tuple(found)


def plan_max_pool(node: Node, builder: ProgramBuilder) -> None:
    """MaxPool of 8 bits."""
    source = builder.value(node.inputs[0])
    require_quantized(builder, node.inputs[0])
    if len(node.writes) != 1 or node.writes[0] != node.outputs[0]:
        raise NotOnDeviceError("its second output, the indices, are int64")
    operands, arrays, output = _pooled(node, builder, source, source.dtype, node.attributes["kernel_shape"])
    builder.dispatch(MaxPooling2Desc(**operands.tensors, **arrays), operands.places, operands.owned)
    builder.set(node.outputs[0], output)


def plan_average_pool(node: Node, builder: ProgramBuilder) -> None:
    """QLinearAveragePool and QLinearGlobalAveragePool of com.microsoft."""
    source = builder.value(node.inputs[0])
    require_quantized(builder, node.inputs[0])
    dtype = require_quantized(builder, node.input(4)) if node.input(4) else source.dtype
    is_global = node.op_type == "QLinearGlobalAveragePool"
    window = None if is_global else node.attributes["kernel_shape"]
    operands, arrays, output = _pooled(node, builder, source, dtype, window)
    names = {"input_scale_tensor": 1, "input_zero_point_tensor": 2}
    names |= {"output_scale_tensor": 3, "output_zero_point_tensor": 4}
    _add_parameters(operands, {field: node.input(position) for field, position in names.items()}, 1)
    include = bool(node.attributes.get("count_include_pad", 0))
    desc = QuantizedLinearAveragePoolingDesc(**operands.tensors, **arrays, include_padding=include)
    builder.dispatch(desc, operands.places, operands.owned)
    builder.set(node.outputs[0], output)


def plan_softmax(node: Node, builder: ProgramBuilder) -> None:
    """QLinearSoftmax of com.microsoft: one dimension is a row, or, in models of old versions, all from the axis on."""
    source = builder.value(node.inputs[0])
    require_quantized(builder, node.inputs[0])
    rank = len(source.shape)
    is_old, axis = node.attributes["opset"] < ROWS_OF_ONE_AXIS, node.attributes.get("axis", -1)
    axis += rank if axis < 0 else 0
    if not 0 <= axis < rank:
        raise NotOnDeviceError(f"its axis is no dimension of a tensor of rank {rank}")
    axes = range(axis, rank) if is_old else (axis,)
    length = math.prod(source.shape[k] for k in axes)
    scale, result = (builder.parameter(node.input(k)).reshape(()) for k in (1, 3))
    steps = int(np.floor(np.float32(1) / result))
    if length > LONGEST_ROW or not 1 <= steps <= MOST_STEPS:
        raise NotOnDeviceError(
            f"a row of {length} elements in steps of {result:g}; on the device it has {LONGEST_ROW} or fewer, "
            f"in steps from {1 / MOST_STEPS:g} to 1"
        )
    operands, output = rows_of(builder, source, axes, 2)
    operands.own("table_tensor", _terms(scale, length))
    zero = int(builder.parameter(node.input(4)).reshape(())) if node.input(4) else 0
    desc = ByteSoftmaxDesc(**operands.tensors, output_steps=steps, output_zero_point=zero)
    builder.dispatch(desc, operands.places, operands.owned)
    builder.set(node.outputs[0], output)


def rows_of(
    builder: ProgramBuilder, source: Value, axes: Sequence[int], count: int
) -> tuple[ConvolutionTensors, Value]:
    """The tensors of an operator on rows, which lie along some axes, with the others as so many; and the output."""
    others = [k for k in range(len(source.shape)) if k not in axes]
    if len(_merged(source, others)) > count or len(_merged(source, axes)) > 1:
        source = builder.in_own_order(source)
    rows, row = _merged(source, others), _merged(source, axes)
    sizes, strides = zip(*[(1, 0)] * (count - len(rows)), *rows, *(row or [(1, 1)]), strict=True)
    output = _new(builder, source.dtype, source.shape, (source,))
    operands = ConvolutionTensors(builder)
    for field, value in (("input_tensor", source), ("output_tensor", output)):
        tensor = TensorDesc(DataType.from_numpy(value.dtype), sizes, strides)
        operands.tensors[field], operands.places[field] = tensor, value
    return operands, output


def _terms(scale: Array, length: int) -> Array:
    """The table that ONNX Runtime makes for rows of a length: exponentials so large that the sum of a row is finite."""
    largest = np.finfo(np.float32).max / np.float32(length)
    step = float(scale)
    shift = max(0.0, float(np.float32(math.log(largest))) - 5.0) / step
    return np.array([math.exp((level - 255 + shift) * step) for level in range(256)]).astype(np.float32)


def check_softmax(node: Node, graph: Graph) -> None:
    """Refuse what the table follows from and is not constant."""
    for position in (1, 3):  # neither depends on the other
        check_scales((position,))(node, graph)
    if "opset" not in node.attributes or (node.input(4) and graph.constant(node.input(4)) is None):
        raise NotOnDeviceError("it has no attribute 'opset', or its zero point is not constant")


def _is_bytes(name: str, graph: Graph) -> bool:
    return graph.element_type(name) in BYTES


def check_max_pool(node: Node, graph: Graph) -> None:
    """Refuse a pool of floats."""
    if not _is_bytes(node.input(0), graph):
        raise NotOnDeviceError("its input has no elements of 8 bits; the device pools no floats")


def check_quantize(node: Node, graph: Graph) -> None:
    """Refuse what is not from float32 to 8 bits with a constant scale."""
    if not _is_bytes(node.outputs[0], graph):
        raise NotOnDeviceError("its output has no elements of 8 bits")
    check_scales((1,))(node, graph)


def check_dequantize(node: Node, graph: Graph) -> None:
    """Refuse what is not from 8 bits to float32 with a constant scale."""
    if not _is_bytes(node.input(0), graph):
        raise NotOnDeviceError("its input has no elements of 8 bits")
    if graph.is_constant(node.input(0)):
        raise NotOnDeviceError("its input is constant")
    check_scales((1,))(node, graph)


def plan_where(node: Node, builder: ProgramBuilder) -> None:
    """Where of bytes, and QLinearWhere: an operand of another scale or zero point than the output goes by its table."""
    operands = [node.input(k) for k in ((1, 2) if not node.domain else (1, 4))]
    dtypes = [require_quantized(builder, name) for name in operands]
    tables = [_VALUES.view(dtype) for dtype in dtypes]
    if node.domain:
        result = [builder.parameter(node.input(k)) for k in (7, 8)]
        for k, (dtype, position) in enumerate(zip(dtypes, (2, 5), strict=True)):
            own = [builder.parameter(node.input(position + each)) for each in (0, 1)]
            if any(array.size != 1 for array in (*own, *result)) or {own[1].dtype, result[1].dtype} != {dtype}:
                raise NotOnDeviceError("its scales or zero points have several elements, or these other types")
            if [array.item() for array in own] != [array.item() for array in result]:
                tables[k] = requantized(*(array.reshape(()) for array in (*own, *result)))
    condition = replace(builder.value(node.input(0)), dtype=np.dtype(np.uint8))
    is_true = (_VALUES != 0)[:, None]
    shapes = [builder.kind(name)[0] for name in operands]
    shape = np.broadcast_shapes(condition.shape, *shapes)

    def choose(position: int, otherwise: Array) -> Value:
        """An operand where the condition chooses it, and another byte elsewhere."""
        chosen, table = is_true if position == 0 else ~is_true, tables[position]
        pairs = np.where(chosen, table, otherwise.astype(table.dtype))
        return _look_up(builder, [condition, builder.value(operands[position])], pairs, table.dtype)

    for position, name in enumerate(operands):
        constant = builder.constant(name)
        if constant is not None and constant.size == 1 and len(constant.shape) <= len(shapes[1 - position]):
            byte = tables[position][constant.reshape(()).view(np.uint8)]
            builder.set(node.outputs[0], choose(1 - position, byte))
            break
    else:
        both = [choose(position, np.zeros((), np.uint8)) for position in (0, 1)]
        joined = (_VALUES[:, None] | _VALUES).view(dtypes[0])
        builder.set(node.outputs[0], _look_up(builder, both, joined, dtypes[0]))
    assert builder.kind(node.outputs[0])[0] == shape, "operands of one element add no dimension"


def check_where(node: Node, graph: Graph) -> None:
    """Refuse elements of more than 8 bits, and scales that are not constant or have no meaning."""
    if not _is_bytes(node.input(1), graph):
        raise NotOnDeviceError("its operands have no elements of 8 bits")
    if node.domain:
        check_scales((2, 5, 7))(node, graph)


def plan_quantized_concat(node: Node, builder: ProgramBuilder) -> None:
    """QLinearConcat: inputs of another scale or zero point go through a table first."""
    scale, zero = (builder.parameter(node.input(k)) for k in (0, 1))
    names = []
    for number, position in enumerate(range(2, len(node.inputs), 3)):
        name = node.input(position)
        require_quantized(builder, name)
        own = [builder.parameter(node.input(position + k)) for k in (1, 2)]
        if any(array.size != 1 for array in (scale, zero, *own)):
            raise NotOnDeviceError("a scale or zero point of several elements")
        if own[0].item() != scale.item() or own[1].item() != zero.item() or own[1].dtype != zero.dtype:
            table = requantized(own[0].reshape(()), own[1].reshape(()), scale.reshape(()), zero.reshape(()))
            value = _look_up(builder, [builder.value(name)], table, zero.dtype)
            name = f"{node.outputs[0]}:{number}"  # a name that no other value has
            builder.set(name, value)
        names.append(name)
    concatenate(builder, names, node.attributes["axis"], node.outputs[0])


def requantized(scale: Array, zero: Array, new_scale: Array, new_zero: Array) -> Array:
    """QuantizeLinear of DequantizeLinear of all bytes, in binary32: it rounds after each operation."""
    values = np.arange(256, dtype=np.uint8).view(zero.dtype).astype(np.float32)
    limits = np.iinfo(new_zero.dtype)
    real = (values - zero.astype(np.float32)) * scale
    with np.errstate(over="ignore"):
        steps = np.rint(real / new_scale) + new_zero.astype(np.float32)
    return np.clip(steps, limits.min, limits.max).astype(new_zero.dtype)


def check_quantized_concat(node: Node, graph: Graph) -> None:
    """Refuse what the tables need and is not constant."""
    check_scales((0, *range(3, len(node.inputs), 3)))(node, graph)
