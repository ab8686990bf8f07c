"""Measures the kernel paths of operators, and remembers the fastest of each.

`Device.compile_all(descs, tune=True)` measures the paths that are estimated to be close, `dmlvk tune` all of them.
Paths and tiles take turns, each in a sequence of the same operator one after the other; the least time counts. A GPU is
timed by its timestamps, a CPU driver by the processor's clock.

A session's paths are measured on a GPU within all of its dispatches (`tune_together`). There code and weights come from
memory, not from caches, and a further pipeline costs its code: a path that is the fastest alone may be slow.
"""

from __future__ import annotations

import math
import statistics
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlvk import planning
from dmlvk.device_profile import DeviceType
from dmlvk.errors import DeviceError, OutOfMemoryError
from dmlvk.operators import OperatorDesc
from dmlvk.runtime.binding import Binding
from dmlvk.runtime.compiled_operator import CompiledOperator
from dmlvk.runtime.engine import Engine
from dmlvk.runtime.sequence import Sequence
from dmlvk.runtime.submitting import submit
from dmlvk.runtime.tensor import Tensor
from dmlvk.runtime.tuned_paths import TunedPaths
from dmlvk.tensor_desc import TensorDesc, TensorFlags
from dmlvk.vulkan.host_threads import core_count, for_each

# The name under which the time of the planner's own choice is remembered.
PLANNER = "planner"
# A path must be faster than the planner's choice by this factor; a smaller difference is noise.
MARGIN = 1.02
ROUNDS = 5
# The runs of a measured sequence: as many as take about this time, but at most this number.
SEQUENCE_SECONDS = 1e-3
MOST_RUNS = 100
# A GPU that waited for the host, which compiles, draws data and compares results, runs at a part of its clock, a fifth
# on an H100: products then take five times as long, and bytes do not, so the order of paths is another one. It is warm
# if for so long no path was faster than before by more than MARGIN. The clock rises in steps.
STEADY_SECONDS, LONGEST_SECONDS = 0.25, 1.0
# The least number of paths of a group of layers: at its end, cores that are done wait for the others.
JOBS_OF_A_CORE = 3
# The most paths that take turns with each other.
MOST_AT_ONCE = 12
# Other paths in a whole sequence take turns with those taken so far. They have to win all but a few, and to save more
# than the same paths do on average that are bound anew, so often: where weights lie makes up to 10% on an H200. Of
# hundreds of paths many do that once by chance, so they have to do it in so many recordings, with weights elsewhere.
TURNS, LOST_TURNS, BOUND_ANEW, RECORDINGS = 15, 3, 4, 3
POISON = b"\xa5"
OTHER_BITS = "result DIFFERENT"

# `Device.compile`.
Compile = Callable[..., CompiledOperator[Any]]
# An operator for each descriptor and path, or what the driver said that refuses it.
Operators = Mapping[tuple[OperatorDesc, str], CompiledOperator[Any] | str]


@dataclass(frozen=True)
class Tuning:
    """What was measured for one descriptor.

    planned: the planner's own choice.
    seconds: of one run, by each path whose result is right.
    faults: what is wrong with each of the other paths.
    """

    desc: OperatorDesc
    planned: str
    seconds: Mapping[str, float]
    faults: Mapping[str, str]

    @property
    def path(self) -> str | None:
        """The fastest path; None if the planner's choice is as good, or no path is right."""
        best = min(self.seconds, key=self.seconds.__getitem__, default=self.planned)
        is_faster = self.seconds.get(best, math.inf) * MARGIN < self.seconds.get(self.planned, math.inf)
        return best if is_faster else None

    def remember(self, choices: TunedPaths) -> None:
        """Remember the result for later programs on this device.

        Raises OSError.
        """
        self.remember_path(choices, self.path)

    def remember_path(self, choices: TunedPaths, path: str | None) -> None:
        """As `remember`, a path that need not be the fastest one alone."""
        times = {PLANNER if path == self.planned else path: seconds for path, seconds in self.seconds.items()}
        choices.remember(self.desc, path, times)


def tune(
    engine: Engine,
    compile: Compile,
    descs: Iterable[OperatorDesc],
    progress: Callable[[int, int], object] | None,
) -> None:
    """Measure what was not measured yet on this device, with this driver and these kernels.

    Each result is remembered as soon as it is there, so that an interruption loses nothing of it. `compile` is the
    device's; several threads call it at a time. `progress` is called at the beginning, and after each path that is
    compiled or measured, with how many of these steps are done and how many there are.

    A path that gives other bits than the planner's choice, or that the driver refuses, is not taken, which a warning
    says.

    Raises ValueError: the device plans for another profile.
    Raises OSError: the cache folder cannot be written.
    """
    for _ in _measured_alone(engine, compile, descs, progress):
        pass


def tune_together(
    engine: Engine, compile: Compile, whole: WholeSequence, progress: Callable[[int, int], object] | None
) -> None:
    """As `tune`, for all operators of a sequence on a GPU: a path is taken if the whole sequence is faster with it.

    First all those that are the fastest alone, if they are faster together; then each for itself. If all that were
    taken are not faster than the paths of the beginning, these are remembered.
    """
    measured = list(_measured_alone(engine, compile, whole.descs, progress))
    if not measured or engine.tuned_paths is None:
        return
    whole.warm_up()
    taken: dict[OperatorDesc, str | None] = {}
    alone = {found.desc: (found.path, operators[found.path]) for found, operators in measured if found.path is not None}
    if alone and whole.take({desc: operator for desc, (_, operator) in alone.items()}):
        taken.update((desc, path) for desc, (path, _) in alone.items())
    for found, operators in measured:
        for path, operator in operators.items():
            if path != (taken.get(found.desc) or found.planned) and whole.take({found.desc: operator}):
                taken[found.desc] = None if path == found.planned else path
    if taken and not whole.is_faster():
        taken.clear()
    for found, _ in measured:
        found.remember_path(engine.tuned_paths, taken.get(found.desc))


class WholeSequence:
    """Operators one after the other, of which each path is timed among all the others.

    descs: each different one once, those that take the most time first.
    bind: makes the binding with a number of another operator for its descriptor.
    """

    def __init__(
        self,
        engine: Engine,
        operators: SequenceOf[CompiledOperator[Any]],
        bindings: SequenceOf[Binding],
        bind: Callable[[int, CompiledOperator[Any]], Binding],
    ) -> None:
        self._engine, self._bind = engine, bind
        self._first, self._operators, self._bindings = operators, list(operators), list(bindings)
        self._numbers: dict[OperatorDesc, list[int]] = {}
        for number, operator in enumerate(operators):
            self._numbers.setdefault(operator.desc, []).append(number)
        self.descs = sorted(
            self._numbers, key=lambda desc: -sum(bindings[number].total_seconds for number in self._numbers[desc])
        )
        self._chance = 0.0

    def warm_up(self) -> None:
        """Run until nothing gets faster, and find out what chance saves."""
        sequence = _sequence(self._engine, self._bindings)
        least, begin = math.inf, time.perf_counter()
        fell = now = begin
        while now - fell < STEADY_SECONDS and now - begin < LONGEST_SECONDS:
            taken, now = _timed(self._engine, sequence), time.perf_counter()
            fell = now if taken * MARGIN < least else fell
            least = min(least, taken)
        anew = (self._bound_anew(dict(enumerate(self._operators))) for _ in range(BOUND_ANEW))
        self._chance = statistics.mean(abs(self._saved(self._bindings, each, TURNS)) for each in anew)

    def take(self, others: Mapping[OperatorDesc, CompiledOperator[Any]]) -> bool:
        """Take other operators if the sequence is faster with them; whether it is."""
        changed = {number: operator for desc, operator in others.items() for number in self._numbers[desc]}
        taken = self._bindings
        try:
            for _ in range(RECORDINGS):
                bindings = self._bound_anew(changed)
                if self._saved(taken, bindings, LOST_TURNS) <= self._chance:
                    return False
                taken = self._bound_anew({number: self._operators[number] for number in changed})
        except OutOfMemoryError:
            return False
        self._bindings = bindings
        for number, operator in changed.items():
            self._operators[number] = operator
        return True

    def is_faster(self) -> bool:
        """Whether the operators that were taken are faster than the first ones, with weights elsewhere each time."""
        pairs = (
            [self._bound_anew(dict(enumerate(each))) for each in (self._first, self._operators)]
            for _ in range(RECORDINGS)
        )
        return all(self._saved(first, taken, TURNS) > 0 for first, taken in pairs)

    def _bound_anew(self, operators: Mapping[int, CompiledOperator[Any]]) -> list[Binding]:
        """The bindings, those with these numbers by other operators that have weights of their own."""
        bindings = list(self._bindings)
        for number, operator in operators.items():
            bindings[number] = self._bind(number, operator.another())
        return bindings

    def _saved(self, taken: list[Binding], other: list[Binding], most_lost: int) -> float:
        """What other bindings save, the median of turns; less than anything if they lose more turns than so many.

        Of two runs one right after the other the second one counts.
        """
        sequences = [_sequence(self._engine, each) for each in (taken, other)]
        saved: list[float] = []
        lost = 0
        while len(saved) < TURNS:
            before, after = (self._second(each) for each in sequences)
            saved.append(before - after)
            lost += saved[-1] <= 0
            if lost > most_lost:
                return -math.inf
        return statistics.median(saved)

    def _second(self, sequence: Sequence) -> float:
        sequence.submit()
        return _timed(self._engine, sequence)


def _measured_alone(
    engine: Engine, compile: Compile, descs: Iterable[OperatorDesc], progress: Callable[[int, int], object] | None
) -> Iterator[tuple[Tuning, dict[str, CompiledOperator[Any]]]]:
    """What was measured, and remembered, of each descriptor that was not measured before, with the right operators."""
    choices = engine.tuned_paths
    if choices is None:
        raise ValueError("tune: this device plans for another profile, of which no measurement says anything")
    pending = [desc for desc in dict.fromkeys(descs) if not choices.has(desc)]
    paths = {desc: planning.close_paths(desc, engine.profile) for desc in pending}
    show = _steps(2 * sum(len(found) for found in paths.values() if len(found) > 1), progress)
    for desc in pending:
        if len(paths[desc]) == 1:
            choices.remember(desc, None, {})  # nothing else is close
    for layers in _groups({desc: found for desc, found in paths.items() if len(found) > 1}):
        operators = _compiled(compile, [(desc, path) for desc in layers for path in paths[desc]], show)
        for desc in layers:
            found = _measured(engine, desc, paths[desc], operators)
            for path, fault in found.faults.items():
                text = f"gives other bits than path {found.planned!r}" if fault is OTHER_BITS else fault
                warning = f"{desc.operator_name}: path {path!r}: {text} on {engine.name}, and is not taken"
                warnings.warn(warning, RuntimeWarning, stacklevel=5)
            if found.seconds:
                found.remember(choices)
            right = {path: operators[desc, path] for path in found.seconds}
            yield found, {path: operator for path, operator in right.items() if not isinstance(operator, str)}
            for _ in paths[desc]:
                show()


def tune_one(
    engine: Engine,
    compile: Compile,
    desc: OperatorDesc,
    inputs: Mapping[str, npt.NDArray[Any]],
    expected: npt.NDArray[Any],
    rounds: int,
    progress: Callable[[int, int], object] | None = None,
) -> Tuning:
    """Measure every path that an operator can take, on given inputs, each against the expected result.

    Returns the result, not yet remembered.
    """
    paths = planning.close_paths(desc, engine.profile, every=True)
    show = _steps(2 * len(paths), progress)
    operators = _compiled(compile, [(desc, path) for path in paths], show)
    seconds: dict[str, float] = {}
    faults: dict[str, str] = {}
    # Each path that takes its turn holds scratch memory, so there are heats, and a final of the planner's choice and
    # the fastest.
    for first in range(0, len(paths), MOST_AT_ONCE):
        heat = paths[first : first + MOST_AT_ONCE]
        found = _measured(engine, desc, heat, operators, inputs, expected.tobytes(), rounds)
        seconds.update(found.seconds)
        faults.update(found.faults)
        for _ in heat:
            show()
    if len(paths) > MOST_AT_ONCE:
        fastest = sorted(seconds, key=lambda path: (path != paths[0], seconds[path]))[:MOST_AT_ONCE]
        seconds.update(_measured(engine, desc, fastest, operators, inputs, expected.tobytes(), rounds).seconds)
    return Tuning(desc, paths[0], seconds, faults)


def _steps(total: int, progress: Callable[[int, int], object] | None) -> Callable[[], None]:
    """Show that no step is done; returns what shows that one more is."""
    done = count()

    def show() -> None:
        if progress is not None:
            progress(next(done), total)

    show()
    return show


def _compiled(compile: Compile, jobs: list[tuple[OperatorDesc, str]], show: Callable[[], None]) -> Operators:
    operators: dict[tuple[OperatorDesc, str], CompiledOperator[Any] | str] = {}

    def compile_one(job: tuple[OperatorDesc, str]) -> None:
        desc, path = job
        try:
            operators[job] = compile(desc, path=path, wait=True)
        except DeviceError as error:
            operators[job] = " ".join(str(error).split())
        show()

    for_each(jobs, compile_one, threads=core_count())
    return operators


def _groups(paths: Mapping[OperatorDesc, list[str]]) -> Iterator[list[OperatorDesc]]:
    """The descriptors in groups that are compiled on all cores, then measured: few, so that an interrupt loses little.

    While a group is measured, nothing is compiled, which would take the processor from a CPU driver.
    """
    group: list[OperatorDesc] = []
    jobs = 0
    for desc, found in paths.items():
        group.append(desc)
        jobs += len(found)
        if jobs >= JOBS_OF_A_CORE * core_count():
            yield group
            group, jobs = [], 0
    if group:
        yield group


def _measured(
    engine: Engine,
    desc: OperatorDesc,
    paths: Iterable[str],
    operators: Operators,
    inputs: Mapping[str, npt.NDArray[Any]] | None = None,
    expected: bytes | None = None,
    rounds: int = ROUNDS,
) -> Tuning:
    """Time an operator by each path, in turns.

    inputs: random elements if they are not given.
    expected: the bytes of the right output; if they are not given, the first path's, which is the planner's choice.
    """
    random = np.random.default_rng(0)
    tensors = {field: Tensor.empty(engine, each) for field, each in desc.tensors.items()}
    for field, tensor in tensors.items():
        if field not in desc.output_fields:
            tensor.write(random_data(random, tensor.desc) if inputs is None else inputs[field])
    output = tensors["output_tensor"]
    owned = {field: tensors[field] for field, each in desc.tensors.items() if each.flags & TensorFlags.OWNED_BY_DML}
    given = {field: tensor for field, tensor in tensors.items() if field not in owned}
    bindings: dict[str, Binding] = {}
    faults: dict[str, str] = {}
    for path in paths:
        operator = operators[desc, path]
        if isinstance(operator, str):
            faults[path] = operator
            continue
        try:
            if operator.has_state:
                operator.initialize(**owned)
            binding = operator.bind(**given)
            output.write_bytes(POISON * output.desc.total_size_in_bytes)
            submit(engine, [binding]).wait()
            # As the tensor lies in memory, which is faster, unless an array is to be compared with.
            found = output.read_bytes() if inputs is None else output.numpy().tobytes()
        except DeviceError as error:
            if engine.vulkan.is_lost:
                raise
            faults[path] = " ".join(str(error).split())
            continue
        expected = found if expected is None else expected
        if found == expected:
            bindings[path] = binding
        else:
            faults[path] = OTHER_BITS
    return Tuning(desc, next(iter(paths)), times_in_turns(engine, bindings, rounds), faults)


def times_in_turns(engine: Engine, bindings: Mapping[str, Binding], rounds: int) -> dict[str, float]:
    """The least seconds of each binding that runs after itself, of rounds in which all take turns.

    rounds: the least number of them. A GPU has more of them, until no time falls any more.
    """
    sequences: dict[str, tuple[Sequence, int]] = {}
    for path, binding in bindings.items():
        runs = max(1, min(MOST_RUNS, round(SEQUENCE_SECONDS / max(_seconds(engine, [binding]), 1e-9))))
        sequences[path] = _sequence(engine, [binding] * runs), runs
    times = dict.fromkeys(sequences, math.inf)
    is_cpu, done = engine.profile.device_type is DeviceType.CPU, 0
    begin = fell = now = time.perf_counter()
    while done < rounds or not (is_cpu or now - fell >= STEADY_SECONDS or now - begin >= LONGEST_SECONDS):
        for path, (sequence, runs) in sequences.items():
            taken, now = _timed(engine, sequence) / runs, time.perf_counter()
            fell = now if taken * MARGIN < times[path] else fell
            times[path] = min(times[path], taken)
        done += 1
    return times


def _sequence(engine: Engine, bindings: list[Binding]) -> Sequence:
    is_cpu = engine.profile.device_type is DeviceType.CPU
    return Sequence(engine, tuple(bindings), timestamps=not is_cpu, times_of_each=False)


def _seconds(engine: Engine, bindings: list[Binding]) -> float:
    return _timed(engine, _sequence(engine, bindings))


def _timed(engine: Engine, sequence: Sequence) -> float:
    before = time.process_time()
    submission = sequence.submit()
    submission.wait()
    return time.process_time() - before if engine.profile.device_type is DeviceType.CPU else submission.gpu_time


def random_data(random: np.random.Generator, desc: TensorDesc) -> npt.NDArray[Any]:
    """Random elements for a tensor of any operator: scales of many magnitudes, and integers that a byte holds."""
    dtype = desc.data_type.numpy_dtype
    if dtype.kind == "f":
        return np.exp2(random.uniform(-12, 0, desc.sizes)).astype(dtype)
    low, high = (0, 256) if dtype.kind == "u" else (-128, 128)
    return random.integers(low, high, desc.sizes, dtype)
