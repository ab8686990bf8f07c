"""Models as users give them: a path, bytes or a ModelProto, read and checked."""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from google.protobuf.message import DecodeError, EncodeError
from onnx import checker, external_data_helper, helper, numpy_helper

from dmlvk._common import files
from dmlvk.onnx.acceptance import Outline, require_accepted
from dmlvk.onnx.errors import ModelError
from dmlvk.onnx.normal_form import FREE_INITIALIZERS, nested, normalize

Array = npt.NDArray[Any]
# A message of Protocol Buffers has less than 2 GiB. Larger models keep their constants beside it.
LARGEST_MESSAGE = 1 << 30
MOST_BYTES = (1 << 31) - 1
# The bytes of what is no model that an error shows.
MOST_SHOWN = 40
# Bits of an element of raw data, as far as this release of onnx has the type.
_BITS = {
    128: "COMPLEX128",
    64: "DOUBLE INT64 UINT64 COMPLEX64",
    32: "FLOAT INT32 UINT32",
    16: "FLOAT16 BFLOAT16 INT16 UINT16",
    8: "INT8 UINT8 BOOL FLOAT8E4M3FN FLOAT8E4M3FNUZ FLOAT8E5M2 FLOAT8E5M2FNUZ FLOAT8E8M0",
    6: "FLOAT6E2M3 FLOAT6E3M2",
    4: "INT4 UINT4 FLOAT4E2M1",
    2: "INT2 UINT2",
}
BITS = {
    number: bits
    for bits, names in _BITS.items()
    for name, number in onnx.TensorProto.DataType.items()
    if name in names.split()
}
ELEMENT_FIELDS = ("float_data", "int32_data", "int64_data", "uint64_data", "double_data", "string_data")
# The keys that describe a tensor in another file. ONNX Runtime knows no others.
EXTERNAL_KEYS = re.compile("location|offset|length|checksum|prepacked.*")
COMPLEX = (onnx.TensorProto.COMPLEX64, onnx.TensorProto.COMPLEX128)


@dataclass(frozen=True)
class LoadedModel:
    """A model that was read and checked.

    proto: the session's own, without functions.
    place: its name for messages.
    constants: initializers that are kept beside the model: those of external data, and all of a model that is too large
        for a message. In the model they are inputs.
    replaceable: initializers that are inputs of the model as it was given, so that a run may replace them.
    """

    proto: onnx.ModelProto
    place: str
    constants: Mapping[str, Array]
    replaceable: frozenset[str]

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_content, (self._content(), self.place, dict(self.constants), self.replaceable)

    @property
    def nbytes(self) -> int:
        """The size of the model with all its weights."""
        return self.proto.ByteSize() + sum(array.nbytes for array in self.constants.values())

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

    Raises ModelError: the file or its external data is missing, it is no model, or ONNX's checker refuses it.
    Raises TypeError: for an argument of another type.
    """
    folder = None
    if isinstance(model, (str, os.PathLike)):
        path = Path(model)
        place, folder = str(path), path.parent
        try:
            content = files.read_bytes(path, MOST_BYTES)
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
    _require_types(proto, place)
    initializers = {tensor.name for tensor in proto.graph.initializer}
    initializers |= {tensor.values.name for tensor in proto.graph.sparse_initializer}
    # Before that version, an initializer that is an input is a constant all the same.
    can_replace = proto.ir_version >= FREE_INITIALIZERS
    replaceable = {value.name for value in proto.graph.input} & initializers if can_replace else set()
    constants = _take_constants(proto, place, folder)
    outline = Outline.of(proto, constants)
    normalize(proto, place)
    require_accepted(outline, proto, constants, place)
    _check(proto, place)
    return LoadedModel(proto, place, constants, frozenset(replaceable))


def _take_constants(proto: onnx.ModelProto, place: str, folder: Path | None) -> dict[str, Array]:
    """Take initializers of external data, or all of a large model, out of it. Other external data are read into it."""
    for tensor in _tensors_of_nodes(proto):
        if external_data_helper.uses_external_data(tensor):
            _read_external(tensor, place, folder)
        _require_whole(tensor, place)
    is_large = proto.ByteSize() > LARGEST_MESSAGE
    inputs = {value.name for value in proto.graph.input}
    used = inputs | {name for node in nested(proto.graph.node) for name in node.input}
    used |= {value.name for value in proto.graph.output}
    last = {tensor.name: number for number, tensor in enumerate(proto.graph.initializer)}
    in_files = {tensor.name for tensor in proto.graph.initializer if external_data_helper.uses_external_data(tensor)}
    kept, constants = [], {}
    for number, tensor in enumerate(proto.graph.initializer):
        is_external = external_data_helper.uses_external_data(tensor)
        if is_external and tensor.name not in used:
            continue  # no file is read for nothing
        if is_external:
            _read_external(tensor, place, folder)
        else:
            _require_whole(tensor, place)
        if tensor.name in in_files and last[tensor.name] != number:
            continue  # the last one of a name counts
        if not (is_external or is_large) or tensor.data_type == onnx.TensorProto.STRING:
            kept.append(tensor)
            continue
        constants[tensor.name] = numpy_helper.to_array(tensor)
        tensor.ClearField("raw_data")
        if tensor.name not in inputs:
            proto.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    if len(kept) < len(proto.graph.initializer):
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
    known = {entry.key: entry.value for entry in tensor.external_data}
    location = known.get("location", "")
    about = (
        f"{place}: the external data of the tensor {tensor.name!r} (location {location!r}, a path from the model's "
        "folder) cannot be read"
    )
    size = _size_in_bytes(tensor, place)
    if len(known) < len(tensor.external_data):
        keys = [entry.key for entry in tensor.external_data]
        twice = next(key for key in known if keys.count(key) > 1)
        raise ModelError(f"{about}: it has {keys.count(twice)} entries of {twice[:40]!r}; expected one")
    for key, text in known.items():
        if not text or not EXTERNAL_KEYS.fullmatch(key):
            found = f"{key[:40]!r} with the value {text[:40]!r}"
            raise ModelError(f"{about}: it has {found}; expected values of location, offset, length and checksum")
    offset, length = (_external_number(known, key, about) for key in ("offset", "length"))
    if length and length != size:  # ONNX Runtime takes 0 for the whole
        raise ModelError(f"{about}: length is {length}, and {_described(tensor)} has {size} bytes")
    if not location or PurePath(location).is_absolute():
        raise ModelError(f"{about}: the location must be a path from the model's folder")
    try:
        tensor.raw_data = files.read_part(folder / location, offset or 0, size, folder)
    except OSError as error:
        raise ModelError(f"{about}: {error.strerror or error}") from error
    except (ValueError, MemoryError) as error:  # more than a message holds, or than this machine
        raise ModelError(f"{about}: {_line(error)}") from error
    tensor.data_location = onnx.TensorProto.DEFAULT
    for field in ("external_data", *ELEMENT_FIELDS):  # elements in the model itself do not count
        tensor.ClearField(field)


def _external_number(known: Mapping[str, str], key: str, about: str) -> int | None:
    text = known.get(key)
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise ModelError(f"{about}: {key} is {text[:40]!r}; expected a number of bytes")
    return int(text)


def _described(tensor: onnx.TensorProto) -> str:
    return f"a tensor {onnx.TensorProto.DataType.Name(tensor.data_type)} {list(tensor.dims)}"


def _size_in_bytes(tensor: onnx.TensorProto, place: str) -> int:
    """The bytes of a tensor's elements, of a type and sizes that there are."""
    if tensor.data_type not in BITS:
        raise ModelError(
            f"{place}: the tensor {tensor.name!r} has the data type {tensor.data_type}, which is none of ONNX's"
            + (" with raw data" if tensor.data_type == onnx.TensorProto.STRING else "")
        )
    if any(size < 0 for size in tensor.dims):
        raise ModelError(f"{place}: the tensor {tensor.name!r} has the sizes {list(tensor.dims)}; a size is 0 or more")
    return -(-math.prod(tensor.dims) * BITS[tensor.data_type] // 8)


def _require_whole(tensor: onnx.TensorProto, place: str) -> None:
    """Check that a tensor has exactly the elements of its sizes: what reads it trusts that."""
    if tensor.data_type == onnx.TensorProto.STRING:
        field, found, expected = "string_data", len(tensor.string_data), math.prod(tensor.dims)
    else:
        size = _size_in_bytes(tensor, place)
        if tensor.HasField("raw_data"):
            field, found, expected = "raw_data", len(tensor.raw_data), size
        else:
            field = helper.tensor_dtype_to_field(tensor.data_type)
            found = len(getattr(tensor, field))
            # An element here is half of a complex number, and a byte full of small ones.
            count = math.prod(tensor.dims)
            is_packed = BITS[tensor.data_type] in (2, 4)
            expected = 2 * count if tensor.data_type in COMPLEX else size if is_packed else count
    if found != expected:
        units = "bytes" if field == "raw_data" else "elements"
        raise ModelError(
            f"{place}: the tensor {tensor.name!r} has {found} {units} in {field}, and "
            f"{_described(tensor)} has {expected}"
        )


def _parsed(content: bytes, place: str) -> onnx.ModelProto:
    proto = onnx.ModelProto()
    if not content:
        raise ModelError(f"{place}: this is no ONNX model: it is empty")
    try:
        proto.ParseFromString(content)
    except DecodeError as error:
        # A pointer of Git LFS, a page of a server, an archive and a path as bytes show there what they are.
        rule = f"is it whole? It has {len(content):,} bytes, and begins with {content[:MOST_SHOWN]!r}"
        raise ModelError(f"{place}: this is no ONNX model: {_line(error)}; {rule}") from error
    return proto


def _tensors_of_nodes(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """All tensors with data apart from the model's own initializers: of nodes, of graphs in nodes, of functions."""
    yield from _parts(proto.graph.sparse_initializer)
    pending: list[Any] = [proto.graph, *proto.functions]
    while pending:
        for node in pending.pop().node:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield attribute.t
                yield from attribute.tensors
                yield from _parts([attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else [])
                yield from _parts(attribute.sparse_tensors)
                for graph in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs):
                    yield from graph.initializer
                    yield from _parts(graph.sparse_initializer)
                    pending.append(graph)


def _parts(sparse: Iterable[onnx.SparseTensorProto]) -> Iterator[onnx.TensorProto]:
    for tensor in sparse:
        yield from (tensor.values, tensor.indices)


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


def _require_types(proto: onnx.ModelProto, place: str) -> None:
    """Check the data types that the graph says of its values."""
    for value in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        _require_element_types(value, value.type, place)
    for value in proto.graph.input:
        if value.type.HasField("tensor_type") and not value.type.tensor_type.elem_type:
            raise ModelError(f"{place}: the input {value.name!r} has no data type (0, UNDEFINED)")


def _require_element_types(value: onnx.ValueInfoProto, kind: onnx.TypeProto, place: str) -> None:
    """Check that a value's tensors have data types that there are; 0 is one that is not said."""
    name = kind.WhichOneof("value")
    if name in ("tensor_type", "sparse_tensor_type"):
        number = getattr(kind, name).elem_type
        if number not in onnx.TensorProto.DataType.values():
            raise ModelError(f"{place}: the value {value.name!r} has the data type {number}, which is none of ONNX's")
    elif name in ("sequence_type", "optional_type"):
        _require_element_types(value, getattr(kind, name).elem_type, place)
    elif name == "map_type":
        _require_element_types(value, kind.map_type.value_type, place)


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
