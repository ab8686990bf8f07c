"""docs/devices: the table is that of the files, the devices agree, and no file names a user, a host or a folder."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dmlvk.conformance.comparison.findings import Findings, compare
from dmlvk.conformance.comparison.markdown import page
from dmlvk.conformance.digests import recorded_digests
from dmlvk.conformance.privacy import public_command, public_system, without_home
from dmlvk.conformance.results import Environment, Status

FOLDER = Path(__file__).parent.parent / "docs" / "devices"
FILES = sorted(FOLDER.glob("*.jsonl"))
REMEDY = "run `dmlvk compare docs/devices/*.jsonl --markdown docs/devices/table.md` and commit the table"

# Folders of a machine: /home/somebody, C:\Users, \\server\share.
A_FOLDER = re.compile(r"(?<![\w.])(/[\w.-]+){2,}|\b[A-Za-z]:[\\/]|\\\\\w|~/|\w+@\w+")


@pytest.fixture(scope="module")
def findings() -> Findings:
    return compare(FILES, [], recorded_digests())


def test_the_table_is_that_of_the_files(findings: Findings) -> None:
    assert page(findings) == (FOLDER / "table.md").read_text(encoding="utf-8"), REMEDY


def test_the_devices_agree(findings: Findings) -> None:
    assert findings.disagreements == ()
    assert len(findings.runs) == len(FILES) >= 2
    for run in findings.runs:
        assert run.counts()[Status.PASS] > 1000, run.label


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list):
        for each in value:
            yield from texts(each)
    elif isinstance(value, str):
        yield value


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_names_no_user_host_or_folder(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    environment = json.loads(lines[0])
    assert environment.keys() <= {"kind", "format", *Environment.__dataclass_fields__}
    # Drivers and operating systems name themselves; nothing there may look like a folder either.
    for line in lines:
        for text in texts(json.loads(line)):
            for name in environment["kernels"]:
                text = text.replace(name, "")
            assert not A_FOLDER.search(text), text


def test_what_looks_like_a_folder_is_found() -> None:
    for text in ("cannot open /home/alice/x.json", r"C:\Users\alice", "alice@host", "~/results", r"\\server\share"):
        assert A_FOLDER.search(text), text
    for text in ("slice1/blocks", "QUANTIZED", "1/2", "a, b / c", "Linux-6.1-x86_64-with-glibc2.36"):
        assert not A_FOLDER.search(text), text


def test_a_system_is_kept_without_its_builders_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(platform, "release", lambda: "6.1.0-49-alice-build")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.36"))
    assert public_system() == "Linux 6.1.0 x86_64, glibc 2.36"
    monkeypatch.setattr(platform, "system", lambda: "Windows")
    monkeypatch.setattr(platform, "version", lambda: "10.0.22631")
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    assert public_system() == "Windows 10.0.22631 x86_64"


def test_a_command_is_kept_without_its_folders() -> None:
    words = ["dmlvk", "conformance", "--json=/home/alice/out.jsonl", "--html", "../alice/a page.html", "slice1:*"]
    assert public_command(words) == "dmlvk conformance --json=out.jsonl --html 'a page.html' 'slice1:*'"
    assert public_command(["dmlvk", r"C:\Users\alice\out.jsonl"]) == "dmlvk out.jsonl"


def test_a_message_is_kept_without_the_users_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "home", lambda: Path("/home/alice"))
    assert without_home(f"no file {Path('/home/alice/x')}") == f"no file ~{os.sep}x"
    monkeypatch.setattr(Path, "home", lambda: Path("/"))
    assert without_home("no file /home/alice/x") == "no file /home/alice/x"
