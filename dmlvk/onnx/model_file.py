"""Models as users give them: a path, bytes or a ModelProto, read and checked."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from google.protobuf.message import DecodeError, EncodeError
from onnx import checker, external_data_helper, helper, numpy_helper

from dmlvk.onnx.acceptance import require_accepted
from dmlvk.onnx.errors import ModelError
from dmlvk.onnx.normal_form import FREE_INITIALIZERS, normalize

Array = npt.NDArray[Any]
# A message of Protocol Buffers has less than 2 GiB. Larger models keep their constants beside it.
LARGEST_MESSAGE = 1 << 30


@dataclass(frozen=True)
class LoadedModel:
    """A model that was read and checked.

    Attributes
    ----------
    proto : ModelProto
        The session's own, without functions.
    place : str
        Its name for messages.
    constants : mapping of str to ndarray
        Initializers that are kept beside the model: those of external data, and all of a model that is too large for a
        message. In the model they are inputs.
    replaceable : frozenset of str
        Initializers that are inputs of the model as it was given, so that a run may replace them.
    """

    proto: onnx.ModelProto
    place: str
    constants: Mapping[str, Array]
    replaceable: frozenset[str]

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_content, (self._content(), self.place, dict(self.constants), self.replaceable)

    @cached_property
    def digest(self) -> str:
        """Equal for equal models alone."""
        found = hashlib.sha256(self._content())
        for name in sorted(self.constants):
            array = np.ascontiguousarray(self.constants[name])
            found.update(repr((name, array.dtype.str, array.shape)).encode())
            found.update(array.tobytes())
        return found.hexdigest()

    def _content(self) -> bytes:
        try:
            return self.proto.SerializeToString(deterministic=True)
        except (ValueError, EncodeError) as error:
            raise ModelError(f"{self.place}: the model cannot be written as bytes: {_line(error)}") from error

    def without(self, names: Collection[str]) -> LoadedModel:
        """The model with initializers that have become inputs."""
        proto = onnx.ModelProto()
        proto.CopyFrom(self.proto)
        kept = [tensor for tensor in proto.graph.initializer if tensor.name not in names]
        del proto.graph.initializer[:]
        proto.graph.initializer.extend(kept)
        constants = {name: array for name, array in self.constants.items() if name not in names}
        return LoadedModel(proto, self.place, constants, self.replaceable.difference(names))


def _from_content(
    content: bytes, place: str, constants: Mapping[str, Array], replaceable: frozenset[str]
) -> LoadedModel:
    return LoadedModel(_parsed(content, place), place, constants, replaceable)


def load(model: str | os.PathLike[str] | bytes | onnx.ModelProto) -> LoadedModel:
    """Read and check a model.

    Raises
    ------
    ModelError
        The file or its external data is missing, it is no model, or ONNX's checker refuses it.
    TypeError
        For an argument of another type.
    """
    folder = None
    if isinstance(model, (str, os.PathLike)):
        path = Path(model)
        place, folder = str(path), path.parent
        try:
            content = path.read_bytes()
        except OSError as error:
            raise ModelError(f"{path}: the model cannot be read: {error.strerror or error}") from error
        proto = _parsed(content, place)
    elif isinstance(model, (bytes, bytearray, memoryview)):
        proto, place = _parsed(bytes(model), "the bytes given"), "the bytes given"
    elif isinstance(model, onnx.ModelProto):
        proto, place = onnx.ModelProto(), f"the model {model.graph.name!r}"
        proto.CopyFrom(model)
    else:
        raise TypeError(f"model is a path, bytes or an onnx.ModelProto, not {type(model).__name__}")
    initializers = {tensor.name for tensor in proto.graph.initializer}
    initializers |= {tensor.values.name for tensor in proto.graph.sparse_initializer}
    # Before that version, an initializer that is an input is a constant all the same.
    can_replace = proto.ir_version >= FREE_INITIALIZERS
    replaceable = {value.name for value in proto.graph.input} & initializers if can_replace else set()
    constants = _take_constants(proto, place, folder)
    require_accepted(proto, constants, place)
    normalize(proto, place)
    _check(proto, place)
    return LoadedModel(proto, place, constants, frozenset(replaceable))


def _take_constants(proto: onnx.ModelProto, place: str, folder: Path | None) -> dict[str, Array]:
    """Take initializers of external data, or all of a large model, out of it. Other external data are read into it."""
    own_tensors = {tensor.name for tensor in proto.graph.initializer if tensor.name}
    for tensor in _tensors(proto):
        if external_data_helper.uses_external_data(tensor) and tensor.name not in own_tensors:
            _read_external(tensor, place, folder)
    is_large = proto.ByteSize() > LARGEST_MESSAGE
    inputs = {value.name for value in proto.graph.input}
    kept, constants = [], {}
    for tensor in proto.graph.initializer:
        is_external = external_data_helper.uses_external_data(tensor)
        if not (is_external or is_large) or tensor.data_type == onnx.TensorProto.STRING:
            kept.append(tensor)
            continue
        if is_external:
            _read_external(tensor, place, folder)
        constants[tensor.name] = numpy_helper.to_array(tensor)
        tensor.ClearField("raw_data")
        if tensor.name not in inputs:
            proto.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    if constants:
        del proto.graph.initializer[:]
        proto.graph.initializer.extend(kept)
    return constants


def _read_external(tensor: onnx.TensorProto, place: str, folder: Path | None) -> None:
    """Read a tensor's external data into it."""
    if folder is None:
        raise ModelError(
            f"{place}: the tensor {tensor.name!r} lies in a file of external data, which only a model with a path "
            "can have: pass the model's path, or load the data first (onnx.load)"
        )
    try:
        external_data_helper.load_external_data_for_tensor(tensor, str(folder))
    except (OSError, ValueError, checker.ValidationError) as error:
        location = next((entry.value for entry in tensor.external_data if entry.key == "location"), "")
        raise ModelError(
            f"{place}: the external data of the tensor {tensor.name!r} (location {location!r}, a path from the "
            f"model's folder) cannot be read: {_line(error)}"
        ) from error
    tensor.data_location = onnx.TensorProto.DEFAULT
    del tensor.external_data[:]


def _parsed(content: bytes, place: str) -> onnx.ModelProto:
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(content)
    except DecodeError as error:
        raise ModelError(f"{place}: this is no ONNX model: {_line(error)}") from error
    return proto


def _tensors(proto: onnx.ModelProto) -> Any:
    """All tensors with data: of the graph, of its nodes' attributes, and of their graphs."""
    return external_data_helper._get_all_tensors(proto)


def _check(proto: onnx.ModelProto, place: str) -> None:
    # The checker wants a type and a shape for each input and output; ONNX Runtime takes any rank where there is none.
    values = (*proto.graph.input, *proto.graph.output)
    untyped = [value for value in proto.graph.output if not value.HasField("type")]
    for value in untyped:
        value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    shapeless = [
        value.type.tensor_type
        for value in values
        if value.type.HasField("tensor_type") and not value.type.tensor_type.HasField("shape")
    ]
    try:
        for kind in shapeless:
            kind.shape.SetInParent()
        checker.check_model(proto)
    except checker.ValidationError as error:
        raise ModelError(f"{place}: ONNX's checker refuses the model: {_line(error)}") from error
    except ValueError as error:  # more than 2 GiB
        raise ModelError(f"{place}: the model cannot be checked: {_line(error)}") from error
    for kind in shapeless:
        kind.ClearField("shape")
    for value in untyped:
        value.ClearField("type")


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
