"""Inputs and outputs of a session: their descriptions, and the check of what a run is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from dmlvk._common.arguments import converted, require_unmasked
from dmlvk.errors import shown
from dmlvk.onnx.errors import ModelError
from dmlvk.onnx.graph import Graph
from dmlvk.onnx.host import from_ort_value, is_ort_value


@dataclass(frozen=True)
class NodeArgument:
    """An input or output, as ONNX Runtime describes it.

    Attributes:
        name (str):
        shape (list of int, str or None): A dimension that may have any size is its name, or None.
        type (str): Such as "tensor(float)".
    """

    name: str
    shape: list[int | str | None]
    type: str

    @classmethod
    def of_output(cls, stated: onnx.ValueInfoProto, inferred: onnx.TypeProto) -> NodeArgument:
        """The description of an output, from what the model states and what its nodes give."""
        if not (inferred.HasField("tensor_type") and inferred.tensor_type.HasField("shape")):
            return cls.of(stated if stated.type.WhichOneof("value") else helper.make_value_info(stated.name, inferred))
        found = _shape(inferred)
        if stated.type.tensor_type.HasField("shape"):
            found = _merged(_shape(stated.type), found)
        return cls(stated.name, found, _type_name(inferred))

    @classmethod
    def of(cls, value: onnx.ValueInfoProto) -> NodeArgument:
        """The description of a value."""
        return cls(value.name, _shape(value.type), _type_name(value.type))


def _shape(kind: onnx.TypeProto) -> list[int | str | None]:
    if not kind.HasField("tensor_type"):
        return []
    return [_size(dim) for dim in kind.tensor_type.shape.dim]


def _merged(stated: list[int | str | None], inferred: list[int | str | None]) -> list[int | str | None]:
    """Sizes that a model states and that its nodes give, as ONNX Runtime merges them."""
    if len(stated) != len(inferred):
        return []
    pairs = list(zip(stated, inferred, strict=True))
    if any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs):
        return [a if a == b else None for a, b in pairs]
    return [b if a is None or (isinstance(b, int) and not isinstance(a, int)) else a for a, b in pairs]


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

    Raises ModelError: the batch is an array, and the model has more inputs or none.
    """
    if isinstance(batch, Mapping):
        return batch
    names = list(graph.inputs)
    if len(names) != 1:
        raise ModelError(
            f"{place}: a batch is a mapping from the inputs' names to arrays, since its inputs are {names}"
        )
    return {names[0]: batch}


class InputCheck:
    """What a run's array for an input must be. Made once, because runs are many and descriptions are slow to read."""

    def __init__(self, value: onnx.ValueInfoProto, place: str) -> None:
        self._described = NodeArgument.of(value)
        self._field = f"{place}: the input {value.name!r}"
        self.is_optional = bool(value.type.HasField("optional_type"))
        self._is_tensor = value.type.HasField("tensor_type")
        self._dtype: Any = None
        self._has_shape = False
        if self._is_tensor:
            self._dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
            self._has_shape = value.type.tensor_type.HasField("shape")

    def checked(self, feed: Any) -> Any:
        """The feed as an array of the machine's own byte order. Numbers in lists get the input's type.

        Raises ModelError: its type, rank or size is not the input's, or the type cannot hold a number.
        """
        if is_ort_value(feed):
            feed = from_ort_value(feed)
        if not self._is_tensor:
            return feed  # sequences and the like belong to the host
        try:
            require_unmasked(feed)
            array = np.asarray(feed)
            if isinstance(feed, (list, tuple)) and array.dtype.kind in "biuf" and self._dtype.kind in "iuf":
                array = converted(array, self._dtype, self._dtype.name, "the input")
        except (TypeError, ValueError, OverflowError) as error:
            raise ModelError(f"{self._field} is no array: {error}") from error
        if array.dtype != self._dtype:
            array = self._in_own_order(array)
        shape = self._described.shape
        if self._has_shape:
            if array.ndim != len(shape):
                rule = f"it must have rank {len(shape)}, {shape}{_advice(array.shape, shape)}"
                raise ModelError(f"{self._field} has the shape {array.shape}; {rule}")
            for k, (size, found) in enumerate(zip(shape, array.shape, strict=True)):
                if size != found and isinstance(size, int):
                    rule = f"its dimension {k} must have size {size}, {shape}{_advice(array.shape, shape)}"
                    raise ModelError(f"{self._field} has the shape {array.shape}; {rule}")
        return array

    def _in_own_order(self, array: Any) -> Any:
        """The array in the machine's byte order, if it has the input's type but for that."""
        expected, described = self._dtype, self._described
        native = array.dtype.newbyteorder("=")
        if native != expected and not (expected.kind == "O" and array.dtype.kind in "OSU"):
            rule = f"it must be of {expected.name}, {described.type}"
            if native.kind in "biuf" and expected.kind in "biuf":
                rule += f": array.astype(np.{expected.name})"
            raise ModelError(f"{self._field} is an array of {array.dtype.name}; {rule}")
        if array.dtype.kind == "S":
            try:
                array = np.char.decode(array, "utf-8")
            except UnicodeDecodeError as error:
                raise ModelError(f"{self._field} has text that is no UTF-8: {error}") from error
        return array.astype(expected, copy=False)


def _advice(found: tuple[int, ...], shape: Sequence[int | str | None]) -> str:
    """What helps if an input lacks the dimension of a batch, or has channels last, as libraries that read pictures."""

    def fits(sizes: tuple[int, ...]) -> bool:
        pairs = zip(sizes, shape, strict=False)
        return len(sizes) == len(shape) and all(a == b or not isinstance(b, int) for a, b in pairs)

    if fits((1, *found)):
        return "; is it one of a batch? array[np.newaxis] fits"
    if len(found) > 2 and fits((found[0], found[-1], *found[1:-1])):
        return "; is it channels last? np.moveaxis(array, -1, 1) fits"
    return ""


def input_checks(graph: Graph, place: str) -> dict[str, InputCheck]:
    """The checks of a graph's inputs, by name."""
    return {name: InputCheck(value, place) for name, value in graph.inputs.items()}


def as_mapping(feeds: Any) -> Mapping[str, Any]:
    """The feeds of a run, if they are a mapping.

    Raises TypeError: they are none.
    """
    if not isinstance(feeds, Mapping):
        raise TypeError(f"feeds is a mapping from the inputs' names to arrays, not {type(feeds).__name__}")
    return feeds


def checked_feeds(
    graph: Graph, checks: Mapping[str, InputCheck], feeds: Mapping[str, Any], place: str
) -> dict[str, Any]:
    """What a run is given, as arrays.

    Raises ModelError: a feed is missing or unknown, or has another type, rank or size than its input.
    """
    feeds = as_mapping(feeds)
    listed = ", ".join(checks) or "none"
    for name in feeds:
        if name in checks:
            continue
        if isinstance(name, str) and graph.is_constant(name):
            rule = "a run can replace only initializers that are inputs of the model too"
            raise ModelError(f"{place}: {name!r} is a constant of the model; {rule}")
        raise ModelError(f"{place} has no input {shown(name)}; its inputs are {listed}")
    for name, check in checks.items():
        if name not in feeds and not check.is_optional:
            raise ModelError(f"{place}: the input {name!r} is missing; its inputs are {listed}")
    return {name: check.checked(feeds.get(name)) for name, check in checks.items()}
