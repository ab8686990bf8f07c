"""Files of results: JSON lines, written during the run and read back afterwards.

The first line of a run is its environment, {"kind": "environment", ...}; each other one is a result, {"kind":
"result", ...}. Several runs may be appended to one file: if a case ran again, its last result counts. A run on a
cluster writes one file for all its devices: the lines of the second device and later ones have a number, "run": 1.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from dmlvk._common import files
from dmlvk.conformance.results import Environment, Result, ResultsError, Run, only

# A full run on all profiles makes a file of some hundred MiB.
MOST_BYTES = 1 << 30
# The beginnings of lines: they identify a line of this format even if it was cut short.
LINE_STARTS = (b'{"kind": "environment"', b'{"kind": "result"')


def read_results(path: Path) -> Run:
    """Read the results of a run, even of an interrupted run: a last line that was cut short is ignored.

    Raises:
        ResultsError: A line is neither an environment nor a result, or the file holds the results of several devices.
        OSError: The file cannot be read.
    """
    runs = read_device_runs(path)
    if len(runs) > 1:
        devices = ", ".join(run.environment.device for run in runs if run.environment is not None)
        raise ResultsError(f"{path} holds the results of several devices, which ran on a cluster: {devices}")
    return runs[0] if runs else Run()


def read_device_runs(path: Path) -> list[Run]:
    """Read the results of each device, from a file that a run on a cluster has written, or a run on one device.

    Raises ResultsError, OSError: as `read_results`.
    """
    runs: dict[int, Run] = {}
    run: Run | None = None
    for number, line in enumerate(files.read_bytes(path, MOST_BYTES).splitlines(keepends=True), 1):
        if not line.strip():
            continue
        if _is_cut(line, is_first=number == 1):
            run = runs.setdefault(0, Run()) if run is None else run
            run.is_cut = True
            continue
        place = f"{path}, line {number}"
        try:
            entry, run_number = _entry(line, place)
        except ResultsError as error:
            raise ResultsError(f"{place}: {error}") from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ResultsError(f"{place}: not a line of conformance results") from error
        run = runs.setdefault(run_number, Run())
        if isinstance(entry, Result):
            run.add(entry)
            continue
        if run.environment is not None and entry.identity != run.environment.identity:
            difference = run.environment.difference(entry)
            raise ResultsError(f"{place}: one file may not hold results of different runs: {difference}")
        run.environment = entry
    return [runs[number] for number in sorted(runs)]


def _entry(line: bytes, place: str) -> tuple[Environment | Result, int]:
    """An environment or a result, and the number of its run in the file."""
    record = only(dict)(files.parse_json(line, place))
    kinds: dict[str, type[Environment] | type[Result]] = {"environment": Environment, "result": Result}
    return kinds[only(str)(record["kind"])].from_json(record), only(int)(record.get("run", 0))


def _is_cut(line: bytes, *, is_first: bool) -> bool:
    """Whether a line is one of this format, cut short by an interruption. A part of another format's line is not."""
    if is_first:  # no earlier line shows that a brace or two belong to this format
        begins = line.startswith(LINE_STARTS)
    else:
        begins = any(start.startswith(line[: len(start)]) for start in LINE_STARTS)
    if line.endswith(b"\n") or not begins:
        return False
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return True
    return False


@contextmanager
def naming(path: Path | None) -> Iterator[None]:
    """Name the file in an error about it: on a full disk, the system's error no longer says which file."""
    try:
        yield
    except OSError as error:
        if path is not None and error.filename is None:
            error.filename = str(path)
        raise


class ResultsWriter:
    """Appends to a file of results, line by line, so that results are kept however the run ends.

    Raises OSError: the file cannot be written. Or it holds something other than results, and is left unchanged.
    """

    def __init__(self, path: Path | None) -> None:
        """Open the file; without one, nothing is written."""
        self._path = path
        self._file: BinaryIO | None = None
        if path is not None:
            files.require_own(path, read_device_runs)
            self._file = files.open_to_write(path, append=True)
            _end_last_line(path, self._file)

    def write(self, entry: Environment | Result, run: int = 0) -> None:
        """Append a line.

        run: the number of the run in this file, if it holds the results of several devices.
        Raises OSError: for example, the disk is full.
        """
        if self._file is None:
            return
        with naming(self._path):
            record = {**entry.to_json(), "run": run} if run else entry.to_json()
            self._file.write(files.encoded(files.json_text(record, default=list) + "\n"))
            self._file.flush()

    def __enter__(self) -> ResultsWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if self._file is not None:
                self._file.close()
        except OSError:  # data that did not fit on the disk does not fit now either; the first error is reported
            if error is None:
                raise


def _end_last_line(path: Path, file: BinaryIO) -> None:
    """Remove a last line that was cut short. If only its line end is missing, add that."""
    if not path.is_file():
        return
    content = files.read_bytes(path, MOST_BYTES)
    last = content[content.rfind(b"\n") + 1 :]
    if _is_cut(last, is_first=last == content):
        file.truncate(len(content) - len(last))
    elif last:
        file.write(b"\n")
