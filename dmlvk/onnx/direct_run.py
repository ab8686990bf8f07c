"""Runs like an earlier one: their arguments are compared with that one's, and nothing is looked up or converted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from threading import get_ident
from typing import Any

import numpy as np

from dmlvk.onnx.held import ValueArrays, own
from dmlvk.onnx.host import HostPart, lacks_numpy_type
from dmlvk.onnx.quantized_inputs import QuantizedInput
from dmlvk.onnx.steps import DeviceStep, HostStep, Step
from dmlvk.runtime.tensor import Tensor
from dmlvk.vulkan.interrupts.monitor import Monitor


class Turns(Monitor):
    """The threads that take turns on a device.

    users: the threads that run there or wait for their turn.
    """

    __slots__ = ("users",)

    def __init__(self) -> None:
        super().__init__()
        self.users: set[int] = set()


class DirectRun(ABC):
    """A run of a single step.

    names: the outputs, in their order.
    feeds: those of the run that the step was planned for: sizes of inputs that it does not read may be constants of it.
    is_all: whether these are the outputs of a caller who names none.
    """

    def __init__(self, names: Sequence[str], feeds: Mapping[str, Any], is_all: bool) -> None:
        self._names = list(names)
        self._kinds = [(name, feed.shape, feed.dtype) for name, feed in feeds.items()]
        self._is_all = is_all

    @abstractmethod
    def run(self, names: Any, feeds: Any) -> list[Any] | None:
        """The outputs of what a caller asks for; None, and nothing has run, if that is another run.

        A run is like this one if it asks for the same outputs, and gives plain arrays of the same sizes and types.
        Whatever is odd is another run, in which the arguments are looked at with care.
        """

    def _fits(self, names: Any, feeds: Any) -> bool:
        try:
            if names is None:
                if not self._is_all:
                    return False
            elif type(names) is not list or names != self._names:
                return False
            if type(feeds) is not dict or len(feeds) != len(self._kinds):
                return False
            for name, shape, dtype in self._kinds:
                feed = feeds[name]
                if type(feed) is not np.ndarray or feed.shape != shape or feed.dtype != dtype:
                    return False
        except Exception:  # a feed is missing, or a name has a comparison of its own
            return False
        return True


class DirectHostRun(DirectRun):
    """A run of a model that is one part of the host: ONNX Runtime's, in which several threads may be at once."""

    def __init__(
        self, part: HostPart, inputs: Sequence[str], names: Sequence[str], feeds: Mapping[str, Any], is_all: bool
    ) -> None:
        super().__init__(names, feeds, is_all)
        self._part = part
        # Inputs of the model that no node reads are none of the part's.
        self._inputs = None if len(inputs) == len(feeds) else inputs
        self._is_single = len(names) == 1

    @staticmethod
    def part(step: HostStep, names: Sequence[str], feeds: Mapping[str, Any]) -> HostPart | None:
        """The step's part, if it takes the feeds as they are, and gives each output once."""
        is_plain = all(isinstance(feed, np.ndarray) and not lacks_numpy_type(feed) for feed in feeds.values())
        if not is_plain or not feeds.keys() >= set(step.inputs):
            return None
        part = step.part({name: feeds[name] for name in step.inputs})
        has_outputs = set(part.outputs) >= set(names) and len(set(names)) == len(names)
        return part if part.run_arrays is not None and has_outputs else None

    def run(self, names: Any, feeds: Any) -> list[Any] | None:
        if not self._fits(names, feeds):
            return None
        if self._inputs is not None:
            feeds = {name: feeds[name] for name in self._inputs}
        part = self._part
        try:
            found: list[Any] = part.run_arrays(self._names, feeds, None)  # type: ignore[misc]
        except Exception as error:
            raise part.error(error) from error
        return found if self._is_single else own(found)


class DirectDeviceRun(DirectRun):
    """A run of one program on the device, by one thread at a time: its inputs are written and its outputs are read."""

    def __init__(
        self,
        step: DeviceStep,
        turns: Turns,
        names: Sequence[str],
        feeds: Mapping[str, Any],
        is_all: bool,
    ) -> None:
        super().__init__(names, feeds, is_all)
        assert step.last is not None
        self._step, self._execution, self._turns = step, step.last, turns
        self._submit = step.last.submit
        program, inputs, outputs = step.last.program, step.last.input_tensors, step.last.output_tensors
        targets = {name: inputs[name] for name in program.inputs}
        self._quantized = [(name, target) for name, target in targets.items() if isinstance(target, QuantizedInput)]
        tensors = {name: target for name, target in targets.items() if isinstance(target, Tensor)}
        self._inputs = list(tensors)
        self._given = ValueArrays(list(tensors.values()), [program.inputs[name] for name in tensors])
        self._found = ValueArrays([outputs[name] for name in names], [program.outputs[name] for name in names])
        self._lends = any(step.last.is_lendable(outputs[name]) for name in names)

    @staticmethod
    def is_possible(step: DeviceStep, names: Sequence[str], feeds: Mapping[str, Any]) -> bool:
        """Whether no feed's elements are looked at, and all inputs and outputs are tensors of the last program."""
        execution = step.last
        if execution is None or step.looked_at or not all(isinstance(feed, np.ndarray) for feed in feeds.values()):
            return False
        has_inputs = all(name in execution.input_tensors for name in execution.program.inputs)
        return has_inputs and all(name in execution.output_tensors for name in names)

    def run(self, names: Any, feeds: Any) -> list[Any] | None:
        thread, users = get_ident(), self._turns.users
        if thread in users:
            return self._turns.run(self._run, feeds) if self._fits(names, feeds) else None
        if users or not self._fits(names, feeds):
            return None  # another thread is here: perhaps the session has another place for this run
        try:
            users.add(thread)
            return self._turns.run(self._run, feeds)
        finally:
            users.discard(thread)

    def _run(self, feeds: Mapping[str, Any]) -> list[Any]:
        self._step.last = self._execution
        self._given.write([feeds[name] for name in self._inputs])
        for name, target in self._quantized:
            target.write(feeds[name])
        lent = self._execution.free_outputs(self._names) if self._lends else None
        if lent is not None:
            lent.submit()
            return lent.read()
        self._submit()
        return self._found.read()


def direct_run(
    steps: Sequence[Step], turns: Turns, names: Sequence[str], feeds: Mapping[str, Any], is_all: bool
) -> DirectRun | None:
    """A run like the last one of these steps; None where a run has to look at more than the arguments' sizes and types.

    steps: all steps of the run.
    turns: of the threads that run here.
    names, feeds, is_all: as for `DirectRun`.
    """
    step = steps[0] if len(steps) == 1 else None
    if isinstance(step, HostStep):
        part = DirectHostRun.part(step, names, feeds)
        return None if part is None else DirectHostRun(part, step.inputs, names, feeds, is_all)
    if isinstance(step, DeviceStep) and DirectDeviceRun.is_possible(step, names, feeds):
        return DirectDeviceRun(step, turns, names, feeds, is_all)
    return None
