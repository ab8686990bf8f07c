"""Where the time of a run goes: filled by the steps of a run that was asked for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from dmlvk.onnx.graph import Node
from dmlvk.onnx.held import Held
from dmlvk.onnx.quantized_inputs import QuantizedInput, crossing_bytes
from dmlvk.runtime.sequence import Sequence as DeviceSequence
from dmlvk.runtime.tensor import Tensor


@dataclass
class StepTimes:
    """The times of one step: nodes that run together, on the device or on the host.

    Attributes:
        where (str): "device" or "host"; "outputs" for what a run reads at its end.
        operators (tuple of str): The different operators of its nodes.
        nodes (int): The number of its nodes.
        seconds (float): On the host: the nodes' time. On the device: from the submission until the host knows that all
            is done.
        gpu_seconds (float or None): On the device: from the first dispatch to the end of the last. None on the host,
            and without timestamps.
        bytes_to_device, bytes_from_device (int): What went over the bus for the step.
        to_device_seconds, from_device_seconds (float): The time of that.
    """

    where: str
    operators: tuple[str, ...] = ()
    nodes: int = 0
    seconds: float = 0.0
    gpu_seconds: float | None = None
    bytes_to_device: int = 0
    to_device_seconds: float = 0.0
    bytes_from_device: int = 0
    from_device_seconds: float = 0.0


class Profile:
    """The times of one run. Each step waits for the one before, so a run with a profile takes a little longer.

    Attributes:
        seconds (float): Of the whole run.
        steps (list of StepTimes):
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.steps: list[StepTimes] = []

    @property
    def rest_seconds(self) -> float:
        """The time between the steps' own: of the session itself."""
        parts = (step.seconds + step.to_device_seconds + step.from_device_seconds for step in self.steps)
        return self.seconds - sum(parts)

    def begin(self, where: str, nodes: Sequence[Node] = ()) -> None:
        """The next times belong to a step of these nodes."""
        operators = tuple(dict.fromkeys(node.op_type for node in nodes))
        self.steps.append(StepTimes(where, operators, len(nodes)))

    def refuse(self) -> None:
        """The last step did not run after all: its nodes are placed anew."""
        self.steps.pop()

    def download(self, held: Held) -> None:
        """Bring a value to the host, if only the device has it."""
        if not held.is_on_host:
            start = perf_counter()
            array = held.host()
            self.steps[-1].from_device_seconds += perf_counter() - start
            self.steps[-1].bytes_from_device += array.nbytes

    def upload(self, held: Held, tensor: Tensor | QuantizedInput) -> None:
        """Write a value to the device. A copy from the device itself goes over no bus."""
        if not held.is_copied_to(tensor):
            self.download(held)
            self.steps[-1].bytes_to_device += crossing_bytes(tensor, held.host().nbytes)
        start = perf_counter()
        held.write_to(tensor)
        self.steps[-1].to_device_seconds += perf_counter() - start

    def dispatch(self, sequence: DeviceSequence) -> None:
        """Run a sequence, after all that was written before."""
        start = perf_counter()
        sequence.device.wait()
        submitted = perf_counter()
        submission = sequence.submit()
        submission.wait()
        done = perf_counter()
        self.steps[-1].to_device_seconds += submitted - start
        self.steps[-1].seconds += done - submitted
        times = submission.measured_times()
        self.steps[-1].gpu_seconds = None if times is None else sum(times)

    def on_host(self, run: Callable[[Mapping[str, Any]], list[Any]], feeds: Mapping[str, Any]) -> list[Any]:
        """Run nodes of the host."""
        start = perf_counter()
        outputs = run(feeds)
        self.steps[-1].seconds += perf_counter() - start
        return outputs
