"""A run as one self-contained page of HTML."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import jinja2
from markupsafe import Markup, escape

from dmlvk._common import files
from dmlvk._printable import printable
from dmlvk.conformance.results import Result, Run, Status
from dmlvk.conformance.waivers import WaiverReport

# The worst result in a cell of the matrix gives the cell its colour.
WORST_FIRST = (
    Status.DEVICE_LOST,
    Status.TIMEOUT,
    Status.FAIL,
    Status.FLAKY,
    Status.PASS,
    Status.UNPREDICTABLE,
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
        good = sum(count for status, count in self.counts.items() if Result("", "", status).is_good)
        if good < total:
            return f"{total - good} of {total}"
        return str(total - self.counts[Status.NOT_SUPPORTED] or "–")

    @property
    def tooltip(self) -> str:
        return ", ".join(f"{self.counts[status]} {status.value}" for status in Status if self.counts[status])


@dataclass
class Matrix:
    """One operator on one profile: its types as rows, its own paths as columns."""

    profile: str
    operator: str
    columns: list[str]
    rows: list[tuple[str, list[Cell | None]]]


def matrices(results: Iterable[Result]) -> list[Matrix]:
    """The matrices of a run, by profile and operator. A case that was not built counts under the name of its group."""
    cells: dict[tuple[str, str], dict[str, dict[str, Cell]]] = {}
    for result in results:
        rows = cells.setdefault((result.profile, result.operator or result.name.partition(":")[0]), {})
        rows.setdefault(result.types, {}).setdefault(result.column, Cell()).counts[result.status] += 1
    profiles = list(dict.fromkeys(profile for profile, _ in cells))
    found = []
    for profile, operator in sorted(cells, key=lambda key: (profiles.index(key[0]), key[1])):
        rows = cells[profile, operator]
        columns = sorted({path for row in rows.values() for path in row})
        lines = [(types, [row.get(path) for path in columns]) for types, row in sorted(rows.items())]
        found.append(Matrix(profile, operator, columns, lines))
    return found


@dataclass
class Tested:
    """What one group tests, and how its cases ended."""

    group: str
    about: str
    cell: Cell


def tested_groups(results: Iterable[Result], groups: Mapping[str, str]) -> list[Tested]:
    """The groups of a run, in the order of their first results."""
    found: dict[str, Tested] = {}
    for result in results:
        group = result.name.rpartition(":")[0]
        found.setdefault(group, Tested(group, groups.get(group, ""), Cell())).cell.counts[result.status] += 1
    return list(found.values())


def style() -> str:
    """The style sheet of all pages."""
    return files.packaged_text("dmlvk.conformance.reports", "style.css")


def write_html(path: Path, run: Run, waivers: WaiverReport, groups: Mapping[str, str] = MappingProxyType({})) -> None:
    """Write a run.

    groups: what each group of cases tests.
    Raises OSError.
    """
    files.write_text(path, page(run, waivers, groups))


def shown(value: object) -> object:
    """What a template shows: every text is printable, then jinja escapes what HTML would obey."""
    return value if isinstance(value, Markup) or not isinstance(value, str) else printable(value, is_multiline=True)


def broken(name: str) -> Markup:
    """A case's name, which may break into lines behind its signs, not in a word."""
    return Markup(re.sub(r"(?<=[:;,=/_.])(?=\w)", "<wbr>", str(escape(printable(name)))))


def page(run: Run, waivers: WaiverReport, groups: Mapping[str, str] = MappingProxyType({})) -> str:
    """The page of a run."""
    source = files.packaged_text("dmlvk.conformance.reports", "report.html")
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, finalize=shown)
    environment.filters["broken"] = broken
    results = list(run.results.values())
    counts = run.counts()
    return environment.from_string(source).render(
        run=run,
        environment=run.environment,
        statuses=[(status.value, counts[status]) for status in Status],
        total=len(results),
        style=Markup(style()),
        matrices=matrices(results),
        groups=tested_groups(results, groups),
        failures=[result for result in run.failures if not result.waiver],
        waivers=waivers,
        not_supported=Counter(
            (result.reason, result.message) for result in results if result.status is Status.NOT_SUPPORTED
        ).most_common(),
        slowest=sorted(results, key=lambda result: -result.seconds)[:SLOWEST_COUNT],
        seconds=sum(result.seconds for result in results),
    )
