"""A model: read whole and checked whole, then run on a device."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlvk._common import files
from dmlvk._printable import printable
from dmlvk.dxdispatch.commands import Command, DispatchCommand, Print, WriteFile, read_command
from dmlvk.dxdispatch.descriptors import operator_of
from dmlvk.dxdispatch.dispatchables import Dispatchable, Source, read_dispatchable
from dmlvk.dxdispatch.document import read_document
from dmlvk.dxdispatch.printing import printed
from dmlvk.dxdispatch.resources import Resource, read_resource
from dmlvk.dxdispatch.source_files import ALLOW, readable_folders
from dmlvk.runtime.binding import Binding
from dmlvk.runtime.compiled_operator import CompiledOperator
from dmlvk.runtime.device import Device
from dmlvk.runtime.tensor import Buffer, Tensor
from dmlvk.tensor_desc import TensorDesc

Array = npt.NDArray[Any]

# Memory is uploaded and downloaded whole, in words, because a tensor of bytes may not have more than 2**32 - 1 of them.
WORD = np.dtype(np.uint32)


@dataclass(frozen=True)
class Model:
    """A model of DxDispatch. Made by `load`.

    Attributes:
        path (Path): The model's file. Files that the model writes are in its folder, unless the caller of `run` names
            another.
        resources (mapping of str to Resource):
        dispatchables (mapping of str to Dispatchable):
        commands (tuple of Command):
        allow_paths (tuple of Path): Further folders in which the model may read and write.
    """

    path: Path
    resources: Mapping[str, Resource]
    dispatchables: Mapping[str, Dispatchable]
    commands: tuple[Command, ...]
    allow_paths: tuple[Path, ...] = ()

    def __repr__(self) -> str:
        counts = (
            f"{len(self.resources)} resources, {len(self.dispatchables)} dispatchables, {len(self.commands)} commands"
        )
        return f"<dmlvk.dxdispatch.Model {str(self.path)!r}: {counts}>"

    def run(
        self,
        device: Device | int | str | None = None,
        *,
        output_folder: str | os.PathLike[str] | None = None,
        log: Callable[[str], object] = print,
    ) -> dict[str, Array]:
        """Run the commands, one after the other. Each run begins with the initial values.

        Args:
            device (Device, int or str, optional): A device, or what selects one: see `dmlvk.Device`. A device that is
                not given open is closed at the end.
            output_folder (path, optional): The folder for files to write; the model's own by default. Folders that are
                missing are made. Nothing outside it is written, apart from the folders that `load` was told to allow.
            log (callable, optional): Takes the text of each command that prints, and a line for each file that is
                written or that cannot be written. The latter does not end the run: DxDispatch goes on too.

        Returns:
            dict of str to ndarray: Every resource as it is at the end: its elements in one dimension and of its data
                type, as many as there were initial values or, where the model gives sizeInBytes, as many as that holds.
                Initial values of several types come back as bytes, UINT8.

        Raises:
            ModelError: A path to write leads out of the folder, itself or by a link. Nothing has run then.
            DeviceError: There is no such device, or it has too little memory.
        """
        folder = self.path.parent if output_folder is None else Path(output_folder)
        self._require_targets(folder)
        if isinstance(device, Device):
            return _Run(self, device, folder, log).run()
        with Device(device) as opened:
            return _Run(self, opened, folder, log).run()

    def _require_targets(self, folder: Path) -> None:
        for command in self.commands:
            if isinstance(command, WriteFile):
                try:
                    files.place_inside(folder, command.target_path, self.allow_paths)
                except files.OutsideError as error:
                    expected = f"a path in the folder for what the model writes, where links lead too; {ALLOW}"
                    command.node.fail(f"the file cannot be written: {error}", expected)
                except OSError:
                    pass  # DxDispatch says so when it comes to it, and goes on


class _Run:
    """A model on a device."""

    def __init__(self, model: Model, device: Device, folder: Path, log: Callable[[str], object]) -> None:
        self.model = model
        self.device = device
        self.folder = folder
        self.log = log
        self.buffers: dict[str, Buffer] = {}

    def run(self) -> dict[str, Array]:
        # The order of DxDispatch: upload everything, then create and initialize all operators, then the commands. All
        # tensors are bound before the first command, so that whatever is wrong with them ends the run before it.
        for name, resource in self.model.resources.items():
            self.buffers[name] = self.device.buffer(_rounded(resource.size))
            self._memory(resource).write_bytes(resource.initial_memory.ljust(_rounded(resource.size), b"\0"))
        operators: dict[str, CompiledOperator] = {}
        show = self.device.compile_progress or (lambda done, total: None)
        for name, dispatchable in self.model.dispatchables.items():
            show(len(operators), len(self.model.dispatchables))
            operators[name] = self.device.compile(dispatchable.desc)
            if operators[name].has_state:
                operators[name].initialize(**self._tensors(dispatchable, dispatchable.owned))
        show(len(operators), len(self.model.dispatchables))
        bindings: dict[int, Binding] = {}
        for index, command in enumerate(self.model.commands):
            if isinstance(command, DispatchCommand):
                tensors = self._tensors(command.dispatchable, command.sources)
                bindings[index] = operators[command.dispatchable.name].bind(**tensors)
        for index, command in enumerate(self.model.commands):
            if isinstance(command, DispatchCommand):
                self.device.submit([bindings[index]])
            elif isinstance(command, Print):
                self.log(printed(command.resource, self._read(command.resource), is_verbose=command.is_verbose))
            else:
                self._write_file(command)
        return {name: resource.result(self._read(resource)) for name, resource in self.model.resources.items()}

    def _memory(self, resource: Resource) -> Tensor:
        return self.buffers[resource.name].tensor(TensorDesc(WORD, (_rounded(resource.size) // WORD.itemsize,)))

    def _read(self, resource: Resource) -> bytes:
        return self._memory(resource).read_bytes()

    def _tensors(self, dispatchable: Dispatchable, sources: Mapping[str, Source]) -> dict[str, Tensor]:
        tensors = dispatchable.desc.tensors
        return {
            field: self.buffers[source.resource.name].tensor(tensors[field], source.offset)
            for field, source in sources.items()
        }

    def _write_file(self, command: WriteFile) -> None:
        path = self.folder / command.target_path
        try:
            content = command.content(self._read(command.resource))
            files.write_inside(self.folder, command.target_path, content, self.model.allow_paths)
        except OSError as error:
            self.log(printable(f"Failed to write resource to file '{path}': {error}"))
        else:
            self.log(printable(f"Resource '{command.resource.name}' written to '{path}'"))


def _rounded(size: int) -> int:
    return -(-size // WORD.itemsize) * WORD.itemsize


def load(path: str | os.PathLike[str], *, allow_paths: Iterable[str | os.PathLike[str]] = ()) -> Model:
    """Read a model of DxDispatch, and check all of it. No device is needed.

    Args:
        path (path): A file of JSON, in which comments and trailing commas are allowed, and text after the root is
            ignored. Files that it names lie in its folder or in the working directory, wherever links lead.
        allow_paths (iterable of path, optional): Further folders in which this model may read and write.

    Returns:
        Model

    Raises:
        ModelError: The file is no model, or asks for something that dmlvk does not have: another operator, HLSL, ONNX.
            Or a file cannot be read: the model's own, or one that it names, or that is elsewhere. The message names the
            file, the key, the value, the rule and what would be right.
    """
    allowed = tuple(Path(folder) for folder in allow_paths)
    root = read_document(Path(path))
    # Operators first: a model of another operator is refused for that, and not for something in its resources.
    nodes = dict(root.require("dispatchables", "{...}").members())
    for node in nodes.values():
        operator_of(node)
    folders = readable_folders(root, allowed)
    resources = {
        name: read_resource(name, node, folders) for name, node in root.require("resources", "{...}").members()
    }
    dispatchables = {name: read_dispatchable(name, node, resources) for name, node in nodes.items()}
    commands = [read_command(node, resources, dispatchables) for node in root.require("commands", "[...]").items()]
    return Model(Path(path), resources, dispatchables, tuple(commands), allowed)
