"""Waivers: known failures and known flakes, each with a reason and a day on which it must be reviewed.

A waiver file is TOML:

    [[waiver]]
    driver = "llvmpipe"              # part of the driver's name, in any case
    versions = ">=22.3,<23"          # the driver's version number; all versions if absent
    cases = ["slice1:*:type=uint8;*"]   # patterns, as on the command line
    reason = "wrong result of a 16-bit shift, reported to Mesa"
    expires = 2027-06-30

    [[flake]]                        # run again where it fails, and reported as Flaky if it passes then
    driver = "llvmpipe"
    cases = ["one_hot:long"]
    reason = "a lost wake-up of the rasterizer's threads, reported to Mesa"
    expires = 2027-06-30
    runs = 3                         # the most further runs; 3 if absent
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dmlvk._common import files
from dmlvk.conformance.case import Case
from dmlvk.conformance.errors import ConformanceError
from dmlvk.conformance.names import matches
from dmlvk.conformance.results import PASSED, Environment, Result, Status, version_numbers

# How often a flaky case that failed is run again.
FURTHER_RUNS = 3
COMPARISONS = {
    "<=": lambda mine, theirs: mine <= theirs,
    ">=": lambda mine, theirs: mine >= theirs,
    "==": lambda mine, theirs: mine == theirs,
    "<": lambda mine, theirs: mine < theirs,
    ">": lambda mine, theirs: mine > theirs,
}


class WaiverError(ConformanceError):
    """A waiver file that cannot be used; the message names the file, the waiver and the field."""


@dataclass(frozen=True)
class Waiver:
    """One waiver.

    driver: part of the driver's name, in any case.
    versions: comparisons with the driver's version number, separated by commas: ">=22.3,<23". Empty: any version.
    cases: patterns of case names.
    expires: the last day on which it holds.
    """

    driver: str
    versions: str
    cases: tuple[str, ...]
    reason: str
    expires: datetime.date

    def holds_on(self, today: datetime.date) -> bool:
        """Whether its last day has not passed."""
        return self.expires >= today

    def applies_to(self, environment: Environment) -> bool:
        """Whether the waiver is about this driver and this version of it."""
        if self.driver.casefold() not in environment.driver.casefold():
            return False
        mine = version_numbers(environment.driver_version)
        for sign, wanted in _comparisons(self.versions):
            length = max(len(mine), len(wanted))
            padded = [numbers + (0,) * (length - len(numbers)) for numbers in (mine, wanted)]
            if not COMPARISONS[sign](*padded):
                return False
        return True

    def names(self, result: Result) -> bool:
        """Whether the waiver is about this case."""
        case = Case(result.name, _no_workload)
        return any(matches(pattern, case) for pattern in self.cases)


@dataclass(frozen=True)
class Flake(Waiver):
    """Cases that fail now and then.

    runs: the most further runs of a case that failed.
    """

    runs: int = FURTHER_RUNS

    def excuses(self, result: Result) -> bool:
        """Whether a result is what the flake says: it failed, and then passed, or gave different bits in one run."""
        return result.status is Status.FLAKY and self.names(result)


def _no_workload() -> Any:
    raise AssertionError("a case made of a name only is not run")


def _comparisons(versions: str) -> list[tuple[str, tuple[int, ...]]]:
    found = []
    for part in filter(None, (part.strip() for part in versions.split(","))):
        parsed = re.fullmatch(r"(<=|>=|==|<|>)\s*(\d+(?:\.\d+)*)", part)
        if parsed is None:
            raise ValueError(f'{part!r} is no comparison; it must be one such as ">=22.3"')
        found.append((parsed[1], version_numbers(parsed[2])))
    return found


def read_waivers(path: Path) -> tuple[list[Waiver], list[Flake]]:
    """Read a waiver file: the waivers, and the known flakes.

    Raises WaiverError: the file is not TOML, or a waiver lacks a field or has a wrong one.
    Raises OSError: the file cannot be read.
    """
    try:
        content = files.read_toml(path)
    except files.FileError as error:
        raise WaiverError(str(error)) from error
    waivers, flakes = content.get("waiver", []), content.get("flake", [])
    if not isinstance(waivers, list) or not isinstance(flakes, list) or content.keys() - {"waiver", "flake"}:
        raise WaiverError(f"{path}: a waiver file must have [[waiver]] and [[flake]] tables and nothing else")
    return (
        [Waiver(**_fields(f"{path}, waiver {number}", entry)) for number, entry in enumerate(waivers, 1)],
        [Flake(**_flake_fields(f"{path}, flake {number}", entry)) for number, entry in enumerate(flakes, 1)],
    )


def _flake_fields(place: str, entry: Any) -> dict[str, Any]:
    runs = entry.get("runs", FURTHER_RUNS) if isinstance(entry, dict) else FURTHER_RUNS
    if type(runs) is not int or runs < 1:
        raise WaiverError(f"{place}: runs = {runs!r}; it must be a number of further runs, 1 or more")
    others = {name: value for name, value in entry.items() if name != "runs"} if isinstance(entry, dict) else entry
    return {**_fields(place, others), "runs": runs}


def _fields(place: str, entry: Any) -> dict[str, Any]:
    kinds: dict[str, tuple[type, str]] = {
        "driver": (str, "part of a driver's name"),
        "versions": (str, 'comparisons such as ">=22.3,<23"'),
        "cases": (list, "a list of patterns"),
        "reason": (str, "a sentence"),
        "expires": (datetime.date, "a date such as 2027-06-30"),
    }
    if not isinstance(entry, dict):
        raise WaiverError(f"{place}: it must be a table; write [[waiver]] or [[flake]]")
    entry = {"versions": "", **entry}
    if unknown := sorted(entry.keys() - kinds.keys()):
        raise WaiverError(f"{place}: there is no field {unknown[0]!r}; the fields are {', '.join(kinds)}")
    for name, (kind, wanted) in kinds.items():
        value = entry.get(name)
        if not isinstance(value, kind) or isinstance(value, datetime.datetime):
            raise WaiverError(f"{place}: {name} = {value!r}; it must be {wanted}")
        if name != "versions" and not value:
            raise WaiverError(f"{place}: {name} is empty; it must be {wanted}")
    if not all(isinstance(pattern, str) for pattern in entry["cases"]):
        raise WaiverError(f"{place}: cases = {entry['cases']!r}; it must be a list of patterns")
    try:
        _comparisons(entry["versions"])
    except ValueError as error:
        raise WaiverError(f"{place}: versions = {entry['versions']!r}: {error}") from error
    return {**entry, "cases": tuple(entry["cases"])}


@dataclass(frozen=True)
class WaiverReport:
    """The effect of waivers on a run.

    waived: failures that are waived, with the reason.
    passing: waived cases that pass.
    unneeded: waivers whose cases, of those that ran, all pass: they can be removed.
    expired: waivers about this driver that no longer hold and whose cases still fail.
    """

    waived: tuple[Result, ...] = ()
    passing: tuple[Result, ...] = ()
    unneeded: tuple[Waiver, ...] = ()
    expired: tuple[Waiver, ...] = ()


def further_runs(
    flakes: Sequence[Flake], environment: Environment, result: Result, today: datetime.date, least: int = 0
) -> int:
    """The number of further runs of a failed case: the largest number of its flakes, and at least `least`."""
    found = [
        flake.runs
        for flake in flakes
        if flake.holds_on(today) and flake.applies_to(environment) and flake.names(result)
    ]
    return max(least, *found) if found else least


def apply_waivers(
    waivers: Sequence[Waiver],
    environment: Environment,
    results: Iterable[Result],
    today: datetime.date,
    flakes: Sequence[Flake] = (),
) -> WaiverReport:
    """Apply the waivers and the flakes about a run's driver to its results."""
    results = list(results)
    report = _waived(waivers, environment, results, today)
    known = {result.key for result in report.waived}
    waived, expired = list(report.waived), list(report.expired)
    for flake in flakes:
        if not flake.applies_to(environment):
            continue
        for result in results:
            if result.key in known or not flake.excuses(result):
                continue
            if flake.holds_on(today):
                known.add(result.key)
                waived.append(replace(result, waiver=flake.reason))
            else:
                expired.append(flake)
    return replace(report, waived=tuple(waived), expired=tuple(dict.fromkeys(expired)))


def _waived(
    waivers: Sequence[Waiver], environment: Environment, results: Sequence[Result], today: datetime.date
) -> WaiverReport:
    waived, passing, expired = [], [], []
    unneeded: dict[Waiver, bool] = {}
    applying = [waiver for waiver in waivers if waiver.applies_to(environment)]
    for result in results if applying else ():
        for waiver in applying:
            if not waiver.names(result):
                continue
            if result.status in PASSED:
                if waiver.holds_on(today):
                    passing.append(replace(result, waiver=waiver.reason))
                    unneeded.setdefault(waiver, True)
            elif not result.is_good:
                unneeded[waiver] = False
                if waiver.holds_on(today):
                    waived.append(replace(result, waiver=waiver.reason))
                    break
                expired.append(waiver)
    return WaiverReport(
        tuple(waived),
        tuple(passing),
        tuple(waiver for waiver, can_go in unneeded.items() if can_go),
        tuple(dict.fromkeys(expired)),
    )
