"""Counts of results: an operator's kernel paths as columns, and what a page chooses as rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from dmlvk.conformance.results import Result, Status

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


@dataclass
class Cell:
    """The results of one operator and row on one path."""

    counts: Counter[Status] = field(default_factory=Counter)

    @property
    def worst(self) -> Status:
        return next(status for status in WORST_FIRST if self.counts[status])

    @property
    def text(self) -> str:
        """ "37", or the number of bad results of all: "2 of 37"; a dash if none was supported."""
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
    """One operator on one profile: rows by name, the operator's own paths as columns."""

    profile: str
    operator: str
    columns: list[str]
    rows: list[tuple[str, list[Cell | None]]]


def matrices(entries: Iterable[tuple[str, str, Result]]) -> list[Matrix]:
    """The matrices of results with their profiles and rows, by profile and operator.

    A case that was not built counts under the name of its group.
    """
    cells: dict[tuple[str, str], dict[str, dict[str, Cell]]] = {}
    for profile, row, result in entries:
        rows = cells.setdefault((profile, result.operator or result.name.partition(":")[0]), {})
        rows.setdefault(row, {}).setdefault(result.column, Cell()).counts[result.status] += 1
    profiles = list(dict.fromkeys(profile for profile, _ in cells))
    found = []
    for profile, operator in sorted(cells, key=lambda key: (profiles.index(key[0]), key[1])):
        rows = cells[profile, operator]
        columns = sorted({path for row in rows.values() for path in row})
        lines = [(name, [row.get(path) for path in columns]) for name, row in rows.items()]
        found.append(Matrix(profile, operator, columns, lines))
    return found
