"""The command `dmlvk` in unusual surroundings: closed streams, wrong variables, folders with code, names with brackets,
files of others."""

from __future__ import annotations

import importlib
import io
import itertools
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import dmlvk
import dmlvk.demo
from dmlvk.benchmark import harness
from dmlvk.command_line import main
from dmlvk.command_line.terminal import BROKEN_PIPE, PlainConsole
from dmlvk.conformance.reports.terminal import print_summary
from dmlvk.conformance.results import Environment, Run, Status
from dmlvk.conformance.results import Result as ConformanceResult
from dmlvk.conformance.results_file import read_results
from dmlvk.conformance.running.runner import Runner, worker_path
from dmlvk.conformance.waivers import WaiverReport
from dmlvk.device_profile import DeviceProfile
from dmlvk.runtime import tuning
from dmlvk.vulkan import device_properties
from dmlvk.vulkan.library import DRIVER_VARIABLES, driver_hint
from tests.amount import THOROUGH
from tests.conftest import DEVICE_NAMES
from tests.damaged_files import Damage, damages, is_named
from tests.programs import python
from tests.vulkan.variants import copy_desc

ROOT = Path(__file__).parent.parent
THEIRS = [damage for damage in damages() if not damage.is_empty]
UNWRITABLE = [damage for damage in THEIRS if damage.name not in ("FIFO", "/dev/full", "/dev/zero")]
# Like the script `dmlvk`, which starts without the current folder on the path.
# As the installed command: the folder of the file is on the import path, the current folder is not.
SCRIPT = "from dmlvk.command_line import main; main()"
LISTING = [["--help"], ["devices"], ["bench", "--list"], ["conformance", "--list"], ["bench", "--help"]]
DRILLS = "tests.conformance.drill_cases:all_cases"
POSIX = pytest.mark.skipif(os.name == "nt", reason="of shells and devices as POSIX has them")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def refused(finished: Result, *names: str) -> None:
    assert finished.exit_code in (1, 2), (finished.output, finished.exception)
    (line,) = finished.output.splitlines()
    assert line.startswith("Error: ")
    for name in names:
        assert is_named(name, line)


def started(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], text=True, timeout=300, **options)


@pytest.mark.parametrize("arguments", LISTING, ids=" ".join)
def test_a_reader_that_goes_away_is_no_error(arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        finished = python("-m", "dmlvk", *arguments, stdout=writer, timeout=300)
    finally:
        os.close(writer)
    assert finished.stderr == ""
    assert finished.returncode in (1, BROKEN_PIPE)


def test_results_are_whole_when_the_reader_goes_away(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    reader, writer = os.pipe()
    os.close(reader)
    command = ("-m", "dmlvk", "conformance", "--device", DEVICE_NAMES[0], "--cases", DRILLS, "--json", str(path))
    junit = ("--junit", str(tmp_path / "junit"))
    finished = python(*command, *junit, "slice1:good:type=u8;*", stdout=writer, cwd=ROOT, timeout=300)
    os.close(writer)
    # Where cases take long, a line says now and then which of them is under way.
    assert not re.sub(r"^\d+ s: \d of 6, slice1:good:.*\n", "", finished.stderr, flags=re.M)
    assert finished.returncode in (1, BROKEN_PIPE)
    assert len(read_results(path).results) == 6
    assert (tmp_path / "junit").read_text().count("<testcase") == 6


# By day each command with one stream closed, which one in turn, and one of them with all three.
CLOSED = [*zip(LISTING, (">&-", "<&-", "2>&-"), strict=False), (LISTING[2], "<&- >&- 2>&-")]
if THOROUGH:
    CLOSED = [*itertools.product(LISTING[:3], (">&-", "<&-", "2>&-", "<&- >&- 2>&-"))]


@POSIX
@pytest.mark.parametrize(("arguments", "closed"), CLOSED)
def test_closed_streams_are_as_if_nobody_looked(arguments: list[str], closed: str) -> None:
    command = [sys.executable, "-m", "dmlvk", *arguments]
    finished = subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {closed}', "sh", *command], capture_output=True, timeout=300
    )
    assert (finished.returncode, finished.stderr) == (0, b"")


@POSIX
def test_nothing_but_results_gets_into_the_results_when_streams_are_closed(tmp_path: Path) -> None:
    """Otherwise the file would get the descriptor of standard output, to which drivers print."""
    path = tmp_path / "results.jsonl"
    arguments = ["conformance", "--device", DEVICE_NAMES[0], "--json", str(path), "slice1:good:type=u8;*"]
    command = [sys.executable, "-m", "dmlvk", *arguments, "--cases", DRILLS]
    finished = subprocess.run(["/bin/sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command], cwd=ROOT, timeout=300)
    assert finished.returncode == 0
    assert len(read_results(path).results) == 6


@POSIX
@pytest.mark.parametrize("arguments", LISTING, ids=" ".join)
def test_standard_output_on_a_full_disk_is_one_line(arguments: list[str]) -> None:
    with open("/dev/full", "w") as full:
        finished = python("-m", "dmlvk", *arguments, stdout=full.fileno(), timeout=300)
    assert finished.returncode == 1
    (line,) = finished.stderr.splitlines()
    assert line.startswith("Error: ")
    assert "No space left on device" in line


COMMANDS = {
    "demo": ["demo", "--output", "demo.png"],
    "bench": ["bench", "--size", "tiny", "--operator", "one_hot"],
    "tune": ["tune", "--case", "one_hot"],
    "conformance": ["conformance", "--sample", "2"],
}
WRONG_VARIABLES = {
    "DMLVK_DEBUG": "3",
    "DMLVK_KERNEL": "nosuch",
    "DMLVK_BACKGROUND": "yes",
    "DMLVK_SELF_TEST": "2",
    "DMLVK_VALIDATE": "yes",
    "DMLVK_DEVICE": "no such device",
    "DMLVK_CACHE_DIR": "file",
    "DMLVK_RECORD": "folder",
}


@pytest.fixture
def cluttered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with somebody's file and a folder in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("Dear reader")
    (tmp_path / "folder").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *WRONG_VARIABLES.items(),
        ("DMLVK_DEBUG", "-1"),
        ("DMLVK_DEVICE", "9" * 5000),
        ("DMLVK_CACHE_DIR", "file/folder"),
        ("DMLVK_RECORD", "file"),
        ("DMLVK_RECORD", "absent/file"),
    ],
)
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS.keys())
def test_a_variable_that_is_wrong_is_one_line(
    command: list[str], name: str, value: str, cluttered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sorted(cluttered.iterdir())
    monkeypatch.setenv(name, value)
    refused(run(*command), name, str(Path(value[:100])))
    assert sorted(cluttered.iterdir()) == before
    assert (cluttered / "file").read_text() == "Dear reader"


@pytest.mark.parametrize(
    ("name", "value", "right"),
    [
        ("DMLVK_DEBUG", "3", "0, 1 .* or 2"),
        ("DMLVK_KERNEL", "nosuch", "there are 'blocks'"),
        ("DMLVK_BACKGROUND", "yes", "0 .* or 1"),
        ("DMLVK_SELF_TEST", "2", "0 .* or always"),
        ("DMLVK_SELF_TEST", "on", "0 .* or always"),
    ],
)
def test_a_variable_that_is_wrong_is_an_error_when_a_device_is_opened(
    device: dmlvk.Device, name: str, value: str, right: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=f"{name} (is|=) '{value}'.*{right}"):
        dmlvk.Device(device.name)
    monkeypatch.setenv(name, "")
    dmlvk.Device(device.name).close()


@pytest.mark.parametrize("value", ["yes", "2", "true", "sync"])
def test_a_wrong_value_for_the_validation_layer_is_an_error_at_the_first_use(value: str) -> None:
    program = "import dmlvk; print('imported', flush=True); dmlvk.devices()"
    # Started, since a fork has imported it before.
    finished = started("-c", program, capture_output=True, env={**os.environ, "DMLVK_VALIDATE": value})
    assert finished.stdout == "imported\n"
    expected = (
        f"ValueError: DMLVK_VALIDATE is '{value}'; it can be 0, 1 (the Khronos validation layer) or synchronization"
    )
    assert expected in finished.stderr


@pytest.mark.parametrize("name", ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"])
@pytest.mark.parametrize("value", ["", os.pathsep, "  "])
def test_an_empty_list_of_drivers_is_no_reason_to_install_one(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in DRIVER_VARIABLES:
        monkeypatch.delenv(each, raising=False)
    monkeypatch.setenv(name, value)
    assert driver_hint().startswith(f"{name} is set and names no file")
    assert "install" not in driver_hint()
    monkeypatch.delenv(name)
    assert "install" in driver_hint()


ODD_NAME = "GPU [/red] [bold] :smile: [link=x]"


@pytest.fixture
def odd_name(device: dmlvk.Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The index of a device whose name holds brackets that are no markup."""
    monkeypatch.setenv("DMLVK_CACHE_DIR", str(tmp_path / "cache"))
    original = device_properties.read_profile
    index = next(info.index for info in dmlvk.devices() if info.profile == device.profile)

    def renamed(*arguments: Any) -> DeviceProfile:
        return replace(original(*arguments), name=ODD_NAME)

    monkeypatch.setattr("dmlvk.vulkan.physical_device.read_profile", renamed)
    monkeypatch.setattr(dmlvk.demo, "all_panels", lambda photo: {})
    monkeypatch.setattr(tuning, "tune_one", lambda engine, compile, desc, *_: tuning.Tuning(desc, "direct", {}, {}))
    return str(index)


@pytest.mark.parametrize(
    "arguments",
    [
        ["devices"],
        ["demo", "--output", "OUT/sheet.png", "--device", "INDEX"],
        [
            "bench",
            "--size",
            "tiny",
            "--rounds",
            "1",
            "--peer",
            "none",
            "--case",
            "one_hot",
            "--markdown",
            "OUT/page.md",
            "--device",
            "INDEX",
        ],
        ["tune", "--case", "one_hot", "--batch", "1", "--rounds", "1", "--device", "INDEX"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_brackets_in_the_name_of_a_device(odd_name: str, arguments: list[str], tmp_path: Path) -> None:
    finished = run(*(each.replace("OUT", str(tmp_path)).replace("INDEX", odd_name) for each in arguments))
    assert finished.exit_code == 0, (finished.output, finished.exception)
    assert "".join(ODD_NAME.split()) in "".join(finished.output.replace("│", "").split())


def test_brackets_in_a_report() -> None:
    environment = Environment(ODD_NAME, "driver [/]", "1.3", "1", {}, (), "", "", "", "", {})
    failed = ConformanceResult("[/a]:b", "device", Status.NOT_SUPPORTED, reason="[/c]", waiver="[d]")
    shown = io.StringIO()
    print_summary(PlainConsole(file=shown, width=200), Run(environment, {failed.key: failed}), WaiverReport((failed,)))
    for text in (ODD_NAME, "[/a]", "[/c]", "[d]", "driver [/]"):
        assert text in shown.getvalue()


@pytest.mark.parametrize("name", ["x.txt", "x", "x.", "x.hdf5", ".png"])
def test_a_picture_that_cannot_be_written_is_refused_before_the_work(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dmlvk.demo, "photograph", None)
    refused(run("demo", "--output", str(tmp_path / name)), name, "no picture")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("damage", [each for each in UNWRITABLE if not each.is_regular], ids=str)
def test_a_place_that_takes_no_picture_is_refused_before_the_work(
    damage: Damage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dmlvk.demo, "photograph", None)
    monkeypatch.setattr(harness, "run", None)
    path = tmp_path / "sheet.png"
    damage.make(path)
    for command in (["demo", "--output"], ["bench", "--size", "tiny", "--plot"], ["bench", "--markdown"]):
        refused(run(*command, str(path)), "sheet.png")
    assert damage.is_untouched()


def test_a_roofline_that_cannot_be_drawn_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness, "run", None)
    refused(run("bench", "--size", "tiny", "--plot", str(tmp_path / "x.txt")), "x.txt", "no picture", ".png")
    refused(run("bench", "--size", "tiny", "--plot", ""), "cannot be written")


@pytest.mark.parametrize("damage", UNWRITABLE, ids=str)
def test_figures_are_not_written_over_what_is_none_of_ours(
    damage: Damage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness, "run", None)
    path = tmp_path / "figures.json"
    damage.make(path)
    refused(run("bench", "--size", "tiny", "--json", str(path)), str(path))
    assert damage.is_untouched()


@pytest.mark.parametrize("damage", THEIRS, ids=str)
def test_figures_that_cannot_be_read_are_one_line(damage: Damage, tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    damage.make(path)
    refused(run("bench", "--from-json", str(path)), str(path))
    assert damage.is_untouched()


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("figures") / "figures.json"
    command = ["bench", "--size", "tiny", "--rounds", "1", "--peer", "numpy", "--case", "one_hot", "--json"]
    finished = run(*command, str(path), "--device", DEVICE_NAMES[0])
    assert finished.exit_code == 0, finished.output
    again = run(*command, str(path), "--device", DEVICE_NAMES[0])
    assert again.exit_code == 0, "figures of an earlier run are ours"
    record: dict[str, Any] = json.loads(path.read_text())
    return record


def test_figures_of_wrong_types_are_one_line(figures: dict[str, Any], tmp_path: Path) -> None:
    """A changed member of the record, a case, a mark or the device gives the figures or an error of one line."""
    path = tmp_path / "figures.json"
    values: tuple[Any, ...] = (None, 1, "text", [], {}, [1], {"a": 1}, {"a": {}}, 10**400, True)
    records = [figures | {name: value} for name in figures for value in values]
    case, device = figures["cases"][0], figures["device"]
    records += [figures | {"cases": [case | {name: value}]} for name in case for value in values]
    records += [figures | {"device": device | {name: value}} for name in device for value in values]
    marks = figures["marks"]
    mark = marks["copy"]
    records += [figures | {"marks": marks | {"copy": mark | {name: value}}} for name in mark for value in values]
    lists: tuple[list[Any], ...] = ([1], [None], [[]], [{}], [{"name": "a"}])
    records += [figures | {"cases": value} for value in lists]
    if not THOROUGH:
        records = records[::9]  # each member with another value or two of ten
    failed = 0
    for number, record in enumerate(records):
        path.write_text(json.dumps(record))
        finished = run("bench", "--from-json", str(path), "--dispatches", "--markdown", str(tmp_path / "page.md"))
        if finished.exit_code == 0 or "is DIFFERENT" in finished.output:
            continue
        failed += 1
        assert len(finished.output.splitlines()) == 1, (number, finished.output)
        refused(finished, str(path))
    assert failed > 11


def trap(folder: Path, name: str) -> None:
    """Make a package that writes a file if it is imported."""
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text(f"open({str(folder / 'sprung')!r}, 'a').write({name!r})\n")


def test_workers_run_no_code_of_the_current_folder(tmp_path: Path) -> None:
    for name in ("dmlvk", "numpy", "json", "vulkan", "click"):
        trap(tmp_path, name)
    (tmp_path / "linecache.py").write_text(f"open({str(tmp_path / 'sprung')!r}, 'a').write('linecache')\n")
    arguments = ("conformance", "--device", DEVICE_NAMES[0], "slice1:layout:*", "--sample", "2", "--jobs", "1")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = tmp_path / "bin" / "command.py"
    command.parent.mkdir()
    command.write_text(SCRIPT)
    finished = started(str(command), *arguments, cwd=tmp_path, env=environment, capture_output=True)
    assert finished.returncode == 0, finished.stderr
    assert not (tmp_path / "sprung").exists()


def test_cases_of_the_current_folder_are_found_where_the_command_finds_them(tmp_path: Path) -> None:
    (tmp_path / "my_cases.py").write_text("from tests.conformance.drill_cases import good_cases as cases\n")
    arguments = ("conformance", "--device", DEVICE_NAMES[0], "--cases", "my_cases:cases", "*number=0", "--jobs", "1")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    finished = started("-m", "dmlvk", *arguments, cwd=tmp_path, env=environment, capture_output=True)
    assert finished.returncode == 0, finished.stderr


def test_a_worker_imports_what_its_parent_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["/a", "", "/b", str(tmp_path), "/c"])
    assert worker_path() == ["/a", "/b", "/c", str(tmp_path)], "the current folder behind all else"
    monkeypatch.setattr(sys, "path", ["/a", "/b"])
    assert worker_path() == ["/a", "/b"], "and not where it was not"
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "path", ["", "/b"])
    assert worker_path() == [str(ROOT), "/b"], "but first where this dmlvk comes from there"


@POSIX
def test_a_run_in_a_folder_that_was_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    monkeypatch.setattr(sys, "path", ["", "/b"])
    assert worker_path() == ["/b"]


def test_two_devices_of_one_name_are_told_apart(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    def message(first: dmlvk.Device, second: dmlvk.Device) -> str:
        sizes = dmlvk.TensorDesc(dmlvk.DataType.UINT8, (4,))
        with pytest.raises(dmlvk.BindingError) as raised:
            second.compile(copy_desc(sizes)).bind(input_tensor=first.tensor(sizes), output_tensor=second.tensor(sizes))
        return str(raised.value)

    with dmlvk.Device(device.name) as again:
        assert "another Device object" in message(device, again)
        assert "opened on the same device" in message(device, again)
    original = device_properties.read_profile
    monkeypatch.setattr(
        "dmlvk.vulkan.physical_device.read_profile", lambda *arguments: replace(original(*arguments), name="GPU")
    )
    with dmlvk.Device(0) as first, dmlvk.Device(1) as second:
        text = message(first, second)
        assert "index 0 of dmlvk.devices()" in text
        assert "not of index 1" in text


COMMAND = importlib.import_module("dmlvk.command_line.conformance")


def test_a_file_is_refused_before_a_device_is_opened(cluttered: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Runner, "open", None)
    monkeypatch.setattr(COMMAND.Request, "items", None)
    refused(run("conformance", "--json", "file"), "file is left as it is and nothing is run")
    assert (cluttered / "file").read_text() == "Dear reader"
