"""A take-over in the middle of a row of calls: a general kernel answers first, and then the special one.

Every call of the row has an image and an output of its own, and none waits for another. Bindings, lists of bindings and
a recorded sequence are run on both sides of the take-over too. Nobody may be able to tell the kernels apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import dmlvk
from dmlvk import reference
from dmlvk._common.bits import first_difference
from dmlvk.conformance.case import Workload, generator
from dmlvk.conformance.cases.values import Array, random_array
from dmlvk.conformance.running.ways import PlacedTensor
from dmlvk.planning import Plan
from dmlvk.runtime import background

IMAGE, OUTPUT = OF_EACH_CALL = "input_tensor", "output_tensor"
# Calls on each side of the take-over.
CALLS = 4
# Limits of the other work: its runs, and their estimated seconds.
MOST_RUNS = 64
SECONDS_OF_OTHER_WORK = 0.05

Initialize = Callable[[dmlvk.CompiledOperator], None]


def held_back(device: dmlvk.Device, workload: Workload, path: str | None) -> dmlvk.CompiledOperator:
    """An operator whose special kernel takes over after `wait_for_compiler`, and not before.

    Raises PathError: the operator has no general kernel, or no such path.
    """
    return dmlvk.CompiledOperator(workload.desc, background.held_back(device.engine, workload.desc, path))


@dataclass(frozen=True)
class CheckedCall:
    """The tensors of one call, its image, and the right output."""

    tensors: Mapping[str, dmlvk.Tensor]
    image: Array
    expected: Array

    def prepare(self, poison: bytes) -> None:
        """Write the image, and something else where the output will be."""
        self.tensors[IMAGE].write(self.image)
        self.tensors[OUTPUT].write_bytes(poison)


class CallRow:
    """A row of calls of one operator, with data of their own.

    name: the case's name, from which the images come.
    constants: what all calls share: the tensors that are bound, excluding image and output.
    """

    def __init__(
        self, device: dmlvk.Device, workload: Workload, name: str, constants: Mapping[str, dmlvk.Tensor]
    ) -> None:
        self._device = device
        self._workload = workload
        self._random = generator(f"{name}:row")
        self._constants = constants
        # Before, after; a binding, and two of a list, on both sides; two of a sequence.
        self._before = [self._call() for _ in range(CALLS)]
        self._after = [self._call() for _ in range(CALLS)]
        self._bound = [self._call() for _ in range(3)]
        self._recorded = [self._call() for _ in range(2)]

    def _call(self) -> CheckedCall:
        desc = self._workload.desc
        image = random_array(self._random, desc.tensors[IMAGE])
        tensors = {field: self._device.tensor(desc.tensors[field]) for field in (IMAGE, OUTPUT)}
        expected = reference.run(desc, **{**self._workload.inputs, IMAGE: image})
        return CheckedCall({**self._constants, **tensors}, image, expected)

    def run(self, path: str | None, initialize: Initialize, main: Mapping[str, PlacedTensor]) -> Iterator[str]:
        """Run the row, with the case's own tensors between guards before the take-over, and again after it.

        initialize: gives an operator the tensors that are OWNED_BY_DML.
        main: the case's own tensors.
        Yields first when the case's own output is that of the general kernel, then when it is that of the special one:
            what was wrong with the other calls; empty if nothing.
        """
        device = self._device
        # The bindings are of another operator, whose general kernel nothing else needs.
        operator, bound = (held_back(device, self._workload, path) for _ in range(2))
        for each in (operator, bound):
            initialize(each)
        self._prepare(self._before, self._bound, self._recorded)
        own = {field: tensor.tensor for field, tensor in main.items()}
        bindings = [bound.bind(**call.tensors) for call in self._bound]
        sequence = device.sequence([operator.bind(**call.tensors) for call in self._recorded])
        general = bindings[0].plan
        for work in (device.submit(bindings[:1]), device.submit(bindings[1:]), sequence.submit(), operator(**own)):
            work.wait()
        yield self._wrong("before the take-over", [*self._bound, *self._recorded])

        main[OUTPUT].fill()
        self._prepare(self._after, self._bound, self._recorded)
        # Other work first, so that what comes next has yet to run when the special kernel takes over.
        seconds = sum(dispatch.seconds for dispatch in general.dispatches)
        runs = max(1, min(MOST_RUNS, int(SECONDS_OF_OTHER_WORK / max(seconds, 1e-9))))
        submissions = [device.sequence([operator.bind(**self._before[0].tensors)] * runs).submit()]
        submissions += [operator(**call.tensors) for call in self._before]
        submissions.append(device.submit(bindings[1:]))
        for each in (operator, bound):
            each.wait_for_compiler()
        # Here the list's bindings become others, while they run in their old form. The first binding becomes another
        # when it is submitted alone below: the general kernel's recording of it, made above, may not run again.
        again = device.sequence(bindings[1:])
        submissions += [operator(**call.tensors) for call in self._after]
        submissions += [bound(**self._after[0].tensors), device.submit(bindings[:1])]
        self._take_memory(general)
        submissions += [sequence.submit(), operator(**own)]
        for submission in submissions:
            submission.wait()
        wrong = self._wrong("of the row", [*self._before, *self._after, *self._bound, *self._recorded])
        for taken in (binding.plan.path for binding in bindings):
            if taken != operator.plan.path or taken == general.path:
                wrong = wrong or f"the path {taken} runs after the take-over by {operator.plan.path}"
        self._prepare(self._bound[1:])
        again.submit().wait()
        yield wrong or self._wrong("recorded after the take-over", self._bound[1:])

    def _take_memory(self, general: Plan) -> None:
        """Write into new memory of the sizes that a general kernel needs: its own, if that was given back too early."""
        sizes = [size for size in (general.scratch_size, general.persistent_size) if size]
        for buffer in [self._device.buffer(size) for size in sizes for _ in self._bound]:
            elements = buffer.tensor(dmlvk.TensorDesc(dmlvk.DataType.UINT8, (buffer.size_in_bytes,)))
            elements.write_bytes(self._random.bytes(buffer.size_in_bytes))

    def _prepare(self, *calls: list[CheckedCall]) -> None:
        for call in (call for some in calls for call in some):
            call.prepare(self._random.bytes(call.tensors[OUTPUT].desc.total_size_in_bytes))

    def _wrong(self, where: str, calls: list[CheckedCall]) -> str:
        """What differs from the right outputs; empty if nothing."""
        for number, call in enumerate(calls):
            output = call.tensors[OUTPUT].numpy()
            found = first_difference(output, call.expected)
            if found is not None:
                coordinate, count = found
                return f"{count} of {output.size} elements of call {number} {where} differ, the first at {coordinate}"
        return ""
