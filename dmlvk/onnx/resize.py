"""Resize: to the nearest element, by copies; and linear, of bytes, as BYTE_RESAMPLE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
from onnx import helper

from dmlvk.data_type import DataType
from dmlvk.onnx.byte_functions import BYTES
from dmlvk.onnx.convolution import ConvolutionTensors, require_quantized
from dmlvk.onnx.errors import NotOnDeviceError
from dmlvk.onnx.graph import Graph, Node
from dmlvk.onnx.movement import MOST_WINDOWS, concatenate, windowed
from dmlvk.onnx.neighbours import check_scales
from dmlvk.onnx.program import Array, ProgramBuilder, Value
from dmlvk.onnx.quantization import SINCE_RESIZE
from dmlvk.operators import ByteResampleDesc
from dmlvk.operators.byte_resample import LARGEST_SCALE, LEAST_SCALE, THRESHOLDS
from dmlvk.tensor_desc import MAXIMUM_RANK, TensorDesc

# The bits of the largest number of binary32.
LARGEST_BITS = 0x7F7FFFFF
# Where scales and sizes are among the inputs, behind those of QLinearAveragePool, of a linear Resize between
# DequantizeLinear and QuantizeLinear.
SCALES_AND_SIZES = (5, 6)


def check_resize(node: Node, graph: Graph) -> None:
    """Refuse other modes than the nearest element and linear ones of bytes."""
    mode = node.attributes.get("mode", b"nearest")
    if mode not in (b"nearest", b"linear"):
        raise NotOnDeviceError(f"its mode is {mode.decode()!r}")
    if mode == b"linear" and graph.element_type(node.input(0)) not in BYTES:
        raise NotOnDeviceError(
            "it interpolates floats; on the device it does so between a DequantizeLinear and a QuantizeLinear"
        )
    if mode == b"linear" and not node.domain and graph.host_optimizes and _has_convolutions(graph):
        raise NotOnDeviceError("ONNX Runtime may give it the channels last, which it interpolates with other weights")
    if mode == b"linear" and node.attributes.get("antialias", 0):
        raise NotOnDeviceError("its attribute 'antialias' is not 0")
    is_old = not node.domain and node.version < SINCE_RESIZE
    if node.attributes.get("keep_aspect_ratio_policy", b"stretch") != b"stretch" or is_old:
        raise NotOnDeviceError("it keeps the aspect ratio, or is older than version 11")
    if node.domain:
        for position in (1, 3):
            check_scales((position,))(node, graph)


def _has_convolutions(graph: Graph) -> bool:
    return any(node.op_type == "QLinearConv" for node in graph.nodes)


def plan_resize(node: Node, builder: ProgramBuilder) -> None:
    """Resize of elements of any type to the nearest one, and linear Resize of bytes."""
    source = builder.value(node.inputs[0])
    if not source.shape:
        raise NotOnDeviceError("its input is a single element")
    scales, lengths = _scales_and_lengths(node, builder, source.shape)
    if node.attributes.get("mode", b"nearest") == b"nearest":
        _plan_nearest(node, builder, source, scales, lengths)
    else:
        _plan_linear(node, builder, source, scales, lengths)


def _scales_and_lengths(
    node: Node, builder: ProgramBuilder, shape: Sequence[int]
) -> tuple[list[np.float32], list[int]]:
    """The scale along each dimension, and the output's sizes."""
    rank = len(shape)
    axes = [int(axis) % rank for axis in node.attributes.get("axes", range(rank))]
    given_scales, given_sizes = (node.input(k) for k in (SCALES_AND_SIZES if node.domain else (2, 3)))
    given = builder.parameter(given_scales) if given_scales else np.zeros(0)
    scales, lengths = [np.float32(1)] * rank, list(shape)
    if given.size:
        for axis, scale in zip(axes, given.astype(np.float32), strict=True):
            scales[axis], lengths[axis] = scale, int(np.float32(shape[axis]) * scale)
    else:
        for axis, length in zip(axes, builder.integers(given_sizes), strict=True):
            scales[axis], lengths[axis] = np.float32(length) / np.float32(shape[axis]), length
    if min(lengths) < 1:
        raise NotOnDeviceError(f"its output would have the sizes {lengths}")
    return scales, lengths


def _plan_linear(
    node: Node, builder: ProgramBuilder, source: Value, scales: Sequence[np.float32], lengths: Sequence[int]
) -> None:
    """Planes of bytes, which may stand for floats. ONNX Runtime cuts off sums of bytes, and quantizes those of floats.

    It takes bytes with their channels last by weights of 10 bits.
    """
    shape, rank = source.shape, len(source.shape)
    is_copy = lengths == list(shape)
    require_quantized(builder, node.inputs[0])
    if is_copy and not node.domain:
        builder.view(node.outputs[0], source, shape)
        return
    if rank == 2:
        planes, sides = [], [0, 1]
    elif rank == 4 and (is_copy or scales[0] == scales[1] == 1):
        planes, sides = [0, 1], [2, 3]
    elif rank == 4 and node.domain and scales[0] == scales[3] == 1:
        planes, sides = [0, 3], [1, 2]
    else:
        raise NotOnDeviceError(
            f"it interpolates sizes {list(shape)} to {lengths}; on the device it does so along the last two of 2 or 4 "
            "dimensions, of floats also along the two in the middle"
        )
    coordinates = [
        np.arange(lengths[k], dtype=np.float32) if is_copy else _coordinates(node, shape[k], lengths[k], scales[k])
        for k in sides
    ]
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(builder.graph.element_type(node.outputs[0])))
    parameters = [builder.parameter(node.input(k)).item() for k in range(1, 5)] if node.domain else [1.0, 0, 0.0, 0]
    scale, zero, *result = parameters
    thresholds = _thresholds(dtype.name, *result)
    if not LEAST_SCALE <= scale <= LARGEST_SCALE:
        raise NotOnDeviceError(f"its input's scale is {scale:g}; on the device it is from 2^-40 to 2^40")
    output = builder.new(dtype, tuple(lengths), source.order)
    operands = ConvolutionTensors(builder)
    for field, value in (("input_tensor", source), ("output_tensor", output)):
        by_field = [(value.shape[k], value.strides[k]) for k in (*planes, *sides)]
        sizes, strides = zip(*[(1, 0)] * (2 - len(planes)), *by_field, strict=True)
        operands.tensors[field] = TensorDesc(DataType.from_numpy(value.dtype), sizes, strides)
        operands.places[field] = value
    operands.own("coordinate_tensor", np.concatenate(coordinates))
    operands.own("threshold_tensor", thresholds)
    desc = ByteResampleDesc(**operands.tensors, input_scale=scale, input_zero_point=int(zero))
    builder.dispatch(desc, operands.places, operands.owned)
    builder.set(node.outputs[0], output)


@lru_cache(maxsize=64)
def _thresholds(type_name: str, scale: float, zero: int) -> Array:
    """The least number that gives each byte but the first when it is quantized; or cut off, if the scale is 0.

    Found by bisection of the bits of binary32, of which those of negative numbers count backwards.
    """
    limits = np.iinfo(type_name)
    wanted = np.arange(limits.min + 1, limits.max + 1)
    assert len(wanted) == THRESHOLDS, "of 8 bits"

    def numbers(keys: Array) -> Array:
        bits = np.where(keys < 0, 0x80000000 - keys, keys).astype(np.uint32)
        return bits.view(np.float32)

    def results(values: Array) -> Array:
        if not scale:
            return np.trunc(values)
        with np.errstate(over="ignore"):
            return np.rint(np.clip(values / np.float32(scale), limits.min - zero, limits.max - zero)) + zero

    below, reached = np.full(THRESHOLDS, -LARGEST_BITS - 1), np.full(THRESHOLDS, LARGEST_BITS + 1)
    while (reached - below > 1).any():
        between = (below + reached) // 2
        is_reached = results(numbers(between)) >= wanted
        below, reached = np.where(is_reached, below, between), np.where(is_reached, between, reached)
    return numbers(reached)


def _plan_nearest(
    node: Node, builder: ProgramBuilder, source: Value, scales: Sequence[np.float32], lengths: Sequence[int]
) -> None:
    """Axes of whole factors are one copy from strides of 0. The others are gathered first, one after the other.

    Where the indices repeat every p elements, these are p windows beside each other.
    """
    shape, rank = source.shape, len(source.shape)
    whole, pieces = [1] * rank, {}
    for k in range(rank) if lengths != list(shape) else ():  # of the same sizes it is a copy, whatever the scales are
        indices = _nearest(node, shape[k], lengths[k], scales[k])
        factor = lengths[k] // shape[k]
        if factor * shape[k] == lengths[k] and np.array_equal(indices, np.arange(lengths[k]) // factor):
            whole[k] = factor
        else:
            pieces[k] = _windows(indices)
    if sum(map(len, pieces.values())) > MOST_WINDOWS:
        raise NotOnDeviceError(f"sizes {list(shape)} to {lengths} take more than {MOST_WINDOWS} copies")
    if sum(factor > 1 for factor in whole) + rank > MAXIMUM_RANK or (pieces and rank == MAXIMUM_RANK):
        raise NotOnDeviceError(f"its input has rank {rank}, which leaves no dimension along which elements repeat")
    # The axis that shrinks the most comes first, so that the least is moved.
    for k in sorted(pieces, key=lambda axis: lengths[axis] / shape[axis]):
        source = _gathered(builder, f"{node.outputs[0]}:{k}", source, k, pieces[k])
    if max(whole) == 1:
        builder.view(node.outputs[0], source, source.shape)
    else:
        builder.set(node.outputs[0], _repeated(builder, source, whole))


def _windows(indices: Array) -> list[range]:
    """The fewest ranges that give some indices when they are interleaved: the first of each, the second of each, ..."""
    length = len(indices)
    for count in (count for count in range(1, MOST_WINDOWS + 1) if length % count == 0):
        steps = indices[count:] - indices[:-count]
        turns = [steps[k::count] for k in range(count)]
        if all(len(turn) == 0 or (turn[0] > 0 and (turn == turn[0]).all()) for turn in turns):
            found = []
            for k, turn in enumerate(turns):
                step = int(turn[0]) if len(turn) else 1
                found.append(range(int(indices[k]), int(indices[k]) + step * (length // count), step))
            return found
    return [range(0)] * (MOST_WINDOWS + 1)


def _gathered(builder: ProgramBuilder, name: str, source: Value, axis: int, windows: Sequence[range]) -> Value:
    """The elements of windows along an axis, interleaved."""
    source = builder.in_own_order(source)
    names = []
    for number, window in enumerate(windows):
        names.append(f"{name}:{number}")
        ranges = [range(size) for size in source.shape]
        ranges[axis] = window
        windowed(builder, names[-1], source, ranges)
        part = builder.value(names[-1])
        if len(windows) > 1:
            builder.view(names[-1], part, (*part.shape[: axis + 1], 1, *part.shape[axis + 1 :]))
    if len(windows) > 1:
        concatenate(builder, names, axis + 1, name)
    else:
        name = names[0]
    joined = builder.in_own_order(builder.value(name))
    length = len(windows) * len(windows[0])
    return replace(joined, shape=(*source.shape[:axis], length, *source.shape[axis + 1 :]))


def _repeated(builder: ProgramBuilder, source: Value, whole: Sequence[int]) -> Value:
    """A value whose elements are repeated along each axis."""
    output = builder.new(source.dtype, tuple(s * f for s, f in zip(source.shape, whole, strict=True)), source.order)
    sizes, read, written = [], [], []
    for k, (size, factor) in enumerate(zip(source.shape, whole, strict=True)):
        sizes.append(size)
        read.append(source.strides[k])
        written.append(output.strides[k] * factor)
        if factor > 1:
            sizes.append(factor)
            read.append(0)
            written.append(output.strides[k])
    builder.copy(source, source.desc(tuple(sizes), tuple(read)), output, output.desc(tuple(sizes), tuple(written)))
    return output


def _coordinates(node: Node, size: int, length: int, scale: np.float32) -> Array:
    """Where the outputs along a dimension lie in the input, by ONNX Runtime's binary32 arithmetic."""
    o = np.arange(length, dtype=np.float32)
    if scale == 1:
        return o
    default = b"half_pixel" if node.domain or node.version >= SINCE_RESIZE else b"asymmetric"
    mode = node.attributes.get("coordinate_transformation_mode", default)
    if mode == b"asymmetric":
        return o / scale
    if mode in (b"half_pixel", b"pytorch_half_pixel"):
        if mode == b"pytorch_half_pixel" and length == 1:
            return np.zeros_like(o)
        return (o + np.float32(0.5)) / scale - np.float32(0.5)
    if mode == b"half_pixel_symmetric":
        middle, size_of_all = np.float32(size) / np.float32(2), scale * np.float32(size)
        offset = middle * (np.float32(1) - np.float32(length) / size_of_all)
        return (float(offset) + (o.astype(np.float64) + 0.5) / float(scale) - 0.5).astype(np.float32)
    if mode == b"tf_half_pixel_for_nn":
        return (o + np.float32(0.5)) / scale
    if mode == b"align_corners":
        return o * np.float32(size - 1) / np.float32(length - 1) if length > 1 else np.zeros_like(o)
    raise NotOnDeviceError(f"its coordinate_transformation_mode is {mode.decode()!r}")


def _nearest(node: Node, size: int, length: int, scale: np.float32) -> Array:
    """The input's index of each output's, by ONNX Runtime's binary32 arithmetic."""
    c = _coordinates(node, size, length, scale)
    if scale == 1:
        return np.arange(size)
    rounding = node.attributes.get("nearest_mode", b"round_prefer_floor" if node.version >= SINCE_RESIZE else b"floor")
    floor = np.floor(c)
    is_tie = np.abs(c - floor - np.float32(0.5)) < 1e-6
    nearest = {
        b"floor": floor,
        b"ceil": np.ceil(c),
        b"round_prefer_floor": np.where(is_tie, floor, np.floor(c + np.float32(0.5))),
        b"round_prefer_ceil": np.where(is_tie, floor + 1, np.floor(c + np.float32(0.5))),
    }.get(rounding)
    if nearest is None:
        raise NotOnDeviceError(f"its nearest_mode is {rounding.decode()!r}")
    return np.clip(nearest, 0, size - 1).astype(np.int64)
