"""Known questions to matrix units: a kernel path that uses them is taken once the driver has answered right.

Drivers have listed matrices and then computed with the first tile for each offset in shared memory, or given other
results at each run. So each such path is asked at its first use on a device. `planning.QUESTIONS` has what the path
asks, and the host computes the results too. The answer is remembered in the cache folder, for this device, its driver
and these kernels. Where it is wrong, or where the question ends the device or the process, the path is not taken.

Questions are asked on a Device of their own, so that a device that is lost is not the user's. One process asks at a
time, and in it one thread for each path, before anything of the path is compiled. Other threads compile what they need
of the path meanwhile, and take it once the answer is right. If the compiler crashes the process, it does so during the
question, where the crash is recorded.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import re
from collections import deque
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlvk import planning, reference
from dmlvk._common.bits import first_difference
from dmlvk.device_profile import DeviceProfile, DeviceType
from dmlvk.errors import DeviceError, OutOfMemoryError, ValidationError
from dmlvk.operators import OperatorDesc
from dmlvk.planning import QUESTIONS
from dmlvk.planning.plan import Plan
from dmlvk.planning.question import Question
from dmlvk.runtime import background, debug
from dmlvk.runtime.answers_file import Answer, AnswersFile
from dmlvk.runtime.asked_device import AskedDevice
from dmlvk.runtime.compiled_operator import CompiledOperator
from dmlvk.runtime.device_info import index_of
from dmlvk.runtime.engine import Engine
from dmlvk.runtime.tensor import Tensor
from dmlvk.runtime.tuned_paths import kernels_hash
from dmlvk.tensor_desc import TensorFlags
from dmlvk.vulkan.host_threads import Job, core_count, for_each, in_background
from dmlvk.vulkan.interrupts.locks import RLock

# A question takes milliseconds once its kernels are compiled. What takes longer hangs.
ANSWER_SECONDS = 10.0
# The answer must be the same each time: some faults depend on what ran before.
REPEATS = 3
# A user may end a process in the middle of a question. After this many such ends, the question counts as their cause.
MOST_ENDS = 2
# A CPU driver has no matrix units: its compiler makes loops of matrices, which need no question.
WITHOUT_UNITS = frozenset((DeviceType.CPU,))
# A tile or parts of K may follow a path's name: "matrix:128x128x64:64x32", "split_k/4".
NAME_END = re.compile("[:/]")
NEVER, ONCE, ALWAYS = "0", "1", "always"
POISON = b"\xa5"


def mode() -> str:
    """$DMLVK_SELF_TEST: "0" never asks, "1" (the default) asks once, "always" asks at each Device anew.

    Raises ValueError: the variable has another value.
    """
    text = os.environ.get("DMLVK_SELF_TEST", "") or ONCE
    if text not in (NEVER, ONCE, ALWAYS):
        raise ValueError(
            f"DMLVK_SELF_TEST is {text!r}; it can be 0 (matrix units are trusted), 1 (each path that uses them answers "
            "a known question once) or always (at each Device)"
        )
    return text


class SelfTest:
    """Which kernel paths of an engine may be taken. It does not keep the engine, which owns it."""

    def __init__(self) -> None:
        self._locks = {path: RLock() for path in QUESTIONS}
        # Each path has one entry: the thread that takes the entry out asks before it compiles anything.
        self._first = {path: deque([True]) for path in QUESTIONS}
        # By question: what was wrong, or "".
        self._known: dict[str, str] = {}
        # The paths that a thread asks, which holds their locks.
        self._under_way: set[str] = set()
        self._asked_device = AskedDevice()

    def allows(self, engine: Engine, plan: Plan) -> bool:
        """Whether a plan's path may be taken. Asks the device if nobody has. Other threads wait for the answer.

        If the answer is wrong, the device no longer has the path: plan anew.
        """
        path = NAME_END.split(plan.path)[0]
        if not _is_asked(engine.profile, path):
            return True
        with self._locks[path]: return self._allows(engine, path)  # noqa: E701  # fmt: skip

    def is_asked_elsewhere(self, engine: Engine, plan: Plan) -> bool:
        """Whether another thread asks the plan's path, or has begun to: `allows` would wait for it.

        Of the threads that call this, one is told that nobody asks; it has to call `allows` at once.
        """
        path = NAME_END.split(plan.path)[0]
        if self.has_answered(engine, plan):
            return False
        try:
            self._first[path].pop()
        except IndexError:
            return True
        return False

    @property
    def is_entered(self) -> bool:
        """Whether this thread is in the middle of a question."""
        return any(lock._is_owned() for lock in self._locks.values())

    @property
    def has_begun(self) -> bool:
        """Whether a question was asked, or its Device opened."""
        return self._asked_device.is_begun

    def open_early(self, engine: Engine) -> None:
        """Open the Device that questions are asked on, unless somebody has begun to."""
        self._asked_device.open_early(engine)

    def close(self) -> None:
        """Close the Device that questions are asked on. A question under way ends without an answer."""
        self._asked_device.close()

    def _allows(self, engine: Engine, path: str) -> bool:
        if path in engine.profile.distrusted_paths:
            return False
        fault = self._fault(engine, path)
        if fault:
            engine.distrust(path)
        return not fault

    def faults(self, engine: Engine) -> dict[str, str]:
        """Ask all paths that the device has; returns what was wrong, by path."""
        asked = [path for path in QUESTIONS if _is_asked(engine.profile, path)]
        found = {path: self._locked_fault(engine, path) for path in asked}
        return {path: fault for path, fault in found.items() if fault}

    def _locked_fault(self, engine: Engine, path: str) -> str:
        with self._locks[path]: return self._fault(engine, path)  # noqa: E701  # fmt: skip

    def has_answered(self, engine: Engine, plan: Plan) -> bool:
        """Whether `allows` would answer at once."""
        return self._has_answered(engine, NAME_END.split(plan.path)[0])

    def has_answered_all(self, engine: Engine) -> bool:
        """Whether no path has to be asked any more."""
        return all(self._has_answered(engine, path) for path in QUESTIONS)

    def _has_answered(self, engine: Engine, path: str) -> bool:
        if not _is_asked(engine.profile, path) or path in engine.profile.distrusted_paths:
            return True
        question = _question_of(engine.profile, path)
        if question is None or question in self._known:
            return True
        remembered = AnswersFile(engine.profile).answer(question) if mode() == ONCE else None
        return remembered is not None and remembered.is_final

    def _fault(self, engine: Engine, path: str) -> str:
        """What was wrong with the answer of a path; "" if nothing was, or if there is no question for it."""
        question = _question_of(engine.profile, path)
        if question is None:
            return ""
        if question not in self._known:
            file = AnswersFile(engine.profile)
            earlier = file.answer(question) if mode() == ONCE else None
            if earlier is None or not earlier.is_final:
                # In a handler, in the middle of this question: it cannot wait for the answer, and needs one.
                if path in self._under_way:
                    return self._asked(engine, path)
                self._known[question] = self._one_at_a_time(engine, path, question, file)
                if self.has_answered_all(engine):
                    self._asked_device.close()
            else:
                self._known[question] = earlier.fault
        return self._known[question]

    def _one_at_a_time(self, engine: Engine, path: str, question: str, file: AnswersFile) -> str:
        self._under_way.add(path)
        try:
            with file.asking(question):
                return self._new_fault(engine, path, question, file)
        finally:
            self._under_way.discard(path)

    def _new_fault(self, engine: Engine, path: str, question: str, file: AnswersFile) -> str:
        """Ask, unless another process has just done so, and remember the answer."""
        earlier = file.answer(question) if mode() == ONCE else None
        if earlier is not None and earlier.is_final:
            return earlier.fault
        ends = 0 if earlier is None else earlier.ends
        answer = Answer(path, question, file.driver, kernels_hash(), date=_now())
        if ends >= MOST_ENDS:
            fault = f"the process ended in the middle of the question, {ends} times"
        else:
            # Until the answer is there, the file says that the process ended during the question, in case it does.
            file.keep(question, replace(answer, ends=ends + 1))
            try:
                fault = self._asked(engine, path)
            except BaseException as error:  # Ctrl-C, or no memory for the question: that is no answer
                file.keep(question, earlier)
                if isinstance(error, OutOfMemoryError):
                    return ""
                raise
        file.keep(question, replace(answer, fault=fault))
        if fault:
            desc = _questions_of(engine.profile, path)[0].desc
            debug.note(engine, desc, f"path {path} is not taken, its answer to a known question was: {fault}")
        return fault

    def _asked(self, engine: Engine, path: str) -> str:
        """Ask on a Device of its own; returns what was wrong."""
        if index_of(engine) is None:  # a fork's parent opened it: this process cannot use it
            return ""
        questions = _questions_of(engine.profile, path)
        operators: dict[Question, CompiledOperator[OperatorDesc]] = {}

        def compile_all(own: Engine) -> None:
            _share_pipelines(engine, own)

            def build(question: Question) -> None:
                operators[question] = CompiledOperator.of_plan(own, question.desc, own.plan(question.desc, path))

            # All threads of `Device.compile_all` may be waiting for this one.
            for_each(questions, build, threads=core_count(), is_nested=True)

        def run(own: Engine) -> str:
            for question in questions:
                fault = _fault_of(operators.pop(question), question)
                if fault:
                    return fault
            # What follows takes some of these pipelines.
            _share_pipelines(own, engine)
            return ""

        return self._asked_device.ask(engine, compile_all, run)


def prepare(profile: DeviceProfile) -> Job | None:
    """On another thread: work out the questions to a device, which the first convolution would wait for.

    They are plans like others, the first of a process, and take 10 ms on a GPU with matrix units. The driver takes
    longer to open such a device.

    Returns None if nothing is done, because nothing is asked, or there is no other thread.
    """
    if profile.device_type in WITHOUT_UNITS or not background.is_allowed():
        return None

    def work() -> None:
        for path in QUESTIONS:
            if _is_asked(profile, path):
                _question_of(profile, path)
        kernels_hash()

    return in_background(work)


def _is_asked(profile: DeviceProfile, path: str) -> bool:
    return path in QUESTIONS and profile.device_type not in WITHOUT_UNITS and mode() != NEVER


def _share_pipelines(source: Engine, target: Engine) -> None:
    """Let a Device find what another one has compiled, unless one of them is closed or lost."""
    try:
        data = source.vulkan.visits.during(source.vulkan.pipelines.cache.data)
        target.vulkan.visits.during(target.vulkan.pipelines.cache.add, data)
    except ValidationError:
        raise
    except DeviceError:
        pass


def _fault_of(operator: CompiledOperator[OperatorDesc], question: Question) -> str:
    """Run a question; returns what was wrong."""
    desc = question.desc
    inputs, expected = _data(question)
    owned = {field for field in inputs if desc.tensors[field].flags & TensorFlags.OWNED_BY_DML}
    if owned:
        operator.initialize(**{field: inputs[field] for field in owned})
    tensors = {
        field: Tensor.empty(operator.engine, desc.tensors[field]) for field in desc.tensors if field not in owned
    }
    for field, array in inputs.items():
        if field not in owned:
            tensors[field].write(array)
    output = tensors["output_tensor"]
    for number in range(REPEATS):
        output.write_bytes(POISON * output.desc.total_size_in_bytes)
        operator(**tensors).wait(ANSWER_SECONDS)
        found = output.numpy()
        different = first_difference(found, expected)
        if different is not None:
            place, count = different
            return (
                f"element {list(place)} was {found[place]} in place of {expected[place]}, in run {number + 1}; {count} "
                f"of {found.size} elements were wrong"
            )
    return ""


@lru_cache(maxsize=64)
def _questions_of(profile: DeviceProfile, path: str) -> tuple[Question, ...]:
    """The questions that a path can take on a device."""
    return tuple(question for question, _ in _plans_of(profile, path))


@lru_cache(maxsize=64)
def _question_of(profile: DeviceProfile, path: str) -> str | None:
    """A hash of what runs for the questions to a path; None if the path takes none of them."""
    plans = _plans_of(profile, path)
    if not plans:
        return None
    content = [
        [dispatch.kernel, list(dispatch.specialization), list(dispatch.groups), dispatch.subgroup_size]
        for _, plan in plans
        for dispatch in plan.dispatches
    ]
    return hashlib.sha256(json.dumps([path, content]).encode()).hexdigest()[:16]


def _plans_of(profile: DeviceProfile, path: str) -> list[tuple[Question, Plan]]:
    found = []
    for question in QUESTIONS[path]:
        with suppress(planning.PathError):
            found.append((question, planning.plan(question.desc, profile, path=path)))
    return found


def _data(question: Question) -> tuple[dict[str, npt.NDArray[Any]], npt.NDArray[Any]]:
    """The inputs, and the reference's output."""
    desc, random = question.desc, np.random.default_rng(48)
    inputs: dict[str, npt.NDArray[Any]] = {}
    for field, elements in question.elements.items():
        tensor = desc.tensors[field]
        integers = random.integers(elements.low, elements.high, tensor.sizes)
        inputs[field] = (integers * elements.factor).astype(tensor.data_type.numpy_dtype)
    return inputs, reference.run(desc, **inputs)


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
