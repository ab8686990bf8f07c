"""Which tests `make test-windows` runs by day: under Wine pytest loads this module as a plugin.

Of the files that test what Windows has for itself, every test runs, of one with parameters a few sets. Of the other
files one in so many is looked at, since each takes seconds to be read under Wine, and of its tests one in so many runs,
with one set. Hashes of names choose all of these, so that the sample stays what it is when other tests come.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

MOST_SETS = 2
ONE_FILE_IN, ONE_TEST_IN = 6, 3

# What Windows has for itself, and the files with its tests. tests/test_tools.py holds that every module of dmlvk and
# every test with a branch for Windows is here.
OF_WINDOWS = {
    "how threads wait, and Ctrl-C": (
        *(f"tests/runtime/test_{name}.py" for name in ("waiting", "interrupts", "background", "threads", "closing")),
        *(
            "tests/runtime/test_strikes.py",
            "tests/vulkan/test_host_threads.py",
            "tests/vulkan/interrupts/test_locks.py",
        ),
    ),
    "memory that others share, and the libraries of drivers": (
        *(f"tests/runtime/test_{name}.py" for name in ("exchange", "cuda_sharing", "device_info")),
        *(f"tests/vulkan/test_{name}.py" for name in ("copy_queue", "host_view", "library", "memory", "transfers")),
    ),
    "names of files, what lies in their place, and long ones": (
        *(f"tests/test_{name}.py" for name in ("files", "surroundings", "hostile_text")),
        *("tests/conformance/test_files.py", "tests/conformance/test_export.py", "tests/onnx/test_model_file.py"),
        *(f"tests/dxdispatch/test_{name}.py" for name in ("places", "commands", "resources")),
    ),
    "files that processes share, and locks": (
        *("tests/test_file_lock.py", "tests/vulkan/test_pipeline_cache.py"),
        *(f"tests/runtime/test_{name}.py" for name in ("tuned_paths", "tuning")),
    ),
    "the console, standard streams and their encodings": (
        *(f"tests/test_{name}.py" for name in ("standard_streams", "command_line", "devices", "progress")),
        *("tests/conformance/test_reports.py", "tests/conformance/test_command.py"),
    ),
    "processes that are started and ended": (
        *("tests/conformance/test_runner.py", "tests/benchmark/test_cold.py", "tests/test_oracle.py"),
    ),
}


FILES_OF_WINDOWS = frozenset(file for files in OF_WINDOWS.values() for file in files)


def is_looked_at(file: str) -> bool:
    """Whether tests of a file may run, such as tests/test_files.py."""
    return file in FILES_OF_WINDOWS or _hash(file) % ONE_FILE_IN == 0


def selection(names: Iterable[str]) -> set[str]:
    """The tests that run, of all of the files that are looked at.

    names: pytest's, as in tests/test_files.py::test_of_it[a-b].
    """
    sets: dict[str, list[str]] = defaultdict(list)
    for name in names:
        sets[name.partition("[")[0]].append(name)
    chosen: set[str] = set()
    for test, of_test in sets.items():
        is_of_windows = test.partition("::")[0] in FILES_OF_WINDOWS
        most = MOST_SETS if is_of_windows else int(_hash(test) % ONE_TEST_IN == 0)
        chosen.update(sorted(of_test, key=_hash)[:most])
    return chosen


def _hash(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files that are not looked at; of all others pytest and its other plugins decide."""
    is_left = collection_path.suffix == ".py" and not is_looked_at(
        collection_path.relative_to(config.rootpath).as_posix()
    )
    return True if is_left and collection_path.name.startswith("test_") else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave all but the selection to the night."""
    chosen = selection(item.nodeid for item in items)
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in chosen])
    items[:] = [item for item in items if item.nodeid in chosen]
