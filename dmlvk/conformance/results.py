"""What came out: one result a case, written as JSON lines while the run goes on and read back afterwards.

The first line of a run is its environment, {"kind": "environment", ...}; each other one is a result, {"kind":
"result", ...}. Runs may be appended to one file: of a case that ran again the last result counts.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from dmlvk import files
from dmlvk.conformance.case import current_name
from dmlvk.conformance.errors import ConformanceError

# A full run on all profiles is some hundred MiB.
MOST_BYTES = 1 << 30
# How each line begins: what is left of one that was cut short tells whose it was.
LINE_STARTS = (b'{"kind": "environment"', b'{"kind": "result"')


class Status(str, Enum):
    """How a case ended."""

    PASS = "Pass"
    FAIL = "Fail"
    NOT_SUPPORTED = "NotSupported"
    FLAKY = "Flaky"
    DEVICE_LOST = "DeviceLost"
    TIMEOUT = "Timeout"


@dataclass(frozen=True)
class Result:
    """How one case ended on one profile of the device.

    Attributes
    ----------
    name, profile : str
        The case, and the profile to which the device was narrowed; "device" as it is.
    status : Status
    reason : str
        For a program to read, empty for Pass: "feature:shaderIntegerDotProduct", "path:matrix", "limit:memory" of
        NotSupported; "difference", "unwritten", "guard", "input", "digest", "validation", "exception:ValueError" of
        Fail; "VK_ERROR_DEVICE_LOST", "crash:SIGSEGV", "crash:exit status 3" of DeviceLost.
    message : str
        For a person.
    operator, types, path : str
        "SLICE1", "uint8", "tiles"; of a convolution the types of input, filter and output: "uint8 int8 uint8".
    digest : str
        The first 16 hexadecimal digits of the SHA-256 of the output's elements; of a case that did not give one
        empty.
    seconds : float
        From its start to its end, the reference's share included.
    waiver : str
        Why a failure is waived; empty where it is not.
    """

    name: str
    profile: str
    status: Status
    reason: str = ""
    message: str = ""
    operator: str = ""
    types: str = ""
    path: str = ""
    digest: str = ""
    seconds: float = 0.0
    waiver: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """Profile and name: what is run once."""
        return self.profile, self.name

    @property
    def is_good(self) -> bool:
        """Whether it may stand in a run that ends with status 0, waivers apart."""
        return self.status in (Status.PASS, Status.NOT_SUPPORTED)

    def to_json(self) -> dict[str, Any]:
        """As plain data, without what is empty."""
        members = {name: value for name, value in asdict(self).items() if value not in ("", 0.0)}
        return {"kind": "result", **members, "status": self.status.value, "seconds": round(self.seconds, 4)}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Result:
        """Read back what `to_json` gave; members of later versions are passed over.

        Raises
        ------
        KeyError, TypeError, ValueError
            A member is missing, or is not of its type.
        """
        read = cls(**_members(cls, record))
        return replace(read, name=current_name(read.name))


@dataclass(frozen=True)
class Environment:
    """Where a run took place.

    Attributes
    ----------
    device, driver, vulkan : str
        Names and version: "NVIDIA H200", "NVIDIA 580.159.04", "1.4.312".
    driver_version : str
        The driver's number, for waivers: "580.159.04.0".
    record : mapping
        The device's profile, as `DeviceProfile.from_record` reads it.
    features : tuple of str
        What the VkDevice was made with.
    package, python, numpy, system : str
        Versions, and the operating system.
    kernels : mapping of str to str
        SHA-256 of each kernel's SPIR-V.
    path : str
        The kernel path of cases that leave it to the planner; empty where it was left to the planner.
    validated : bool
        Whether the validation layer watched.
    date : str
        ISO 8601, UTC.
    command : str
    """

    device: str
    driver: str
    vulkan: str
    driver_version: str
    record: Mapping[str, Any]
    features: tuple[str, ...]
    package: str
    python: str
    numpy: str
    system: str
    kernels: Mapping[str, str]
    path: str = ""
    validated: bool = False
    date: str = ""
    command: str = ""

    @property
    def identity(self) -> tuple[object, ...]:
        """What has to be equal for results of one run to stand for another's."""
        return self.device, self.driver, self.driver_version, dict(self.kernels), self.path, self.validated

    def difference(self, other: Environment) -> str:
        """The first thing that makes results of one run unfit to stand for the other's; empty where there is none."""
        mine, theirs = (f"{run.device} with {run.driver} ({run.driver_version})" for run in (self, other))
        if mine != theirs:
            return f"they are of {mine}, and this is {theirs}"
        if self.kernels != other.kernels:
            return "they are of other kernels"
        if self.path != other.path:
            wanted = (f"path {run.path}" if run.path else "the planner's paths" for run in (self, other))
            return "they are of {}, and these are of {}".format(*wanted)
        if self.validated != other.validated:
            return f"they are of a run {'with' if self.validated else 'without'} --validate, and this is not"
        return ""

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {"kind": "environment", **asdict(self)}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Environment:
        """Read back what `to_json` gave. Raises as `Result.from_json` does."""
        return cls(**_members(cls, record))


def _only(*kinds: type) -> Callable[[Any], Any]:
    def checked(value: Any) -> Any:
        if not isinstance(value, kinds):
            raise TypeError(f"{type(value).__name__} in place of {kinds[0].__name__}")
        return value

    return checked


_text = _only(str)


def _number(value: Any) -> float:
    try:
        return float(_only(float, int)(value))
    except OverflowError as error:
        raise ValueError(str(error)) from error


# From JSON to a member of the type that its dataclass writes; a TypeError or ValueError for what is none.
_READERS: Mapping[str, Callable[[Any], Any]] = {
    "str": _text,
    "float": _number,
    "bool": _only(bool),
    "Status": Status,
    "tuple[str, ...]": lambda value: tuple(_text(each) for each in _only(list, tuple)(value)),
    "Mapping[str, str]": lambda value: {name: _text(each) for name, each in _only(dict)(value).items()},
    "Mapping[str, Any]": _only(dict),
}


def _members(cls: Any, record: Any) -> dict[str, Any]:
    """The members of a record that a dataclass has, each of its type."""
    kinds = {entry.name: str(entry.type) for entry in fields(cls)}
    return {name: _READERS[kinds[name]](value) for name, value in _only(dict)(record).items() if name in kinds}


@dataclass
class Run:
    """An environment and the results so far, by profile and name."""

    environment: Environment | None = None
    results: dict[tuple[str, str], Result] = field(default_factory=dict)

    def add(self, result: Result) -> None:
        """A result; of a case that ran before, the new one counts."""
        self.results[result.key] = result

    @property
    def failures(self) -> list[Result]:
        """Those that are neither Pass nor NotSupported, waived or not."""
        return [result for result in self.results.values() if not result.is_good]

    @property
    def succeeded(self) -> bool:
        """Whether there is nothing but Pass, NotSupported and what is waived."""
        return all(result.waiver for result in self.failures)

    def counts(self) -> Counter[Status]:
        """How many of each status."""
        return Counter(result.status for result in self.results.values())


class ResultsError(ConformanceError):
    """A file of results that cannot be read."""


def read_results(path: Path) -> Run:
    """Read the results of a run, of an interrupted one too: a last line that was cut short is passed over.

    Raises
    ------
    ResultsError
        A line is neither an environment nor a result.
    OSError
        The file cannot be read.
    """
    run = Run()
    for number, line in enumerate(files.read_bytes(path, MOST_BYTES).splitlines(keepends=True), 1):
        if not line.strip() or _is_cut(line, is_first=number == 1):
            continue
        place = f"{path}, line {number}"
        try:
            entry = _entry(line, place)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ResultsError(f"{place}: not a line of conformance results") from error
        if isinstance(entry, Result):
            run.add(entry)
            continue
        if run.environment is not None and entry.identity != run.environment.identity:
            difference = run.environment.difference(entry)
            raise ResultsError(f"{place}: runs that differ in one file: {difference}")
        run.environment = entry
    return run


def _entry(line: bytes, place: str) -> Environment | Result:
    record = _only(dict)(files.parse_json(line, place))
    kinds: dict[str, type[Environment] | type[Result]] = {"environment": Environment, "result": Result}
    return kinds[_text(record["kind"])].from_json(record)


def _is_cut(line: bytes, *, is_first: bool) -> bool:
    """Whether an interruption cut a line short that was to be one of ours; half of another's is another's."""
    if is_first:  # nothing before it says whose a brace or two are
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
    """Name the file in an error about it: a full disk is noticed where the system no longer says which."""
    try:
        yield
    except OSError as error:
        if path is not None and error.filename is None:
            error.filename = str(path)
        raise


class ResultsWriter:
    """Appends to a file of results, line by line: what was measured is kept however the run ends.

    Raises
    ------
    OSError
        The file cannot be written; or it holds something else than results, and is left as it is.
    """

    def __init__(self, path: Path | None) -> None:
        """Open the file; without one, nothing is written."""
        self._path = path
        self._file: BinaryIO | None = None
        if path is not None:
            files.require_own(path, read_results)
            self._file = files.open_to_write(path, append=True)
            _end_last_line(path, self._file)

    def write(self, entry: Environment | Result) -> None:
        """Append a line.

        Raises
        ------
        OSError
            Such as a full disk.
        """
        if self._file is None:
            return
        with naming(self._path):
            self._file.write(files.encoded(json.dumps(entry.to_json(), ensure_ascii=False, default=list) + "\n"))
            self._file.flush()

    def __enter__(self) -> ResultsWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if self._file is not None:
                self._file.close()
        except OSError:  # what did not fit on the disk does not fit now either: the first error is the one to tell
            if error is None:
                raise


def _end_last_line(path: Path, file: BinaryIO) -> None:
    """Take away a last line that an interruption cut short; end one that lacks nothing but its end."""
    if not path.is_file():
        return
    content = files.read_bytes(path, MOST_BYTES)
    last = content[content.rfind(b"\n") + 1 :]
    if _is_cut(last, is_first=last == content):
        file.truncate(len(content) - len(last))
    elif last:
        file.write(b"\n")
