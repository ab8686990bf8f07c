"""A session: a model on a device, with ONNX Runtime's own calls."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import onnx

from dmlvk.onnx import folding, placement, quantization
from dmlvk.onnx.arguments import Expected, NodeArgument, checked_feeds
from dmlvk.onnx.errors import ModelError, RefusedError
from dmlvk.onnx.execution import Held
from dmlvk.onnx.graph import Graph, Node
from dmlvk.onnx.model_file import load
from dmlvk.onnx.placement import Row
from dmlvk.onnx.profile import Profile
from dmlvk.onnx.registry import ENTRIES, entry_of
from dmlvk.onnx.steps import DeviceStep, HostStep, Step, remember
from dmlvk.runtime.copying import NotCopied
from dmlvk.runtime.device import Device
from dmlvk.vulkan.monitor import Monitor

# A session keeps its steps for this many combinations of input sizes.
SCHEDULES_KEPT = 16
FUSED = "QLinearConv, with its quantized neighbours"


@dataclass(frozen=True)
class Memory:
    """Bytes on the device for a model's values; weights are not among them.

    Attributes
    ----------
    peak : int
        What is taken: values share memory if no dispatch needs both.
    sum : int
        What they would take beside each other.
    """

    peak: int
    sum: int


class InferenceSession(NotCopied):
    """A model on a device. Nodes that the device does not run go to the host in the largest parts.

    Parameters
    ----------
    model : path, bytes or ModelProto
        Any valid model. External data are read from the folder of its path.
    device : Device, int or str, optional
        A device, or a selector of one; the best device by default.
    fuse_qdq : bool
        Fuse DequantizeLinear, Conv, [Relu or Clip], QuantizeLinear to one integer convolution, as ONNX Runtime does
        when it optimizes. This changes the last bits. False leaves them to the host.

    Raises
    ------
    ModelError
        The model cannot be read, or ONNX's checker refuses it. The message names the node or the tensor.
    DeviceError
        There is no such device.

    Notes
    -----
    `run` may be called from several threads; runs of one session go one after the other. The host is ONNX Runtime on
    the CPU, or without that package ONNX's reference evaluator.
    """

    in_place_of_a_copy = "make a session of the same model where it is needed"

    def __init__(
        self,
        model: str | os.PathLike[str] | bytes | onnx.ModelProto,
        device: Device | int | str | None = None,
        fuse_qdq: bool = True,
    ) -> None:
        proto, self._place = load(model)
        self.device = device if isinstance(device, Device) else Device(device)
        self._graph = graph = Graph(proto)
        self._expected = {name: Expected.of(value) for name, value in graph.inputs.items()}
        self._all_nodes = list(graph.nodes)
        self._folded, self._fused = quantization.fuse(graph) if fuse_qdq else ({}, {})
        self._folded |= folding.fold(graph)
        self._obstacles = placement.obstacles(graph)
        self._schedules: OrderedDict[Any, _Schedule] = OrderedDict()
        self._steps: dict[tuple[bool, bool, tuple[int, ...]], Step] = {}
        self._last: _Schedule | None = None
        self._monitor = Monitor()
        self._threads: ThreadPoolExecutor | None = None

    def __repr__(self) -> str:
        return f"<dmlvk.onnx.InferenceSession of {self._place} on {self.device.name}>"

    def get_inputs(self) -> list[NodeArgument]:
        """The inputs that a run is given: name, shape and type, as ONNX Runtime has them."""
        return [expected.argument for expected in self._expected.values()]

    def get_outputs(self) -> list[NodeArgument]:
        """The outputs: name, shape and type, as ONNX Runtime has them."""
        types = self._graph.types
        return [
            NodeArgument.of(onnx.helper.make_value_info(name, types.get(name, onnx.TypeProto())))
            for name in self._graph.outputs
        ]

    @property
    def placement(self) -> list[Row]:
        """Where each node of the model runs, in the model's order; for the sizes of the last run, if there was one."""
        reasons = self._obstacles if self._last is None else self._last.on_host
        return [self._row(node, reasons) for node in self._all_nodes]

    @property
    def memory(self) -> Memory:
        """The device's memory for the values of the last run: shared by lifetime, and the sum without sharing."""
        steps = [] if self._last is None else self._last.steps
        layouts = [step.last.layout for step in steps if isinstance(step, DeviceStep) and step.last is not None]
        return Memory(sum(layout.size for layout in layouts), sum(layout.sum for layout in layouts))

    def _row(self, node: Node, reasons: Mapping[int, str]) -> Row:
        index = self._fused.get(node.index, node.index)
        if index in self._folded:
            return Row(node.name, node.op_type, "folded", self._folded[index])
        if index in reasons:
            return Row(node.name, node.op_type, "host", reasons[index])
        entry = entry_of(node)
        if entry is not None and entry.is_view:
            return Row(node.name, node.op_type, "view", "the same memory under another description")
        return Row(node.name, node.op_type, "device", FUSED if index != node.index else "")

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[Any]:
        """Run the model.

        Parameters
        ----------
        output_names : sequence of str or None
            The outputs to return; None or nothing for all.
        feeds : mapping of str to array_like
            An array for each input, of the input's type and sizes.

        Returns
        -------
        list of ndarray
            The outputs, in the order of their names.

        Raises
        ------
        ModelError
            An input is missing, unknown or of another type, rank or size; an output is unknown; or the host's library
            refuses a node. The message names it.
        DeviceError
            The device is closed, lost, or out of memory.
        """
        names = list(output_names or self._graph.outputs)
        for name in names:
            if name not in self._graph.outputs:
                raise ModelError(f"{self._place} has no output {name!r}; it has {', '.join(self._graph.outputs)}")
        return self._monitor.run(self._run, names, checked_feeds(self._expected, self._graph, feeds, self._place))

    def run_async(self, output_names: Sequence[str] | None, feeds: Mapping[str, Any]) -> Future[list[Any]]:
        """As `run`, on a thread of the session; returns at once.

        Returns
        -------
        concurrent.futures.Future
            Its result is the list of outputs; its exception is that of `run`.
        """
        if self._threads is None:
            self._threads = ThreadPoolExecutor(1, thread_name_prefix="dmlvk.onnx")
        return self._threads.submit(self.run, output_names, dict(feeds))

    def profiled(self, feeds: Mapping[str, Any]) -> tuple[list[Any], Profile]:
        """Run the model as `run` does, and time each of its steps.

        Parameters
        ----------
        feeds : mapping of str to array_like
            As for `run`.

        Returns
        -------
        tuple of list of ndarray and Profile
            All outputs, and the times. The first run with new sizes also plans and compiles. Times on the GPU need a
            device whose `timestamps` was True at that run.
        """
        profile = Profile()
        names = list(self._graph.outputs)
        start = perf_counter()
        outputs = self._monitor.run(
            self._run, names, checked_feeds(self._expected, self._graph, feeds, self._place), profile
        )
        profile.seconds = perf_counter() - start
        return outputs, profile

    def traced(self, feeds: Mapping[str, Any]) -> tuple[Graph, dict[str, Any], list[Node]]:
        """Run the model with steps of its own that keep each value.

        Returns
        -------
        tuple of Graph, dict of str to ndarray, and list of Node
            The graph; all its values but the constants; and the nodes on the device that are no views.
        """
        checked = checked_feeds(self._expected, self._graph, feeds, self._place)
        return self._monitor.run(self._trace, checked)

    def _trace(self, feeds: Mapping[str, Any]) -> tuple[Graph, dict[str, Any], list[Node]]:
        schedule = _Schedule(dict(self._obstacles), keeps_all=True)
        values = self._values(schedule, {name: Held(feed) for name, feed in feeds.items()})
        on_device = [node for node in self._graph.nodes if node.index not in schedule.on_host]
        dispatched = [node for node in on_device if not ENTRIES[node.domain, node.op_type].is_view]
        return self._graph, {name: held.host() for name, held in values.items()}, dispatched

    def _run(self, names: list[str], feeds: Mapping[str, Any], profile: Profile | None = None) -> list[Any]:
        key = tuple((name, getattr(feed, "shape", None)) for name, feed in feeds.items())
        schedule = self._schedules.get(key)
        if schedule is None:
            schedule = _Schedule(dict(self._obstacles))
        remember(self._schedules, key, schedule, SCHEDULES_KEPT)
        self._last = schedule
        values = self._values(schedule, {name: Held(feed) for name, feed in feeds.items()}, profile)
        if profile is not None:
            profile.begin("outputs")
            for name in names:
                if name in values:
                    profile.download(values[name])
        # A result is the caller's own: it shares no memory with a feed or a constant.
        return [self._result(name, values, feeds) for name in names]

    def _values(self, schedule: _Schedule, values: dict[str, Held], profile: Profile | None = None) -> dict[str, Held]:
        """All values that a run leaves. Steps that the schedule lacks are found on the way."""
        number = 0
        while True:
            if number == len(schedule.steps):
                if not schedule.is_whole:
                    done = {node.index for step in schedule.steps for node in step.nodes}
                    remaining = [node for node in self._graph.nodes if node.index not in done]
                    schedule.is_whole = not remaining
                if schedule.is_whole:
                    return values
                host, nodes = placement.next_part(remaining, set(values), schedule.on_host, self._graph)
                schedule.steps.append(self._step(host, nodes, schedule.keeps_all))
            step = schedule.steps[number]
            try:
                values.update(step.run(values, profile))
            except RefusedError as error:
                if profile is not None:
                    profile.refuse()
                # The node goes to the host, and all that was planned from here on is planned anew.
                schedule.on_host[error.index] = error.reason
                del schedule.steps[number:]
                schedule.is_whole = False
                continue
            number += 1

    def _step(self, host: bool, nodes: Sequence[Node], keeps_all: bool) -> Step:
        key = (host, keeps_all, tuple(node.index for node in nodes))
        found = self._steps.get(key)
        if found is None:
            if host:
                found = HostStep(self._graph, nodes, keeps_all)
            else:
                found = DeviceStep(self._graph, nodes, self.device, keeps_all)
            if not keeps_all:
                self._steps[key] = found
        return found

    def _result(self, name: str, values: Mapping[str, Held], feeds: Mapping[str, Any]) -> Any:
        if name not in values:
            return np.array(self._graph.constant(name))
        result = values[name].host()
        shared = isinstance(result, np.ndarray) and any(
            isinstance(feed, np.ndarray) and np.shares_memory(result, feed) for feed in feeds.values()
        )
        return result.copy() if shared else result


class _Schedule:
    """The steps for one combination of input sizes, as far as they are known.

    Parameters
    ----------
    on_host : dict of int to str
        By number, the reasons of the host's nodes.
    keeps_all : bool
        Whether each value is kept, not only those that later steps need.

    Attributes
    ----------
    is_whole : bool
        Whether the steps are known to the end.
    """

    def __init__(self, on_host: dict[int, str], keeps_all: bool = False) -> None:
        self.on_host = on_host
        self.keeps_all = keeps_all
        self.steps: list[Step] = []
        self.is_whole = False
