"""Resources: blocks of memory with initial values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlvk.data_type import DataType
from dmlvk.dxdispatch.document import DocumentNode
from dmlvk.dxdispatch.elements import TYPE_NAMES, TYPE_PREFIX, data_type_of, element, elements, sequence
from dmlvk.dxdispatch.source_files import PICTURES, kind_of, read_npy, read_picture, read_raw, resolved
from dmlvk.tensor_desc import MAXIMUM_UINT32, MAXIMUM_UINT64

Array = npt.NDArray[Any]

GENERATORS = '[...], {"valueCount", "value"}, {"valueCount", "valueStart", "valueDelta"} or {"sourcePath"}'


@dataclass(frozen=True, eq=False)
class Resource:
    """A block of memory.

    Attributes:
        name (str):
        data_type (DataType, optional): None for initial values of several types.
        content (ndarray of uint8): The initial values' bytes. They lie at the start of the memory; the rest of it is
            zeros.
        size (int): Bytes of the memory.
        is_size_given (bool): Whether the model says the size. Otherwise it is the initial values' size, rounded up to 4
            bytes.
    """

    name: str
    data_type: DataType | None
    content: npt.NDArray[np.uint8]
    size: int
    is_size_given: bool

    @property
    def element_type(self) -> np.dtype:
        """The NumPy dtype of the elements: bytes, if the values have several types."""
        return np.dtype(np.uint8) if self.data_type is None else self.data_type.numpy_dtype

    @property
    def initial_memory(self) -> bytes:
        """The whole memory as it is uploaded."""
        return self.content.tobytes().ljust(self.size, b"\0")

    def values(self, memory: bytes) -> Array:
        """The elements of the memory, as many as there were initial values."""
        return self._view(memory, self.content.size)

    def all_values(self, memory: bytes) -> Array:
        """The elements of the memory, as many as fit."""
        return self._view(memory, self.size)

    def result(self, memory: bytes) -> Array:
        """The elements of the memory, without the bytes that only round up its size."""
        return self._view(memory, self.size if self.is_size_given else self.content.size)

    def _view(self, memory: bytes, size: int) -> Array:
        return np.frombuffer(memory, self.element_type, size // self.element_type.itemsize)


def read_resource(name: str, node: DocumentNode, folders: Sequence[Path]) -> Resource:
    """A resource of a model, its files included, which are in the folders.

    Raises ModelError.
    """
    type_node = node.get("initialValuesDataType")
    data_type = None
    if type_node is not None and type_node.one_of(["UNKNOWN", *TYPE_NAMES], TYPE_PREFIX) != "UNKNOWN":
        data_type = data_type_of(type_node)
    values = _initial_values(node, data_type, folders)
    if not values.size:
        node.require("initialValues").fail("must have an element or more")
    content = np.ascontiguousarray(values).view(np.uint8)
    if data_type is None and kind_of_source(node) == ".npy":
        data_type = DataType.from_numpy(values.dtype)
    size_node = node.get("sizeInBytes")
    size = -(-content.size // 4) * 4 if size_node is None else size_node.integer(0, MAXIMUM_UINT64)
    offset_node = node.get("initialValuesOffsetInBytes")
    # DxDispatch checks the offset and uploads to the start all the same.
    offset = 0 if offset_node is None else offset_node.integer(0, MAXIMUM_UINT64)
    if offset + content.size > size:
        place = offset_node if size_node is None and offset_node is not None else size_node or node
        rule = f"the memory of {size} bytes is too small for initial values of {content.size} bytes at offset {offset}"
        place.fail(rule, f"sizeInBytes of {offset + content.size} or more")
    return Resource(name, data_type, content, size, size_node is not None)


def kind_of_source(node: DocumentNode) -> str:
    """The kind of file that a resource comes from; "" also without a file."""
    initial = node.mapping().get("initialValues")
    path = initial.get("sourcePath") if isinstance(initial, dict) else None
    return kind_of(path) if isinstance(path, str) else ""


def _initial_values(node: DocumentNode, data_type: DataType | None, folders: Sequence[Path]) -> Array:
    initial = node.require("initialValues", GENERATORS)
    if initial.value == "deferred":
        initial.fail("only ONNX models have deferred resources, and dmlvk.dxdispatch does not run them", GENERATORS)
    if isinstance(initial.value, list):
        if data_type is not None:
            return elements(initial, data_type)
        return _mixed_values(initial)
    if not isinstance(initial.value, dict):
        initial.fail("must be a list or an object", GENERATORS)
    given = [name for name in ("value", "valueStart", "sourcePath") if name in initial.value]
    if len(given) != 1:
        initial.fail("must have one of value, valueStart and sourcePath", GENERATORS)
    if given == ["sourcePath"]:
        return _file_values(node, initial.require("sourcePath"), data_type, folders)
    if data_type is None:
        node.require("initialValuesDataType", f"one of {', '.join(TYPE_NAMES)}").fail("must say the values' type")
    count = initial.require("valueCount").integer(1, MAXIMUM_UINT32)
    try:
        if given == ["value"]:
            return np.full(count, element(initial.require("value"), data_type), data_type.numpy_dtype)
        start, delta = (element(initial.require(key), data_type) for key in ("valueStart", "valueDelta"))
        return sequence(start, delta, count)
    except MemoryError:
        initial.require("valueCount").fail("is more than this machine's memory holds")


def _mixed_values(initial: DocumentNode) -> Array:
    parts = []
    for item in initial.items():
        if not isinstance(item.value, dict):
            rule = "without initialValuesDataType each value says its type"
            item.fail(rule, '{"type": ..., "value": ...}, or initialValuesDataType for the resource')
        type_node = item.require("type")
        data_type = data_type_of(type_node)
        if data_type is DataType.FLOAT16:
            type_node.fail("DxDispatch has no FLOAT16 here", "UINT16 with the bits")
        parts.append(np.frombuffer(element(item.require("value"), data_type).tobytes(), np.uint8))
    return np.concatenate(parts) if parts else np.empty(0, np.uint8)


def _file_values(
    node: DocumentNode, source: DocumentNode, data_type: DataType | None, folders: Sequence[Path]
) -> Array:
    path = resolved(source)
    kind = kind_of(path)
    if kind == ".npy":
        values = read_npy(source, path, folders)
        found = DataType.from_numpy(values.dtype)
        if data_type is not None and found is not data_type:
            node.require("initialValuesDataType").fail(f"{path} has another data type", f"{found.name}, or none")
        return values
    if kind in PICTURES:
        # DxDispatch reads both keys beside initialValues.
        size_node, mode_node = node.get("resampleSize"), node.get("resampleMode")
        sizes = () if size_node is None else size_node.integers(0, MAXIMUM_UINT32)
        mode = "scale" if mode_node is None else mode_node.text()
        return read_picture(source, path, folders, data_type, sizes, mode)
    if data_type is None:
        node.require("initialValuesDataType", f"one of {', '.join(TYPE_NAMES)}").fail("must say the raw file's type")
    return np.frombuffer(read_raw(source, path, folders), np.uint8)
