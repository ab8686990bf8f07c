"""Known questions to matrix units: a kernel path that uses them is taken once the driver has answered right.

Drivers have listed matrices and then computed with the first tile for each offset in shared memory, or given other
results at each run. So each such path is asked at its first use on a device: small convolutions with several tiles and
an uneven number of steps, whose integers the host computes too. The answer is remembered in the cache folder, for this
device, its driver and these kernels. Where it is wrong, or where the question ends the device or the process, the path
is not taken.

Questions are asked on a Device of their own, so that a device that is lost is not the user's. One process asks at a
time, and in it one thread for each path, before anything of the path is compiled. Other threads compile what they need
of the path meanwhile, and take it once the answer is right: a compiler that ends the process ends it in the question.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import re
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlvk import planning, reference
from dmlvk._common.bits import first_difference
from dmlvk.data_type import DataType
from dmlvk.device_profile import DeviceProfile, DeviceType
from dmlvk.errors import DeviceError, OutOfMemoryError, ValidationError
from dmlvk.operators import QuantizedLinearConvolutionDesc
from dmlvk.planning.plan import Plan
from dmlvk.planning.quantized_linear_convolution import PATHS_TO_ASK
from dmlvk.runtime import background, debug
from dmlvk.runtime.answers_file import Answer, AnswersFile
from dmlvk.runtime.asked_device import AskedDevice
from dmlvk.runtime.compiled_operator import CompiledOperator
from dmlvk.runtime.device_info import index_of
from dmlvk.runtime.engine import Engine
from dmlvk.runtime.tensor import Tensor
from dmlvk.runtime.tuned_paths import kernels_hash
from dmlvk.tensor_desc import TensorDesc, TensorFlags
from dmlvk.vulkan.host_threads import Job, core_count, for_each, in_background
from dmlvk.vulkan.locks import RLock

# A question takes milliseconds once its kernels are compiled. What takes longer hangs.
ANSWER_SECONDS = 10.0
# The answer must be the same each time: some faults depend on what ran before.
REPEATS = 3
# A process can be ended by its user in the middle of a question. If that happens so often, it is the question.
MOST_ENDS = 2
# What a CPU driver lists as matrices are loops of its own compiler, like all else that it runs.
WITHOUT_UNITS = frozenset((DeviceType.CPU,))
# A tile or parts of K may follow a path's name: "matrix:128x128x64:64x32", "split_k/4".
NAME_END = re.compile("[:/]")
NEVER, ONCE, ALWAYS = "0", "1", "always"
POISON = b"\xa5"


def mode() -> str:
    """$DMLVK_SELF_TEST: "0" never asks, "1" (the default) asks once, "always" asks at each Device anew.

    Raises
    ------
    ValueError
        The variable has another value.
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
        self._locks = {path: RLock() for path in PATHS_TO_ASK}
        # The thread that takes a path's entry out asks before it compiles anything.
        self._first = {path: deque([True]) for path in PATHS_TO_ASK}
        # By question: what was wrong, or "".
        self._known: dict[str, str] = {}
        # The paths that a thread asks, which holds their locks.
        self._under_way: set[str] = set()
        self._asked_device = AskedDevice()

    def allows(self, engine: Engine, plan: Plan) -> bool:
        """Whether a plan's path may be taken. Asks the device if nobody has. Other threads wait for the answer.

        If the answer is wrong, the path is none of the device's any more: plan anew.
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
        asked = [path for path in PATHS_TO_ASK if _is_asked(engine.profile, path)]
        found = {path: self._locked_fault(engine, path) for path in asked}
        return {path: fault for path, fault in found.items() if fault}

    def _locked_fault(self, engine: Engine, path: str) -> str:
        with self._locks[path]: return self._fault(engine, path)  # noqa: E701  # fmt: skip

    def has_answered(self, engine: Engine, plan: Plan) -> bool:
        """Whether `allows` would answer at once."""
        return self._has_answered(engine, NAME_END.split(plan.path)[0])

    def has_answered_all(self, engine: Engine) -> bool:
        """Whether no path has to be asked any more."""
        return all(self._has_answered(engine, path) for path in PATHS_TO_ASK)

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
            # Until the answer is there, the file says that the process has ended in the question: perhaps it will.
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
            desc = _descs_of(engine.profile, path)[0]
            debug.note(engine, desc, f"path {path} is not taken, its answer to a known question was: {fault}")
        return fault

    def _asked(self, engine: Engine, path: str) -> str:
        """Ask on a Device of its own; returns what was wrong."""
        if index_of(engine) is None:  # of a process that has forked: it cannot be used anyway
            return ""
        descs = _descs_of(engine.profile, path)

        operators: dict[QuantizedLinearConvolutionDesc, CompiledOperator[QuantizedLinearConvolutionDesc]] = {}

        def compile_all(own: Engine) -> None:
            _share_pipelines(engine, own)

            def build(desc: QuantizedLinearConvolutionDesc) -> None:
                operators[desc] = CompiledOperator.of_plan(own, desc, own.plan(desc, path))

            # All threads of `Device.compile_all` may be waiting for this one.
            for_each(descs, build, threads=core_count(), is_nested=True)

        def run(own: Engine) -> str:
            for desc in descs:
                fault = _fault_of(operators.pop(desc))
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

    Returns
    -------
    Job or None
        None if nothing is done, because nothing is asked, or there is no other thread.
    """
    if profile.device_type in WITHOUT_UNITS or not background.is_allowed():
        return None

    def work() -> None:
        for path in PATHS_TO_ASK:
            if _is_asked(profile, path):
                _question_of(profile, path)
        kernels_hash()

    return in_background(work)


def _is_asked(profile: DeviceProfile, path: str) -> bool:
    return path in PATHS_TO_ASK and profile.device_type not in WITHOUT_UNITS and mode() != NEVER


def _share_pipelines(source: Engine, target: Engine) -> None:
    """Let a Device find what another one has compiled, unless one of them is closed or lost."""
    try:
        data = source.vulkan.visits.during(source.vulkan.pipelines.cache.data)
        target.vulkan.visits.during(target.vulkan.pipelines.cache.add, data)
    except ValidationError:
        raise
    except DeviceError:
        pass


def _fault_of(operator: CompiledOperator[QuantizedLinearConvolutionDesc]) -> str:
    """Run a question; returns what was wrong."""
    desc = operator.desc
    inputs, expected = _data(desc)
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


def _tensor(sizes: tuple[int, ...], is_last: bool, data_type: DataType = DataType.UINT8) -> TensorDesc:
    _, channels, height, width = sizes
    strides = (height * width * channels, 1, width * channels, channels) if is_last else None
    return TensorDesc(data_type, sizes, strides)


def _desc(channels: int, filters: int, kernel: int, stride: int, size: tuple[int, int], *, is_last: bool) -> Any:
    """A convolution with zero points, and a scale and a bias for each output channel."""
    margin = kernel // 2
    height, width = ((length + 2 * margin - kernel) // stride + 1 for length in size)
    one, per_channel = (1, 1, 1, 1), (1, filters, 1, 1)
    return QuantizedLinearConvolutionDesc(
        input_tensor=_tensor((1, channels, *size), is_last),
        input_scale_tensor=TensorDesc(DataType.FLOAT32, one),
        input_zero_point_tensor=TensorDesc(DataType.UINT8, one),
        filter_tensor=TensorDesc(DataType.INT8, (filters, channels, kernel, kernel)),
        filter_scale_tensor=TensorDesc(DataType.FLOAT32, per_channel),
        filter_zero_point_tensor=TensorDesc(DataType.INT8, one),
        bias_tensor=TensorDesc(DataType.INT32, per_channel),
        output_scale_tensor=TensorDesc(DataType.FLOAT32, one),
        output_zero_point_tensor=TensorDesc(DataType.UINT8, one),
        output_tensor=_tensor((1, filters, height, width), is_last),
        strides=(stride, stride),
        dilations=(1, 1),
        start_padding=(margin, margin),
        end_padding=(margin, margin),
        group_count=1,
    )


def _with_owned_constants(desc: QuantizedLinearConvolutionDesc) -> QuantizedLinearConvolutionDesc:
    """All but the input and the output are given once, as by most programs."""
    owned: dict[str, Any] = {
        field: replace(tensor, flags=TensorFlags.OWNED_BY_DML)
        for field, tensor in desc.tensors.items()
        if field not in ("input_tensor", "output_tensor")
    }
    return replace(desc, **owned)


def _symmetric(desc: QuantizedLinearConvolutionDesc) -> QuantizedLinearConvolutionDesc:
    """Without a filter zero point, as in most models."""
    return replace(desc, filter_zero_point_tensor=None)


# Several tiles of pixels and of channels, none of them whole at the end, and mostly an odd number of steps of K. There
# are few questions, because a driver compiles a third of a second for each. On large GPUs their pipelines are those of
# common layers, which then find them compiled: outputs are stored in whole vectors, and K ends with a step. But where
# filter zero points are matrices too, one question has them.
QUESTIONS: Mapping[str, tuple[QuantizedLinearConvolutionDesc, ...]] = {
    "halo": (_desc(48, 200, 3, 1, (11, 19), is_last=True),),
    "matrix": (
        _with_owned_constants(_desc(128, 144, 3, 2, (23, 17), is_last=True)),
        _with_owned_constants(_symmetric(_desc(64, 144, 1, 1, (24, 22), is_last=True))),
        _with_owned_constants(_symmetric(_desc(256, 136, 1, 1, (12, 22), is_last=False))),
    ),
    "split_k": (
        _with_owned_constants(_symmetric(_desc(144, 80, 3, 2, (15, 17), is_last=True))),
        _with_owned_constants(_symmetric(_desc(320, 144, 3, 2, (23, 17), is_last=False))),
    ),
}


@lru_cache(maxsize=64)
def _descs_of(profile: DeviceProfile, path: str) -> tuple[QuantizedLinearConvolutionDesc, ...]:
    """The questions that a path can take on a device."""
    return tuple(desc for desc, _ in _plans_of(profile, path))


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


def _plans_of(profile: DeviceProfile, path: str) -> list[tuple[QuantizedLinearConvolutionDesc, Plan]]:
    found = []
    for desc in QUESTIONS[path]:
        with suppress(planning.PathError):
            found.append((desc, planning.plan(desc, profile, path=path)))
    return found


def _data(desc: QuantizedLinearConvolutionDesc) -> tuple[dict[str, npt.NDArray[Any]], npt.NDArray[Any]]:
    """Random bytes, scales with which the output uses the range of a byte, and the reference's output."""
    random = np.random.default_rng(48)
    filters, inside, kernel, _ = desc.filter_tensor.sizes
    spread = 74.0 * 74.0 * (inside * kernel * kernel) ** 0.5
    inputs: dict[str, npt.NDArray[Any]] = {
        "input_tensor": random.integers(0, 256, desc.input_tensor.sizes, np.uint8),
        "input_scale_tensor": np.full((1, 1, 1, 1), 0.02, np.float32),
        "input_zero_point_tensor": np.full((1, 1, 1, 1), 121, np.uint8),
        "filter_tensor": random.integers(-128, 128, desc.filter_tensor.sizes, np.int8),
        "filter_scale_tensor": (random.integers(50, 200, (1, filters, 1, 1)) / 1e4).astype(np.float32),
        "filter_zero_point_tensor": np.full((1, 1, 1, 1), 3, np.int8),
        "bias_tensor": random.integers(-5000, 5000, (1, filters, 1, 1), np.int32),
        "output_scale_tensor": np.full((1, 1, 1, 1), 0.02 * 0.0125 * spread / 50, np.float32),
        "output_zero_point_tensor": np.full((1, 1, 1, 1), 120, np.uint8),
    }
    given = {field: array for field, array in inputs.items() if field in desc.tensors}
    return given, reference.run(desc, **given)


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
