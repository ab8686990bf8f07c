"""The steps of a run: parts of a graph, each on the host or on the device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np

from dmlvk.onnx.convolution import require_exact_scales
from dmlvk.onnx.errors import ModelError, NotOnDeviceError, RefusedError
from dmlvk.onnx.execution import Execution
from dmlvk.onnx.fusion import as_run
from dmlvk.onnx.graph import Graph, Node, in_own_form, reading
from dmlvk.onnx.held import Held
from dmlvk.onnx.host import HostPart, is_known, is_without_rank, kind_of
from dmlvk.onnx.profile import Profile
from dmlvk.onnx.program import Program, ProgramBuilder
from dmlvk.onnx.registry import ENTRIES, entry_of, parameters_of, scales_of
from dmlvk.runtime.device import Device
from dmlvk.vulkan.interrupts.monitor import Monitor

# A step keeps its programs for this many combinations of input sizes, and its models for this many of types.
PROGRAMS_KEPT = 8
PARTS_KEPT = 4


class Step(ABC):
    """Nodes that run together.

    keeps_all: whether all values are outputs.
    private: values that are no outputs all the same, because who uses them elsewhere computes them there.
    inputs, used, outputs: the values that come from outside; those that are used outside; and those that are kept,
        which may be all.
    """

    def __init__(
        self, graph: Graph, nodes: Sequence[Node], keeps_all: bool = False, private: frozenset[str] = frozenset()
    ) -> None:
        self.graph = graph
        self.nodes = nodes
        written = {name for node in self._run_nodes(nodes) for name in node.writes}
        inside = {node.index for node in nodes}
        elsewhere = reading([node for node in graph.nodes if node.index not in inside])
        again = [node for node in nodes if not elsewhere.isdisjoint(private.intersection(node.writes))]
        used = (set(graph.outputs) | elsewhere | reading(again)) - private
        self.inputs = sorted(name for name in reading(nodes) - written if not graph.is_constant(name))
        self.used = [name for node in nodes for name in node.writes if name in used]
        self.outputs = [name for node in nodes for name in node.writes] if keeps_all else self.used

    def _run_nodes(self, nodes: Sequence[Node]) -> Sequence[Node]:
        """What is run for some nodes."""
        return nodes

    @abstractmethod
    def run(self, values: Mapping[str, Held], profile: Profile | None = None) -> dict[str, Held]:
        """The outputs. A profile gets the times.

        Raises RefusedError: a node cannot run here with these values.
        """


class HostStep(Step):
    """Nodes that the host runs, for several threads at once. For `threads` and `spins` see `HostPart`."""

    def __init__(
        self,
        graph: Graph,
        nodes: Sequence[Node],
        keeps_all: bool = False,
        private: frozenset[str] = frozenset(),
        threads: int = 0,
        spins: bool = False,
    ) -> None:
        super().__init__(graph, nodes, keeps_all, private)
        self._spins = spins
        # A part has the types of the values that it was made for, where inference does not find types, or the rank of a
        # value between nodes: ONNX Runtime may know that from what the model says, and a Scan needs it.
        self._types = {
            name: kind
            for name, kind in ((name, graph.types.get(name)) for name in self.inputs)
            if kind is not None and (name in graph.inputs or not is_without_rank(kind))
        }
        self._of_any_type = [
            name for name in self.inputs if name in graph.uncertain or not is_known(self._types.get(name))
        ]
        self.threads = threads
        self._parts: OrderedDict[Any, HostPart] = OrderedDict()
        self._monitor = Monitor()

    def _run_nodes(self, nodes: Sequence[Node]) -> Sequence[Node]:
        # The host runs a table's own nodes. They may write a value that another node of the part reads as well.
        return in_own_form(nodes)

    def run(self, values: Mapping[str, Held], profile: Profile | None = None) -> dict[str, Held]:
        if profile is not None:
            profile.begin("host", self.nodes)
            for name in self.inputs:
                profile.download(values[name])
        feeds = {name: values[name].host() for name in self.inputs}
        part = self.part(feeds)
        found = part.run(feeds) if profile is None else profile.on_host(part.run, feeds)
        return {name: Held(array) for name, array in zip(part.outputs, found, strict=True)}

    def part(self, feeds: Mapping[str, Any]) -> HostPart:
        """The model that runs with inputs of these types."""
        return self._monitor.run(self._kept_part, feeds)

    def _kept_part(self, feeds: Mapping[str, Any]) -> HostPart:
        types = self._types
        key = tuple(kind_of(feeds[name], types.get(name)).SerializeToString() for name in self._of_any_type)
        part = self._parts.get(key)
        if part is None:
            kinds = {name: kind_of(feed, types.get(name)) for name, feed in feeds.items()}
            try:
                part = self._part(self.outputs, kinds)
            except ModelError:
                if self.outputs == self.used:
                    raise
                # The library may lack a node that it leaves out where nobody asks for its output.
                part = self._part(self.used, kinds)
        remember(self._parts, key, part, PARTS_KEPT)
        return part

    def _part(self, outputs: Sequence[str], kinds: Mapping[str, Any]) -> HostPart:
        graph = self.graph
        optimizes, spins = graph.host_optimizes, self._spins
        return HostPart(graph, self.nodes, self.inputs, outputs, kinds, optimizes, self.threads, spins)


class DeviceStep(Step):
    """Nodes that the device runs, as one Sequence for each combination of input sizes.

    With `channels_last`, tensors between convolutions have their channels last in memory.
    """

    def __init__(
        self,
        graph: Graph,
        nodes: Sequence[Node],
        device: Device,
        keeps_all: bool = False,
        channels_last: bool = False,
    ) -> None:
        super().__init__(graph, nodes, keeps_all)
        self._device = device
        self._channels_last = between_convolutions(nodes) if channels_last else frozenset()
        parameters = {name for node in nodes for name in parameters_of(node)}
        self.parameters = sorted(name for name in parameters if not graph.is_constant(name))
        self._scaled = [node for node in nodes if not all(map(graph.is_constant, scales_of(node)))]
        self.looked_at = sorted({*self.parameters, *self._scales()})
        self.executions: OrderedDict[Any, Execution] = OrderedDict()
        self.last: Execution | None = None
        self._first: DeviceStep | None = None

    def again(self) -> DeviceStep:
        """The same step for runs at the same time: it has memory of its own, and this one's programs and weights."""
        made = copy(self)
        made.executions, made.last, made._first = OrderedDict(), None, self
        return made

    def run(self, values: Mapping[str, Held], profile: Profile | None = None) -> dict[str, Held]:
        if profile is not None:
            profile.begin("device", self.nodes)
            for name in self.looked_at:
                profile.download(values[name])
        given = {}
        for name in self.inputs:
            if not values[name].is_tensor:
                user = next(node for node in self.nodes if name in node.reads)
                raise RefusedError(user.index, f"its input {name!r} is no tensor")
            given[name] = values[name].kind
        self._require_exact_scales(values)
        parameters = {name: np.asarray(values[name].host()) for name in self.parameters}
        key = (*given.values(), *(array.tobytes() for array in parameters.values()))
        execution = self.executions.get(key)
        if execution is None:
            known = None if self._first is None else self._first.executions.get(key)
            if known is None:
                threads = self.graph.host_options.intra_op_num_threads
                program = self._program(given, parameters)
                execution = Execution(self._device, program, self.outputs, threads=threads)
            else:
                execution = known.again()
        if execution is not self.last:
            remember(self.executions, key, execution, PROGRAMS_KEPT)
            self.last = execution
        return execution.run(values, profile)

    def forget_last(self) -> None:
        """Give back the memory of the last run's execution."""
        for key in [key for key, execution in self.executions.items() if execution is self.last]:
            del self.executions[key]
        self.last = None

    def _scales(self) -> set[str]:
        """The scales that only a run knows."""
        return {name for node in self._scaled for name in scales_of(node) if not self.graph.is_constant(name)}

    def _require_exact_scales(self, values: Mapping[str, Held]) -> None:
        for node in self._scaled:
            scales = (self.graph.constant(name) for name in scales_of(node))
            found = [
                values[name].host() if scale is None else scale
                for name, scale in zip(scales_of(node), scales, strict=True)
            ]
            try:
                require_exact_scales(found)
            except NotOnDeviceError as error:
                raise RefusedError(node.index, str(error)) from error

    def _program(self, given: Mapping[str, Any], parameters: Mapping[str, Any]) -> Program:
        builder = ProgramBuilder(self.graph, given, parameters, self._channels_last)
        for node in self.nodes:
            try:
                builder.plan(ENTRIES[node.domain, node.op_type].plan, node)
            except NotOnDeviceError as error:
                raise RefusedError(node.index, str(error)) from error
        program = builder.finish(self.outputs)
        kept = {program.outputs[name].storage for name in self.outputs}
        program.operations = as_run(program, kept)
        return program


def between_convolutions(nodes: Sequence[Node]) -> frozenset[str]:
    """Values that a convolution writes and another one reads, also by way of nodes that leave the dimensions alone.

    A mean of whole planes reads them as well as a convolution: a kernel's sum then lies as its addend does.
    """
    read: set[str] = set()
    found: set[str] = set()
    for node in reversed(nodes):
        entry = entry_of(node)
        is_convolution = node.op_type == "QLinearConv"
        if is_convolution and read.intersection(node.writes):
            found.update(node.writes)
        if is_convolution or (entry is not None and entry.ends_layout):
            read.add(node.input(0))
        elif entry is not None and entry.keeps_layout and read.intersection(node.writes):
            read.update(node.reads)
    return frozenset(found)


def remember(kept: OrderedDict[Any, Any], key: Any, value: Any, most: int) -> None:
    """Keep a value as the newest; the oldest goes if there are too many."""
    kept[key] = value
    kept.move_to_end(key)
    while len(kept) > most:
        kept.popitem(last=False)
