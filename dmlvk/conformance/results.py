"""Results: one for each case, with the environment of their run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from enum import Enum
from typing import Any

from dmlvk.conformance.case import current_name
from dmlvk.conformance.errors import ConformanceError
from dmlvk.version import __version__

# Written into each environment. Files without it are of format 1, which lacks the status Unpredictable.
FORMAT = 2


class ResultsError(ConformanceError):
    """A file of results that cannot be read."""


class Status(str, Enum):
    """How a case ended."""

    PASS = "Pass"
    UNPREDICTABLE = "Unpredictable"
    FAIL = "Fail"
    NOT_SUPPORTED = "NotSupported"
    FLAKY = "Flaky"
    DEVICE_LOST = "DeviceLost"
    TIMEOUT = "Timeout"


# The three verdicts of a device that does what it must (the expected bits, or the expected error; any bits where the
# operator leaves them open, and no other byte), and what a device lacks.
GOOD = (Status.PASS, Status.UNPREDICTABLE, Status.NOT_SUPPORTED)
# A case that ended so need not run again.
PASSED = (Status.PASS, Status.UNPREDICTABLE)


@dataclass(frozen=True)
class Result:
    """How one case ended on one profile of the device.

    Attributes:
        name, profile (str): The case, and the profile to which the device was narrowed; "device" is the unchanged
            device.
        status (Status):
        reason (str): For a program to read, empty for Pass: "feature:shaderIntegerDotProduct", "path:matrix",
            "limit:memory" of NotSupported; "difference", "unwritten", "guard", "input", "digest", "validation",
            "exception:ValueError" of Fail; "VK_ERROR_DEVICE_LOST", "crash:SIGSEGV", "crash:exit status 3" of
            DeviceLost.
        message (str): For a person.
        operator, types, path (str): "SLICE1", "uint8", "tiles". For a convolution, the types of input, filter and
            output: "uint8 int8 uint8".
        digest (str): The first 16 hexadecimal digits of the SHA-256 of the output's elements; empty if the case gave no
            output.
        seconds (float): From the case's start to its end, the reference's share included.
        waiver (str): Why a failure is waived; empty if it is not.
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
        """Profile and name, which identify a result in a run."""
        return self.profile, self.name

    @property
    def column(self) -> str:
        """The kernel path by which tables count it: "matrix" of "matrix:64x64x64/4"; "any" where none was forced."""
        return self.path.partition("/")[0].partition(":")[0] or "any"

    @property
    def is_good(self) -> bool:
        """Whether a run with this result can end with status 0, apart from waivers."""
        return self.status in GOOD

    def to_json(self) -> dict[str, Any]:
        """As plain data, without empty members."""
        members = {name: value for name, value in asdict(self).items() if value not in ("", 0.0)}
        return {"kind": "result", **members, "status": self.status.value, "seconds": round(self.seconds, 4)}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Result:
        """Read back the result of `to_json`. Members from later versions are ignored.

        Raises:
            KeyError, TypeError, ValueError: A member is missing or has a wrong type.
        """
        read = cls(**_members(cls, record))
        return replace(read, name=current_name(read.name))


@dataclass(frozen=True)
class Environment:
    """The environment of a run.

    Attributes:
        device, driver, vulkan (str): Names and version: "NVIDIA H200", "NVIDIA 580.159.04", "1.4.312".
        driver_version (str): The driver's number, for waivers: "580.159.04.0".
        record (mapping): The device's profile, as `DeviceProfile.from_record` reads it.
        features (tuple of str): The features enabled on the VkDevice.
        package, python, numpy, system (str): Versions, and the operating system.
        kernels (mapping of str to str): SHA-256 of each kernel's SPIR-V.
        path (str): The kernel path for cases that leave the choice to the planner; empty if the planner chose.
        validated (bool): Whether the validation layer was enabled.
        date (str): ISO 8601, UTC.
        command (str):
        distrusted_paths (mapping of str to str): The kernel paths that the device does not take, because it answered a
            known question wrong, and the fault.
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
    distrusted_paths: Mapping[str, str] = field(default_factory=dict)

    @property
    def identity(self) -> tuple[object, ...]:
        """The members that must be equal before results of one run can replace those of another."""
        return self.device, self.driver, self.driver_version, dict(self.kernels), self.path, self.validated

    def difference(self, other: Environment) -> str:
        """The first difference that keeps one run's results from replacing the other's; empty if there is none."""
        mine, theirs = (f"{run.device} with {run.driver} ({run.driver_version})" for run in (self, other))
        if mine != theirs:
            return f"they come from {mine}, but this run is on {theirs}"
        if self.kernels != other.kernels:
            return "they come from other kernels"
        if self.path != other.path:
            wanted = (f"path {run.path}" if run.path else "the planner's paths" for run in (self, other))
            return "they come from {}, but this run takes {}".format(*wanted)
        if self.validated != other.validated:
            mine, theirs = ("with" if run.validated else "without" for run in (self, other))
            return f"they come from a run {mine} --validate, but this run is {theirs} it"
        return ""

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {"kind": "environment", "format": FORMAT, **asdict(self)}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Environment:
        """Read back the result of `to_json`. Raises as `Result.from_json` does.

        Raises:
            ResultsError: The results are of a later format.
        """
        written = record.get("format", 1)
        if not isinstance(written, int) or not 1 <= written <= FORMAT:
            package = record.get("package")
            by = f", written by dmlvk {package}" if isinstance(package, str) else ""
            raise ResultsError(
                f"results of format {written!r}{by}; this dmlvk {__version__} reads formats 1 to {FORMAT}: update dmlvk"
            )
        return cls(**_members(cls, record))


def only(*kinds: type) -> Callable[[Any], Any]:
    """A function that returns what has one of these types; a TypeError for anything else."""

    def checked(value: Any) -> Any:
        if not isinstance(value, kinds):
            raise TypeError(f"{type(value).__name__} in place of {kinds[0].__name__}")
        return value

    return checked


_text = only(str)


def _number(value: Any) -> float:
    try:
        return float(only(float, int)(value))
    except OverflowError as error:
        raise ValueError(str(error)) from error


# Functions from JSON to a member of the dataclass's type; a TypeError or ValueError for other JSON.
_READERS: Mapping[str, Callable[[Any], Any]] = {
    "str": _text,
    "float": _number,
    "bool": only(bool),
    "Status": Status,
    "tuple[str, ...]": lambda value: tuple(_text(each) for each in only(list, tuple)(value)),
    "Mapping[str, str]": lambda value: {name: _text(each) for name, each in only(dict)(value).items()},
    "Mapping[str, Any]": only(dict),
}


def _members(cls: Any, record: Any) -> dict[str, Any]:
    """The members of a record that a dataclass has, each converted to its type."""
    kinds = {entry.name: str(entry.type) for entry in fields(cls)}
    return {name: _READERS[kinds[name]](value) for name, value in only(dict)(record).items() if name in kinds}


def version_numbers(version: str) -> tuple[int, ...]:
    """A version's numbers, which are in the order of the versions: (22, 3, 6)."""
    return tuple(int(number) for number in re.findall(r"\d+", version))


@dataclass
class Run:
    """An environment and the results so far, by profile and name.

    Attributes:
        environment (Environment, optional):
        results (dict):
        is_cut (bool): Whether the file from which the run was read ends in the middle of a line.
    """

    environment: Environment | None = None
    results: dict[tuple[str, str], Result] = field(default_factory=dict)
    is_cut: bool = field(default=False, compare=False)

    def add(self, result: Result) -> None:
        """Add a result. If the case ran before, the new result counts."""
        self.results[result.key] = result

    @property
    def failures(self) -> list[Result]:
        """The results that are not good, waived or not."""
        return [result for result in self.results.values() if not result.is_good]

    @property
    def succeeded(self) -> bool:
        """Whether all results are good or waived."""
        return all(result.waiver for result in self.failures)

    def counts(self) -> Counter[Status]:
        """The number of results of each status."""
        return Counter(result.status for result in self.results.values())
