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


def as_feeds(graph: Graph, batch: Any, place: str) -> Mapping[str, Any]:
    """A batch as feeds: a mapping unchanged; an array is that of the only input.

    Raises
    ------
    ModelError
        The batch is an array, and the model has more inputs or none.
    """
    if isinstance(batch, Mapping):
        return batch
    names = list(graph.inputs)
    if len(names) != 1:
        raise ModelError(
            f"{place}: a batch is a mapping from the inputs' names to arrays, since its inputs are {names}"
        )
    return {names[0]: batch}


def checked_feeds(graph: Graph, feeds: Mapping[str, Any], place: str) -> dict[str, Any]:
    """What a run is given, as arrays.

    Raises
    ------
    ModelError
        A feed is missing or unknown, or has another type, rank or size than its input.
    """
    if not isinstance(feeds, Mapping):
        raise TypeError(f"feeds is a mapping from the inputs' names to arrays, not {type(feeds).__name__}")
    listed = ", ".join(graph.inputs) or "none"
    for name in feeds:
        if name in graph.inputs:
            continue
        if isinstance(name, str) and graph.is_constant(name):
            raise ModelError(f"{place}: {name!r} is a constant of the model, which a run cannot replace")
        raise ModelError(f"{place} has no input {shown(name)}; its inputs are {listed}")
    missing = [name for name in graph.inputs if name not in feeds and not _is_optional(graph.inputs[name])]
    if missing:
        raise ModelError(f"{place}: the input {missing[0]!r} is missing; its inputs are {listed}")
    return {name: _checked(value, feeds.get(name), place) for name, value in graph.inputs.items()}


def _is_optional(value: onnx.ValueInfoProto) -> bool:
    return bool(value.type.HasField("optional_type"))


def _checked(value: onnx.ValueInfoProto, feed: Any, place: str) -> Any:
    if not value.type.HasField("tensor_type"):
        return feed  # sequences and the like belong to the host
    described = NodeArgument.of(value)
    field = f"{place}: the input {value.name!r}"
    try:
        array = np.asarray(feed)
    except (TypeError, ValueError) as error:
        raise ModelError(f"{field} is no array: {error}") from error
    expected = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
    if array.dtype.newbyteorder("=") != expected and not (expected.kind == "O" and array.dtype.kind in "OSU"):
        raise ModelError(f"{field} is an array of {array.dtype.name}; it must be of {expected.name}, {described.type}")
    if value.type.tensor_type.HasField("shape"):
        if array.ndim != len(described.shape):
            rule = f"it must have rank {len(described.shape)}, {described.shape}"
            raise ModelError(f"{field} has the shape {array.shape}; {rule}")
        for k, size in enumerate(described.shape):
            if isinstance(size, int) and size != array.shape[k]:
                rule = f"its dimension {k} must have size {size}, {described.shape}"
                raise ModelError(f"{field} has the shape {array.shape}; {rule}")
    return array.astype(array.dtype.newbyteorder("=")) if not array.dtype.isnative else array
