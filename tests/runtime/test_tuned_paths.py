"""`dmlvk tune` finds, remembers and uses the fastest path, and no content of its file breaks a program."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result

import dmlvk
from dmlvk import DataType, planning
from dmlvk.benchmark.cases.quantized_linear_convolution import Layer, descriptor
from dmlvk.benchmark.harness import OperatorSettings
from dmlvk.benchmark.work import random_workload
from dmlvk.command_line import main
from dmlvk.conformance.case import Workload
from dmlvk.device_profile import DeviceProfile
from dmlvk.operators import OperatorDesc
from dmlvk.operators.serialization import deserialize, serialize
from dmlvk.runtime import tuning
from dmlvk.runtime.device_files import require_place
from dmlvk.runtime.tuned_paths import TunedPaths, kernels_hash
from dmlvk.runtime.tuned_paths import read as read_choices
from dmlvk.runtime.tuning import OTHER_BITS, PLANNER, Tuning, tune_one
from tests.damaged_files import Damage, damages, is_named
from tests.onnx.models import convolution, convolution_parameters, model_of
from tests.profiles import load

ROOT = Path(__file__).parent.parent.parent
DESC = descriptor(Layer(16, 6, 8, 3), 2, "nchw", DataType.UINT8, True)
OTHER = descriptor(Layer(16, 6, 8, 1), 2, "nchw", DataType.UINT8, True)


@pytest.fixture
def opened(device: dmlvk.Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dmlvk.Device]:
    """A device whose cache folder is empty."""
    monkeypatch.setenv("DMLVK_CACHE_DIR", str(tmp_path / "cache"))
    with dmlvk.Device(device.profile.name, timestamps=True) as another:
        yield another


def compiled_path(device: dmlvk.Device) -> str:
    """The path that a new program compiles."""
    with dmlvk.Device(device.profile.name) as another:
        return another.compile(DESC).plan.path


def tuned(device: dmlvk.Device, workload: Workload) -> Tuning:
    return tune_one(device.engine, device.compile, workload.desc, workload.inputs, workload.result(), 1)


def every_path(profile: DeviceProfile) -> list[str]:
    return planning.close_paths(DESC, profile, every=True)


def other_path(device: dmlvk.Device) -> str:
    """A path that the planner does not choose."""
    return every_path(device.profile)[1]


def test_a_choice_is_used_by_the_programs_that_come_after(opened: dmlvk.Device) -> None:
    path, planned = other_path(opened), compiled_path(opened)
    assert path != planned
    choices = TunedPaths(opened.profile)
    choices.remember(DESC, path, {PLANNER: 2.0, path: 1.0})
    assert compiled_path(opened) == path
    with dmlvk.Device(opened.profile.name) as another:
        assert another.compile(OTHER).plan.path == planned, "for exactly one descriptor"
        assert another.compile(DESC, path=planned).plan.path == planned, "a forced path is stronger"
    narrowed = dmlvk.Device(opened.profile.name, profile=opened.profile)
    assert narrowed.compile(DESC).plan.path == planned, "another profile was not measured"
    choices.remember(DESC, None, {PLANNER: 1.0})
    assert choices.path(DESC) is None
    assert len(list(read_choices(choices.file))) == 1


def test_a_remembered_path_gives_the_same_bits(opened: dmlvk.Device) -> None:
    path = other_path(opened)
    TunedPaths(opened.profile).remember(DESC, path, {})
    made = random_workload(DESC)
    with dmlvk.Device(opened.profile.name, timestamps=True) as another:
        operator = another.compile(DESC)
        assert operator.plan.path == path
        owned = another.tensor(DESC.filter_tensor)
        owned.write(made.inputs["filter_tensor"])
        operator.initialize(filter_tensor=owned)
        inputs = {name: another.tensor(array) for name, array in made.inputs.items() if name != "filter_tensor"}
        output = another.tensor(DESC.output_tensor)
        operator(output_tensor=output, **inputs).wait()
        assert np.array_equal(output.numpy(), made.result())


@pytest.fixture
def choices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TunedPaths:
    """The choices for a recorded device, in an empty folder."""
    monkeypatch.setenv("DMLVK_CACHE_DIR", str(tmp_path / "cache"))
    return TunedPaths(load("nvidia-h200"))


def edit(choices: TunedPaths, name: str, value: str) -> None:
    """Change something in the first entry of the file."""
    content = json.loads(require_place(choices.file).read_text())
    content["choices"][0][name] = value
    require_place(choices.file).write_text(json.dumps(content))


@pytest.mark.parametrize("change", ["driver", "kernels"])
def test_what_is_out_of_date_is_neither_used_nor_kept(choices: TunedPaths, change: str) -> None:
    choices.remember(DESC, "integer", {})
    assert choices.path(DESC) == "integer"
    edit(choices, change, "something else")
    again = TunedPaths(load("nvidia-h200"))
    assert again.path(DESC) is None
    again.remember(OTHER, "direct", {})
    assert [choice.descriptor for choice in read_choices(choices.file)] == [serialize(OTHER)]
    assert again.path(OTHER) == "direct"


def test_devices_and_drivers_have_choices_of_their_own(choices: TunedPaths) -> None:
    choices.remember(DESC, "integer", {})
    assert TunedPaths(load("nvk-ada")).path(DESC) is None
    assert TunedPaths(replace(load("nvidia-h200"), driver_info="600.1")).path(DESC) is None
    assert TunedPaths(load("nvidia-h200")).path(DESC) == "integer"


def test_a_path_that_the_planner_does_not_know_is_not_used(opened: dmlvk.Device) -> None:
    planned = compiled_path(opened)
    TunedPaths(opened.profile).remember(DESC, "analog", {})
    assert compiled_path(opened) == planned


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "\xff\xfe",
        '{"format": 1}',
        '{"format": 1, "choices": 3}',
        '{"format": 1, "choices": [3, null, {}, {"descriptor": 1, "driver": 2, "kernels": 3, "path": 4, "seconds": 5}]}',  # noqa: E501
        '{"format": 2, "choices": []}',
    ],
)
def test_a_broken_file_is_as_if_there_were_none(choices: TunedPaths, content: str) -> None:
    require_place(choices.file).parent.mkdir(parents=True)
    require_place(choices.file).write_bytes(content.encode("latin-1"))
    assert choices.path(DESC) is None
    choices.remember(DESC, "direct", {})
    assert choices.path(DESC) == "direct"


@pytest.mark.parametrize("path", ["matrix", "halo"])
@pytest.mark.parametrize("tile", ["128x128x0:64x32", "0x0x0:0x0", "128x128x64:64x0", "9" * 5000 + "x1x1:1x1", "1", ":"])
def test_a_tile_that_a_damaged_file_names_is_not_used(path: str, tile: str) -> None:
    with pytest.raises(planning.PathError):
        planning.plan(DESC, load("nvidia-h200"), path=f"{path}:{tile}")


def test_two_processes_at_once_lose_nothing(choices: TunedPaths) -> None:
    program = """
import sys
from dmlvk import DataType
from dmlvk.benchmark.cases.quantized_linear_convolution import Layer, descriptor
from dmlvk.runtime.tuned_paths import TunedPaths
from tests.profiles import load
for channels in range(int(sys.argv[1]), int(sys.argv[1]) + 20):
    desc = descriptor(Layer(channels, 4, 8, 1), 1, "nchw", DataType.UINT8)
    TunedPaths(load("nvidia-h200")).remember(desc, "direct", {})
"""
    running = [subprocess.Popen([sys.executable, "-c", program, str(first)], cwd=ROOT) for first in (10, 40)]
    assert [process.wait() for process in running] == [0, 0]
    found = [choice.descriptor["input_tensor"]["sizes"][1] for choice in read_choices(choices.file)]
    assert sorted(found) == [*range(10, 30), *range(40, 60)]


def test_every_candidate_is_measured_and_checked(opened: dmlvk.Device) -> None:
    found = tuned(opened, random_workload(DESC))
    assert list(found.seconds) == every_path(opened.profile)
    assert len(found.seconds) > 2 and not found.faults
    assert all(seconds > 0 for seconds in found.seconds.values())
    wrong = random_workload(DESC)
    assert wrong.expected is not None
    wrong.expected.reshape(-1)[0] ^= 1
    found = tuned(opened, wrong)
    assert not found.seconds and set(found.faults.values()) == {OTHER_BITS} and found.path is None


def test_what_the_driver_refuses_is_passed_over(opened: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    planned, refused, *_ = every_path(opened.profile)

    def compiled(desc: OperatorDesc, path: str, wait: bool) -> Any:
        if path == refused:
            raise dmlvk.DeviceError("no\nroom")
        return opened.compile(desc, path=path, wait=wait)

    monkeypatch.setattr(tuning, "MOST_AT_ONCE", 1)
    workload = random_workload(DESC)
    found = tune_one(opened.engine, compiled, DESC, workload.inputs, workload.result(), 1)
    assert found.faults == {refused: "no room"} and planned in found.seconds


@pytest.mark.parametrize("rounds", [0, 1.0, True, "3"])
def test_rounds_are_counted(rounds: Any) -> None:
    with pytest.raises(ValueError, match="rounds = "):
        OperatorSettings(None, rounds, ())  # type: ignore[arg-type]


def test_the_winner_is_right_and_faster_by_more_than_noise() -> None:
    def winner(**seconds: float) -> str | None:
        return Tuning(DESC, "vectors", seconds, {}).path

    assert winner(vectors=1.0, direct=0.5, integer=0.6) == "direct"
    assert winner(vectors=1.0, direct=0.99) is None
    assert winner(integer=2.0) == "integer", "the planner's own has a fault"
    assert winner() is None


def test_tiles_of_matrix_units_are_candidates_where_there_are_such_units() -> None:
    layer = descriptor(Layer(256, 14, 256, 3), 64, "nhwc", DataType.UINT8, True)
    found = planning.close_paths(layer, load("nvidia-h200"), every=True)
    for path in ("matrix", "halo"):
        assert sum(each.startswith(f"{path}:") for each in found) > 8
    assert "integer" in found
    plans = [planning.plan(layer, load("nvidia-h200"), path=path) for path in found]
    assert len({repr(plan) for plan in plans}) == len(plans), "no two are the same"
    assert not any(path.startswith("matrix") for path in planning.close_paths(layer, load("swiftshader"), every=True))


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["tune", *arguments])


def _interrupted(session: Any, feeds: object) -> None:
    session.device.compile_progress(1, 2)
    raise KeyboardInterrupt


def test_the_command_tunes_a_model(opened: dmlvk.Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(1)
    parameters = convolution_parameters(generator, (8, 6, 3, 3))
    model = model_of([convolution(parameters)], {"x": np.zeros((1, 6, 7, 7), np.uint8)}, {"y": np.uint8}, parameters)
    file = tmp_path / "model.onnx"
    onnx.save(model, file)
    result = run(str(file), "--device", opened.profile.name)
    assert result.exit_code == 0, result.output
    assert "The fastest path of each layer is remembered in" in result.output
    (choice,) = read_choices(TunedPaths(opened.profile).file)
    assert choice.descriptor["output_tensor"]["sizes"] == [1, 8, 5, 5]
    monkeypatch.setattr("dmlvk.onnx.InferenceSession.tune", _interrupted)
    stopped = run(str(file), "--device", opened.profile.name)
    assert stopped.exit_code == 130
    assert "Interrupted: what was measured until then is remembered in" in stopped.output
    several = run(str(file), "--batch", "3")
    assert several.exit_code == 1 and "no input can have 3 as its first dimension" in several.output
    refused = run(str(file), "--case", "1x1")
    assert refused.exit_code == 2 and "a model is tuned whole" in refused.output


def test_the_command_tunes_lists_and_clears(opened: dmlvk.Device, tmp_path: Path, monkeypatch: Any) -> None:
    seen = tmp_path / "seen.jsonl"
    monkeypatch.setenv("DMLVK_RECORD", str(seen))
    opened.compile(DESC)
    opened.compile(DESC)
    monkeypatch.delenv("DMLVK_RECORD")
    seen.write_text(seen.read_text() * 2)
    result = run("--device", opened.profile.name, "--descriptors", str(seen), "--rounds", "1")
    assert result.exit_code == 0, result.output
    assert "remembered in" in result.output
    (choice,) = read_choices(TunedPaths(opened.profile).file)
    assert choice.descriptor == serialize(DESC)
    assert choice.kernels == kernels_hash()
    assert set(choice.seconds) == {PLANNER, *every_path(opened.profile)[1:]}
    listed = run("--list")
    assert listed.exit_code == 0
    assert "2x8x6x6" in listed.output
    assert run("--clear").exit_code == 0
    assert "nothing is remembered" in run("--list").output


def test_a_wrong_path_is_status_1_and_not_remembered(opened: dmlvk.Device, tmp_path: Path, monkeypatch: Any) -> None:
    seen = tmp_path / "seen.jsonl"
    seen.write_text(json.dumps(serialize(DESC)) + "\n")
    found = Tuning(DESC, "vectors", {"vectors": 1.0}, {"direct": OTHER_BITS})
    monkeypatch.setattr(tuning, "tune_one", lambda *arguments: found)
    result = run("--device", opened.profile.name, "--descriptors", str(seen))
    assert result.exit_code == 1
    assert "DIFFERENT" in result.output
    (choice,) = read_choices(TunedPaths(opened.profile).file)
    assert choice.path is None
    assert "direct" not in choice.seconds


def test_descriptors_that_cannot_be_read_are_named_by_their_line(opened: dmlvk.Device, tmp_path: Path) -> None:
    seen = tmp_path / "seen.jsonl"
    seen.write_text(json.dumps(serialize(DESC)) + '\n{"operator": "GEMM"}\n')
    result = run("--device", opened.profile.name, "--descriptors", str(seen))
    assert result.exit_code == 1
    assert "seen.jsonl, line 2" in result.output


@pytest.mark.half_by_day
@pytest.mark.parametrize("damage", damages(), ids=str)
def test_whatever_lies_in_place_of_the_choices_is_as_if_there_were_none(
    opened: dmlvk.Device, damage: Damage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A regular file of this name is ours and is replaced. Anything else stays, and an error comes before any work."""
    choices = TunedPaths(opened.profile)
    require_place(choices.file).parent.mkdir(parents=True, exist_ok=True)
    damage.make(require_place(choices.file))
    with dmlvk.Device(opened.profile.name) as own:
        own.compile(DESC)
    listed = run("--list")
    assert listed.exit_code == 0, listed.exception
    assert "nothing is remembered" in listed.output
    if damage.is_regular:
        choices.remember(DESC, "direct", {})
        assert choices.path(DESC) == "direct"
        return
    with pytest.raises(OSError, match="choices-"):
        choices.remember(DESC, "direct", {})
    monkeypatch.setattr(tuning, "tune_one", None)
    finished = run("--device", opened.profile.name)
    assert finished.exit_code == 1
    (line,) = finished.output.splitlines()
    assert line.startswith("Error: ")
    assert str(choices.file) in line
    assert run("--clear").exit_code == 0
    assert damage.is_untouched()


GOOD_CHOICE: dict[str, Any] = {
    "descriptor": serialize(DESC),
    "driver": "driver",
    "kernels": "kernels",
    "path": "direct",
    "seconds": {PLANNER: 1.0},
}


WRONG_VALUES: tuple[Any, ...] = (1, [], [[1]], {"a": []}, {"data_type": []}, True, 1.5)


@pytest.mark.parametrize(
    "change",
    [
        *({name: value} for name in GOOD_CHOICE for value in WRONG_VALUES if name != "seconds"),
        *({"seconds": value} for value in (*WRONG_VALUES[:2], "text", {PLANNER: "x"}, {PLANNER: 10**400})),
        {"descriptor": {"output_tensor": {"sizes": 3}}},
        {"descriptor": {"output_tensor": [3]}},
    ],
    ids=repr,
)
def test_a_choice_of_wrong_types_is_passed_over(choices: TunedPaths, change: dict[str, Any]) -> None:
    require_place(choices.file).parent.mkdir(parents=True)
    content = {"format": 1, "device": "a device", "choices": [GOOD_CHOICE | change, GOOD_CHOICE]}
    require_place(choices.file).write_text(json.dumps(content))
    assert [choice.to_json() for choice in read_choices(choices.file)] == [GOOD_CHOICE]
    assert run("--list").output.count("a device") == 1


def test_brackets_in_names_are_shown_as_they_are(choices: TunedPaths) -> None:
    require_place(choices.file).parent.mkdir(parents=True)
    names = {"device": "GPU [/red] [bold]", "choices": [GOOD_CHOICE | {"driver": "[/] :smile:", "path": "[x]"}]}
    require_place(choices.file).write_text(json.dumps({"format": 1, **names}))
    listed = run("--list")
    assert listed.exit_code == 0, listed.exception
    for name in ("GPU [/red] [bold]", "[/] :smile:", "[x]"):
        assert name in listed.output


def test_other_files_in_the_folder_are_not_forgotten(choices: TunedPaths) -> None:
    choices.remember(DESC, "direct", {})
    others = [
        require_place(choices.file).with_name(name)
        for name in ("choices-of-mine.json", "choices.json", "choices-1-2-3.txt")
    ]
    for other in others:
        other.write_text("{}")
    assert run("--clear").exit_code == 0
    assert all(other.exists() for other in others)
    assert choices.file is not None and not choices.file.exists()


@pytest.mark.parametrize("damage", [damage for damage in damages() if not damage.is_empty], ids=str)
def test_descriptors_that_are_none_are_one_line(
    opened: dmlvk.Device, damage: Damage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = tmp_path / "seen.jsonl"
    damage.make(seen)
    monkeypatch.setattr(tuning, "tune_one", None)
    finished = run("--device", opened.profile.name, "--descriptors", str(seen))
    assert finished.exit_code == 1, finished.exception
    (line,) = finished.output.splitlines()
    assert line.startswith("Error: ")
    assert is_named(seen, line)
    assert damage.is_untouched()


WRONG_RECORDS: list[Any] = [
    serialize(DESC) | {"operator": None},
    *(serialize(DESC) | {name: value} for name in serialize(DESC) for value in ("x", *WRONG_VALUES) if value != 1),
    *(serialize(DESC) | {name: 1} for name in serialize(DESC) if name != "group_count"),
    serialize(DESC) | {"output_tensor": {"data_type": "UINT8", "sizes": [1, 2, 3, 10**400]}},
    serialize(DESC) | {"output_tensor": {"data_type": "UINT8", "sizes": [1, 2, 3, {}]}},
    serialize(DESC) | {"output_tensor": {"data_type": "UINT8", "sizes": [1, 2, 3, 4], "flags": "x"}},
    serialize(DESC) | {"output_tensor": {"data_type": "UINT8", "sizes": [1, 2, 3, 4], "strides": "abcd"}},
    serialize(DESC) | {"output_tensor": {"data_type": "UINT8", "sizes": [1, 2, 3, 4], "colour": "red"}},
]


@pytest.mark.parametrize("record", WRONG_RECORDS, ids=range(len(WRONG_RECORDS)))
def test_records_of_wrong_types_are_value_errors(record: Any) -> None:
    with pytest.raises(ValueError):
        deserialize(record)


@pytest.mark.parametrize("damage", [damage for damage in damages() if not damage.is_empty], ids=str)
def test_descriptors_are_not_recorded_in_a_file_that_is_none_of_ours(
    opened: dmlvk.Device, damage: Damage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = tmp_path / "seen.jsonl"
    damage.make(seen)
    monkeypatch.setenv("DMLVK_RECORD", str(seen))
    if damage.name == "/dev/zero":
        opened.compile(DESC)
    else:
        with pytest.raises(OSError, match=r"seen\.jsonl|No space left"), dmlvk.Device(opened.profile.name) as own:
            own.compile(DESC)
    assert damage.is_untouched()
