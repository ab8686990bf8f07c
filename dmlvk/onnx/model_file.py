"""Models as users give them: a path, bytes or a ModelProto, read and checked."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError, EncodeError
from onnx import checker, external_data_helper, inliner

from dmlvk.onnx.errors import ModelError


def load(model: str | os.PathLike[str] | bytes | onnx.ModelProto) -> tuple[onnx.ModelProto, str]:
    """Read and check a model.

    Returns
    -------
    tuple of ModelProto and str
        A model of the session's own, with its external data and without functions; and its name for messages.

    Raises
    ------
    ModelError
        The file or its external data is missing, it is no model, or ONNX's checker refuses it.
    TypeError
        For an argument of another type.
    """
    if isinstance(model, (str, os.PathLike)):
        path = Path(model)
        return _prepared(_read(path), str(path)), str(path)
    if isinstance(model, (bytes, bytearray, memoryview)):
        proto, place = _parsed(bytes(model), "the bytes given"), "the bytes given"
    elif isinstance(model, onnx.ModelProto):
        proto, place = onnx.ModelProto(), f"the model {model.graph.name!r}"
        proto.CopyFrom(model)
    else:
        raise TypeError(f"model is a path, bytes or an onnx.ModelProto, not {type(model).__name__}")
    for tensor in _tensors(proto):
        if external_data_helper.uses_external_data(tensor):
            raise ModelError(
                f"{place}: the tensor {tensor.name!r} lies in a file of external data, which only a model with a path "
                "can have: pass the model's path, or load the data first (onnx.load)"
            )
    return _prepared(proto, place), place


def _read(path: Path) -> onnx.ModelProto:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path}: the model cannot be read: {error.strerror or error}") from error
    proto = _parsed(content, str(path))
    for tensor in _tensors(proto):
        if external_data_helper.uses_external_data(tensor):
            try:
                external_data_helper.load_external_data_for_tensor(tensor, str(path.parent))
            except (OSError, ValueError, checker.ValidationError) as error:
                location = next((entry.value for entry in tensor.external_data if entry.key == "location"), "")
                raise ModelError(
                    f"{path}: the external data of the tensor {tensor.name!r} (location {location!r}, a path from the "
                    f"model's folder) cannot be read: {_line(error)}"
                ) from error
            tensor.data_location = onnx.TensorProto.DEFAULT
            del tensor.external_data[:]
    return proto


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


def _prepared(proto: onnx.ModelProto, place: str) -> onnx.ModelProto:
    if not proto.graph.node and proto.ir_version:
        raise ModelError(f"{place}: the graph {proto.graph.name!r} is empty; a model has one node or more")
    # The checker wants a shape for each input and output; ONNX Runtime takes any rank where there is none.
    shapeless = [
        value.type.tensor_type
        for value in (*proto.graph.input, *proto.graph.output)
        if value.type.HasField("tensor_type") and not value.type.tensor_type.HasField("shape")
    ]
    try:
        for kind in shapeless:
            kind.shape.SetInParent()
        checker.check_model(proto)
        for kind in shapeless:
            kind.ClearField("shape")
        return inliner.inline_local_functions(proto) if proto.functions else proto
    except checker.ValidationError as error:
        raise ModelError(f"{place}: ONNX's checker refuses the model: {_line(error)}") from error
    except ValueError as error:  # more than 2 GiB
        raise ModelError(f"{place}: the model cannot be checked: {_line(error)}") from error


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def content_of(proto: onnx.ModelProto, place: str) -> bytes:
    """A model as bytes that `load` reads.

    Raises
    ------
    ModelError
        It is larger than 2 GiB, the most that protobuf writes.
    """
    try:
        return proto.SerializeToString()
    except (ValueError, EncodeError) as error:
        raise ModelError(f"{place}: the model cannot be written as bytes: {_line(error)}") from error
