"""A run as one self-contained page of HTML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

import jinja2

from dmlvk import files
from dmlvk.conformance.results import Result, Run, Status
from dmlvk.conformance.waivers import WaiverReport

# The worst result in a cell of the matrix gives the cell its colour.
WORST_FIRST = (
    Status.DEVICE_LOST,
    Status.TIMEOUT,
    Status.FAIL,
    Status.FLAKY,
    Status.PASS,
    Status.NOT_SUPPORTED,
)
# At most this many of the slowest cases are listed.
SLOWEST_COUNT = 10


@dataclass
class Cell:
    """The results of one operator and types on one path."""

    counts: Counter[Status] = field(default_factory=Counter)

    @property
    def worst(self) -> Status:
        return next(status for status in WORST_FIRST if self.counts[status])

    @property
    def text(self) -> str:
        """ "37", or the number of bad results of all: "2 of 37"."""
        total = sum(self.counts.values())
        bad = total - self.counts[Status.PASS] - self.counts[Status.NOT_SUPPORTED]
        if bad:
            return f"{bad} of {total}"
        return str(self.counts[Status.PASS] or "–")

    @property
    def tooltip(self) -> str:
        return ", ".join(f"{self.counts[status]} {status.value}" for status in Status if self.counts[status])


@dataclass
class Matrix:
    """Operators with their types as rows, paths as columns; one matrix for each profile."""

    profile: str
    columns: list[str]
    rows: list[tuple[str, str, list[Cell | None]]]


def matrices(results: Iterable[Result]) -> list[Matrix]:
    """The matrices of a run, one for each profile. A case that was not built has unknown types: its group counts it."""
    cells: dict[str, dict[tuple[str, str], dict[str, Cell]]] = {}
    for result in results:
        rows = cells.setdefault(result.profile, {})
        row = (result.operator or result.name.partition(":")[0], result.types)
        rows.setdefault(row, {}).setdefault(result.path or "any", Cell()).counts[result.status] += 1
    found = []
    for profile, rows in cells.items():
        columns = sorted({path for row in rows.values() for path in row})
        lines = [
            (operator, types, [row.get(path) for path in columns]) for (operator, types), row in sorted(rows.items())
        ]
        found.append(Matrix(profile, columns, lines))
    return found


def write_html(path: Path, run: Run, waivers: WaiverReport) -> None:
    """Write a run.

    Raises
    ------
    OSError
    """
    files.write_text(path, page(run, waivers))


def page(run: Run, waivers: WaiverReport) -> str:
    """The page of a run."""
    source = resources.files("dmlvk.conformance.reports").joinpath("report.html").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    results = list(run.results.values())
    counts = run.counts()
    return environment.from_string(source).render(
        run=run,
        environment=run.environment,
        statuses=[(status.value, counts[status]) for status in Status],
        total=len(results),
        matrices=matrices(results),
        failures=[result for result in run.failures if not result.waiver],
        waivers=waivers,
        not_supported=Counter(
            (result.reason, result.message) for result in results if result.status is Status.NOT_SUPPORTED
        ).most_common(),
        slowest=sorted(results, key=lambda result: -result.seconds)[:SLOWEST_COUNT],
        seconds=sum(result.seconds for result in results),
    )
