"""The Device that known questions are asked on: one for all paths, beside the compiling, and nothing is left of it."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import dmlvk
from dmlvk.errors import DeviceLostError, OutOfMemoryError, ReentryError
from dmlvk.planning.plan import GENERAL_PATH
from dmlvk.planning.quantized_linear_convolution.questions import convolution as convolution_of
from dmlvk.runtime import answers_file, background, device_info, self_test
from dmlvk.runtime import asked_device as asking
from dmlvk.runtime import device as device_module
from dmlvk.runtime.asked_device import MOST_DEVICES, AskedDevice
from dmlvk.runtime.compiled_operator import CompiledOperator
from dmlvk.runtime.engine import Engine
from dmlvk.runtime.implementation import Implementation
from dmlvk.runtime.tensor import Tensor
from dmlvk.runtime.tuned_paths import kernels_hash
from dmlvk.vulkan import host_threads
from dmlvk.vulkan.pipelines import Pipelines
from tests.runtime.convolutions import convolution
from tests.runtime.test_background import run
from tests.runtime.test_self_test import DESC, QUESTION, path_taken
from tests.vulkan.shim import Shim
from tests.vulkan.variants import copy_desc

# How long to wait for what is sure to come.
SECONDS = 60.0
COPY = copy_desc(dmlvk.TensorDesc("int32", (64,)))


def prepare(own: Engine) -> None:
    CompiledOperator.of_plan(own, COPY, own.plan(COPY))


def answer(own: Engine) -> str:
    Tensor.empty(own, dmlvk.TensorDesc("int32", (3,))).numpy()
    return ""


def lose(own: Engine) -> str:
    own.vulkan.context.availability.lose()
    raise DeviceLostError("as a driver's reset does")


def hang(own: Engine) -> str:
    raise dmlvk.DeviceError("the work was not done")


@pytest.fixture
def user(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[dmlvk.Device]:
    """A user's device. Nothing is remembered."""
    monkeypatch.setenv("DMLVK_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("DMLVK_SELF_TEST", raising=False)
    with dmlvk.Device(device.name) as opened:
        yield opened


class Calls:
    """Calls of several threads; their results or exceptions."""

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []
        self.results: dict[str, Any] = {}

    def start(self, name: str, call: Callable[[], Any]) -> None:
        def work() -> None:
            try:
                self.results[name] = call()
            except Exception as error:
                self.results[name] = error

        self._threads.append(threading.Thread(target=work, daemon=True))
        self._threads[-1].start()

    def join(self) -> dict[str, Any]:
        for thread in self._threads:
            thread.join(SECONDS)
            assert not thread.is_alive(), "a thread waits for ever"
        return self.results


@pytest.fixture
def calls() -> Iterator[Calls]:
    started = Calls()
    yield started
    started.join()


class TestQuestions:
    """Questions of several threads to one AskedDevice."""

    def test_they_are_compiled_together_and_run_alone(self, user: dmlvk.Device, calls: Calls) -> None:
        asked, meeting = AskedDevice(), threading.Barrier(3)
        seen: set[Engine] = set()
        inside: list[str] = []

        def compiled(own: Engine) -> None:
            seen.add(own)
            meeting.wait(SECONDS)

        def alone(own: Engine) -> str:
            inside.append("")
            time.sleep(0.05)
            assert len(inside) == 1
            inside.pop()
            return answer(own)

        for name in "abc":
            calls.start(name, lambda: asked.ask(user.engine, compiled, alone))
        assert calls.join() == {"a": "", "b": "", "c": ""}
        (own,) = seen
        assert not own.is_closed
        asked.close()
        assert own.is_closed

    @pytest.mark.parametrize("fault", [lose, hang], ids=["it is lost", "it hangs"])
    @pytest.mark.parametrize("other", ["is compiled", "waits to run"])
    def test_only_the_one_that_ran_is_to_blame(
        self, user: dmlvk.Device, calls: Calls, fault: Callable[[Engine], str], other: str
    ) -> None:
        asked = AskedDevice()
        running, begun, failed, waiting = [threading.Event() for _ in range(4)]
        seen: list[Engine] = []

        def fail(own: Engine) -> str:
            running.set()
            assert begun.wait(SECONDS)
            if other == "waits to run":
                assert waiting.wait(SECONDS)
                time.sleep(0.1)
            try:
                return fault(own)
            finally:
                failed.set()

        def compile_late(own: Engine) -> None:
            seen.append(own)
            begun.set()
            if other == "is compiled":
                assert failed.wait(SECONDS)
                while fault is hang and not seen[0].is_closed:
                    time.sleep(0.001)
            prepare(own)
            waiting.set()

        calls.start("bad", lambda: asked.ask(user.engine, prepare, fail))
        assert running.wait(SECONDS)
        calls.start("good", lambda: asked.ask(user.engine, compile_late, answer))
        found = calls.join()
        assert found["good"] == "" and found["bad"].startswith(("DeviceLostError: as a", "DeviceError: the work"))
        first, second = seen
        assert first.is_closed and not second.is_closed
        asked.close()

    def test_a_driver_that_refuses_a_kernel_keeps_its_device(self, user: dmlvk.Device) -> None:
        asked, seen = AskedDevice(), []

        def refuse(own: Engine) -> None:
            seen.append(own)
            raise dmlvk.DeviceError("it is\nrefused")

        assert asked.ask(user.engine, refuse, answer) == "DeviceError: it is refused"
        assert asked.ask(user.engine, lambda own: seen.append(own), answer) == ""
        assert seen[0] is seen[1] and not seen[0].is_closed
        asked.close()

    def test_a_device_that_is_lost_each_time_ends_it(self, user: dmlvk.Device) -> None:
        seen = []

        def compiled(own: Engine) -> None:
            seen.append(own)
            lose(own)

        assert AskedDevice().ask(user.engine, compiled, answer).startswith("DeviceLostError: ")
        assert len(set(seen)) == MOST_DEVICES and all(own.is_closed for own in seen)

    def test_in_the_middle_of_another_of_the_same_thread(self, user: dmlvk.Device) -> None:
        """As a signal handler does. Its failure is its own."""
        asked = AskedDevice()
        seen, found = [], []

        def interrupted(own: Engine) -> str:
            found.append(asked.ask(user.engine, lambda other: seen.append(other), lose))
            found.append(own.vulkan.monitor.run(lambda: asked.ask(user.engine, prepare, answer)))
            return answer(own)

        assert asked.ask(user.engine, prepare, interrupted) == ""
        assert found == ["DeviceLostError: as a driver's reset does", ""]
        assert seen[0].is_closed and seen[0] is not asked._device
        asked.close()

    @pytest.mark.parametrize("error", [KeyboardInterrupt, OutOfMemoryError, ReentryError])
    @pytest.mark.parametrize("when", ["compiling", "running"])
    def test_what_is_no_answer_is_raised(
        self, user: dmlvk.Device, shim: Shim, error: type[BaseException], when: str
    ) -> None:
        def fail(own: Engine) -> Any:
            Tensor.empty(own, dmlvk.TensorDesc("int32", (3,)))
            raise error("in the middle")

        asked = AskedDevice()
        with pytest.raises(error):
            asked.ask(user.engine, *((fail, answer) if when == "compiling" else (prepare, fail)))
        if error is OutOfMemoryError:
            assert shim.live_count == {}, "its memory is given back"
        assert asked.ask(user.engine, prepare, answer) == ""
        asked.close()
        assert shim.live_count == {}

    @pytest.mark.parametrize("when", ["compiling", "running", "opening"])
    def test_the_user_s_device_is_closed_meanwhile(
        self, user: dmlvk.Device, shim: Shim, calls: Calls, monkeypatch: pytest.MonkeyPatch, when: str
    ) -> None:
        """By another thread: the question has no answer, and nothing is left of it."""
        assert isinstance(user.engine.self_test, self_test.SelfTest)
        asked: AskedDevice = user.engine.self_test._asked_device
        begun, closed = threading.Event(), threading.Event()
        index_of = device_info.index_of

        def wait(now: str) -> None:
            if now == when:
                begun.set()
                assert closed.wait(SECONDS)

        def slowly(device: Engine) -> int | None:
            wait("opening")
            return index_of(device)

        def compiled(own: Engine) -> None:
            wait("compiling")
            prepare(own)

        def ran(own: Engine) -> str:
            wait("running")
            return answer(own)

        monkeypatch.setattr(asking, "index_of", slowly)
        calls.start("question", lambda: asked.ask(user.engine, compiled, ran))
        assert begun.wait(SECONDS)
        user.close()
        closed.set()
        error = calls.join()["question"]
        assert isinstance(error, dmlvk.DeviceError) and "is closed" in str(error)
        gc.collect()
        assert shim.live_count == {}

    def test_a_handler_that_closes_the_user_s_device(self, user: dmlvk.Device, shim: Shim) -> None:
        """In the middle of a call on the asked device, which cannot be closed then; it is closed at the end."""
        assert isinstance(user.engine.self_test, self_test.SelfTest)

        def closing(own: Engine) -> str:
            own.vulkan.monitor.run(user.close)
            return answer(own)

        assert user.engine.self_test._asked_device.ask(user.engine, prepare, closing) == ""
        assert user.is_closed and shim.live_count == {}


def test_one_thread_opens_it_early(user: dmlvk.Device, calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others do not wait; who asks waits for the same device."""
    asked, opened, go = AskedDevice(), [], threading.Event()
    index_of = device_info.index_of

    def slowly(device: Engine) -> int | None:
        opened.append(threading.get_ident())
        assert go.wait(SECONDS)
        return index_of(device)

    monkeypatch.setattr(asking, "index_of", slowly)
    calls.start("opens", lambda: asked.open_early(user.engine))
    while not opened:
        time.sleep(0.001)
    assert asked.is_begun
    asked.open_early(user.engine)
    calls.start("asks", lambda: asked.ask(user.engine, prepare, answer))
    time.sleep(0.05)
    go.set()
    assert calls.join() == {"opens": None, "asks": ""}
    assert len(opened) == 1
    asked.close()


@pytest.fixture
def paths(user: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, str]]:
    """Two paths that have to answer, the planner's choice first."""
    found = (user.plan(DESC).path, "integer")
    monkeypatch.setattr(self_test, "QUESTIONS", dict.fromkeys(found, (QUESTION,)))
    monkeypatch.setattr(self_test, "WITHOUT_UNITS", frozenset())
    for cached in (self_test._questions_of, self_test._question_of):
        cached.cache_clear()
    user.engine.self_test = self_test.SelfTest()
    yield found
    for cached in (self_test._questions_of, self_test._question_of):
        cached.cache_clear()


@pytest.fixture
def asked_on(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Engine, str]]:
    """The questions that ran: the device and the path."""
    found: list[tuple[Engine, str]] = []
    ask = self_test._fault_of

    def noted(operator: Any, *others: Any) -> str:
        found.append((operator.engine, self_test.NAME_END.split(operator.plan.path)[0]))
        return ask(operator, *others)

    monkeypatch.setattr(self_test, "_fault_of", noted)
    return found


Asked = list[tuple[Engine, str]]


def test_two_paths_share_it_and_the_last_closes_it(
    user: dmlvk.Device, paths: tuple[str, str], asked_on: Asked, shim: Shim
) -> None:
    assert path_taken(user) == paths[0]
    ((own, _),) = asked_on
    assert not own.is_closed
    user.compile(DESC, path=paths[1])
    assert [path for _, path in asked_on] == [*paths]
    assert asked_on[1][0] is own and own.is_closed
    assert "Device" not in shim.live_count


@pytest.mark.parametrize("how", ["close", "drop"])
def test_it_goes_with_the_user_s_device(
    device: dmlvk.Device, paths: tuple[str, str], asked_on: Asked, shim: Shim, how: str
) -> None:
    user = dmlvk.Device(device.name)
    assert path_taken(user) == paths[0]
    ((own, _),) = asked_on
    assert not own.is_closed
    if how == "close":
        user.close()
    else:
        del user
        gc.collect()
    assert own.is_closed and shim.live_count == {}


def test_a_path_that_loses_it_takes_no_other_away(
    user: dmlvk.Device, paths: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = self_test._fault_of

    def fail(operator: Any, *others: Any) -> str:
        return lose(operator.engine) if operator.plan.path == paths[1] else ask(operator, *others)

    monkeypatch.setattr(self_test, "_fault_of", fail)
    with pytest.raises(ValueError, match=f"no kernel path '{paths[1]}'"):
        user.compile(DESC, path=paths[1])
    assert path_taken(user) == paths[0]
    assert answers_file.faults(user.profile) == {paths[1]: "DeviceLostError: as a driver's reset does"}


class TestCompilingMeanwhile:
    """While one thread asks, others compile; nobody takes the path before its answer."""

    @pytest.fixture
    def hold(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
        """Questions wait for this event."""
        event, ask = threading.Event(), self_test._fault_of

        def held(operator: Any, *others: Any) -> str:
            assert event.wait(SECONDS)
            return ask(operator, *others)

        monkeypatch.setattr(self_test, "_fault_of", held)
        yield event
        event.set()

    @staticmethod
    def descs(user: dmlvk.Device, count: int) -> list[Any]:
        sizes = [convolution_of(12, 24, 3, 1, (9, 10 + number), is_last=False) for number in range(count)]
        assert len({user.plan(desc).path for desc in sizes}) == 1
        return sizes

    def test_threads_compile_and_wait_for_the_answer_last(
        self,
        user: dmlvk.Device,
        paths: tuple[str, str],
        hold: threading.Event,
        calls: Calls,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        built = threading.Semaphore(0)
        build = user.vulkan.pipelines._built

        def counted(*arguments: Any) -> Any:
            try:
                return build(*arguments)
            finally:
                built.release()

        monkeypatch.setattr(user.vulkan.pipelines, "_built", counted)
        descs = self.descs(user, 4)
        for number, desc in enumerate(descs):
            calls.start(str(number), partial(user.compile, desc, wait=True))
        for _ in range(3):  # of all threads but the one that asks
            assert built.acquire(timeout=SECONDS)
        time.sleep(0.05)
        assert calls.results == {}
        hold.set()
        assert {operator.plan.path for operator in calls.join().values()} == {paths[0]}

    def test_a_handler_compiles_a_list_in_the_middle_of_a_question(
        self, user: dmlvk.Device, paths: tuple[str, str], calls: Calls, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Other threads could only wait for the question, which waits for the handler."""
        monkeypatch.setattr(device_module, "core_count", lambda: 4)
        ask, descs = self_test._fault_of, self.descs(user, 5)
        compiled: list[Any] = []

        def interrupted(operator: Any, *others: Any) -> str:
            if not compiled:
                compiled.append(None)
                compiled[:] = user.compile_all(descs[1:])
            return ask(operator, *others)

        monkeypatch.setattr(self_test, "_fault_of", interrupted)
        calls.start("asked", partial(user.compile, descs[0], wait=True))
        assert calls.join()["asked"].plan.path == paths[0]
        assert [operator.desc for operator in compiled] == descs[1:]

    def test_a_wrong_answer_takes_what_they_compiled_away(
        self, user: dmlvk.Device, paths: tuple[str, str], calls: Calls, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def wrong(*_: Any) -> str:
            time.sleep(0.3)
            return "wrong"

        monkeypatch.setattr(self_test, "_fault_of", wrong)
        for number, desc in enumerate(self.descs(user, 3)):
            calls.start(str(number), partial(user.compile, desc, wait=True))
        assert paths[0] not in {operator.plan.path for operator in calls.join().values()}

    @pytest.mark.parametrize("fault", ["", "wrong"])
    def test_a_driver_that_refuses_the_kernel_meanwhile(
        self, user: dmlvk.Device, paths: tuple[str, str], monkeypatch: pytest.MonkeyPatch, calls: Calls, fault: str
    ) -> None:
        """Only if the answer was right, it is the caller's error."""
        begun, go = threading.Event(), threading.Event()

        def answered(*_: Any) -> str:
            begun.set()
            assert go.wait(SECONDS)
            return fault

        monkeypatch.setattr(self_test, "_fault_of", answered)
        first, second = self.descs(user, 2)
        calls.start("asks", lambda: user.compile(first, wait=True))
        assert begun.wait(SECONDS)
        refused = threading.Event()
        get = user.vulkan.pipelines.get

        def refuse(kernel: str, *arguments: Any) -> Any:
            if not refused.is_set():
                refused.set()
                raise dmlvk.DeviceError("it is refused")
            return get(kernel, *arguments)

        monkeypatch.setattr(user.vulkan.pipelines, "get", refuse)
        calls.start("compiles", lambda: user.compile(second, wait=True))
        assert refused.wait(SECONDS)
        time.sleep(0.05)
        assert calls.results == {}
        go.set()
        found = calls.join()
        if fault:
            assert paths[0] not in (found["asks"].plan.path, found["compiles"].plan.path)
        else:
            assert found["asks"].plan.path == paths[0]
            assert str(found["compiles"]) == "it is refused"

    def test_nothing_is_compiled_before_the_one_that_asks_has_begun(
        self, user: dmlvk.Device, paths: tuple[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A compiler that ends the process ends it in the question, which the file says."""
        file, told = answers_file.AnswersFile(user.profile), []
        build = Pipelines._build

        def noted(self: Pipelines, *arguments: Any) -> Any:
            told.append([answer.ends for answer in file.answers()])
            return build(self, *arguments)

        monkeypatch.setattr(Pipelines, "_build", noted)
        user.compile(DESC, wait=True)
        assert told[0] == [1] and told[-1] == [0]

    def test_a_path_that_ended_the_process_is_not_compiled(
        self, user: dmlvk.Device, paths: tuple[str, str], calls: Calls, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = answers_file.AnswersFile(user.profile)
        question = self_test._question_of(user.profile, paths[0])
        assert question is not None
        file.keep(question, answers_file.Answer(paths[0], question, file.driver, kernels_hash(), "it ended"))
        compiled: list[str] = []
        get = user.vulkan.pipelines.get

        def noted(kernel: str, *arguments: Any) -> Any:
            compiled.append(kernel)
            return get(kernel, *arguments)

        monkeypatch.setattr(user.vulkan.pipelines, "get", noted)
        for number, desc in enumerate(self.descs(user, 4)):
            calls.start(str(number), partial(user.compile, desc, wait=True))
        calls.join()
        assert compiled and not any(kernel.endswith(f"/{paths[0]}") for kernel in compiled)


class TestOpeningEarly:
    """The first convolution's general kernel is compiled while the device is opened, whatever the first path is."""

    @pytest.fixture(autouse=True)
    def _background(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DMLVK_BACKGROUND", "1")
        for module in (background, host_threads):
            monkeypatch.setattr(module, "core_count", lambda: 2)

    @pytest.fixture
    def opened(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        found: list[str] = []
        monkeypatch.setattr(background, "in_background", lambda work: work())
        monkeypatch.setattr(AskedDevice, "open_early", lambda self, user: found.append("opened"))
        return found

    def test_with_the_first_general_kernel(
        self, user: dmlvk.Device, paths: tuple[str, str], opened: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # A path that nobody has to ask.
        monkeypatch.setattr(Implementation, "build_special", lambda self, **_: None)
        for size in (5, 6, 7):
            general = user.compile(convolution(8, size, owned=False).desc)._implementation
            assert general.plan.path == GENERAL_PATH
        assert opened == ["opened"]

    def test_not_if_all_have_answered(
        self, user: dmlvk.Device, paths: tuple[str, str], opened: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert user.engine.self_test is not None and user.engine.self_test.faults(user.engine) == {}
        user.engine.self_test = self_test.SelfTest()
        user.compile(convolution(8, 5, owned=False).desc)
        assert opened == []


PROGRAM = """
    from dmlvk.runtime import answers_file, self_test
    from tests.runtime.test_self_test import DESC, QUESTION, path_taken

    device = dmlvk.Device(sys.argv[1])
    path = device.plan(DESC).path
    os.environ.update(DMLVK_SELF_TEST="1", DMLVK_CACHE_DIR={folder!r})
    self_test.QUESTIONS = dict.fromkeys((path, "integer"), (QUESTION,))
    self_test.WITHOUT_UNITS = frozenset()
    device.engine.self_test = self_test.SelfTest()
"""


def program(folder: Path, text: str) -> str:
    return PROGRAM.format(folder=str(folder)) + text


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")
@pytest.mark.parametrize("when", ["after a question", "in a question"])
def test_a_fork(device: dmlvk.Device, tmp_path: Path, when: str) -> None:
    """The child leaves the parent's devices alone, and asks on its own."""
    text = f"""
    asked, ask = [], self_test._fault_of
    begun, go = threading.Event(), threading.Event()

    def counted(own, *others):
        asked.append(own)
        begun.set()
        if {when == "in a question"} and len(asked) == 1:
            go.wait()
        return ask(own, *others)

    self_test._fault_of = counted
    thread = threading.Thread(target=lambda: device.compile(DESC, wait=True))
    thread.start()
    begun.wait()
    if {when == "after a question"}:
        thread.join()
    child = os.fork()
    if child == 0:
        device.close()
        del device
        asked.clear()
        asked.append(None)
        os.environ["DMLVK_CACHE_DIR"] += "/child"  # a process waits for another one's question
        with dmlvk.Device(sys.argv[1]) as own:
            assert path_taken(own) == path and len(asked) == 2
        print("the child", flush=True)
        sys.exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    go.set()
    thread.join()
    assert path_taken(device) == path and len(asked) == 1
    device.close()
    print("the parent")
    """
    assert run(device, program(tmp_path, text)) == "the child\nthe parent\n"


@pytest.mark.parametrize("when", ["compiling", "running"])
def test_the_process_ends_in_a_question(
    device: dmlvk.Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """In another thread: that is no wrong answer."""
    monkeypatch.setenv("DMLVK_CACHE_DIR", str(tmp_path))
    text = f"""
    from dmlvk.runtime.asked_device import AskedDevice

    begun, ask, once = threading.Event(), self_test._fault_of, Pipelines._build

    def slowly(own, *others):
        begun.set()
        for _ in range(100):
            time.sleep(0.01)
            own.require_open()
        return ask(own, *others)

    def build(self, *others):
        if self is not device.vulkan.pipelines:
            begun.set()
            time.sleep(1.0)
        return once(self, *others)

    if {when == "running"}:
        self_test._fault_of = slowly
    else:
        Pipelines._build = build
    background.core_count = lambda: 2
    operator = device.compile(DESC)
    assert not operator._implementation.is_final
    begun.wait()
    """
    assert run(device, program(tmp_path, text)) == ""
    assert answers_file.faults(device.profile) == {}
