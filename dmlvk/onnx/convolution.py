"""Nodes that become QUANTIZED_LINEAR_CONVOLUTION: QLinearConv, and products of matrices."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dmlvk.data_type import DataType
from dmlvk.onnx.errors import NotOnDeviceError
from dmlvk.onnx.graph import Graph, Node
from dmlvk.onnx.program import Array, ProgramBuilder
from dmlvk.operators import QuantizedLinearConvolutionDesc
from dmlvk.operators.quantized_linear_convolution import output_size
from dmlvk.tensor_desc import TensorDesc, TensorFlags

# The inputs of QLinearConv, and the fields that they become.
CONVOLUTION_FIELDS = (
    "input_tensor",
    "input_scale_tensor",
    "input_zero_point_tensor",
    "filter_tensor",
    "filter_scale_tensor",
    "filter_zero_point_tensor",
    "output_scale_tensor",
    "output_zero_point_tensor",
    "bias_tensor",
)
SMALLEST_NORMAL = np.finfo(np.float32).tiny
QUANTIZED = (np.dtype(np.int8), np.dtype(np.uint8))


@dataclass
class ConvolutionTensors:
    """The tensors of a convolution: described, and either owned or placed."""

    builder: ProgramBuilder
    tensors: dict[str, Any] = field(default_factory=dict)
    places: dict[str, Any] = field(default_factory=dict)
    owned: dict[str, Array] = field(default_factory=dict)

    def add(self, name: str, value: str, sizes: tuple[int, ...]) -> None:
        """Add a parameter: owned by the operator if it is constant, else a tensor of each run."""
        constant = self.builder.constant(value)
        if constant is not None:
            self.own(name, constant.reshape(sizes))
            return
        placed = self.builder.packed(value)
        self.tensors[name] = TensorDesc(DataType.from_numpy(placed.dtype), sizes)
        self.places[name] = placed

    def is_zero(self, value: str) -> bool:
        """Whether a parameter is known to be 0."""
        constant = self.builder.constant(value)
        return constant is not None and not constant.any()

    def own(self, name: str, array: Array) -> None:
        """Give a parameter to the operator."""
        array = np.ascontiguousarray(array)
        data_type = DataType.from_numpy(array.dtype)
        self.tensors[name] = TensorDesc(data_type, array.shape, flags=TensorFlags.OWNED_BY_DML)
        self.owned[name] = array


def require_exact_scales(scales: Sequence[Array], *, are_constant: bool = False) -> None:
    """Refuse scales with which sums cannot be scaled as ONNX Runtime scales them.

    It multiplies a sum by input scale x filter scale / output scale. Where a step of that leaves the normal range of
    float32, kernels and ONNX Runtime part: 0 times infinity is NaN, and a GPU may take denormals for 0.

    scales: of the input, of the filter (one, or one for each channel) and of the output.
    are_constant: whether a plan can give the device others with the same total: see `_with_normal_product`.
    Raises NotOnDeviceError: with the scale.
    """
    source, filters, output = (np.asarray(scale, np.float32).reshape(-1) for scale in scales)
    if 1 not in (source.size, filters.size) or 1 not in (max(source.size, filters.size), output.size):
        return  # of sizes that no convolution has, which its plan refuses
    with np.errstate(all="ignore"):
        product = source * filters
        steps = (source, filters, output, product, product / output)
    for name, step in zip(("input", "filter", "output", "input times filter", "total"), steps, strict=True):
        if are_constant and name in ("input times filter", "total") and np.isfinite(step).all() and step.all():
            continue
        wrong = step[~(np.isfinite(step) & (np.abs(step) >= SMALLEST_NORMAL))]
        if wrong.size:
            raise NotOnDeviceError(f"its {name} scale is {wrong[0]:g}, which is no normal float32")


def _parameter_sizes(builder: ProgramBuilder, name: str, dtype: Any, channels: int = 1) -> tuple[int, ...]:
    """The sizes of a scale or zero point: one element, or one for each channel."""
    shape, found = builder.kind(name)
    if found != dtype:
        raise NotOnDeviceError(f"{name!r} has elements of {found.name}; on the device they are {np.dtype(dtype).name}")
    count = math.prod(shape)
    if count != 1 and (len(shape) != 1 or count != channels):
        wanted = "one element" if channels == 1 else f"one element or ({channels},)"
        raise NotOnDeviceError(f"{name!r} has the shape {shape}; on the device it has {wanted}")
    return (count,)


def require_quantized(builder: ProgramBuilder, name: str) -> np.dtype[Any]:
    _, dtype = builder.kind(name)
    if dtype not in QUANTIZED:
        raise NotOnDeviceError(f"{name!r} has elements of {dtype.name}; on the device they are int8 or uint8")
    return dtype


def plan_convolution(node: Node, builder: ProgramBuilder) -> None:
    """QLinearConv of ONNX, and that of com.microsoft, which may have its channels last."""
    names = {name: node.input(k) for k, name in enumerate(CONVOLUTION_FIELDS)}
    channels_last = bool(node.attributes.get("channels_last", 0))
    shape, input_type = builder.kind(names["input_tensor"])
    filter_shape, _ = builder.kind(names["filter_tensor"])
    rank = len(shape)
    if rank not in (3, 4) or len(filter_shape) != rank:
        raise NotOnDeviceError(f"it has {max(rank - 2, 0)} spatial dimensions; on the device a convolution has 1 or 2")
    if 0 in (*shape, *filter_shape):
        raise NotOnDeviceError(f"a tensor has no elements, {shape if 0 in shape else filter_shape}")
    sizes = (shape[0], shape[-1], *shape[1:-1]) if channels_last else shape
    geometry = spatial_arrays(node.attributes, sizes[2:], filter_shape[2:])
    filters = filter_shape[0]
    spatial = tuple(
        output_size(size, taps, stride, dilation, start, end)
        for size, taps, stride, dilation, start, end in zip(
            sizes[2:], filter_shape[2:], *geometry.values(), strict=True
        )
    )
    if min(spatial) < 1:
        raise NotOnDeviceError(f"the padded input of sizes {sizes} is smaller than the filter of sizes {filter_shape}")
    output_type = input_type
    if names["output_zero_point_tensor"]:
        output_type = require_quantized(builder, names["output_zero_point_tensor"])
    if channels_last:
        output = builder.new(output_type, (sizes[0], *spatial, filters))
    else:
        order = (0, *range(2, rank), 1) if node.outputs[0] in builder.channels_last else ()
        output = builder.new(output_type, (sizes[0], filters, *spatial), order)

    require_quantized(builder, names["input_tensor"])
    operands = ConvolutionTensors(builder)
    for name, value in (("input_tensor", builder.value(names["input_tensor"])), ("output_tensor", output)):
        # The convolution's dimensions are batch, channels, pixels: `by_field` has the node's dimension of each.
        by_field = (0, rank - 1, *range(1, rank - 1)) if channels_last else tuple(range(rank))
        operands.tensors[name] = TensorDesc(
            DataType.from_numpy(value.dtype),
            [value.shape[k] for k in by_field],
            [value.strides[k] for k in by_field] if channels_last or value.order else None,
        )
        operands.places[name] = value
    filter_type = require_quantized(builder, names["filter_tensor"])
    operands.add("filter_tensor", names["filter_tensor"], filter_shape)
    _add_quantization(operands, names, (input_type, filter_type, output_type), filters)
    if names["bias_tensor"]:
        bias_shape, bias_type = builder.kind(names["bias_tensor"])
        if bias_shape != (filters,) or bias_type != np.int32:
            raise NotOnDeviceError(
                f"its bias has shape {bias_shape} and type {bias_type.name}; it is int32 ({filters},)"
            )
        operands.add("bias_tensor", names["bias_tensor"], (1, filters, 1, 1)[:rank])
    _with_normal_product(operands)
    desc = QuantizedLinearConvolutionDesc(**operands.tensors, **geometry, group_count=node.attributes.get("group", 1))
    builder.dispatch(desc, operands.places, operands.owned)
    builder.set(node.outputs[0], output)


def _add_quantization(
    operands: ConvolutionTensors, names: Mapping[str, str], types: tuple[np.dtype[Any], ...], channels: int
) -> None:
    for kind, dtype in zip(("input", "filter", "output"), types, strict=True):
        count = channels if kind == "filter" else 1
        for suffix, element in (("scale", np.float32), ("zero_point", dtype)):
            name = f"{kind}_{suffix}_tensor"
            if not names[name]:
                continue
            sizes = _parameter_sizes(operands.builder, names[name], element, count)
            # ONNX requires a filter's zero point. A kernel that knows it to be 0 is shorter.
            if name != "filter_zero_point_tensor" or not operands.is_zero(names[name]):
                operands.add(name, names[name], sizes)


def _with_normal_product(operands: ConvolutionTensors) -> None:
    """Where a step of the total scale is a denormal, put the total in the filter's place, and 1 in the others'.

    Quantizers give such scales to branches and channels whose values are all zero. A sum, of at most 2^31, times a
    denormal rounds to 0, as it does times the least normal number.
    """
    fields = ("input_scale_tensor", "filter_scale_tensor", "output_scale_tensor")
    if not all(field in operands.owned for field in fields):
        return
    source, filters, output = (np.asarray(operands.owned[field], np.float32) for field in fields)
    with np.errstate(all="ignore"):
        product = source * filters
        total = product / output
    if min(np.abs(product).min(), np.abs(total).min()) < SMALLEST_NORMAL:
        total = np.where(np.abs(total) < SMALLEST_NORMAL, np.float32(SMALLEST_NORMAL), total)
        for field, array in zip(fields, (np.ones_like(source), total, np.ones_like(output)), strict=True):
            operands.own(field, array)


def _rows_desc(dtype: np.dtype[Any], channels: int, rows: int) -> TensorDesc:
    """A matrix as pixels in a row, channels last."""
    return TensorDesc(
        DataType.from_numpy(dtype), (1, channels, 1, rows), (rows * channels, 1, rows * channels, channels)
    )


def spatial_arrays(attributes: Mapping[str, Any], sizes: Sequence[int], taps: Sequence[int]) -> dict[str, Any]:
    """Strides, dilations and paddings of a convolution's attributes, in the order of `output_size`.

    Raises NotOnDeviceError: the attributes do not fit the filter, or they are such that ONNX and its runtimes do not
        agree about them.
    """
    rank = len(sizes)
    if tuple(attributes.get("kernel_shape", taps)) != tuple(taps):
        raise NotOnDeviceError(f"kernel_shape {attributes['kernel_shape']} is not the filter's, {list(taps)}")
    strides = tuple(attributes.get("strides", (1,) * rank))
    dilations = tuple(attributes.get("dilations", (1,) * rank))
    pads = tuple(attributes.get("pads", (0,) * 2 * rank))
    if len(strides) != rank or len(dilations) != rank or len(pads) != 2 * rank or min(pads) < 0:
        raise NotOnDeviceError(f"strides {strides}, dilations {dilations} or pads {pads} do not fit {rank} dimensions")
    if min(*strides, *dilations) < 1:
        raise NotOnDeviceError(f"strides {strides} or dilations {dilations} are below 1")
    start, end = pads[:rank], pads[rank:]
    auto_pad = attributes.get("auto_pad", b"NOTSET").decode()
    if auto_pad == "VALID":
        start = end = (0,) * rank
    elif auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        if max(dilations) > 1:
            raise NotOnDeviceError(f"ONNX Runtime refuses auto_pad {auto_pad} with dilations {dilations}")
        needed = [
            (-(-size // step) - 1) * step + tap - size for size, step, tap in zip(sizes, strides, taps, strict=True)
        ]
        if min(needed) < 0:
            raise NotOnDeviceError(f"auto_pad is {auto_pad}, and strides {strides} step over a part of the input")
        less, more = tuple(n // 2 for n in needed), tuple(n - n // 2 for n in needed)
        start, end = (less, more) if auto_pad == "SAME_UPPER" else (more, less)
    elif auto_pad != "NOTSET":
        raise NotOnDeviceError(f"auto_pad {auto_pad!r} is not one of ONNX's")
    return {"strides": strides, "dilations": dilations, "start_padding": start, "end_padding": end}


def check_gemm(node: Node, graph: Graph) -> None:
    """QGemm of com.microsoft: refuse what a convolution with 1x1 filters is not."""
    matrix = graph.constant(node.input(3))
    if matrix is None:
        raise NotOnDeviceError(f"its second operand {node.input(3)!r} is not constant")
    if matrix.ndim != 2:
        raise NotOnDeviceError(f"its second operand {node.input(3)!r} has rank {matrix.ndim}; on the device it is 2")
    alpha = node.attributes.get("alpha", 1.0)
    scales = [graph.constant(node.input(position)) for position in (1, 4, 7)]
    if alpha != 1.0:
        source, weights, output = scales
        if source is None or weights is None or output is None:
            raise NotOnDeviceError(f"alpha is {alpha:g}, and a scale is not constant")
        require_exact_scales([np.float32(alpha) * source, weights, output])
    if node.attributes.get("transA", 0):
        raise NotOnDeviceError("its first operand is transposed (transA)")
    if not node.input(7):
        raise NotOnDeviceError("its output is float32, because it has no y_scale")


def plan_product(node: Node, builder: ProgramBuilder) -> None:
    """QLinearMatMul. One with a constant matrix is a convolution whose pixels are the rows."""
    matrix = builder.constant(node.input(3))
    if matrix is not None and matrix.ndim == 2:
        _plan_rows(node, builder, matrix, (6, 7))
    else:
        _plan_two_values(node, builder)


def _plan_two_values(node: Node, builder: ProgramBuilder) -> None:
    """A product of (..., rows, depth) and (..., depth, columns), of which the first alone may be owned.

    The second operand's memory is an image: its columns are the pixels, the depth its channels. The first operand's
    rows are the filters, so the product lies in memory as ONNX has it, and nothing is turned. Matrices that have an
    operand each are groups of channels.
    """
    shapes = first, second = [builder.kind(node.input(position))[0] for position in (0, 3)]
    if len(first) == 1:
        first = (1, *first)
    if len(second) == 1:
        second = (*second, 1)
    try:
        together = np.broadcast_shapes(first[:-2], second[:-2])
    except ValueError:
        together = (0,)
    if min(len(first), len(second)) < 2 or first[-1] != second[-2] or 0 in (*first, *second, *together):
        raise NotOnDeviceError(f"its operands have the shapes {shapes[0]} and {shapes[1]}, which do not fit")
    (rows, depth), columns, matrices = first[-2:], second[-1], math.prod(together)
    shape = (*together, *shapes[0][-2:-1], *((columns,) if len(shapes[1]) > 1 else ()))
    names = {
        f"{kind}_{suffix}_tensor": node.input(position + j)
        for kind, position in (("input", 4), ("filter", 1), ("output", 6))
        for j, suffix in enumerate(("scale", "zero_point"))
    }
    types = tuple(require_quantized(builder, node.input(position)) for position in (3, 0, 7))
    images, groups = 1, 1
    if math.prod(second[:-2]) == 1:
        rows *= matrices  # of one image
    elif math.prod(first[:-2]) == 1:
        images = matrices
    else:
        groups = matrices
    operands = ConvolutionTensors(builder)
    values = {"input_tensor": builder.packed(node.input(3)), "output_tensor": builder.new(types[2], shape)}
    sizes = {"input_tensor": (images, groups * depth, columns), "filter_tensor": (groups * rows, depth, 1)}
    sizes["output_tensor"] = (images, groups * rows, columns)
    constant = builder.constant(node.input(0))
    if constant is None:
        values["filter_tensor"] = builder.packed(node.input(0))
    else:  # its filters are packed once
        whole = np.broadcast_to(constant, (*together, *first[-2:])) if groups > 1 else constant
        operands.own("filter_tensor", whole.reshape(sizes["filter_tensor"]))
    for name, value in values.items():
        if groups > 1 and name != "output_tensor":
            value = builder.expanded(value, (*together, *value.shape[-2:]))
        operands.tensors[name] = TensorDesc(DataType.from_numpy(value.dtype), sizes[name])
        operands.places[name] = value
    _add_quantization(operands, names, types, 1)
    _dispatch_product(node, operands, groups)


def plan_gemm(node: Node, builder: ProgramBuilder) -> None:
    """QGemm of com.microsoft."""
    matrix = builder.parameter(node.input(3))
    matrix = matrix.T if node.attributes.get("transB", 0) else matrix
    shape, _ = builder.kind(node.input(0))
    if len(shape) != 2:
        raise NotOnDeviceError(f"its first operand has the shape {shape}; on the device it is a matrix")
    bias = None
    if node.input(6):
        bias = builder.constant(node.input(6))
        columns = matrix.shape[1]
        if bias is None or bias.dtype != np.int32 or bias.shape not in ((), (1,), (1, 1), (columns,), (1, columns)):
            raise NotOnDeviceError(f"its C {node.input(6)!r} is not constant, int32 and one row or element")
        bias = np.broadcast_to(bias.reshape(-1), (columns,))
    _plan_rows(node, builder, matrix, (7, 8), bias, np.float32(node.attributes.get("alpha", 1.0)))


def _plan_rows(
    node: Node,
    builder: ProgramBuilder,
    matrix: Array,
    output_positions: tuple[int, int],
    bias: Array | None = None,
    alpha: np.float32 | None = None,
) -> None:
    """A product with a constant matrix (depth, columns) as a convolution of {1, depth, 1, rows}, channels last."""
    shape, input_type = builder.kind(node.input(0))
    depth, columns = matrix.shape
    if not shape or shape[-1] != depth or 0 in (*shape, columns):
        raise NotOnDeviceError(f"its first operand has the shape {shape}, its second {matrix.shape}")
    positions = (1, 2, 4, 5, *output_positions)
    names = {
        f"{kind}_{suffix}_tensor": node.input(positions[2 * k + j])
        for k, kind in enumerate(("input", "filter", "output"))
        for j, suffix in enumerate(("scale", "zero_point"))
    }
    output_type = input_type
    if names["output_zero_point_tensor"]:
        output_type = require_quantized(builder, names["output_zero_point_tensor"])
    rows = math.prod(shape[:-1])
    output = builder.new(output_type, (*shape[:-1], columns))
    operands = ConvolutionTensors(builder)
    operands.tensors["input_tensor"] = _rows_desc(require_quantized(builder, node.input(0)), depth, rows)
    operands.places["input_tensor"] = builder.packed(node.input(0))
    operands.tensors["output_tensor"] = _rows_desc(output_type, columns, rows)
    operands.places["output_tensor"] = output
    filter_type = require_quantized(builder, node.input(3))
    operands.own("filter_tensor", matrix.T.reshape(columns, depth, 1, 1))
    _add_quantization(operands, names, (input_type, filter_type, output_type), columns)
    if alpha is not None and alpha != 1:  # ONNX Runtime multiplies it by the input's scale first
        operands.own("input_scale_tensor", alpha * operands.owned["input_scale_tensor"])
    if bias is not None:
        operands.own("bias_tensor", bias.reshape(1, columns, 1, 1))
    _dispatch_product(node, operands)


def _dispatch_product(node: Node, operands: ConvolutionTensors, groups: int = 1) -> None:
    """Add a convolution with filters of one element."""
    _with_normal_product(operands)
    spatial = operands.tensors["input_tensor"].rank - 2
    desc = QuantizedLinearConvolutionDesc(
        **operands.tensors,
        strides=(1,) * spatial,
        dilations=(1,) * spatial,
        start_padding=(0,) * spatial,
        end_padding=(0,) * spatial,
        group_count=groups,
    )
    operands.builder.dispatch(desc, operands.places, operands.owned)
    operands.builder.set(node.outputs[0], operands.places["output_tensor"])
