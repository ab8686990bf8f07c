"""Kernels that are compiled in the background: general ones answer first, and nobody can tell but by the clock."""

from __future__ import annotations

import _thread
import gc
import os
import re
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from weakref import ref

import numpy as np
import pytest

import dmlvk
from dmlvk.errors import DeviceLostError, OutOfMemoryError, ValidationError
from dmlvk.planning.plan import GENERAL_PATH
from dmlvk.runtime import background
from dmlvk.runtime.device import OPERATORS_KEPT_ON_CPU
from dmlvk.runtime.implementation import Implementation, Initialized
from dmlvk.vulkan import host_threads
from dmlvk.vulkan.pipelines import PIPELINES_KEPT_ON_CPU, Pipelines
from tests.amount import THOROUGH
from tests.programs import python
from tests.runtime.convolutions import Convolution, convolution
from tests.runtime.test_fork import MAY_FORK

# How long to wait for what is sure to come: a driver may take a second for a kernel.
SECONDS = 60.0
LONGEST_PROGRAM = 3600 if THOROUGH else 300
OWNED = pytest.mark.parametrize("owned", [False, True], ids=["bound", "owned"])


class Gate:
    """Lets the background compile when it is opened, and then do something in place of compiling.

    Whoever else compiles, in any thread, is not stopped.
    """

    def __init__(self, patch: pytest.MonkeyPatch, instead: Callable[[], None] | None = None) -> None:
        self._open = threading.Event()
        self.reached = threading.Event()
        self.passed = threading.Event()
        whole, honest = background._build_special, Implementation.build_special
        inside: set[int] = set()

        def build_in_background(reference: ref[Implementation]) -> None:
            self.reached.set()
            assert self._open.wait(SECONDS)
            inside.add(threading.get_ident())
            try:
                whole(reference)
            finally:
                inside.discard(threading.get_ident())
                self.passed.set()

        def build_special(general: Implementation, *, gives_way: bool = False) -> None:
            if instead is not None and threading.get_ident() in inside:
                instead()
            honest(general, gives_way=gives_way)

        patch.setattr(background, "_build_special", build_in_background)
        patch.setattr(Implementation, "build_special", build_special)

    def open(self) -> None:
        """Let the background compile, and wait until it is done."""
        assert self.reached.wait(SECONDS)
        self._open.set()
        assert self.passed.wait(SECONDS)


@pytest.fixture
def patch(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The background is on, in one thread of its own, and no cache has the special kernels."""
    monkeypatch.setenv("DMLVK_BACKGROUND", "1")
    for module in (background, host_threads):
        monkeypatch.setattr(module, "core_count", lambda: 2)
    monkeypatch.setattr(host_threads, "_background", host_threads.Workers())
    monkeypatch.setattr(Pipelines, "find", lambda *_: None)
    return monkeypatch


@pytest.fixture
def own(device: dmlvk.Device) -> Iterator[dmlvk.Device]:
    with dmlvk.Device(device.name) as opened:
        yield opened


def check(case: Convolution, submission: Any, output: dmlvk.Tensor, number: int = 0) -> None:
    submission.wait()
    np.testing.assert_array_equal(output.numpy(), case.expected(number))
    output.write_bytes(b"\xa5" * output.desc.total_size_in_bytes)


@pytest.mark.every_driver
@OWNED
def test_the_special_kernel_takes_over_between_two_submissions(
    own: dmlvk.Device, patch: pytest.MonkeyPatch, owned: bool
) -> None:
    """In a row of calls, of bindings, of lists and of a sequence's replays."""
    gate = Gate(patch)
    case = convolution(owned=owned)
    operator = own.compile(case.desc)
    case.initialize(operator)
    tensors, others = case.tensors(own), case.tensors(own)
    output, other = tensors["output_tensor"], others["output_tensor"]
    bindings = [operator.bind(**tensors), operator.bind(**others)]
    sequence = own.sequence(bindings)
    assert operator.plan.path != GENERAL_PATH

    def each() -> None:
        check(case, operator(**tensors), output)
        check(case, own.submit(bindings[:1]), output)
        submission = own.submit(bindings)
        check(case, submission, output)
        check(case, submission, other)
        check(case, sequence.submit(), output)
        check(case, own.sequence(bindings).submit(), other)

    for _ in range(2):
        each()
        assert [binding.plan.path for binding in bindings] == [GENERAL_PATH] * 2
        assert not operator._calls
    gate.open()
    check(case, own.submit(bindings), output)
    assert [binding.plan.path for binding in bindings] == [operator.plan.path] * 2
    for _ in range(2):
        each()
        assert [binding.plan.path for binding in bindings] == [operator.plan.path] * 2
        assert len(operator._calls) == 1
    assert [each.plan.path for each in sequence._bindings] == [operator.plan.path] * 2
    assert sequence._is_plain
    assert own.compile(case.desc, wait=True).plan is operator.plan or owned


def test_submitted_work_keeps_the_general_kernels_until_it_is_done(
    own: dmlvk.Device, patch: pytest.MonkeyPatch
) -> None:
    """Nothing waits between the submissions, and the last one is of another kernel."""
    gate = Gate(patch)
    case = convolution(16, 9, owned=True)
    operator = own.compile(case.desc)
    case.initialize(operator)
    all_tensors = [case.tensors(own) for _ in range(12)]
    submissions = [operator(**tensors) for tensors in all_tensors[:6]]
    gate.open()
    submissions += [operator(**tensors) for tensors in all_tensors[6:]]
    gc.collect()
    for submission, tensors in zip(submissions, all_tensors, strict=True):
        check(case, submission, tensors["output_tensor"])


def test_bindings_keep_their_contents_and_new_ones_see_the_new(own: dmlvk.Device, patch: pytest.MonkeyPatch) -> None:
    """The tensors that are OWNED_BY_DML are given before, during and after the compilation."""
    gate = Gate(patch)
    case = convolution(owned=True)
    operator = own.compile(case.desc)
    tensors = case.tensors(own)
    output = tensors["output_tensor"]
    bindings = []
    for number in range(4):
        case.initialize(operator, number)
        bindings.append(operator.bind(**tensors))
        if number == 1:
            gate.open()
        for earlier, binding in enumerate(bindings):
            check(case, own.submit([binding]), output, earlier)
        check(case, operator(**tensors), output, number)
    assert operator.owned_tensors().keys() == set(case.owned)
    assert {binding.plan.path for binding in bindings} == {operator.plan.path}


def test_waiting_for_the_special_kernel(own: dmlvk.Device, patch: pytest.MonkeyPatch) -> None:
    gate = Gate(patch)
    cases = [convolution(8, size, owned=False) for size in (5, 6, 8)]
    operators = [own.compile(cases[0].desc), own.compile(cases[1].desc), own.compile(cases[2].desc, wait=True)]
    assert [each._implementation.is_final for each in operators] == [False, False, True]
    operators[0].wait_for_compiler()
    own.compile_all(case.desc for case in cases)
    for case, operator in zip(cases, operators, strict=True):
        tensors = case.tensors(own)
        binding = operator.bind(**tensors)
        assert binding.plan.path == operator.plan.path
        check(case, own.submit([binding]), tensors["output_tensor"])
    gate.open()


@pytest.mark.parametrize("why", ["one core", "off", "a path", "DMLVK_KERNEL", "too long"])
def test_nothing_runs_in_the_background(own: dmlvk.Device, patch: pytest.MonkeyPatch, why: str) -> None:
    started: list[Any] = []
    patch.setattr(background, "in_background", started.append)
    path = None
    if why == "one core":
        patch.setattr(background, "core_count", lambda: 1)
    if why == "off":
        patch.setenv("DMLVK_BACKGROUND", "0")
    if why == "a path":
        path = "direct"
    if why == "DMLVK_KERNEL":
        patch.setenv("DMLVK_KERNEL", "direct")
    if why == "too long":
        patch.setattr(background, "LONGEST_GENERAL_RUN", {own.profile.device_type: 0.0})
    case = convolution(owned=False)
    operator = own.compile(case.desc, path)
    assert operator._implementation.is_final
    assert not started
    tensors = case.tensors(own)
    check(case, operator(**tensors), tensors["output_tensor"])


def test_kernels_of_a_cache_need_no_general_ones(own: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLVK_BACKGROUND", "1")
    monkeypatch.setattr(background, "core_count", lambda: 2)
    case = convolution(owned=False)
    own.compile(case.desc, wait=True)
    own._operators.clear()
    assert own.compile(case.desc)._implementation.is_final


def test_a_wrong_setting_is_a_clear_error(own: dmlvk.Device, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("DMLVK_BACKGROUND", "yes")
    with pytest.raises(ValueError, match="DMLVK_BACKGROUND is 'yes'; it can be 0"):
        own.compile(convolution(owned=False).desc)


def test_debug_lines_tell(device: dmlvk.Device, patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    patch.setenv("DMLVK_DEBUG", "1")
    gate = Gate(patch)
    case = convolution(owned=True)
    with dmlvk.Device(device.name) as own:
        operator = own.compile(case.desc)
        case.initialize(operator)
        tensors = case.tensors(own)
        binding = operator.bind(**tensors)
        sequence = own.sequence([binding])
        capsys.readouterr()
        sequence.submit()
        assert "quantized_linear_convolution/direct" in capsys.readouterr().err
        gate.open()
        sequence.submit()
        said = capsys.readouterr().err
        assert f"path {operator.plan.path} takes over from {GENERAL_PATH}" in said
        kernels = {dispatch.kernel for dispatch in operator.plan.dispatches}
        lines = said.partition("takes over")[2]
        assert set(re.findall(r"QUANTIZED_LINEAR_CONVOLUTION (\S+/\S+) ", lines)) == kernels
        check(case, own.submit([binding]), tensors["output_tensor"])


def test_a_sequence_waits_until_all_its_kernels_are_compiled(own: dmlvk.Device, patch: pytest.MonkeyPatch) -> None:
    """It is recorded again once, whatever runs meanwhile; what runs keeps the first recording."""
    own.timestamps = bool(own.vulkan.context.configuration.compute_family.timestamp_valid_bits)
    cases = [convolution(8, 7, owned=True), convolution(8, 9, owned=False)]
    operators = [own.compile(cases[0].desc, wait=True), own.compile(cases[1].desc)]
    for case, operator in zip(cases, operators, strict=True):
        case.initialize(operator)
    tensors = [case.tensors(own) for case in cases]
    bindings = [operator.bind(**each) for operator, each in zip(operators, tensors, strict=True)]
    sequences = [own.sequence(bindings)]
    own.timestamps = False
    sequences.append(own.sequence(bindings))
    for _ in range(2):
        for sequence in sequences:
            sequence.submit()
        gc.collect()
        operators[1].wait_for_compiler()
    for sequence in sequences:
        submission = sequence.submit()
        for case, each in zip(cases, tensors, strict=True):
            check(case, submission, each["output_tensor"])
        assert [each.plan.path for each in sequence._bindings] == [operator.plan.path for operator in operators]


FAILURES = [OutOfMemoryError("no memory"), DeviceLostError("the device is lost"), dmlvk.DeviceError("it is refused")]


class TestErrors:
    """Errors of the background compile: the general kernel stays, and who waits for the special one is told."""

    @OWNED
    @pytest.mark.parametrize("error", FAILURES, ids=str)
    def test_the_general_kernel_stays(
        self, own: dmlvk.Device, patch: pytest.MonkeyPatch, owned: bool, error: Exception
    ) -> None:
        def fail() -> None:
            raise error

        gate = Gate(patch, fail)
        case = convolution(owned=owned)
        operator = own.compile(case.desc)
        case.initialize(operator)
        tensors = case.tensors(own)
        binding = operator.bind(**tensors)
        gate.open()
        for _ in range(3):
            check(case, operator(**tensors), tensors["output_tensor"])
            check(case, own.submit([binding]), tensors["output_tensor"])
        assert binding.plan.path == GENERAL_PATH
        assert binding.batch is not None, "it is recorded once"
        assert len(operator._calls) == 1
        with pytest.raises(type(error), match=str(error)):
            operator.wait_for_compiler()

    @pytest.mark.parametrize("error", FAILURES, ids=str)
    def test_a_driver_that_fails_in_the_background_compiles_for_others(
        self, own: dmlvk.Device, patch: pytest.MonkeyPatch, error: Exception
    ) -> None:
        """What the driver's compiler raises, on the thread that calls it: no lock stays held."""
        honest, here = Pipelines._build, threading.get_ident()

        def build(self: Pipelines, *arguments: Any) -> Any:
            if threading.get_ident() != here:
                raise error
            return honest(self, *arguments)

        patch.setattr(Pipelines, "_build", build)
        case = convolution(16, 11, owned=True)
        operator = own.compile(case.desc)
        case.initialize(operator)
        general = operator._implementation
        deadline = time.monotonic() + SECONDS
        while general.failure is None:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        tensors = case.tensors(own)
        check(case, operator(**tensors), tensors["output_tensor"])
        with pytest.raises(type(error), match=str(error)):
            operator.wait_for_compiler()
        another = own.compile(case.desc, wait=True)
        case.initialize(another, 1)
        check(case, another(**tensors), tensors["output_tensor"], 1)
        check(case, operator(**tensors), tensors["output_tensor"])

    @OWNED
    def test_without_memory_for_both_the_general_kernel_stays(
        self, own: dmlvk.Device, patch: pytest.MonkeyPatch, owned: bool
    ) -> None:
        gate = Gate(patch)
        case = convolution(owned=owned)
        operator = own.compile(case.desc)
        case.initialize(operator)
        tensors = case.tensors(own)
        binding = operator.bind(**tensors)
        gate.open()

        def fail(*_: Any) -> None:
            raise OutOfMemoryError("no memory")

        with pytest.MonkeyPatch.context() as full:
            full.setattr(Initialized, "__init__" if owned else "bind", fail)
            check(case, own.submit([binding]), tensors["output_tensor"])
        for _ in range(2):
            check(case, operator(**tensors), tensors["output_tensor"])
            check(case, own.submit([binding]), tensors["output_tensor"])
        assert binding.plan.path == GENERAL_PATH

    @pytest.mark.parametrize("error", [ZeroDivisionError("a mistake"), ValidationError("a message")], ids=str)
    def test_mistakes_are_reported(self, own: dmlvk.Device, patch: pytest.MonkeyPatch, error: Exception) -> None:
        def fail() -> None:
            raise error

        seen: list[Any] = []
        patch.setattr(sys, "unraisablehook", seen.append)
        gate = Gate(patch, fail)
        case = convolution(owned=False)
        operator = own.compile(case.desc)
        gate.open()
        assert [report.exc_value for report in seen] == [error]
        tensors = case.tensors(own)
        check(case, operator(**tensors), tensors["output_tensor"])

    def test_without_threads_the_caller_compiles(self, own: dmlvk.Device, patch: pytest.MonkeyPatch) -> None:
        def refuse(*_: Any) -> None:
            raise RuntimeError("can't start new thread")

        patch.setattr(host_threads, "_background", host_threads.Workers())
        patch.setattr(_thread, "start_new_thread", refuse)
        case = convolution(owned=False)
        operator = own.compile(case.desc)
        tensors = case.tensors(own)
        binding = operator.bind(**tensors)
        assert binding.plan.path == operator.plan.path
        check(case, own.submit([binding]), tensors["output_tensor"])


def test_closing_waits_for_the_kernel_in_work_and_drops_the_others(
    device: dmlvk.Device, patch: pytest.MonkeyPatch
) -> None:
    """The driver is in the middle of compiling when the device is closed."""
    begun, finish = threading.Event(), threading.Event()
    honest = Pipelines._build
    here = threading.get_ident()
    compiled: list[str] = []

    def build(self: Pipelines, key: Any, *arguments: Any) -> Any:
        if threading.get_ident() != here:
            begun.set()
            assert finish.wait(SECONDS)
            compiled.append(key[0])
        return honest(self, key, *arguments)

    patch.setattr(Pipelines, "_build", build)
    own = dmlvk.Device(device.name)
    for size in (5, 6, 7):
        own.compile(convolution(8, size, owned=False).desc)
    assert begun.wait(SECONDS)
    closing = threading.Thread(target=own.close)
    closing.start()
    closing.join(0.2)
    assert closing.is_alive(), "the compiler is still at work"
    finish.set()
    closing.join(SECONDS)
    assert not closing.is_alive()
    assert own.is_closed
    time.sleep(0.2)
    assert len(compiled) == 1, "nothing else was begun"
    with pytest.raises(dmlvk.DeviceError, match="closed"):
        own.compile(convolution(owned=False).desc)


def test_an_operator_that_nobody_uses_is_not_compiled(own: dmlvk.Device, patch: pytest.MonkeyPatch) -> None:
    held: list[Callable[[], None]] = []
    patch.setattr(background, "in_background", held.append)
    operator = own.compile(convolution(owned=True).desc)
    general = ref(operator._implementation)
    special = operator._implementation.special
    assert special is not None
    del operator
    gc.collect()
    assert general() is None
    (job,) = held
    job()
    assert not special.is_built


PROGRAM = """
import os, sys, threading, time
import numpy as np, dmlvk
from dmlvk.runtime import background
from dmlvk.vulkan.pipelines import Pipelines
from tests.runtime.convolutions import convolution

background.core_count = lambda: 2
Pipelines.find = lambda *_: None

def check(case, operator, device):
    tensors = case.tensors(device)
    operator(**tensors).wait()
    np.testing.assert_array_equal(tensors["output_tensor"].numpy(), case.expected())

def started(device, sizes=range(5, 17)):
    cases = [convolution(8, size, kernel=1 + size % 5, owned=size % 2 == 0) for size in sizes]
    operators = [device.compile(case.desc) for case in cases]
    for case, operator in zip(cases, operators):
        case.initialize(operator)
    return list(zip(cases, operators))
"""


def run(device: dmlvk.Device, program: str, status: int = 0) -> str:
    done = python(
        *(*MAY_FORK, "-c", textwrap.dedent(PROGRAM) + textwrap.dedent(program), device.name),
        env={**os.environ, "DMLVK_BACKGROUND": "1", "DMLVK_VALIDATE": "0"},
        timeout=LONGEST_PROGRAM,
    )
    assert done.returncode == status, f"status {done.returncode}\n{done.stdout}\n{done.stderr[-3000:]}"
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("pass", 0),
        ("device.close()", 0),
        ("sys.exit(0)", 0),
        ("del device, pairs", 0),
        ("raise RuntimeError", 1),
        ("os._exit(3)", 3),
        ("threading.Thread(target=device.close).start()", 0),
    ],
)
def test_the_process_ends_while_kernels_are_compiled(device: dmlvk.Device, end: str, status: int) -> None:
    program = f"""
    device = dmlvk.Device(sys.argv[1])
    pairs = started(device)
    check(*pairs[0], device)
    print("checked", flush=True)
    {end}
    """
    said = run(device, program, status)
    assert said.startswith("checked\n")
    assert status == 1 or said == "checked\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")
def test_a_fork_while_kernels_are_compiled(device: dmlvk.Device) -> None:
    """The child opens a device of its own, whose kernels are compiled in the background too."""
    program = """
    device = dmlvk.Device(sys.argv[1])
    pairs = started(device, range(5, 10))
    child = os.fork()
    if child == 0:
        try:
            pairs[0][1].bind()
        except dmlvk.DeviceError as error:
            assert "before a fork" in str(error)
        device = dmlvk.Device(sys.argv[1])
        pairs = started(device, [6, 7])
    for pair in pairs:
        check(*pair, device)
    for _, operator in pairs:
        operator.wait_for_compiler()
    for pair in pairs:
        check(*pair, device)
    device.close()
    if child:
        assert os.waitpid(child, 0)[1] == 0
        print("both are right")
    """
    assert run(device, program) == "both are right\n"


def test_many_shapes_from_eight_threads(device: dmlvk.Device) -> None:
    """Each is checked when it is new, and again later; no cache grows beyond its bound.

    Two threads each take the same shapes, four times as many as `count`.
    """
    count = 500 if THOROUGH else 12
    program = f"""
    import gc, threading
    device = dmlvk.Device(sys.argv[1])
    errors = []
    def work(thread):
        try:
            kept = []
            for number in range({count}):
                channels = 2 + number // 100
                groups = channels if number % 2 else 1
                case = convolution(channels, 5 + number % 100, 1 + thread % 4, groups=groups, owned=number % 3 == 0)
                operator = device.compile(case.desc)
                case.initialize(operator)
                check(case, operator, device)
                kept.append((case, operator))
                check(*kept[number // 2], device)
                kept[:-9] = [kept[0]] * len(kept[:-9])
        except BaseException as error:
            errors.append(error)
            raise
    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert not errors
    gc.collect()
    print(len(device._operators), device.vulkan.pipelines.count, len(device.vulkan.pipelines._building))
    """
    operators, pipelines, building = map(int, run(device, program).split())
    assert operators <= OPERATORS_KEPT_ON_CPU
    assert pipelines <= PIPELINES_KEPT_ON_CPU
    assert building <= 2, "locks of pipelines that are being built"
