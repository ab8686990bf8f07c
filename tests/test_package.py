"""The wheel and the sdist: what is in them, that they are the same each time, and what they say about dmlvk."""

from __future__ import annotations

import email
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import dmlvk
from tools import minimal_versions, package
from tools.debian import SetupError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = {"onnx", "torch", "cuda", "dask", "bench", "demo", "docs", "test"}
# What git tracks and the sdist does not need.
LEFT_OUT = {".gitignore"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist and the wheel of this checkout."""
    folder = tmp_path_factory.mktemp("dist")
    sdist, wheel = sorted(package.build(ROOT, folder, "sdist", "wheel"), key=lambda path: path.suffix)
    return sdist, wheel


def test_the_version_is_written_once() -> None:
    assert PROJECT["dynamic"] == ["version"]
    assert dmlvk.__version__ == package.version()
    texts = [path for path in ROOT.glob("dmlvk/**/*.py") if dmlvk.__version__ in path.read_text(encoding="utf-8")]
    assert texts == [ROOT / "dmlvk" / "version.py"]


def test_a_tag_that_is_not_the_versions_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["package", "--tag", f"v{dmlvk.__version__}"])
    package.main()
    monkeypatch.setattr(sys, "argv", ["package", "--tag", "v9.9"])
    with pytest.raises(SetupError, match=r"the tag is v9\.9, but dmlvk/version\.py says "):
        package.main()


@pytest.mark.nightly
def test_the_wheel_from_the_sdist_is_the_same(built: tuple[Path, Path], tmp_path: Path) -> None:
    sdist, wheel = built
    (again,) = package.build(package.unpack(sdist, tmp_path / "sdist"), tmp_path / "again", "wheel")
    package.require_same(wheel, again)
    package.require_package_alone(wheel)
    other = tmp_path / "other" / wheel.name
    other.parent.mkdir()
    shutil.copy(wheel, other)
    with zipfile.ZipFile(other, "a") as archive:
        archive.writestr("bench/more.py", "")
    with pytest.raises(SetupError, match=r"differs from that of the checkout: bench/more\.py"):
        package.require_same(wheel, other)
    with pytest.raises(SetupError, match=r"holds bench/more\.py"):
        package.require_package_alone(other)


def test_the_sdist_has_what_its_tests_and_documentation_need(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    if (ROOT / ".git").exists() and shutil.which("git"):
        listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        assert set(listed.split("\n")) - names - LEFT_OUT - {""} == set()
    for name in (
        "bench/checkouts.py",
        "docs/conf.py",
        "examples/README.md",
        ".github/workflows/checks.yml",
        "Makefile",
    ):
        assert name in names
    assert not [name for name in names if name.startswith((".drivers", ".venv", "build")) or name.endswith(".pyc")]


def test_what_the_index_shows(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[1]) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        shown = email.message_from_bytes(archive.read(name))
    assert shown["Version"] == dmlvk.__version__
    links = {line.split(", ")[0] for line in shown.get_all("Project-URL", [])}
    assert links >= {"Homepage", "Documentation", "Repository", "Issues", "Changelog"}
    classifiers = shown.get_all("Classifier", [])
    versions = sorted(int(match[1]) for text in classifiers if (match := re.search(r":: 3\.(\d+)$", text)))
    oldest = int(PROJECT["requires-python"].removeprefix(">=3."))
    assert versions == list(range(oldest, versions[-1] + 1)) and versions[-1] >= 14
    workflow = (ROOT / ".github" / "workflows" / "checks.yml").read_text(encoding="utf-8")
    (tested,) = re.findall(r'python: \["3\.10", .*\]$', workflow, re.MULTILINE)[:1]
    assert re.findall(r'"3\.(\d+)"', tested) == [str(version) for version in versions]
    assert set(shown.get_all("Provides-Extra", [])) == EXTRAS


def test_the_description_works_on_an_index() -> None:
    """Pictures and links in README are whole addresses: an index knows no files beside it."""
    text = (ROOT / PROJECT["readme"]).read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|href)="([^"]+)"', text)
    assert targets
    assert [target for target in targets if not target.startswith(("https://", "#"))] == []


def test_the_oldest_versions_leave_out_linters_alone() -> None:
    named = {re.split("[<>=\\[]", requirement)[0] for requirement in PROJECT["optional-dependencies"]["test"]}
    assert named > minimal_versions.LINTERS
    assert not named & minimal_versions.LINTERS & {"pytest", "numpy", "onnx", "pillow", "hypothesis"}
    assert all((ROOT / name).exists() for name in minimal_versions.LEFT_OUT)


def test_the_lower_end_of_requirements() -> None:
    assert minimal_versions.constraints(["numpy>=1.24", "vulkan==1.3.275.1", "dask[array,distributed] >= 2025.5"]) == [
        "numpy==1.24.*",
        "vulkan==1.3.275.1",
        "dask==2025.5.*",
    ]
    marked = minimal_versions.constraints(["tomli>=2.0; python_version < '3.11'"])
    assert marked == ["tomli==2.0.*; python_version<'3.11'"]
    with pytest.raises(SetupError, match="'numpy' in pyproject"):
        minimal_versions.constraints(["numpy"])
    everything = [
        *PROJECT["dependencies"],
        *(each for group in PROJECT["optional-dependencies"].values() for each in group),
    ]
    minimal_versions.constraints(everything)
