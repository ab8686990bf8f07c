"""Inputs and outputs of a session: their descriptions, and the check of what a run is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from dmlvk.errors import shown
from dmlvk.onnx.errors import ModelError
from dmlvk.onnx.graph import Graph


@dataclass(frozen=True)
class NodeArgument:
    """An input or output, as ONNX Runtime describes it.

    Attributes
    ----------
    name : str
    shape : list of int, str or None
        A dimension that may have any size is its name, or None.
    type : str
        Such as "tensor(float)".
    """

    name: str
    shape: list[int | str | None]
    type: str

    @classmethod
    def of(cls, value: onnx.ValueInfoProto) -> NodeArgument:
        """The description of a value."""
        return cls(value.name, _shape(value.type), _type_name(value.type))


def _shape(kind: onnx.TypeProto) -> list[int | str | None]:
    if not kind.HasField("tensor_type"):
        return []
    return [_size(dim) for dim in kind.tensor_type.shape.dim]


def _size(dim: onnx.TensorShapeProto.Dimension) -> int | str | None:
    """A dimension. Some exporters write -1 for one that may have any size."""
    if dim.HasField("dim_value"):
        return dim.dim_value if dim.dim_value >= 0 else None
    return dim.dim_param or None


def _type_name(kind: onnx.TypeProto) -> str:
    if kind.HasField("tensor_type"):
        element = TensorProto.DataType.Name(kind.tensor_type.elem_type).lower()
        return f"tensor({element})"
    if kind.HasField("sequence_type"):
        return f"seq({_type_name(kind.sequence_type.elem_type)})"
    if kind.HasField("optional_type"):
        return f"optional({_type_name(kind.optional_type.elem_type)})"
    return kind.WhichOneof("value") or ""


@dataclass(frozen=True)
class Expected:
    """What a run must be given for an input; found once, because protobuf's messages are slow to read.

    Attributes
    ----------
    argument : NodeArgument
    dtype : dtype or None
        None if the input is no tensor.
    sizes : tuple of int, str or None, or None
        As NodeArgument has them; None for any rank.
    is_optional : bool
    """

    argument: NodeArgument
    dtype: np.dtype[Any] | None
    sizes: tuple[int | str | None, ...] | None
    is_optional: bool

    @classmethod
    def of(cls, value: onnx.ValueInfoProto) -> Expected:
        """What an input's declaration says."""
        argument = NodeArgument.of(value)
        is_optional = bool(value.type.HasField("optional_type"))
        if not value.type.HasField("tensor_type"):
            return cls(argument, None, None, is_optional)
        kind = value.type.tensor_type
        sizes = tuple(argument.shape) if kind.HasField("shape") else None
        return cls(argument, helper.tensor_dtype_to_np_dtype(kind.elem_type), sizes, is_optional)

    def is_met(self, feed: Any) -> bool:
        """Whether a feed is an array that needs no change."""
        return (
            self.sizes is not None
            and type(feed) is np.ndarray
            and feed.dtype == self.dtype
            and feed.dtype.isnative
            and feed.ndim == len(self.sizes)
            and all(
                wanted == size or not isinstance(wanted, int)
                for wanted, size in zip(self.sizes, feed.shape, strict=True)
            )
        )


def checked_feeds(
    expected: Mapping[str, Expected], graph: Graph, feeds: Mapping[str, Any], place: str
) -> dict[str, Any]:
    """What a run is given, as arrays.

    Parameters
    ----------
    expected : mapping of str to Expected
        By name, the inputs of the graph.
    graph : Graph
    feeds : mapping of str to array_like
    place : str
        The model's name for messages.

    Raises
    ------
    ModelError
        A feed is missing or unknown, or has another type, rank or size than its input.
    """
    if not isinstance(feeds, Mapping):
        raise TypeError(f"feeds is a mapping from the inputs' names to arrays, not {type(feeds).__name__}")
    listed = ", ".join(expected) or "none"
    for name in feeds:
        if name in expected:
            continue
        if isinstance(name, str) and graph.is_constant(name):
            raise ModelError(f"{place}: {name!r} is a constant of the model, which a run cannot replace")
        raise ModelError(f"{place} has no input {shown(name)}; its inputs are {listed}")
    missing = [name for name in expected if name not in feeds and not expected[name].is_optional]
    if missing:
        raise ModelError(f"{place}: the input {missing[0]!r} is missing; its inputs are {listed}")
    return {
        name: feeds[name] if name in feeds and value.is_met(feeds[name]) else _checked(value, feeds.get(name), place)
        for name, value in expected.items()
    }


def _checked(expected: Expected, feed: Any, place: str) -> Any:
    if expected.dtype is None:
        return feed  # sequences and the like belong to the host
    described = expected.argument
    field = f"{place}: the input {described.name!r}"
    try:
        array = np.asarray(feed)
    except (TypeError, ValueError) as error:
        raise ModelError(f"{field} is no array: {error}") from error
    dtype = expected.dtype
    if array.dtype.newbyteorder("=") != dtype and not (dtype.kind == "O" and array.dtype.kind in "OSU"):
        raise ModelError(f"{field} is an array of {array.dtype.name}; it must be of {dtype.name}, {described.type}")
    if expected.sizes is not None:
        if array.ndim != len(described.shape):
            rule = f"it must have rank {len(described.shape)}, {described.shape}"
            raise ModelError(f"{field} has the shape {array.shape}; {rule}")
        for k, size in enumerate(described.shape):
            if isinstance(size, int) and size != array.shape[k]:
                rule = f"its dimension {k} must have size {size}, {described.shape}"
                raise ModelError(f"{field} has the shape {array.shape}; {rule}")
    return array.astype(array.dtype.newbyteorder("=")) if not array.dtype.isnative else array
