"""Commands of a model, read and checked before any of them runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from dmlvk._common import files
from dmlvk.dxdispatch.dispatchables import Dispatchable, Source, find_resource, read_bindings
from dmlvk.dxdispatch.document import DocumentNode
from dmlvk.dxdispatch.printing import is_printable
from dmlvk.dxdispatch.resources import Resource
from dmlvk.dxdispatch.source_files import (
    CHANNEL_MODES,
    PICTURES,
    PIXEL_TYPES,
    kind_of,
    path_name,
    picture_bytes,
    require_pillow,
)
from dmlvk.tensor_desc import MAXIMUM_UINT32

KINDS = ("dispatch", "print", "writeFile")


@dataclass(frozen=True)
class DispatchCommand:
    """Run a dispatchable.

    sources: by field name.
    """

    dispatchable: Dispatchable
    sources: Mapping[str, Source]


@dataclass(frozen=True)
class Print:
    """Print a resource; `is_verbose`: a line for each element."""

    resource: Resource
    is_verbose: bool


@dataclass(frozen=True)
class WriteFile:
    """Write a resource to a file.

    target_path: with this system's separators.
    dimensions: of a .npy file or a picture; empty for one dimension.
    node: of the path, for messages.
    """

    resource: Resource
    target_path: str
    dimensions: tuple[int, ...]
    node: DocumentNode = field(compare=False, repr=False)

    def content(self, memory: bytes) -> bytes:
        """The file's content."""
        kind = kind_of(self.target_path)
        if not kind:
            return memory[: self.resource.size]
        values = self.resource.all_values(memory)
        if self.dimensions:
            values = values[: math.prod(self.dimensions)].reshape(self.dimensions)
        return files.npy_bytes(values) if kind == ".npy" else picture_bytes(values.reshape(self._planes), kind)

    @property
    def _planes(self) -> tuple[int, int, int]:
        channels, height, width = (*self.dimensions[1:4], 1, 1, 1)[:3]
        return channels, height, width


Command: TypeAlias = "DispatchCommand | Print | WriteFile"


def read_command(
    node: DocumentNode, resources: Mapping[str, Resource], dispatchables: Mapping[str, Dispatchable]
) -> Command:
    """A command.

    Raises ModelError.
    """
    kind = node.require("type", f"one of {', '.join(KINDS)}")
    name = kind.text().lower()
    if name == "dispatch":
        place = node.require("dispatchable")
        if place.text() not in dispatchables:
            place.fail(
                "the model has no such dispatchable", f"one of {', '.join(dispatchables) or 'none: there are none'}"
            )
        dispatchable = dispatchables[place.value]
        return DispatchCommand(dispatchable, read_bindings(node, dispatchable.desc, resources))
    if name == "print":
        resource = find_resource(node.require("resource"), resources)
        if not is_printable(resource):
            node.require("resource").fail("the resource has values of several types, which DxDispatch cannot print")
        verbose = node.get("verbose")
        return Print(resource, verbose is not None and verbose.boolean())
    if name == "writefile":
        return _read_write_file(node, find_resource(node.require("resource"), resources))
    kind.fail("there is no such command", f"one of {', '.join(KINDS)}")


def _read_write_file(node: DocumentNode, resource: Resource) -> WriteFile:
    target = node.require("targetPath")
    path = path_name(target)
    given = node.get("dimensions")
    dimensions = () if given is None else given.integers(1, MAXIMUM_UINT32)
    kind = kind_of(target.value)
    if kind and resource.data_type is None:
        target.fail(
            f"the resource has values of several types, so it can be no {kind}", "a raw file: another extension"
        )
    count = resource.size // resource.element_type.itemsize
    if kind and given is not None and math.prod(dimensions) > count:
        given.fail(f"they are more elements than the resource has, {math.prod(dimensions)} and {count}")
    if kind in PICTURES:
        if resource.data_type not in PIXEL_TYPES:
            target.fail(f"a picture cannot be made of {np.dtype(resource.element_type)}", "FLOAT32 or FLOAT16")
        channels = (*dimensions[1:2], 1)[0]
        if channels not in CHANNEL_MODES or len(dimensions) != 4 or dimensions[0] != 1:
            (given or target).fail("a picture needs dimensions", "[1, channels, height, width] with 1, 3 or 4 channels")
        require_pillow(target)
    return WriteFile(resource, path, dimensions, target)
