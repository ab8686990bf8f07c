"""A model on one device: its steps for each combination of input sizes, found by the first run and kept."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from dmlvk.device_profile import DeviceType
from dmlvk.onnx import crossings, placement
from dmlvk.onnx.direct_run import DirectRun, Turns, direct_run
from dmlvk.onnx.errors import RefusedError
from dmlvk.onnx.foreseen import foreseen, sized
from dmlvk.onnx.graph import Graph, Node
from dmlvk.onnx.held import Held, own_results
from dmlvk.onnx.host import has_onnx_runtime
from dmlvk.onnx.profile import Profile
from dmlvk.onnx.quantized_inputs import crossing_bytes
from dmlvk.onnx.registry import ENTRIES
from dmlvk.onnx.steps import DeviceStep, HostStep, Step, remember
from dmlvk.onnx.trial import DOUBT, DivisionTrial
from dmlvk.runtime.device import Device
from dmlvk.vulkan.interrupts.monitor import Monitor

# Parts of the host that have a pool of threads, each as large as a session's of the whole: one part of a run works at a
# time, and the others' threads sleep. Work is not known well enough to deal out the threads of one session.
POOLS = 16
# Operators each step of which waits for the one before.
RECURRENT = {"GRU", "LSTM", "RNN"}
# Steps are kept for this many combinations of input sizes.
SCHEDULES_KEPT = 16


class ModelOnDevice:
    """A model's steps and memory on a device. One run at a time.

    graph: may be shared: a run does not change it.
    obstacles: by number, the reasons of the nodes that no run has on the device.
    channels_last: whether tensors between convolutions have their channels last.
    is_fastest: whether nodes that the device could run go to the host where that costs less. Otherwise whatever can
        runs on the device.
    host_steps: the host's, which those of other devices and of other runs at once share.
    tunes: whether the kernel paths of layers are measured before the first run.
    first: of the same device, for a model that runs there at the same time: the two share plans and weights.
    last: that of the last run.
    direct: a run like the last one.
    turns: of the threads that run here.
    """

    def __init__(
        self,
        graph: Graph,
        obstacles: Mapping[int, str],
        device: Device,
        channels_last: bool,
        is_fastest: bool,
        host_steps: HostSteps,
        tunes: bool = False,
        first: ModelOnDevice | None = None,
    ) -> None:
        self.device = device
        self._first = first
        self._tunes = tunes
        self._is_cpu = device.profile.device_type is DeviceType.CPU
        self._channels_last = channels_last
        self._host_steps = host_steps
        self._costs = crossings.costs_of(device.profile) if is_fastest else None
        self.last: Schedule | None = None
        self._graph = graph
        self._obstacles = obstacles
        self._schedules: OrderedDict[Any, Schedule] = OrderedDict()
        self._steps: dict[tuple[int, ...], DeviceStep] = {}
        self.direct: DirectRun | None = None
        self.turns = Turns()

    def run(self, names: Sequence[str], feeds: Mapping[str, Any], profile: Profile | None = None) -> list[Any]:
        """The outputs of these names. The feeds are those of `arguments.checked_feeds`."""
        outputs = self.run_again(names, feeds) if profile is None else None
        return self.turns.run(self._run, names, feeds, profile) if outputs is None else outputs

    def run_again(self, names: Any, feeds: Any) -> list[Any] | None:
        """The outputs of what a caller asks for, if an earlier run is like this one: see `DirectRun.run`."""
        direct = self.direct
        outputs = None if direct is None else direct.run(names, feeds)
        return self._run_in_other_sizes(names, feeds) if outputs is None else outputs

    def _run_in_other_sizes(self, names: Any, feeds: Any) -> list[Any] | None:
        """As `run_again`, if the last run is not like this one."""
        if type(feeds) is not dict:
            return None
        try:
            schedule = self._schedules.get(_sizes(feeds))
        except Exception:  # a feed's shape is no tuple
            return None
        direct = None if schedule is None else schedule.direct
        outputs = None if direct is None else direct.run(names, feeds)
        if outputs is not None:
            self.last, self.direct = schedule, direct
        return outputs

    def tune(self, feeds: Mapping[str, Any]) -> None:
        """Measure the kernel paths of the layers of a run with such inputs; later runs are planned anew."""
        self.turns.run(self._tune, feeds)

    def _tune(self, feeds: Mapping[str, Any]) -> None:
        # On a GPU layers are measured among each other, as they run.
        tunes, self._tunes = self._tunes, self._is_cpu
        try:
            schedule = self._new_schedule(feeds)
            if not self._tunes:
                self._values(schedule, _held(feeds))
                for step in schedule.steps:
                    if isinstance(step, DeviceStep) and step.last is not None:
                        step.last.in_device_memory().tune()
        finally:
            self._tunes = tunes
        self.forget_plans()

    def forget_plans(self) -> None:
        """Plan all later runs anew."""
        self.direct = None
        self._schedules.clear()
        self._steps.clear()

    def trace(self, feeds: Mapping[str, Any]) -> tuple[Graph, dict[str, Any], list[Node]]:
        """Run with steps of its own that keep each value: see `InferenceSession.traced`."""
        return self.turns.run(self._trace, feeds)

    def _trace(self, feeds: Mapping[str, Any]) -> tuple[Graph, dict[str, Any], list[Node]]:
        schedule = Schedule(self._graph, dict(self._obstacles), keeps_all=True)
        values = self._values(schedule, _held(feeds))
        on_device = [node for node in self._graph.nodes if node.index not in schedule.on_host]
        dispatched = [node for node in on_device if not ENTRIES[node.domain, node.op_type].is_view]
        return self._graph, {name: held.host() for name, held in values.items()}, dispatched

    def _run(self, names: list[str], feeds: Mapping[str, Any], profile: Profile | None = None) -> list[Any]:
        key = _sizes(feeds)
        schedule = self._schedules.get(key)
        if schedule is None:
            schedule = self._new_schedule(feeds)
        elif profile is None:
            schedule = self._faster(schedule, names, feeds)
        remember(self._schedules, key, schedule, SCHEDULES_KEPT)
        self.last = schedule
        values = self._values(schedule, _held(feeds), profile)
        if profile is not None:
            profile.begin("outputs")
            for name in names:
                if name in values:
                    profile.download(values[name])
        self.direct = schedule.direct = direct_run(
            schedule.steps, self.turns, names, feeds, names == self._graph.outputs
        )
        return _outputs(schedule, names, values)

    def _faster(self, schedule: Schedule, names: list[str], feeds: Mapping[str, Any]) -> Schedule:
        """The schedule of the host alone, if it is known to be faster than this one, which has run before."""
        trial = schedule.trial
        if trial is None or len(schedule.steps) < 2:
            return schedule
        chosen = trial.choose(
            schedule, len(schedule.steps), lambda way: _outputs(way, names, self._values(way, _held(feeds)))
        )
        chosen.measured = trial.reason
        if chosen is not schedule:
            for step in schedule.steps:
                if isinstance(step, DeviceStep):
                    step.forget_last()
        return chosen

    def _new_schedule(self, feeds: Mapping[str, Any]) -> Schedule:
        """Where each node runs with inputs of these sizes; on a GPU its kernels are compiled, on all cores."""
        if self._first is not None:
            # Whatever runs there may be planning just this.
            schedule = self._first.turns.run(self._first._schedules.get, _sizes(feeds))
            if schedule is not None and schedule.is_complete:
                return schedule.again(self._again)
        given = {name: (feed.shape, feed.dtype) for name, feed in feeds.items() if isinstance(feed, np.ndarray)}
        graph, folded, kinds = sized(self._graph, given)
        on_host = dict(self._obstacles) if graph is self._graph else placement.obstacles(graph)
        sizes = None if graph is self._graph else _sizes(feeds)
        if self._tunes and not self._is_cpu:
            self._tune(feeds)
        if self._costs is None and self._is_cpu and not self._tunes:
            return Schedule(graph, on_host, folded, sizes=sizes, work=crossings.host_work(graph, kinds))
        division = crossings.Division({}, 0.0, math.inf)
        while True:
            if self._costs is not None:
                division = crossings.divided(graph, on_host, kinds, self._costs)
            cheaper = division.cheaper_on_host
            descs, refused = foreseen(graph, on_host | cheaper, kinds, self._channels_last)
            if not refused:
                break
            on_host |= refused
        if self._tunes or not self._is_cpu:  # CPU drivers keep few pipelines
            self.device.compile_all(descs, tune=self._tunes)
        work = crossings.host_work(graph, kinds)
        schedule = Schedule(graph, on_host | cheaper, folded, sizes=sizes, work=work)
        if division.whole_on_host <= DOUBT * division.seconds and has_onnx_runtime():
            everywhere = dict.fromkeys((node.index for node in graph.nodes), "")
            alone = Schedule(graph, everywhere | on_host, folded, sizes=sizes, work=work)
            schedule.trial = DivisionTrial(alone)
        return schedule

    def _values(self, schedule: Schedule, values: dict[str, Held], profile: Profile | None = None) -> dict[str, Held]:
        """Run the steps, and return all values that they leave. Steps that the schedule lacks are planned meanwhile."""
        number = 0
        while True:
            if number == len(schedule.steps):
                if schedule.is_complete:
                    return values
                self._add_step(schedule, set(values))
                continue
            try:
                values.update(schedule.steps[number].run(values, profile))
            except RefusedError as error:
                if profile is not None:
                    profile.refuse()
                # The node goes to the host, and all that was planned from here on is planned anew.
                schedule.on_host[error.index] = error.reason
                schedule.is_complete = False
                del schedule.steps[number:]
                continue
            number += 1

    def _add_step(self, schedule: Schedule, available: set[str]) -> None:
        """Add the step that follows, or find that there is none."""
        done = {node.index for step in schedule.steps for node in step.nodes}
        remaining = placement.remaining(done, schedule.on_host, schedule.graph)
        if remaining:
            host, nodes = placement.next_part(remaining, available, schedule.on_host, schedule.graph)
            schedule.steps.append(self._step(host, nodes, schedule))
        else:
            schedule.is_complete = True

    def _step(self, host: bool, nodes: Sequence[Node], schedule: Schedule) -> Step:
        # Schedules of one graph share their steps; the host's are shared by all devices.
        indices = tuple(node.index for node in nodes)
        if host:
            private = placement.private_values(nodes, schedule.on_host, schedule.graph)
            return self._host_steps.step(schedule, nodes, private)
        if schedule.graph is not self._graph or schedule.keeps_all:
            return self._device_step(nodes, schedule)
        if indices not in self._steps:
            self._steps[indices] = self._device_step(nodes, schedule)
        return self._steps[indices]

    def _again(self, step: DeviceStep, is_shared: bool) -> DeviceStep:
        """Another device's step for this one. Those of the session's own graph are shared by all sizes."""
        if not is_shared:
            return step.again()
        indices = tuple(node.index for node in step.nodes)
        if indices not in self._steps:
            self._steps[indices] = step.again()
        return self._steps[indices]

    def _device_step(self, nodes: Sequence[Node], schedule: Schedule) -> DeviceStep:
        return DeviceStep(schedule.graph, nodes, self.device, schedule.keeps_all, self._channels_last)


def _sizes(feeds: Mapping[str, Any]) -> Any:
    """The sizes of feeds, by which schedules are kept."""
    return tuple([(name, getattr(feed, "shape", None)) for name, feed in feeds.items()])


def _outputs(schedule: Schedule, names: Sequence[str], values: Mapping[str, Held]) -> list[Any]:
    return own_results([values.get(name) for name in names], [schedule.graph.constant(name) for name in names])


def _held(feeds: Mapping[str, Any]) -> dict[str, Held]:
    return {name: Held(feed, is_shared=True) for name, feed in feeds.items()}


@dataclass(frozen=True)
class Traffic:
    """What a run takes between host and device.

    parts: stretches of nodes that run on one side.
    bytes_to_device, bytes_from_device: of the values that cross the bus; constants are not among them.
    """

    parts: int
    bytes_to_device: int
    bytes_from_device: int


class Schedule:
    """The steps for one combination of input sizes, as far as they are known.

    graph: in which the sizes that are known are constants.
    on_host: by number, the reasons of the host's nodes.
    folded: by number, the reasons of the nodes that these sizes have made constants.
    keeps_all: whether each value is kept, not only those that later steps need.
    sizes: those that are constants of the graph; None for the session's own graph, whose constants hold for all sizes.
    work: what each node would take on the host, by number.
    is_complete: whether the steps have all nodes.
    direct: a run like the last one with these sizes.
    trial: the choice between these steps and the host alone, where that is to be measured.
    measured: what was found by it.
    """

    def __init__(
        self,
        graph: Graph,
        on_host: dict[int, str],
        folded: Mapping[int, str] | None = None,
        keeps_all: bool = False,
        sizes: Any = None,
        work: Mapping[int, float] | None = None,
    ) -> None:
        self.graph = graph
        self.on_host = on_host
        self.folded = folded or {}
        self.keeps_all = keeps_all
        self.sizes = sizes
        self.steps: list[Step] = []
        self.is_complete = False
        self.direct: DirectRun | None = None
        self.trial: DivisionTrial[Schedule] | None = None
        self.measured = ""
        self._work = work or {}

    def has_work_for_threads(self, nodes: Sequence[Node]) -> bool:
        """Whether ONNX Runtime gains by threads that share the work of one of the nodes.

        Without optimization it shares smaller ones than these all the same, which takes longer.
        """
        work = [(self._work.get(node.index, 0.0), node.op_type in RECURRENT) for node in nodes]
        if self.graph.host_optimizes:
            return any(seconds > 0.0 for seconds, _ in work)
        return any(seconds > crossings.SECONDS_OF_A_THREAD and not is_recurrent for seconds, is_recurrent in work)

    def again(self, own: Callable[[DeviceStep, bool], DeviceStep]) -> Schedule:
        """The same schedule with steps of its own on the device, which a function makes of these."""
        made = Schedule(self.graph, dict(self.on_host), self.folded, self.keeps_all, self.sizes, self._work)
        is_shared = self.sizes is None
        made.steps = [own(step, is_shared) if isinstance(step, DeviceStep) else step for step in self.steps]
        made.is_complete = self.is_complete
        made.trial, made.measured = self.trial, self.measured
        return made

    def traffic(self) -> Traffic:
        """The parts and the bytes of the last run."""
        from_device: dict[str, int] = {}
        up = 0
        read = set(self.graph.outputs)
        for step in self.steps:
            if isinstance(step, HostStep):
                read.update(step.inputs)
                continue
            if not isinstance(step, DeviceStep) or step.last is None:
                continue
            read.update(step.looked_at)
            inputs = step.last.program.inputs
            up += sum(
                crossing_bytes(target, inputs[name].size_in_bytes)
                for name, target in step.last.input_tensors.items()
                if name not in from_device
            )
            outputs = step.last.program.outputs
            from_device |= {name: outputs[name].size_in_bytes for name in step.last.output_tensors}
        down = sum(size for name, size in from_device.items() if name in read)
        return Traffic(len(self.steps), up, down)


class HostSteps:
    """The host's steps of a session: all devices share them, and all runs at once. Each lasts as long as its schedules.

    kinds_of_devices: each kind may have other nodes on the host, and so steps of its own.
    """

    def __init__(self, kinds_of_devices: int) -> None:
        self._kinds_of_devices = kinds_of_devices
        self._steps: WeakValueDictionary[Any, HostStep] = WeakValueDictionary()
        self._monitor = Monitor()

    def step(self, schedule: Schedule, nodes: Sequence[Node], private: frozenset[str]) -> HostStep:
        """The step of these nodes, behind the steps that a schedule has already."""
        return self._monitor.run(self._step, schedule, nodes, private)

    def _step(self, schedule: Schedule, nodes: Sequence[Node], private: frozenset[str]) -> HostStep:
        key = (schedule.sizes, schedule.keeps_all, tuple(node.index for node in nodes), private)
        found = self._steps.get(key)
        if found is None or schedule.keeps_all:
            found = self._steps[key] = self._new(schedule, nodes, private)
        return found

    def _new(self, schedule: Schedule, nodes: Sequence[Node], private: frozenset[str]) -> HostStep:
        graph = schedule.graph
        pools = sum(step.threads != 1 for step in schedule.steps if isinstance(step, HostStep))
        has_pool = pools < POOLS and schedule.has_work_for_threads(nodes)
        threads = graph.host_options.intra_op_num_threads if has_pool else 1
        spins = self._kinds_of_devices == 1 and len(nodes) == len(graph.nodes)
        return HostStep(graph, nodes, schedule.keeps_all, private, threads, spins)
