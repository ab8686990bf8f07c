"""A session: a model on a device, with ONNX Runtime's own calls."""

from __future__ import annotations

import os
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Literal, NamedTuple

import numpy as np
import onnx

from dmlvk._common.arguments import as_argument
from dmlvk._common.window import in_order
from dmlvk.device_profile import DeviceType
from dmlvk.errors import OutOfMemoryError
from dmlvk.onnx import byte_functions, folding, quantization
from dmlvk.onnx import placement as placement_of
from dmlvk.onnx.arguments import NodeArgument, as_feeds, as_mapping, checked_feeds, input_checks
from dmlvk.onnx.errors import ModelError
from dmlvk.onnx.execution import Execution
from dmlvk.onnx.graph import Graph, HostOptions, Node
from dmlvk.onnx.host import host_session_options, ort_value
from dmlvk.onnx.model_file import LoadedModel, load
from dmlvk.onnx.on_device import HostSteps, ModelOnDevice, Schedule, Traffic
from dmlvk.onnx.onnx_runtime_calls import (
    ELSEWHERE,
    PROVIDER,
    ModelMetadata,
    fuses,
    host_options,
    is_session_options,
    names_of,
    require_run_options,
    warn_of_ignored,
)
from dmlvk.onnx.placement import Row
from dmlvk.onnx.profile import Profile
from dmlvk.onnx.random_feeds import random_feed
from dmlvk.onnx.registry import entry_of
from dmlvk.onnx.repetition import Difference, repeat
from dmlvk.onnx.steps import DeviceStep, remember
from dmlvk.runtime.binding import Binding
from dmlvk.runtime.copying import Pickled
from dmlvk.runtime.device import Device
from dmlvk.runtime.device_info import best_devices
from dmlvk.runtime.shared_devices import DeviceName, named_device
from dmlvk.vulkan.interrupts.monitor import Monitor

# A session caches at most this many sessions of its model, one for each set of initializers that runs override.
SESSIONS_KEPT = 4
_said: set[str] = set()
FUSED = "an operator of bytes, with its quantized neighbours"


@dataclass(frozen=True)
class Memory:
    """Bytes on the device for a model's values; weights are not among them.

    Attributes:
        peak (int): What is taken: values share memory if no dispatch needs both.
        sum (int): What they would take beside each other.
    """

    peak: int
    sum: int


class Options(NamedTuple):
    """What a session is told besides its model and its devices: see `InferenceSession`."""

    fuse_qdq: bool = True
    channels_last: bool | None = None
    placement: Literal["fastest", "device"] | None = None
    sess_options: HostOptions = HostOptions()
    tune: bool = False

    def is_fastest(self, device: Device) -> bool:
        """Whether nodes go to the host where that costs less."""
        if self.placement is None:
            return device.profile.device_type is not DeviceType.CPU
        return self.placement == "fastest"

    def has_channels_last(self, device: Device) -> bool:
        """Whether tensors between convolutions have their channels last on a device."""
        if self.channels_last is None:
            return device.profile.device_type is not DeviceType.CPU
        return self.channels_last


class InferenceSession(Pickled):
    """A model on a device. Nodes that the device does not run go to the host in the largest parts.

    Args:
        model (path, bytes or ModelProto): Any valid model. External data are read from the folder of its path.
        sess_options (onnxruntime.SessionOptions, optional): As ONNX Runtime takes them. Threads, log level and level of
            optimization are those of the nodes on the host; a level below ORT_ENABLE_EXTENDED fuses nothing, as in ONNX
            Runtime. A warning names what has no meaning here. A device in this place is taken for `device`.
        providers (sequence, optional): As ONNX Runtime takes them. They have no meaning here, which a warning says:
            `device` is in their place.
        provider_options (sequence, optional): As ONNX Runtime takes them, for `providers`. A warning says that they
            have no meaning here.
        device (Device, int, str, or iterable of Device, int or str, optional): A device, or a selector of one; the best
            device by default. "all" is each device of the best kind that the host has: all discrete GPUs, or else all
            integrated ones, ..., or else all CPU drivers; a GPU with two drivers counts once. Several devices take
            turns by calls: see the notes.
        fuse_qdq (bool): Fuse DequantizeLinear, Conv, [Relu or Clip], QuantizeLinear to one integer convolution, as ONNX
            Runtime does when it optimizes. This changes the last bits. False leaves them to the host.
        channels_last (bool, optional): Whether tensors between convolutions have their channels last in memory (NHWC),
            whatever the model says: no result depends on it. By default they have so on GPUs, whose kernels are faster
            then.
        placement ({"fastest", "device"}, optional): Where nodes run that the device can run. "fastest" leaves those on
            the host that cost less there, with all that crosses the bus because of them; it is the default on GPUs. The
            second run with inputs of some sizes measures whether the host alone is faster than such a division, unless
            that is far from likely. "device" runs on the device whatever can; it is the default on CPU drivers, which
            are there to prove bits. No result of an operator depends on it.
        runs_at_once (int, optional): The most runs that share a device, in `map`, `run_async` and `run` in several
            threads. By default 2, and 1 if the first device is a driver on the processor: a GPU computes one run while
            the arrays of another one are copied. They share weights. Each has memory of its own for the model's other
            values, which is taken when it first begins beside another one; if there is not enough, runs go one after
            the other.
        tune (bool): Measure, before the first run with inputs of some sizes, the kernel paths of its layers that were
            not measured on this device yet, and take the fastest: see `tune`.

    Raises:
        ModelError: The model cannot be read, or ONNX's checker refuses it. The message names the node or the tensor.
        DeviceError: There is no such device.

    Attributes:
        device (Device): The first of the devices.
        devices (list of Device):

    `run` may be called from several threads. On one device, as many runs go on at once as `runs_at_once` says;
    those of a model that runs as a whole on the host go on at once, as in ONNX Runtime. With several devices,
    each call runs as a whole on the device that has the fewest calls. So `run` in one thread is no faster than on one
    device; `map`, `run_async` and `run` in several threads are. A batch is never split, because nothing in a model says
    that its first dimension counts independent images. The bits do not depend on the device.

    The host is ONNX Runtime on the CPU, or without that package ONNX's reference evaluator.

    A model of QLinearConv and the like has the bits of ONNX Runtime without optimization: its optimization quantizes
    further nodes. A model with fused convolutions has them with it, because that is where the fusion comes from.

    A session can be pickled: its model travels, and where it is loaded it opens the default device of that process
    ($DMLVK_DEVICE, else the best one).
    """

    in_place_of_a_copy = "make another session of the same model; pickle takes a model to another process"

    def __init__(
        self,
        model: str | os.PathLike[str] | bytes | onnx.ModelProto | LoadedModel | None = None,
        sess_options: Any = None,
        providers: Sequence[str | tuple[str, dict[Any, Any]]] | None = None,
        provider_options: Sequence[Mapping[Any, Any]] | None = None,
        *,
        device: DeviceName | Iterable[DeviceName] = None,
        fuse_qdq: bool = True,
        channels_last: bool | None = None,
        runs_at_once: int | None = None,
        placement: Literal["fastest", "device"] | None = None,
        tune: bool = False,
        path_or_bytes: str | os.PathLike[str] | bytes | None = None,
        **others: Any,
    ) -> None:
        model = path_or_bytes if model is None else model
        if model is None:
            raise TypeError("InferenceSession needs a model: a path, bytes or an onnx.ModelProto")
        if sess_options is not None and not is_session_options(sess_options):
            if device is not None:
                raise TypeError(f"a device is given twice: {sess_options!r} and device={device!r}")
            sess_options, device = None, sess_options
        warn_of_ignored(sess_options, providers, provider_options, others)
        self._sess_options = sess_options
        options = host_options(sess_options)
        fuse_qdq = fuse_qdq and fuses(options)
        if placement not in (None, "fastest", "device"):
            raise ValueError(f"placement is {placement!r}; it must be 'fastest', 'device' or None")
        if runs_at_once is not None:
            rule = "one run, or more that share a device"
            runs_at_once = as_argument("runs_at_once", runs_at_once, 1, None, rule, ValueError)
        self._loaded = model if isinstance(model, LoadedModel) else load(model)
        self._place = self._loaded.place
        self.devices = _opened(device)
        self.device = self.devices[0]
        if device is None and self.device.profile.device_type is DeviceType.CPU:
            _say_that_the_host_is_faster(self.device.name)
        if runs_at_once is None:
            runs_at_once = 1 if self.device.profile.device_type is DeviceType.CPU else 2
        self._runs_at_once = runs_at_once
        self._options = Options(fuse_qdq, channels_last, placement, options, bool(tune))
        self._graph = graph = Graph(self._loaded)
        graph.host_options = options
        self._all_nodes = list(graph.nodes)
        self._folded = folding.take_constants(graph)
        quantization.as_written_by_one(graph)
        if fuse_qdq:
            if not quantization.has_quantized_operators(graph):
                self._folded |= quantization.merge_conversions(graph)
            quantization.quantize_as_optimized(graph)
            quantization.move_bytes(graph, as_optimized=True)
        absorbed, self._fused = quantization.fuse(graph) if fuse_qdq else ({}, {})
        graph.host_optimizes = bool(self._fused) or not quantization.has_quantized_operators(graph)
        self._folded |= absorbed | folding.fold(graph)
        quantization.quantize_early(graph)
        quantization.move_bytes(graph)
        is_replaced = fuse_qdq and graph.host_optimizes
        for absorbed, made in (quantization.fuse_groups(graph, is_replaced), byte_functions.fuse(graph)):
            self._folded |= absorbed
            self._fused |= made
        self._folded |= folding.prune(graph)
        self._obstacles = placement_of.obstacles(graph)
        self._checks = input_checks(graph, self._place)
        self._others: OrderedDict[frozenset[str], InferenceSession] = OrderedDict()
        self._most_runs = runs_at_once * len(self.devices)
        self._host_steps = HostSteps(len({each.name for each in self.devices}))
        # A run takes the first that is free. More are made when runs meet: see `_least_used`.
        self._parts = [self._new_part(each) for each in self.devices]
        self._last: ModelOnDevice | None = None
        self._turns = Monitor()
        self._threads: ThreadPoolExecutor | None = None

    def __repr__(self) -> str:
        names = ", ".join(device.name for device in self.devices)
        return f"<dmlvk.onnx.InferenceSession of {self._place} on {names}>"

    def get_inputs(self) -> list[NodeArgument]:
        """The inputs that a run is given: name, shape and type, as ONNX Runtime has them."""
        return [NodeArgument.of(value) for value in self._graph.inputs.values()]

    def get_overridable_initializers(self) -> list[NodeArgument]:
        """Inputs that have an initializer: a run may be given them."""
        return [NodeArgument.of(value) for value in self._graph.replaceable.values()]

    def get_outputs(self) -> list[NodeArgument]:
        """The outputs: name, shape and type, as ONNX Runtime has them."""
        types = self._graph.types
        return [
            NodeArgument.of_output(value, types.get(value.name, onnx.TypeProto()))
            for value in self._graph.model.graph.output
        ]

    @property
    def placement(self) -> list[Row]:
        """Where each node of the model runs, in the model's order; for the sizes of the last run, if there was one."""
        last = None if self._last is None else self._last.last
        forms = {node.index: node for node in self._graph.nodes}
        return [self._row(node, forms, last) for node in self._all_nodes]

    @property
    def traffic(self) -> Traffic:
        """The parts of the last run, and the bytes that it took over the bus."""
        last = None if self._last is None else self._last.last
        return Traffic(0, 0, 0) if last is None else last.traffic()

    @property
    def memory(self) -> Memory:
        """The device's memory for the values of the last run: shared by lifetime, and the sum without sharing."""
        layouts = [execution.layout for execution in self._executions()]
        return Memory(sum(layout.size for layout in layouts), sum(layout.sum for layout in layouts))

    def _executions(self) -> list[Execution]:
        """Of the last run, the parts on the device."""
        last = None if self._last is None else self._last.last
        steps = [] if last is None else last.steps
        return [step.last for step in steps if isinstance(step, DeviceStep) and step.last is not None]

    def _bindings(self) -> list[tuple[Binding, ...]]:
        """Of the last run, for each part on the device, the operators with their tensors in their order."""
        return [execution.bindings for execution in self._executions()]

    def _row(self, node: Node, forms: Mapping[int, Node], last: Schedule | None) -> Row:
        reasons = self._obstacles if last is None else last.on_host
        index = self._fused.get(node.index, node.index)
        folded = self._folded if last is None else {**self._folded, **last.folded}
        if index in folded:
            return Row(node.name, node.op_type, "folded", folded[index])
        measured = "" if last is None else last.measured
        if index in reasons:
            return Row(node.name, node.op_type, "host", reasons[index] or measured)
        # A QuantizeLinear that undoes a DequantizeLinear has become a view.
        entry = entry_of(forms.get(index, node))
        if entry is not None and entry.is_view:
            return Row(node.name, node.op_type, "view", "the same memory under another description")
        found = [FUSED if index != node.index else "", measured]
        return Row(node.name, node.op_type, "device", "; ".join(filter(None, found)))

    def tune(self, input_feed: Any = None) -> None:
        """Measure the kernel paths of the model's layers on its devices, and remember the fastest of each.

        On a GPU a path is timed among all other layers, where it finds code and weights as in a run. The choices hold
        for these layers on this device, driver and set of kernels, in all later programs, and no result depends on
        them. What was measured before is not measured again; what an interrupted measurement has found is kept.
        `device.compile_progress` shows how far it is.

        Args:
            input_feed (mapping of str to array, optional): As for `run`, where the model leaves sizes open: layers are
                measured in the sizes of these inputs.

        Raises:
            ValueError: The model leaves sizes open, and there are no inputs.
            OSError: The cache folder cannot be written.
        """
        if input_feed is None:
            generator, input_feed = np.random.default_rng(0), {}
            for each in self.get_inputs():
                sizes = [size for size in each.shape if isinstance(size, int)]
                if len(sizes) < len(each.shape):
                    raise ValueError(f"input {each.name!r} has sizes {each.shape}: pass inputs, session.tune(feeds)")
                input_feed[each.name] = random_feed(generator, each, sizes)
        feeds = self._checked(input_feed)
        for device in self.devices:
            first, *others = (part for part in self._parts if part.device is device)
            first.tune(feeds)
            for part in others:
                part.forget_plans()

    def run(
        self,
        output_names: Sequence[str] | None,
        feeds: Mapping[str, Any] | None = None,
        run_options: Any = None,
        *,
        input_feed: Mapping[str, Any] | None = None,
    ) -> list[Any]:
        """Run the model.

        Args:
            output_names (sequence of str or None): The outputs to return; None or nothing for all.
            feeds (mapping of str to array_like): An array for each input, of the input's type and sizes; also for
                initializers that are inputs. Types that NumPy lacks, such as bfloat16, are those of the package
                ml_dtypes. An OrtValue of onnxruntime is taken too.
            run_options (onnxruntime.RunOptions, optional): As ONNX Runtime takes them. A run ends at once if they say
                so; nothing else of them has a meaning here.
            input_feed (mapping of str to array_like, optional): ONNX Runtime's name of `feeds`.

        Returns:
            list of ndarray: The outputs, in the order of their names. Each is the caller's own: it shares no memory
                with another one, with a feed, or with what the session keeps.

        Raises:
            ModelError: An input is missing, unknown or of another type, rank or size; an output is unknown; or the
                host's library refuses a node. The message names it.
            DeviceError: The device is closed, lost, or out of memory.
        """
        feeds = input_feed if feeds is None else feeds
        if run_options is None:
            part = self._parts[0]
            outputs = part.run_again(output_names, feeds)
            if outputs is not None:
                self._last = part
                return outputs
        names = names_of(output_names) or self._graph.outputs
        require_run_options(run_options)
        for name in names:
            if name not in self._graph.outputs:
                raise ModelError(f"{self._place} has no output {name!r}; it has {', '.join(self._graph.outputs)}")
        if isinstance(feeds, Mapping) and not self._graph.replaceable.keys().isdisjoint(feeds):
            replaced = frozenset(self._graph.replaceable.keys() & feeds.keys())
            return self._turns.run(self._with_inputs, replaced).run(names, feeds)
        return self._on_some_device(names, self._checked(feeds))

    def repeat(
        self, feeds: Mapping[str, Any], runs: int, progress: Callable[[int, int], object] | None = None
    ) -> list[Difference]:
        """Replay one recorded run, and compare the bits of every output with those of the first.

        Sums of integers have the same bits in any order, so a difference in what the device computes is a fault of the
        driver or of the hardware. What the host computes in floats may depend on its threads: `placement` says which
        nodes these are.

        Args:
            feeds (mapping of str to array_like): As for `run`.
            runs (int): How many times the model runs, the first run included; 2 or more.
            progress (callable, optional): Called after each run with its number and `runs`. It ends the repetition if
                it returns False.

        Returns:
            list of Difference: Which run, which output, which element, and both arrays; empty if all bits are the same.
                The first ten are kept.

        Raises:
            ModelError, DeviceError: As `run`.
            ValueError: `runs` is below 2.

        >>> session.repeat({"input": picture}, 1000)
        []
        """
        runs = as_argument("runs", runs, 2, None, "one run that others are compared with, and others", ValueError)
        return repeat(lambda: self.run(None, feeds), self._graph.outputs, runs, progress)

    def _checked(self, feeds: Any) -> dict[str, Any]:
        return checked_feeds(self._graph, self._checks, feeds, self._place)

    def _with_inputs(self, names: frozenset[str]) -> InferenceSession:
        """A session of the same model, some of whose initializers have become inputs."""
        found = self._others.get(names)
        if found is None:
            found = InferenceSession(
                self._loaded.without(names),
                device=self.devices,
                runs_at_once=self._runs_at_once,
                **self._options._asdict(),
            )
        remember(self._others, names, found, SESSIONS_KEPT)
        return found

    def run_async(
        self,
        output_names: Sequence[str] | None,
        feeds: Mapping[str, Any],
        callback: Callable[[list[Any], Any, str], None] | None = None,
        user_data: Any = None,
        run_options: Any = None,
    ) -> Future[list[Any]]:
        """As `run`, on a thread of the session; returns at once.

        Args:
            output_names, feeds, run_options: As for `run`.
            callback (callable, optional): As ONNX Runtime calls it, when the run has ended: with the outputs,
                `user_data`, and "" or the error.
            user_data (object, optional): Handed to `callback` as it is.

        Returns:
            concurrent.futures.Future: Its result is the list of outputs; its exception is that of `run`.
        """
        if callback is not None and not callable(callback):
            raise TypeError(f"callback is called with a run's outputs, and {type(callback).__name__} cannot be called")
        future = self._executor().submit(self.run, output_names, dict(as_mapping(feeds)), run_options)
        if callback is not None:

            def call(done: Future[list[Any]]) -> None:
                error = done.exception()
                callback([] if error else done.result(), user_data, str(error) if error else "")

            future.add_done_callback(call)
        return future

    def run_with_ort_values(
        self, output_names: Sequence[str] | None, input_dict_ort_values: Mapping[str, Any], run_options: Any = None
    ) -> list[Any]:
        """As `run`, with onnxruntime's OrtValues as results; feeds are arrays or OrtValues."""
        outputs = self.run(output_names, as_mapping(input_dict_ort_values), run_options)
        return [ort_value(output, owns_memory=True) for output in outputs]

    def get_modelmeta(self) -> ModelMetadata:
        """What the model says about itself."""
        return ModelMetadata.of(self._loaded.proto)

    def get_session_options(self) -> Any:
        """The SessionOptions that the session was given, or ONNX Runtime's default ones."""
        return host_session_options() if self._sess_options is None else self._sess_options

    def get_providers(self) -> list[str]:
        """A name for the devices, and ONNX Runtime's name for the processor, where the other nodes run."""
        return [PROVIDER, "CPUExecutionProvider"]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """By the names of `get_providers`, the devices' names."""
        return {PROVIDER: {"device": ", ".join(device.name for device in self.devices)}, "CPUExecutionProvider": {}}

    def set_providers(self, providers: Any = None, provider_options: Any = None) -> None:
        """Has no meaning here, which a warning says."""
        warn_of_ignored(None, providers, provider_options, {})

    def enable_fallback(self) -> None:
        """Has no effect: a node that the device cannot run is the host's in any case."""

    def disable_fallback(self) -> None:
        """Has no effect: a node that the device cannot run is the host's in any case."""

    def __getattr__(self, name: str) -> Any:
        if name in ELSEWHERE:
            raise AttributeError(f"dmlvk.onnx.InferenceSession has no {name}: {ELSEWHERE[name]}")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def map(
        self, batches: Iterable[Any], output_names: Sequence[str] | None = None, *, in_flight: int | None = None
    ) -> Iterator[list[Any]]:
        """Run the model for each batch of an iterable, on all devices of the session.

        Args:
            batches (iterable): Feeds as for `run`; or an array, if the model has one input. It is read only as far as
                batches are in flight, so it may be endless.
            output_names (sequence of str, optional): As for `run`.
            in_flight (int, optional): The most batches that are read and not yet yielded; by default two for each run
                at once.

        Returns:
            iterator of list of ndarray: The outputs of each batch, in the order of the batches.

        Raises:
            ModelError, DeviceError: As `run`, when the batch has its turn.
            ValueError: `in_flight` is below 1.
        """
        rule = "one batch is read at a time, or more"
        most = 2 * self._most_runs
        if in_flight is not None:
            most = as_argument("in_flight", in_flight, 1, None, rule, ValueError)

        return in_order(batches, lambda batch: self._executor().submit(self.run_batch, output_names, batch), most)

    def run_batch(self, output_names: Sequence[str] | None, batch: Any) -> list[Any]:
        """As `run`, for what `map` takes as a batch."""
        return self.run(output_names, as_feeds(self._graph, batch, self._place))

    def _executor(self) -> ThreadPoolExecutor:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._most_runs, thread_name_prefix="dmlvk.onnx")
        return self._threads

    def __reduce_ex__(self, protocol: Any) -> Any:
        return loaded, self.recipe()

    @property
    def model(self) -> LoadedModel:
        """The model as it was loaded."""
        return self._loaded

    def recipe(self) -> tuple[LoadedModel, Options]:
        """The model as the session checked it, with its external data, and the options."""
        return self._loaded, self._options

    def profiled(self, feeds: Mapping[str, Any]) -> tuple[list[Any], Profile]:
        """Run the model as `run` does, and time each of its steps.

        Args:
            feeds (mapping of str to array_like): As for `run`.

        Returns:
            tuple of list of ndarray and Profile: All outputs, and the times. The first run with new sizes also plans
                and compiles. Times on the GPU need a device whose `timestamps` was True at that run.
        """
        profile = Profile()
        names = list(self._graph.outputs)
        start = perf_counter()
        outputs = self._on_some_device(names, self._checked(feeds), profile)
        profile.seconds = perf_counter() - start
        return outputs, profile

    def traced(self, feeds: Mapping[str, Any]) -> tuple[Graph, dict[str, Any], list[Node]]:
        """Run the model with steps of its own that keep each value.

        Returns:
            tuple of Graph, dict of str to ndarray, and list of Node: The graph; all its values but the constants; and
                the nodes on the device that are no views.
        """
        return self._parts[0].trace(self._checked(feeds))

    def _on_some_device(self, names: list[str], feeds: Mapping[str, Any], profile: Profile | None = None) -> list[Any]:
        thread = threading.get_ident()
        self._last = part = self._turns.run(self._least_used, thread)
        try:
            return part.run(names, feeds, profile)
        except OutOfMemoryError:
            first = next(each for each in self._parts if each.device is part.device)
            if first is part:
                raise
            # The device has no memory for another run: this one waits for its turn, and later ones do not ask again.
            self._turns.run(self._do_without, part)
            self._last = first
            return first.run(names, feeds, profile)
        finally:
            part.turns.users.discard(thread)

    def _do_without(self, part: ModelOnDevice) -> None:
        if part in self._parts:
            self._parts.remove(part)
            self._most_runs = len(self._parts)

    def _least_used(self, thread: int) -> ModelOnDevice:
        part = min(self._parts, key=lambda part: len(part.turns.users))
        if part.turns.users and len(self._parts) < self._most_runs:
            first = self._parts[len(self._parts) % len(self.devices)]
            part = self._new_part(first.device, first)
            self._parts.append(part)
        part.turns.users.add(thread)
        return part

    def _new_part(self, device: Device, first: ModelOnDevice | None = None) -> ModelOnDevice:
        options = self._options
        return ModelOnDevice(
            self._graph,
            self._obstacles,
            device,
            options.has_channels_last(device),
            options.is_fastest(device),
            self._host_steps,
            options.tune,
            first,
        )


def loaded(
    model: LoadedModel, options: Options, device: DeviceName = None, runs_at_once: int | None = None
) -> InferenceSession:
    """The session of a recipe, on a device or on the default device of this process."""
    return InferenceSession(model, device=named_device(device), runs_at_once=runs_at_once, **options._asdict())


def _say_that_the_host_is_faster(name: str) -> None:
    """Warn once for a driver that runs on the processor."""
    if name not in _said:
        _said.add(name)
        warnings.warn(
            f"{name} runs on this machine's processor, where ONNX Runtime itself is faster: such a driver is there to "
            "prove bits. Name it to run on it without this warning: InferenceSession(model, device=...), --device",
            stacklevel=3,
        )


def _opened(device: DeviceName | Iterable[DeviceName]) -> list[Device]:
    """The devices that a session's argument names, opened unless they are Devices.

    Raises DeviceError: there is no such device.
    Raises ValueError: no device is named, or one twice.
    """
    if isinstance(device, str) and device == "all":
        return [Device(info.index) for info in best_devices()]
    if not isinstance(device, Iterable) or isinstance(device, str):
        return [device if isinstance(device, Device) else Device(device)]
    found = [each if isinstance(each, Device) else Device(each) for each in device]
    if not found:
        raise ValueError("device names no device; leave it out for the best one")
    if len({each.vulkan.context.physical.handle for each in found}) < len(found):
        names = ", ".join(each.name for each in found)
        raise ValueError(
            f"device names one device twice: {names}; each is named once, since two sessions on it would only wait"
        )
    return found
