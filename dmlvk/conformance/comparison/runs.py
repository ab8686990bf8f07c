"""The runs of a comparison, read from files of results: which belong together, and what each is called."""

from __future__ import annotations

import datetime
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dmlvk._common import files
from dmlvk.conformance.errors import ConformanceError
from dmlvk.conformance.results import Environment, Result, Run, Status, version_numbers
from dmlvk.conformance.results_file import MOST_BYTES, read_device_runs
from dmlvk.runtime.device_info import TYPE_NAMES, VENDORS

# What identifies a device, and not its driver's release: vendor and device number, driver, name.
DeviceKey = tuple[object, ...]


class ComparisonError(ConformanceError):
    """Files that cannot be compared. The message names the file and says what would be right."""


@dataclass(frozen=True)
class DeviceRun:
    """One run of the suite on one device.

    label: a short name that no other run of the comparison has: "NVIDIA H200 580.159.04".
    paths: the files; several if they are parts of one run.
    results: by profile and name.
    places: the file in which each result was found.
    """

    label: str
    paths: tuple[Path, ...]
    environment: Environment
    results: Mapping[tuple[str, str], Result]
    places: Mapping[tuple[str, str], Path] = field(repr=False)

    @property
    def device(self) -> DeviceKey:
        """The same for all runs of one device, whatever the release of its driver."""
        return device_key(self.environment)

    @property
    def vendor(self) -> str:
        """ "NVIDIA", "Mesa"; a number if the vendor is not known."""
        number = number_in(self.environment.record, "vendorID")
        return VENDORS.get(number, f"vendor {number:#06x}")

    @property
    def kind(self) -> str:
        """ "discrete GPU", "CPU"."""
        number = number_in(self.environment.record, "deviceType")
        return next((name for kind, name in TYPE_NAMES.items() if kind == number), "other")

    @property
    def date(self) -> str:
        """The day of the run, "2026-11-23"; empty if the file does not say it."""
        return self.environment.date[:10]

    def counts(self) -> dict[Status, int]:
        """The number of results of each status."""
        return dict(Run(self.environment, dict(self.results)).counts())


def number_in(record: Mapping[str, Any], name: str) -> int:
    """A number of a device's record; -1 if the record lacks it."""
    value = record.get(name)
    return value if isinstance(value, int) else -1


def short_name(device: str) -> str:
    """A device's name without its driver's remarks: "llvmpipe" of "llvmpipe (LLVM 15.0.6, 256 bits)"."""
    return re.sub(r"\s*\([^()]*\)", "", device).strip() or device


def device_key(environment: Environment) -> DeviceKey:
    """The members of an environment that stay the same when a driver is updated."""
    properties = environment.record.get("properties")
    driver = number_in(properties, "driverID") if isinstance(properties, dict) else -1
    numbers = (number_in(environment.record, name) for name in ("vendorID", "deviceID"))
    return (*numbers, driver, short_name(environment.device))


@dataclass
class _Source:
    """One file."""

    path: Path
    run: Run
    digest: str

    @property
    def environment(self) -> Environment:
        assert self.run.environment is not None
        return self.run.environment


def read_runs(paths: Sequence[Path]) -> tuple[list[DeviceRun], list[str]]:
    """Read files of results.

    Parts of one run, such as those of `--shard`, are put together: they have one device, driver and kernels, and no
    case in common. Runs of one device stand beside each other: an older driver before a newer one, of one driver an
    older dmlvk first, and else the older run.

    Returns the runs, and what a reader has to know about the files, one sentence each.
    Raises ComparisonError: a file is empty, holds no results, or is named twice.
    Raises ResultsError: a file is something else, or of a later format.
    Raises OSError: a file cannot be read.
    """
    sources: list[_Source] = []
    notes = []
    for path in paths:
        found = _read(path)
        for other in sources:
            if files.is_same(path, other.path):
                raise ComparisonError(f"{path} is given twice (first as {other.path}); name each file once")
            if found[0].digest == other.digest:
                raise ComparisonError(f"{path} is a copy of {other.path}: a run cannot be compared with itself")
        if any(source.run.is_cut for source in found):
            count = sum(len(source.run.results) for source in found)
            notes.append(f"{path} is cut off in the middle of a line: its {count:,} whole results are compared.")
        sources += found
    runs, further = _grouped(sources)
    return runs, [*notes, *further]


def runs_of(runs: Sequence[Run], path: Path) -> list[DeviceRun]:
    """Runs that were not read: their outputs are kept, if at all, beside a file of results."""
    return _grouped([_Source(path, run, "") for run in runs])[0]


def _grouped(sources: Sequence[_Source]) -> tuple[list[DeviceRun], list[str]]:
    """The runs of some files with their labels, and a note for each that has several parts."""
    notes = []
    groups = _parts(sources)
    groups.sort(key=_order(groups))
    runs = []
    for group, label in zip(groups, _labels(groups), strict=True):
        results: dict[tuple[str, str], Result] = {}
        places: dict[tuple[str, str], Path] = {}
        for source in group:
            results |= source.run.results
            places |= dict.fromkeys(source.run.results, source.path)
        paths_of_group = tuple(source.path for source in group)
        runs.append(DeviceRun(label, paths_of_group, group[0].environment, results, places))
        if len(group) > 1:
            names = ", ".join(map(str, paths_of_group))
            notes.append(f"{names} are parts of one run: {label}, {len(results):,} results.")
    return runs, notes


def _read(path: Path) -> list[_Source]:
    """The runs of a file: several if they ran on a cluster."""
    content = files.read_bytes(path, MOST_BYTES)
    if not content.strip():
        raise ComparisonError(f"{path} is empty; `dmlvk conformance --json {path.name}` writes results into it")
    runs = read_device_runs(path)
    if any(run.environment is None for run in runs):
        raise ComparisonError(
            f"{path} does not say on which device it was made: it lacks its first line, the environment"
        )
    found = [run for run in runs if run.results]
    if not found:
        raise ComparisonError(f"{path} holds no result: its run ended before the first case")
    return [_Source(path, run, hashlib.sha256(content).hexdigest()) for run in found]


def _parts(sources: Iterable[_Source]) -> list[list[_Source]]:
    """Put the parts of each run together."""
    groups: list[list[_Source]] = []
    for source in sources:
        for group in groups:
            is_one_run = source.environment.identity == group[0].environment.identity
            if is_one_run and all(source.run.results.keys().isdisjoint(other.run.results) for other in group):
                group.append(source)
                break
        else:
            groups.append([source])
    return groups


def _order(groups: list[list[_Source]]) -> Callable[[list[_Source]], tuple[object, ...]]:
    """Devices in the order in which they were named, each with its oldest driver first, then dmlvk, then run."""
    devices = list(dict.fromkeys(device_key(group[0].environment) for group in groups))
    places = {id(group): place for place, group in enumerate(groups)}

    def key(group: list[_Source]) -> tuple[object, ...]:
        environment = group[0].environment
        return (
            devices.index(device_key(environment)),
            version_numbers(environment.driver_version),
            version_numbers(environment.package),
            moment(environment.date),
            places[id(group)],
        )

    return key


def moment(date: str) -> float:
    """A date of ISO 8601 as seconds since 1970; 0 if it is none."""
    try:
        found = datetime.datetime.fromisoformat(date)
    except ValueError:
        return 0.0
    return (found if found.tzinfo else found.replace(tzinfo=datetime.timezone.utc)).timestamp()


def _labels(groups: list[list[_Source]]) -> list[str]:
    """Names that tell the runs apart: device and driver's release; where that is not enough, more."""
    environments = [group[0].environment for group in groups]
    facts: list[Callable[[int], str]] = [
        lambda k: f"{short_name(environments[k].device)} {environments[k].driver_version}".strip(),
        lambda k: environments[k].driver,
        lambda k: f"dmlvk {environments[k].package}",
        lambda k: environments[k].date[:10],
        lambda k: groups[k][0].path.stem,
        lambda k: f"number {k + 1}",
    ]
    labels = [facts[0](k) for k in range(len(groups))]
    for fact in facts[1:]:
        alike = {label for label in labels if labels.count(label) > 1}
        for label in alike:
            members = [k for k, other in enumerate(labels) if other == label]
            if len({fact(k) for k in members}) > 1:
                for k in members:
                    labels[k] = f"{label}, {fact(k)}"
    return labels
