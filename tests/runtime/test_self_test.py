"""Paths that answer a known question first: who is asked, what is remembered, and what a wrong answer takes away.

The test drivers have no matrices, so the path that each would choose stands for one that has to answer.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from click.testing import CliRunner

import dmlvk
from dmlvk import planning, reference
from dmlvk.command_line import main
from dmlvk.conformance.running.execution import Devices
from dmlvk.conformance.running.worker import environment
from dmlvk.device_profile import DeviceType
from dmlvk.errors import DeviceLostError, OutOfMemoryError
from dmlvk.operators.registry import parts
from dmlvk.planning.quantized_linear_convolution.path import OPERATOR
from dmlvk.planning.quantized_linear_convolution.questions import convolution, question
from dmlvk.planning.quantized_linear_convolution.tiled_product import BYTES, VECTORS
from dmlvk.runtime import answers_file, implementation, self_test
from dmlvk.runtime.engine import Engine
from dmlvk.runtime.kernel_modules import spirv
from dmlvk.runtime.tuned_paths import TunedPaths, kernels_hash
from dmlvk.vulkan.host_threads import Job
from dmlvk.vulkan.pipeline_cache import PipelineCache
from tests.planning.quantized_linear_convolution.matrix_devices import SPLIT_K_DEVICES, constant, size_of
from tests.profiles import NAMES, load
from tests.programs import python
from tools.pipelines import pipelines

DESC = convolution(12, 24, 3, 1, (9, 10), is_last=False)
ASKED = convolution(20, 40, 3, 1, (7, 11), is_last=True)
QUESTION = question(ASKED)


@pytest.fixture
def path(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """The path of DESC on the device, which has to answer a question now. Nothing is remembered."""
    monkeypatch.setenv("DMLVK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("DMLVK_SELF_TEST", raising=False)
    found = device.plan(DESC).path
    monkeypatch.setattr(self_test, "QUESTIONS", {found: (QUESTION,)})
    monkeypatch.setattr(self_test, "WITHOUT_UNITS", frozenset())
    for cached in (self_test._questions_of, self_test._question_of):
        cached.cache_clear()
    return found


@pytest.fixture(autouse=True)
def _no_answers_of_other_questions() -> Iterator[None]:
    yield
    for cached in (self_test._questions_of, self_test._question_of):
        cached.cache_clear()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that were asked."""
    found: list[str] = []
    ask = self_test.SelfTest._asked

    def counted(self: Any, engine: Engine, path: str) -> str:
        found.append(path)
        return ask(self, engine, path)

    monkeypatch.setattr(self_test.SelfTest, "_asked", counted)
    return found


def opened(device: dmlvk.Device) -> dmlvk.Device:
    return dmlvk.Device(device.profile.name)


def path_taken(device: dmlvk.Device) -> str:
    """Run a convolution and check it; returns its path."""
    operator = device.compile(DESC, wait=True)
    inputs, expected = self_test._data(question(DESC))
    output = device.tensor(DESC.output_tensor)
    operator(**{field: device.tensor(array) for field, array in inputs.items()}, output_tensor=output)
    np.testing.assert_array_equal(output.numpy(), expected)
    return operator.plan.path


def fault_of(device: dmlvk.Device) -> dict[str, str]:
    return answers_file.faults(device.profile)


@pytest.mark.every_driver
def test_a_right_answer_is_remembered(device: dmlvk.Device, path: str, asked: list[str]) -> None:
    for _ in range(2):
        with opened(device) as own:
            assert path_taken(own) == path
            assert path_taken(own) == path
    assert asked == [path]
    assert fault_of(device) == {}


def test_pipelines_of_questions_are_the_device_s(
    device: dmlvk.Device, path: str, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question is asked on another Device, which knows what the user's has compiled, and the other way round."""
    data, added = PipelineCache.data, []

    def marked(self: PipelineCache) -> str:
        return f"of {id(self)}" if data(self) else ""

    monkeypatch.setattr(PipelineCache, "data", marked)
    monkeypatch.setattr(PipelineCache, "add", lambda self, data: added.append((id(self), data)))
    with opened(device) as own:
        assert path_taken(own) == path and asked == [path]
        (other, before), (user, after) = added
        assert user == id(own.vulkan.pipelines.cache) != other
        assert (before, after) == (f"of {user}", f"of {other}")


def test_constants_of_a_question_may_be_given_once(
    device: dmlvk.Device, path: str, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    owned = convolution(20, 40, 3, 1, (7, 11), is_last=True, is_owned=True)
    monkeypatch.setattr(self_test, "QUESTIONS", {path: (question(owned),)})
    with opened(device) as own:
        assert path_taken(own) == path and asked == [path]
    assert fault_of(device) == {}


@pytest.mark.parametrize(
    ("path", "network", "batch", "layout"),
    [
        ("matrix", "resnet50", 1, "nhwc"),
        ("matrix", "resnet50", 1, "nchw"),
        ("split_k", "resnet50", 1, "nhwc"),
        ("split_k", "resnet50", 1, "nchw"),
    ],
)
def test_questions_leave_pipelines_that_networks_take(path: str, network: str, batch: int, layout: str) -> None:
    profile = load("nvidia-h200")
    known = pipelines(profile, network, batch, layout)
    products = [found.stages[-1][0] for _, found in self_test._plans_of(profile, path)]
    assert any(product.specialization in known.get(product.kernel, []) for product in products)


@pytest.mark.parametrize(("value", "times"), [("0", 0), ("1", 1), ("always", 2)])
def test_how_often_is_asked(
    device: dmlvk.Device, path: str, asked: list[str], monkeypatch: pytest.MonkeyPatch, value: str, times: int
) -> None:
    monkeypatch.setenv("DMLVK_SELF_TEST", value)
    for _ in range(2):
        with opened(device) as own:
            assert path_taken(own) == path
    assert len(asked) == times


def test_another_value_is_refused(device: dmlvk.Device, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLVK_SELF_TEST", "yes")
    message = r"DMLVK_SELF_TEST is 'yes'; it can be 0 .*, 1 .*always"
    with pytest.raises(ValueError, match=message):
        opened(device)
    monkeypatch.setenv("DMLVK_SELF_TEST", "1")
    with opened(device) as own:
        monkeypatch.setenv("DMLVK_SELF_TEST", "yes")
        with pytest.raises(ValueError, match=message):
            own.compile(DESC, wait=True)


def broken(path: str, whole: Callable[[str], bytes]) -> Callable[[str], bytes]:
    """The kernels of a path with a clamp that takes signed numbers for unsigned ones."""

    def spirv(kernel: str) -> bytes:
        words, position = np.frombuffer(whole(kernel), "<u4").copy(), 5
        while position < len(words) and kernel.endswith(path):
            # OpExtInst SClamp becomes UClamp.
            if words[position] & 0xFFFF == 12 and words[position + 4] == 45:
                words[position + 4] = 44
            position += words[position] >> 16
        return words.tobytes()

    return spirv


@pytest.mark.every_driver
def test_a_wrong_answer_takes_the_path_away(
    device: dmlvk.Device,
    path: str,
    asked: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(implementation, "spirv", broken(path, spirv))
    monkeypatch.setenv("DMLVK_DEBUG", "1")
    for number in range(2):
        with opened(device) as own:
            assert path_taken(own) not in (path, planning.GENERAL_PATH)
            with pytest.raises(planning.PathError, match=f"{OPERATOR} has no kernel path '{path}' on"):
                own.compile(DESC, path=path)
            assert own.profile.distrusted_paths == {path}
        told = f"path {path} is not taken, its answer to a known question was: element"
        assert (told in capfd.readouterr().err) == (number == 0)
    assert asked == [path]
    (fault,) = fault_of(device).values()
    assert "in run 1" in fault and "in place of" in fault
    listed = CliRunner().invoke(main, ["devices"], env={"COLUMNS": "200"}).output
    assert f"{path}: {fault[:40]}" in " ".join(listed.split())
    data = json.loads(CliRunner().invoke(main, ["devices", "--json"]).output)
    assert [entry["distrusted_paths"] for entry in data["devices"] if entry["name"] == device.profile.name] == [
        {path: fault}
    ]


def test_a_forced_path_that_answers_wrong_is_refused(
    device: dmlvk.Device, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(implementation, "spirv", broken(path, spirv))
    with opened(device) as own, pytest.raises(planning.PathError, match=f"no kernel path '{path}'"):
        own.compile(DESC, path=path)


def test_a_remembered_path_that_answers_wrong_gives_way(
    device: dmlvk.Device, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(implementation, "spirv", broken(path, spirv))
    TunedPaths(device.profile).remember(DESC, path, {})
    with opened(device) as own:
        assert path_taken(own) not in (path, planning.GENERAL_PATH)


def test_a_wrong_answer_in_the_background(
    device: dmlvk.Device, path: str, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The general kernel answers meanwhile; another path than the wrong one takes over."""
    monkeypatch.setattr(implementation, "spirv", broken(path, spirv))
    with opened(device) as own:
        operator = own.compile(DESC)
        inputs, expected = self_test._data(question(DESC))
        output = own.tensor(DESC.output_tensor)
        tensors = {field: own.tensor(array) for field, array in inputs.items()}
        for _ in range(3):
            operator(**tensors, output_tensor=output)
            np.testing.assert_array_equal(output.numpy(), expected)
            operator.wait_for_compiler()
        assert operator.plan.path not in (path, planning.GENERAL_PATH)
    assert asked == [path]


def test_a_conformance_run_tests_all_paths_and_reports_the_answer(
    device: dmlvk.Device, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(implementation, "spirv", broken(path, spirv))
    devices = Devices(device.profile.name)
    try:
        assert list(environment(devices).distrusted_paths) == [path]
        from dmlvk.conformance.case import Workload

        narrow = devices.get("device", Workload(DESC, {}))
        assert narrow.compile(DESC, path=path).plan.path == path
    finally:
        devices.close()


def test_an_answer_that_changes_is_wrong(device: dmlvk.Device, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    numpy, reads = dmlvk.Tensor.numpy, [0]

    def changing(self: Any, *arguments: Any) -> npt.NDArray[Any]:
        found = numpy(self, *arguments)
        if self.desc.sizes == ASKED.output_tensor.sizes:
            reads[0] += 1
            found[0, 3, 2, 1] ^= reads[0] == 2
        return found

    monkeypatch.setattr(dmlvk.Tensor, "numpy", changing)
    with opened(device) as own:
        assert path_taken(own) != path
    (fault,) = fault_of(device).values()
    assert fault.startswith("element [0, 3, 2, 1] was ") and "in run 2; 1 of" in fault


def test_a_question_that_loses_its_device(device: dmlvk.Device, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's device goes on without the path."""

    def lost(*arguments: Any) -> str:
        raise DeviceLostError("as a driver's reset does")

    monkeypatch.setattr(self_test, "_fault_of", lost)
    with opened(device) as own:
        assert path_taken(own) != path
    assert fault_of(device) == {path: "DeviceLostError: as a driver's reset does"}


def test_a_question_that_hangs(device: dmlvk.Device, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_test, "ANSWER_SECONDS", 0.0)
    monkeypatch.setattr(dmlvk.Submission, "done", property(lambda self: False))
    with opened(device) as own:
        taken = path_taken(own)
    # With no time at all, a fast device may have answered already.
    assert (taken == path) == (fault_of(device) == {})
    assert all("the work was not done within" in fault for fault in fault_of(device).values())


@pytest.mark.parametrize("error", [KeyboardInterrupt, OutOfMemoryError])
def test_what_is_no_answer_is_not_remembered(
    device: dmlvk.Device, path: str, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    """However often it happens, the path is there for the next process."""

    def fails(*arguments: Any) -> str:
        raise error("in the middle of the question")

    for _ in range(self_test.MOST_ENDS + 1):
        with opened(device) as own, monkeypatch.context() as patch:
            patch.setattr(self_test, "_fault_of", fails)
            if error is KeyboardInterrupt:
                with pytest.raises(KeyboardInterrupt):
                    own.compile(DESC, wait=True)
            else:
                assert path_taken(own) == path
            assert answers_file.AnswersFile(device.profile).answers() == []
    with opened(device) as own:
        assert path_taken(own) == path


def test_processes_ask_one_after_the_other(device: dmlvk.Device, path: str) -> None:
    """Of several that begin at once, one asks; none takes another's question for one that has ended its process."""
    command = [sys.executable, "-c", ENDS, path, device.profile.name, "slowly"]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) for _ in range(3)]
    told = [process.communicate(timeout=180)[0].split() for process in processes]
    assert [words[-1] for words in told] == [path] * 3
    assert sum("asked" in words for words in told) == 1
    assert [answer.ends for answer in answers_file.AnswersFile(device.profile).answers()] == [0]


ENDS = """
import os, sys, time
import dmlvk
from dmlvk.runtime import self_test
from tests.runtime.test_self_test import DESC, QUESTION

path = sys.argv[1]
self_test.QUESTIONS = {path: (QUESTION,)}
self_test.WITHOUT_UNITS = frozenset()
if sys.argv[3] == "ends":
    self_test._fault_of = lambda *arguments: os._exit(7)
if sys.argv[3] == "slowly":
    ask = self_test.SelfTest._asked

    def slowly(*arguments):
        print("asked")
        time.sleep(1.0)
        return ask(*arguments)

    self_test.SelfTest._asked = slowly
with dmlvk.Device(sys.argv[2]) as device:
    print(device.compile(DESC, wait=True).plan.path)
"""


def test_a_process_that_ends_in_the_question(device: dmlvk.Device, path: str) -> None:
    """Once can be chance: it is asked again. Then the path is not taken."""

    def run(how: str) -> tuple[int, str]:
        done = python("-c", ENDS, path, device.profile.name, how, timeout=120)
        return done.returncode, done.stdout.strip()

    assert run("ends")[0] == 7
    assert fault_of(device) == {}
    assert run("ends")[0] == 7
    code, taken = run("answers")
    assert code == 0 and taken not in ("", path)
    assert fault_of(device) == {path: "the process ended in the middle of the question, 2 times"}


def test_an_answer_after_an_end_counts(device: dmlvk.Device, path: str, asked: list[str]) -> None:
    with opened(device) as own:
        assert path_taken(own) == path
    file = answers_file.AnswersFile(device.profile)
    (answer,) = file.answers()
    file.keep(answer.question, answers_file.Answer(answer.path, answer.question, answer.driver, answer.kernels, ends=1))
    with opened(device) as own:
        assert path_taken(own) == path
    assert asked == [path] * 2
    assert [each.ends for each in file.answers()] == [0]


@pytest.mark.parametrize("change", [{"driver": "another driver"}, {"kernels": "other kernels"}])
def test_another_driver_and_other_kernels_are_asked_anew(
    device: dmlvk.Device, path: str, asked: list[str], change: dict[str, Any]
) -> None:
    file = answers_file.AnswersFile(device.profile)
    question = self_test._question_of(device.profile, path)
    assert question is not None
    answer = answers_file.Answer(path, question, file.driver, kernels_hash(), "wrong")
    file.keep(question, replace(answer, **change))
    with opened(device) as own:
        assert path_taken(own) == path
    assert asked == [path]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"format": 1}', b'{"format": 1, "answers": [1, {"path": 2}]}'])
def test_a_damaged_file_is_none(device: dmlvk.Device, path: str, asked: list[str], content: bytes) -> None:
    file = answers_file.AnswersFile(device.profile)
    assert file.path is not None
    file.path.parent.mkdir(parents=True)
    file.path.write_bytes(content)
    with opened(device) as own:
        assert path_taken(own) == path
    assert asked == [path] and len(file.answers()) == 1


def test_a_cache_folder_that_cannot_be_written(
    device: dmlvk.Device, path: str, asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("DMLVK_CACHE_DIR", str(tmp_path / "file"))
    for _ in range(2):
        with opened(device) as own:
            assert path_taken(own) == path
            assert path_taken(own) == path
    assert asked == [path] * 2


def test_threads_wait_for_one_answer(device: dmlvk.Device, path: str, asked: list[str]) -> None:
    with opened(device) as own:
        taken: list[str] = []
        threads = [threading.Thread(target=lambda: taken.append(path_taken(own))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert taken == [path] * 4 and asked == [path]


def test_each_path_on_matrix_units_has_questions_of_several_tiles() -> None:
    """On each recorded device that has matrices."""
    of_operators = parts("dmlvk.planning", "QUESTIONS", default=lambda _: {})
    assert planning.QUESTIONS and sum(map(len, of_operators.values())) == len(planning.QUESTIONS), "a name twice"
    found = 0
    for name in NAMES:
        profile = load(name)
        if not profile.cooperative_matrices:
            continue
        for path in planning.QUESTIONS:
            plans = [plan for _, plan in self_test._plans_of(profile, path)]
            groups = [max(np.prod(dispatch.groups) for dispatch in plan.dispatches) for plan in plans]
            found += bool(plans)
            assert all(count > 1 for count in groups), (name, path)
            assert bool(plans) == (self_test._question_of(profile, path) is not None)
    assert found >= 3 * len(planning.QUESTIONS)


@pytest.mark.parametrize("name", SPLIT_K_DEVICES)
def test_questions_to_split_k_are_about_all_that_its_matrices_do(name: str) -> None:
    """Sums are stored by rows and by columns, from several subgroups, whose steps may end before or past K's end.

    Operands are vectors and bytes. No tile at an end is whole, and there are several along both sides.
    """
    found = self_test._plans_of(load(name), "split_k")
    products = [plan.stages[-1][0] for _, plan in found]
    assert len(products) == len(planning.QUESTIONS["split_k"]) == 2
    assert {constant(each, "STORE_CHANNELS") for each in products} == {0, 1}
    assert {constant(each, "FETCH") for each in products} == {VECTORS, BYTES}
    uneven = []
    for (asked, _), product in zip(found, products, strict=True):
        assert product.kernel == "quantized_linear_convolution/split_k"
        assert constant(product, "SUBGROUPS") > 1 and constant(product, "PREPARED")
        steps = -(-size_of(product, "VECTORS_OF_K") // constant(product, "STEP"))
        uneven.append(constant(product, "SUBGROUPS") * size_of(product, "part_steps") > steps)
        assert size_of(product, "part_steps") > 1, "a loop over steps"
        assert min(product.groups[:2]) > 1
        _, filters, height, width = asked.desc.tensors["output_tensor"].sizes
        assert height * width % constant(product, "TILE_PIXELS") and filters % constant(product, "TILE_CHANNELS")
    assert any(uneven)


@pytest.mark.parametrize("path", planning.QUESTIONS)
def test_outputs_use_the_range_of_a_byte(path: str) -> None:
    for each in planning.QUESTIONS[path]:
        inputs, expected = self_test._data(each)
        np.testing.assert_array_equal(expected, reference.run(each.desc, **inputs))
        assert len(np.unique(expected)) > 200


class TestPreparation:
    """Questions are planned while the driver opens the device."""

    @pytest.fixture(autouse=True)
    def _several_cores(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("DMLVK_BACKGROUND", raising=False)
        monkeypatch.setattr("dmlvk.runtime.background.core_count", lambda: 2)

    def test_a_gpu_with_matrix_units(self, monkeypatch: pytest.MonkeyPatch) -> None:
        profile = load("nvidia-h200")
        job = self_test.prepare(profile)
        assert job is not None
        while self_test._question_of.cache_info().currsize != len(planning.QUESTIONS):
            assert job.error is None
        job.finish()
        planned: list[object] = []
        monkeypatch.setattr(planning, "plan", lambda *arguments, **options: planned.append(arguments))
        assert all(self_test._question_of(profile, path) for path in planning.QUESTIONS)
        assert not planned

    def test_nothing_is_prepared_where_nothing_is_asked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert self_test.prepare(replace(load("nvidia-h200"), device_type=DeviceType.CPU)) is None
        monkeypatch.setenv("DMLVK_BACKGROUND", "0")
        assert self_test.prepare(load("nvidia-h200")) is None

    def test_a_device_prepares_for_its_own_plans(
        self, device: dmlvk.Device, path: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:

        def at_once(work: Callable[[], None]) -> Job:
            job = Job(work)
            job.run()
            return job

        monkeypatch.setattr(self_test, "in_background", at_once)
        with dmlvk.Device(device.name) as own:
            assert self_test._question_of.cache_info().currsize == 1
            monkeypatch.setattr(planning, "plan", None)
            assert self_test._question_of(own.profile, path)
