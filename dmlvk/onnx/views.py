"""Nodes that copy nothing: Reshape, Flatten, Squeeze, Unsqueeze and Identity describe the same memory anew."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from dmlvk.onnx.errors import NotOnDeviceError
from dmlvk.onnx.graph import Node
from dmlvk.onnx.program import ProgramBuilder


def plan_identity(node: Node, builder: ProgramBuilder) -> None:
    builder.set(node.outputs[0], builder.value(node.inputs[0]))


def plan_reshape(node: Node, builder: ProgramBuilder) -> None:
    """Reshape: 0 keeps a size (unless allowzero), -1 takes the rest."""
    source = builder.packed(node.inputs[0])
    wanted = builder.integers(node.input(1)) if node.version >= 5 else [int(s) for s in node.attributes["shape"]]
    shape = list(wanted)
    for k, size in enumerate(wanted):
        if size == 0 and not node.attributes.get("allowzero", 0) and k < len(source.shape):
            shape[k] = source.shape[k]
    count, known = math.prod(source.shape), math.prod(size for size in shape if size != -1)
    if shape.count(-1) == 1 and known > 0 and count % known == 0:
        shape[shape.index(-1)] = count // known
    if math.prod(shape) != count or min(shape, default=1) < 1:
        raise NotOnDeviceError(f"the shape {source.shape} cannot become {wanted}")
    builder.view(node.outputs[0], source, tuple(shape))


def plan_flatten(node: Node, builder: ProgramBuilder) -> None:
    source = builder.packed(node.inputs[0])
    axis, rank = int(node.attributes.get("axis", 1)), len(source.shape)
    if not -rank <= axis <= rank:
        raise NotOnDeviceError(f"its axis {axis} is no dimension of a tensor of rank {rank}")
    axis += rank if axis < 0 else 0
    builder.view(node.outputs[0], source, (math.prod(source.shape[:axis]), math.prod(source.shape[axis:])))


def _given_axes(node: Node, builder: ProgramBuilder, ranks: Collection[int]) -> list[int]:
    """The dimensions that a node names: an attribute before version 13. None given and none named are the same."""
    if node.version < 13:
        return list(node.attributes.get("axes", ()))
    return builder.integers(node.input(1), ranks) if node.input(1) else []


def _counted(axes: Sequence[int], rank: int) -> list[int]:
    """Dimensions counted from the first."""
    if any(not -rank <= axis < rank for axis in axes) or len({axis % rank for axis in axes}) != len(axes):
        raise NotOnDeviceError(f"its axes {axes} are no dimensions of a tensor of rank {rank}")
    return [axis % rank for axis in axes]


def plan_squeeze(node: Node, builder: ProgramBuilder) -> None:
    source = builder.packed(node.inputs[0])
    if len(node.inputs) > 1 and not node.inputs[1]:
        raise NotOnDeviceError("its axes are absent but have a place, which ONNX Runtime refuses")
    axes = _counted(_given_axes(node, builder, (1,)), len(source.shape))
    if not axes:
        axes = [k for k, size in enumerate(source.shape) if size == 1]
    if any(source.shape[axis] != 1 for axis in axes):
        raise NotOnDeviceError(f"axes {axes} of the shape {source.shape} have other sizes than 1")
    builder.view(node.outputs[0], source, tuple(size for k, size in enumerate(source.shape) if k not in axes))


def plan_unsqueeze(node: Node, builder: ProgramBuilder) -> None:
    source = builder.packed(node.inputs[0])
    given = _given_axes(node, builder, (0, 1))
    rank = len(source.shape) + len(given)
    axes = _counted(given, rank)
    sizes = iter(source.shape)
    builder.view(node.outputs[0], source, tuple(1 if k in axes else next(sizes) for k in range(rank)))
