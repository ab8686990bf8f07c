"""Waivers: known failures, each with a reason and a day on which it must be reviewed.

A waiver file is TOML:

    [[waiver]]
    driver = "llvmpipe"              # part of the driver's name, in any case
    versions = ">=22.3,<23"          # the driver's version number; all versions if absent
    cases = ["slice1:*:type=uint8;*"]   # patterns, as on the command line
    reason = "wrong result of a 16-bit shift, reported to Mesa"
    expires = 2027-06-30
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dmlvk import files
from dmlvk.conformance.case import Case
from dmlvk.conformance.errors import ConformanceError
from dmlvk.conformance.names import matches
from dmlvk.conformance.results import PASSED, Environment, Result

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

    Attributes
    ----------
    driver : str
        Part of the driver's name, in any case.
    versions : str
        Comparisons with the driver's version number, separated by commas: ">=22.3,<23". Empty: any version.
    cases : tuple of str
        Patterns of case names.
    reason : str
    expires : date
        The last day on which it holds.
    """

    driver: str
    versions: str
    cases: tuple[str, ...]
    reason: str
    expires: datetime.date

    def applies_to(self, environment: Environment) -> bool:
        """Whether the waiver is about this driver and this version of it."""
        if self.driver.casefold() not in environment.driver.casefold():
            return False
        mine = _numbers(environment.driver_version)
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


def _no_workload() -> Any:
    raise AssertionError("a case made of a name only is not run")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version))


def _comparisons(versions: str) -> list[tuple[str, tuple[int, ...]]]:
    found = []
    for part in filter(None, (part.strip() for part in versions.split(","))):
        parsed = re.fullmatch(r"(<=|>=|==|<|>)\s*(\d+(?:\.\d+)*)", part)
        if parsed is None:
            raise ValueError(f'{part!r} is no comparison; it must be one such as ">=22.3"')
        found.append((parsed[1], _numbers(parsed[2])))
    return found


def read_waivers(path: Path) -> list[Waiver]:
    """Read a waiver file.

    Raises
    ------
    WaiverError
        The file is not TOML, or a waiver lacks a field or has a wrong one.
    OSError
        The file cannot be read.
    """
    try:
        content = files.read_toml(path)
    except files.FileError as error:
        raise WaiverError(str(error)) from error
    entries = content.get("waiver", [])
    if not isinstance(entries, list) or set(content) - {"waiver"}:
        raise WaiverError(f"{path}: a waiver file must have [[waiver]] tables and nothing else")
    return [_waiver(f"{path}, waiver {number}", entry) for number, entry in enumerate(entries, 1)]


def _waiver(place: str, entry: Any) -> Waiver:
    kinds: dict[str, tuple[type, str]] = {
        "driver": (str, "part of a driver's name"),
        "versions": (str, 'comparisons such as ">=22.3,<23"'),
        "cases": (list, "a list of patterns"),
        "reason": (str, "a sentence"),
        "expires": (datetime.date, "a date such as 2027-06-30"),
    }
    if not isinstance(entry, dict):
        raise WaiverError(f"{place}: a waiver must be a table; write [[waiver]]")
    entry = {"versions": "", **entry}
    if unknown := sorted(entry.keys() - kinds.keys()):
        raise WaiverError(f"{place}: a waiver has no field {unknown[0]!r}; its fields are {', '.join(kinds)}")
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
    return Waiver(entry["driver"], entry["versions"], tuple(entry["cases"]), entry["reason"], entry["expires"])


@dataclass(frozen=True)
class WaiverReport:
    """The effect of waivers on a run.

    Attributes
    ----------
    waived : tuple of Result
        Failures that are waived, with the reason.
    passing : tuple of Result
        Waived cases that pass.
    unneeded : tuple of Waiver
        Waivers whose cases, of those that ran, all pass: they can be removed.
    expired : tuple of Waiver
        Waivers about this driver that no longer hold and whose cases still fail.
    """

    waived: tuple[Result, ...] = ()
    passing: tuple[Result, ...] = ()
    unneeded: tuple[Waiver, ...] = ()
    expired: tuple[Waiver, ...] = ()


def apply_waivers(
    waivers: Sequence[Waiver], environment: Environment, results: Iterable[Result], today: datetime.date
) -> WaiverReport:
    """Apply the waivers about a run's driver to its results."""
    waived, passing, expired = [], [], []
    unneeded: dict[Waiver, bool] = {}
    applying = [waiver for waiver in waivers if waiver.applies_to(environment)]
    for result in results if applying else ():
        for waiver in applying:
            if not waiver.names(result):
                continue
            if result.status in PASSED:
                if waiver.expires >= today:
                    passing.append(replace(result, waiver=waiver.reason))
                    unneeded.setdefault(waiver, True)
            elif not result.is_good:
                unneeded[waiver] = False
                if waiver.expires >= today:
                    waived.append(replace(result, waiver=waiver.reason))
                    break
                expired.append(waiver)
    return WaiverReport(
        tuple(waived),
        tuple(passing),
        tuple(waiver for waiver, can_go in unneeded.items() if can_go),
        tuple(dict.fromkeys(expired)),
    )
