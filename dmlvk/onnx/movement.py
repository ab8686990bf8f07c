"""Nodes that move elements become SLICE1: Slice, Split, Concat, Gather, Pad, Transpose, Expand and two more."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dmlvk.onnx.errors import NotOnDeviceError
from dmlvk.onnx.graph import Graph, Node
from dmlvk.onnx.program import Array, ProgramBuilder, Value, shortest_order
from dmlvk.operators import Slice1Desc
from dmlvk.runtime.tensor import TENSOR_ALIGNMENT
from dmlvk.tensor_desc import MAXIMUM_RANK, packed_strides

# A Concat whose parts do not start at multiples of 16 bytes goes through memory with gaps. It may be this much larger.
MOST_GAPS = 4
SMALL_IN_BYTES = 1 << 20
# The most copies for a Resize, a Gather or one axis of a Pad; with more, the node goes to the host.
MOST_WINDOWS = 16


def windowed(builder: ProgramBuilder, name: str, source: Value, ranges: list[range]) -> None:
    """An output with the elements of one range for each dimension."""
    if all(chosen == range(size) for chosen, size in zip(ranges, source.shape, strict=True)):
        builder.view(name, source, source.shape)
        return
    shape = tuple(len(chosen) for chosen in ranges)
    first = sum(chosen[0] * stride for chosen, stride in zip(ranges, source.strides, strict=False))
    offset = source.offset + first * source.dtype.itemsize
    if _is_contiguous(source, ranges) and offset % TENSOR_ALIGNMENT == 0:
        builder.set(name, replace(source, shape=shape, order=shortest_order(shape, source.order), offset=offset))
        return
    output = builder.new(source.dtype, shape, source.order)
    desc = Slice1Desc(
        input_tensor=source.desc(),
        output_tensor=output.desc(),
        input_window_offsets=[min(chosen[0], chosen[-1]) for chosen in ranges],
        input_window_sizes=[abs(chosen[-1] - chosen[0]) + 1 for chosen in ranges],
        # A single element may be reached by a step of any length.
        input_window_strides=[chosen.step if len(chosen) > 1 else 1 for chosen in ranges],
    )
    builder.dispatch(desc, {"input_tensor": source, "output_tensor": output})
    builder.set(name, output)


def _is_contiguous(source: Value, ranges: list[range]) -> bool:
    """Whether the elements of a window follow each other in memory, in the same order."""
    is_cut = False  # along a dimension further inside
    for k in reversed(source.order or range(len(ranges))):
        if len(ranges[k]) > 1 and (is_cut or ranges[k].step != 1):
            return False
        is_cut = is_cut or len(ranges[k]) < source.shape[k]
    return True


def plan_slice(node: Node, builder: ProgramBuilder) -> None:
    """Slice: its parameters were attributes before version 10."""
    source = builder.value(node.inputs[0])
    rank = len(source.shape)
    if node.version < 10:
        starts, ends = list(node.attributes["starts"]), list(node.attributes["ends"])
        axes, steps = list(node.attributes.get("axes", range(len(starts)))), [1] * len(starts)
    else:
        starts, ends = builder.integers(node.input(1)), builder.integers(node.input(2))
        axes = builder.integers(node.input(3)) if node.input(3) else list(range(len(starts)))
        steps = builder.integers(node.input(4)) if node.input(4) else [1] * len(starts)
    ranges = [range(size) for size in source.shape]
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise NotOnDeviceError(f"starts {starts}, ends {ends}, axes {axes} and steps {steps} do not fit together")
    axes = [_axis(axis, rank) for axis in axes]
    if len(set(axes)) != len(axes):
        raise NotOnDeviceError(f"axes {axes} name a dimension twice")
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        ranges[axis] = range(*slice(start, end, step).indices(source.shape[axis]))
    if not all(ranges):
        raise NotOnDeviceError(f"its output has no elements, {tuple(map(len, ranges))}")
    windowed(builder, node.outputs[0], source, ranges)


def _axis(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise NotOnDeviceError(f"its axis {axis} is no dimension of a tensor of rank {rank}")
    return axis % rank


def plan_split(node: Node, builder: ProgramBuilder) -> None:
    """Split: a window for each output."""
    source = builder.value(node.inputs[0])
    axis = _axis(node.attributes.get("axis", 0), len(source.shape))
    length, count = source.shape[axis], len(node.outputs)
    if node.input(1):
        parts = builder.integers(node.input(1))
    elif "split" in node.attributes:
        parts = list(node.attributes["split"])
    else:
        if length % count and node.version < 18:
            raise NotOnDeviceError(f"{length} elements cannot be split into {count} equal parts")
        most = -(-length // count)
        parts = [most] * (count - 1)
        parts.append(length - sum(parts))
    if len(parts) != count or sum(parts) != length or min(parts) < 1:
        raise NotOnDeviceError(f"its parts have {parts} elements, of {length} for {count} outputs")
    start = 0
    for name, part in zip(node.outputs, parts, strict=True):
        ranges = [range(size) for size in source.shape]
        ranges[axis] = range(start, start + part)
        start += part
        if name:
            windowed(builder, name, source, ranges)


def check_gather(node: Node, graph: Graph) -> None:
    """Refuse indices that are not constant: each run would be planned anew."""
    if not graph.is_constant(node.input(1)):
        raise NotOnDeviceError(f"its indices {node.input(1)!r} are not constant")


def plan_gather(node: Node, builder: ProgramBuilder) -> None:
    """Gather by indices that are known: the windows that they are, one after the other."""
    source = builder.value(node.inputs[0])
    axis = _axis(node.attributes.get("axis", 0), len(source.shape))
    length = source.shape[axis]
    indices = builder.parameter(node.input(1))
    if not indices.size or indices.min() < -length or indices.max() >= length:
        raise NotOnDeviceError(f"its indices, of shape {indices.shape}, are empty or go beyond {length} elements")
    chosen = _chosen(builder, f"{node.outputs[0]}:all", source, axis, np.where(indices < 0, indices + length, indices))
    shape = (*source.shape[:axis], *indices.shape, *source.shape[axis + 1 :])
    builder.view(node.outputs[0], builder.in_own_order(chosen), shape)


def _chosen(builder: ProgramBuilder, name: str, source: Value, axis: int, indices: Array) -> Value:
    """The elements at some indices along an axis: the windows that these are, one after the other."""
    windows = _windows_of(indices.reshape(-1).tolist())
    if len(windows) > MOST_WINDOWS:
        raise NotOnDeviceError(f"it takes elements in more than {MOST_WINDOWS} windows")
    names = []
    for number, window in enumerate(windows):
        names.append(f"{name}:{number}")
        windowed(
            builder,
            names[-1],
            source,
            [*map(range, source.shape[:axis]), window, *map(range, source.shape[axis + 1 :])],
        )
    if len(names) > 1:
        concatenate(builder, names, axis, name)
        names = [name]
    return builder.value(names[0])


def plan_pad(node: Node, builder: ProgramBuilder) -> None:
    """Pad: its parameters were attributes before version 11. Negative numbers take elements away."""
    source = builder.value(node.inputs[0])
    rank = len(source.shape)
    if node.version < 11:
        pads, fill = [int(pad) for pad in node.attributes["pads"]], np.asarray(node.attributes.get("value", 0.0))
    else:
        pads = builder.integers(node.input(1))
        fill = builder.parameter(node.input(2)) if node.input(2) else np.zeros((), source.dtype)
    axes = [_axis(axis, rank) for axis in builder.integers(node.input(3))] if node.input(3) else [*range(rank)]
    if len(pads) != 2 * len(axes) or len(set(axes)) != len(axes) or fill.size != 1 or rank == 0:
        raise NotOnDeviceError(f"its pads {pads} do not fit the axes {axes} of a tensor of shape {source.shape}")
    around = [(0, 0)] * rank
    for axis, begin, end in zip(axes, pads, pads[len(axes) :], strict=False):
        around[axis] = begin, end
    mode = node.attributes.get("mode", b"constant").decode()
    if mode == "constant":
        kept = [
            range(max(-begin, 0), size - max(-end, 0)) for size, (begin, end) in zip(source.shape, around, strict=True)
        ]
        if not all(kept):
            raise NotOnDeviceError(f"its pads {pads} leave no element of a tensor of shape {source.shape}")
        name = f"{node.outputs[0]}:kept"
        windowed(builder, name, source, kept)
        beyond = [(max(begin, 0), max(end, 0)) for begin, end in around]
        builder.set(node.outputs[0], _surrounded(builder, builder.value(name), beyond, fill))
        return
    for axis, (begin, end) in enumerate(around):
        if begin or end:
            indices = _around(source.shape[axis], begin, end, mode)
            source = _chosen(builder, f"{node.outputs[0]}:{axis}", source, axis, indices)
    builder.set(node.outputs[0], source)


def _around(size: int, begin: int, end: int, mode: str) -> Array:
    """The indices of the elements of a dimension and of those that a mode puts before and behind them."""
    positions, last = np.arange(-begin, size + end), size - 1
    if min(begin, end) < 0 or (mode != "edge" and max(begin, end) >= size):
        raise NotOnDeviceError(f"its mode {mode!r} does not give {begin} and {end} elements around {size}")
    if mode == "edge":
        return np.clip(positions, 0, last)
    if mode == "reflect":
        return last - np.abs(last - np.abs(positions))
    if mode == "wrap":
        return positions % size
    raise NotOnDeviceError(f"its mode is {mode!r}")


def _surrounded(builder: ProgramBuilder, source: Value, around: Sequence[tuple[int, int]], fill: Array) -> Value:
    """A value with one element before and behind it along each dimension.

    A tensor on the device starts at a multiple of 16 bytes. So the value goes to the middle of a larger tensor of that
    element, where it starts at such a multiple, and a window of that is the output.
    """
    if not any(map(any, around)):
        return source
    rank, item = len(source.shape), source.dtype.itemsize
    inner = source.order[-1] if source.order else rank - 1
    unit = max(TENSOR_ALIGNMENT // item, 1)
    before = [begin if k != inner else -(-begin // unit) * unit for k, (begin, _) in enumerate(around)]
    sizes = [size + start + end for size, start, (_, end) in zip(source.shape, before, around, strict=True)]
    sizes[inner] = -(-sizes[inner] // unit) * unit
    wide = builder.new(source.dtype, tuple(sizes), source.order)
    one = builder.new(source.dtype, (1,))
    builder.program.constants[one.storage] = fill.reshape(1).astype(source.dtype)
    builder.copy(one, one.desc(wide.shape, (0,) * rank), wide, wide.desc())
    offset = sum(start * stride for start, stride in zip(before, wide.strides, strict=True)) * item
    builder.copy(source, source.desc(), (wide.storage, offset), source.desc(strides=wide.strides))
    name = f"pad:{wide.storage}"
    ranges = [
        range(start - begin, start + size + end)
        for start, size, (begin, end) in zip(before, source.shape, around, strict=True)
    ]
    windowed(builder, name, wide, ranges)
    return builder.program.outputs.pop(name)


def _windows_of(indices: Sequence[int]) -> list[range]:
    """The fewest ranges that follow each other as some indices do."""
    found: list[range] = []
    for index in indices:
        last = found[-1] if found else range(0)
        step = index - last[-1] if last else 0
        if step and (len(last) == 1 or step == last.step):
            found[-1] = range(last[0], index + step, step)
        else:
            found.append(range(index, index + 1))
    return found


def plan_concat(node: Node, builder: ProgramBuilder) -> None:
    """Concat: each input is written to its part of the output, or copied there.

    A tensor on the device starts at a multiple of 16 bytes. If a part does not, all go first to memory where the
    axis lies outermost and each step along it takes a multiple of 16 bytes; one more copy packs that.
    """
    concatenate(builder, node.inputs, node.attributes.get("axis", 1), node.outputs[0])


def concatenate(builder: ProgramBuilder, names: Sequence[str], axis: int, name: str) -> None:
    """Join values along an axis."""
    sources = [builder.value(name) for name in names]
    first = sources[0]
    axis = _axis(axis, len(first.shape))
    rest = first.shape[:axis] + first.shape[axis + 1 :]
    if any(source.shape[:axis] + source.shape[axis + 1 :] != rest or source.dtype != first.dtype for source in sources):
        raise NotOnDeviceError(
            f"inputs of shapes {[source.shape for source in sources]} do not fit together along axis {axis}"
        )
    lengths = [source.shape[axis] for source in sources]
    begins = [sum(lengths[:k]) for k in range(len(lengths))]
    shape = (*first.shape[:axis], sum(lengths), *first.shape[axis + 1 :])
    item = first.dtype.itemsize

    def are_aligned(value: Value) -> bool:
        return all(begin * value.strides[axis] * item % TENSOR_ALIGNMENT == 0 for begin in begins)

    output = builder.new(first.dtype, shape, first.order)
    if any(source.order != first.order for source in sources) or not are_aligned(output):
        sources = [builder.packed(name) for name in names]
        output = builder.new(first.dtype, shape)
    if are_aligned(output):
        _join(builder, names, output, axis, [begin * output.strides[axis] * item for begin in begins])
    else:
        elements = math.prod(rest)
        step = -(-elements * item // TENSOR_ALIGNMENT) * TENSOR_ALIGNMENT
        size = step * sum(lengths)
        if size > max(SMALL_IN_BYTES, MOST_GAPS * elements * item * sum(lengths)):
            raise NotOnDeviceError(
                f"its parts have {elements * item} bytes, after which no tensor on the device can begin"
            )
        scratch = builder.scratch(size)
        gapped = list(packed_strides(rest))
        gapped.insert(axis, step // item)
        for source, begin in zip(sources, begins, strict=True):
            builder.copy(source, source.desc(), (scratch, begin * step), source.desc(strides=tuple(gapped)))
        builder.copy((scratch, 0), output.desc(strides=tuple(gapped)), output, output.desc())
    builder.set(name, output)


def _join(builder: ProgramBuilder, names: Sequence[str], output: Value, axis: int, offsets: list[int]) -> None:
    """Fill the parts of an output, which begin at given bytes."""
    order = output.order or tuple(range(len(output.shape)))
    has_whole_parts = all(output.shape[k] == 1 for k in order[: order.index(axis)])
    for name, offset in zip(names, offsets, strict=True):
        source = builder.value(name)
        if output.order != source.order:
            source = builder.packed(name)
        if not (has_whole_parts and builder.move_into(source, output.storage, offset)):
            target = source.desc(strides=output.strides)
            builder.copy(source, source.desc(), (output.storage, offset), target)


def plan_transpose(node: Node, builder: ProgramBuilder) -> None:
    """Transpose: the same memory, its dimensions in another order."""
    source = builder.value(node.inputs[0])
    rank = len(source.shape)
    order = [int(k) for k in node.attributes.get("perm", range(rank)[::-1])]
    if sorted(order) != list(range(rank)):
        raise NotOnDeviceError(f"its perm {order} is no order of the dimensions of a tensor of rank {rank}")
    shape = tuple(source.shape[k] for k in order)
    # Dimension k of the source is dimension order.index(k) of the output.
    in_memory = tuple(order.index(k) for k in source.order or range(rank))
    builder.set(node.outputs[0], replace(source, shape=shape, order=shortest_order(shape, in_memory)))


def plan_expand(node: Node, builder: ProgramBuilder) -> None:
    """Expand: a copy from strides of 0."""
    source = builder.packed(node.inputs[0])
    wanted = builder.integers(node.input(1))
    rank = max(len(wanted), len(source.shape))
    if rank > MAXIMUM_RANK:
        raise NotOnDeviceError(f"its output has rank {rank}; on the device it has at most {MAXIMUM_RANK}")
    own = (1,) * (rank - len(source.shape)) + source.shape
    other = [1] * (rank - len(wanted)) + wanted
    if any(a != b and 1 not in (a, b) for a, b in zip(own, other, strict=True)):
        raise NotOnDeviceError(f"the shape {source.shape} does not broadcast to {wanted}")
    shape = tuple(b if a == 1 else a for a, b in zip(own, other, strict=True))
    builder.set(node.outputs[0], builder.expanded(source, shape))


def plan_depth_to_space(node: Node, builder: ProgramBuilder) -> None:
    """DepthToSpace: blocks of channels become blocks of pixels."""
    source, block = builder.value(node.inputs[0]), int(node.attributes["blocksize"])
    if len(source.shape) != 4 or block < 1 or source.shape[1] % block**2:
        raise NotOnDeviceError(f"a tensor of shape {source.shape} has no blocks of {block} by {block}")
    n, c, h, w = source.shape
    depth = c // block**2
    split: tuple[tuple[int, ...], ...]
    if _is_crd(node):
        split, order = ((n,), (depth, block, block), (h,), (w,)), (0, 1, 4, 2, 5, 3)
    else:
        split, order = ((n,), (block, block, depth), (h,), (w,)), (0, 3, 4, 1, 5, 2)
    _reorder(builder, node.outputs[0], source, split, order, (n, depth, h * block, w * block))


def plan_space_to_depth(node: Node, builder: ProgramBuilder) -> None:
    """SpaceToDepth: blocks of pixels become blocks of channels."""
    source, block = builder.value(node.inputs[0]), int(node.attributes["blocksize"])
    if len(source.shape) != 4 or block < 1 or source.shape[2] % block or source.shape[3] % block:
        raise NotOnDeviceError(f"a tensor of shape {source.shape} has no blocks of {block} by {block}")
    n, c, h, w = source.shape
    split = ((n,), (c,), (h // block, block), (w // block, block))
    shape = (n, c * block**2, h // block, w // block)
    order = (0, 1, 3, 5, 2, 4) if _is_crd(node) else (0, 3, 5, 1, 2, 4)
    _reorder(builder, node.outputs[0], source, split, order, shape)


def _is_crd(node: Node) -> bool:
    mode = node.attributes.get("mode", b"DCR")
    if mode not in (b"DCR", b"CRD"):
        raise NotOnDeviceError(f"mode {mode!r} is not one of ONNX's")
    return bool(mode == b"CRD")


def _reorder(
    builder: ProgramBuilder,
    name: str,
    source: Value,
    split: tuple[tuple[int, ...], ...],
    order: tuple[int, ...],
    shape: tuple[int, ...],
) -> None:
    """Split each dimension into several, permute all, and join them to another shape."""
    sizes = [size for parts in split for size in parts]
    strides = [
        step * stride for parts, stride in zip(split, source.strides, strict=True) for step in packed_strides(parts)
    ]
    output = builder.new(source.dtype, shape)
    permuted = tuple(sizes[k] for k in order)
    builder.copy(source, source.desc(permuted, tuple(strides[k] for k in order)), output, output.desc(permuted))
    builder.set(name, output)
