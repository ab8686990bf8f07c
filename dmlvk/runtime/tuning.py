"""Measures the kernel paths of operators that are estimated to be close, and remembers the fastest of each.

`Device.compile_all(descs, tune=True)` comes here. Paths and tiles take turns, each in a sequence of the same operator
one after the other; the least time counts. A GPU is timed by its timestamps, a CPU driver by the processor's clock.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlvk import planning
from dmlvk.device_profile import DeviceType
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
ROUNDS = 3
# The runs of a measured sequence: as many as take about this time, but at most this number.
SEQUENCE_SECONDS = 1e-3
MOST_RUNS = 50
# The least number of paths of a group of layers: at its end, cores that are done wait for the others.
JOBS_OF_A_CORE = 3
POISON = b"\xa5"


def tune(
    engine: Engine,
    compile: Callable[[OperatorDesc, str], CompiledOperator[Any]],
    choices: TunedPaths,
    descs: Iterable[OperatorDesc],
    progress: Callable[[int, int], object] | None,
) -> None:
    """Measure what was not measured yet on this device, with this driver and these kernels.

    Each result is remembered as soon as it is there, so that an interruption loses nothing of it. `compile` makes the
    operator of a path and waits until it is built; several threads call it at a time. `progress` is called at the
    beginning, and after each path that is compiled or measured, with how many of these steps are done and how many
    there are.

    A path that gives other bits than the planner's choice is not taken, which a warning says.

    Raises OSError: the cache folder cannot be written.
    """
    pending = [desc for desc in dict.fromkeys(descs) if not choices.has(desc)]
    paths = {desc: planning.close_paths(desc, engine.profile) for desc in pending}
    total = 2 * sum(len(found) for found in paths.values() if len(found) > 1)
    done = count(1)

    def show(step: int) -> None:
        if progress is not None:
            progress(step, total)

    show(0)
    for desc in pending:
        if len(paths[desc]) == 1:
            choices.remember(desc, None, {})  # nothing else is close
    for layers in _groups({desc: found for desc, found in paths.items() if len(found) > 1}):
        operators: dict[tuple[OperatorDesc, str], CompiledOperator[Any]] = {}

        def compile_one(job: tuple[OperatorDesc, str], operators: dict[Any, CompiledOperator[Any]] = operators) -> None:
            operators[job] = compile(*job)
            show(next(done))

        for_each([(desc, path) for desc in layers for path in paths[desc]], compile_one, threads=core_count())
        for desc in layers:
            seconds = _measured(engine, desc, {path: operators[desc, path] for path in paths[desc]})
            planned, best = paths[desc][0], min(seconds, key=seconds.__getitem__)
            is_faster = seconds[best] * MARGIN < seconds[planned]
            seconds[PLANNER] = seconds[planned]
            choices.remember(desc, best if is_faster else None, seconds)
            for _ in paths[desc]:
                show(next(done))


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


def _measured(engine: Engine, desc: OperatorDesc, operators: Mapping[str, CompiledOperator[Any]]) -> dict[str, float]:
    """Seconds of an operator by each path. The first path's result is what the others' must be."""
    random = np.random.default_rng(0)
    tensors = {field: Tensor.empty(engine, each) for field, each in desc.tensors.items()}
    for field, tensor in tensors.items():
        if field != "output_tensor":
            tensor.write(random_data(random, tensor.desc))
    output = tensors["output_tensor"]
    owned = {field for field, each in desc.tensors.items() if each.flags & TensorFlags.OWNED_BY_DML}
    given = {field: tensor for field, tensor in tensors.items() if field not in owned}
    sequences: dict[str, tuple[Sequence, int]] = {}
    expected: bytes | None = None
    for path, operator in operators.items():
        if operator.has_state:
            operator.initialize(**{field: tensors[field] for field in owned})
        binding = operator.bind(**given)
        output.write_bytes(POISON * output.desc.total_size_in_bytes)
        submit(engine, [binding]).wait()
        found = output.read_bytes()
        expected = found if expected is None else expected
        if found != expected:
            other = f"{desc.operator_name}: path {path!r} gives other bits than path {next(iter(operators))!r}"
            warnings.warn(f"{other} on {engine.name}, and is not taken", RuntimeWarning, stacklevel=5)
            continue
        runs = max(1, min(MOST_RUNS, round(SEQUENCE_SECONDS / max(_seconds(engine, [binding]), 1e-9))))
        sequences[path] = _sequence(engine, [binding] * runs), runs
    times: dict[str, float] = {}
    for _ in range(ROUNDS):
        for path, (sequence, runs) in sequences.items():
            taken = _timed(engine, sequence) / runs
            times[path] = min(taken, times.get(path, taken))
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
    return random.integers(low, high, desc.sizes).astype(dtype)
