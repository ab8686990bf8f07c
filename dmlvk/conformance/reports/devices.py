"""The runs of several devices: one page of HTML, and what their digests say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import jinja2

from dmlvk import files
from dmlvk.conformance.reports.html import page
from dmlvk.conformance.results import Result, Run, Status
from dmlvk.conformance.waivers import WaiverReport


@dataclass(frozen=True)
class Disagreement:
    """A case whose output has different bits on different devices.

    Attributes
    ----------
    name, profile : str
    devices : mapping of str to list of str
        By digest, the devices.
    """

    name: str
    profile: str
    devices: Mapping[str, list[str]]


@dataclass(frozen=True)
class Agreement:
    """What the digests of several devices say.

    Attributes
    ----------
    count : int
        Cases with digests from two devices or more that are all equal.
    disagreements : list of Disagreement
    """

    count: int
    disagreements: list[Disagreement]


def agreement(runs: Sequence[Run]) -> Agreement:
    """Compare the digests of each case on all devices."""
    digests: dict[tuple[str, str], dict[str, list[str]]] = {}
    for run in runs:
        device = "" if run.environment is None else f"{run.environment.device} ({run.environment.driver})"
        for key, result in run.results.items():
            if result.digest:
                digests.setdefault(key, {}).setdefault(result.digest, []).append(device)
    shared = {key: found for key, found in digests.items() if sum(map(len, found.values())) > 1}
    different = [Disagreement(name, profile, found) for (profile, name), found in shared.items() if len(found) > 1]
    return Agreement(len(shared) - len(different), different)


def write_page(path: Path, runs: Sequence[Run], waivers: Sequence[WaiverReport]) -> None:
    """Write the runs as one page that needs nothing beside itself: a table of the devices, and the page of each.

    Raises
    ------
    OSError
    """
    source = resources.files("dmlvk.conformance.reports").joinpath("devices.html").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    rows = [
        (run.environment, [run.counts()[status] for status in Status], page(run, report))
        for run, report in zip(runs, waivers, strict=True)
    ]
    statuses = [status.value for status in Status]
    text = environment.from_string(source).render(rows=rows, statuses=statuses, agreement=agreement(runs))
    files.write_text(path, text)


def all_results(runs: Sequence[Run]) -> list[Result]:
    """The results of all devices."""
    return [result for run in runs for result in run.results.values()]
