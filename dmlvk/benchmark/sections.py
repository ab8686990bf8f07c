"""Tables of text, printed on a terminal or as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dmlvk import _printable as printable
from dmlvk._common.unbroken import unbroken
from dmlvk.benchmark.records import Record

EQUAL, DIFFERENT = "equal", "DIFFERENT"


@dataclass(frozen=True)
class Section:
    """A table.

    heads: of the columns. A column of numbers is aligned to the right.
    rows: without rows the notes stand alone.
    notes: lines below the table.
    """

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()


def show(sections: Iterable[Section], terminal: Console) -> None:
    """Print tables on a terminal. Where a table would break words, its rows are printed one below the other."""
    for section in sections:
        if section.rows:
            terminal.print(unbroken(_table(section), terminal))
        for note in section.notes:
            terminal.print(note)


def _table(section: Section) -> Table:
    table = Table(title=section.title, title_justify="left")
    for head in section.heads:
        is_number = all(_is_number(row[len(table.columns)]) for row in section.rows)
        table.add_column(head, justify="right" if is_number else "left", overflow="fold")
    for row in section.rows:
        table.add_row(*(Text(printable.printable(cell), _colour(cell)) for cell in row))
    return table


def markdown(sections: Iterable[Section]) -> Iterator[str]:
    """The lines of a page of Markdown."""
    for number, section in enumerate(sections):
        if number:
            yield ""
        if section.rows or not number:
            yield f"{'##' if number else '#'} {printable.markdown(section.title)}"
        if section.rows:
            yield ""
            yield f"| {' | '.join(map(printable.markdown, section.heads))} |"
            yield f"|{'---|' * len(section.heads)}"
        for row in section.rows:
            yield f"| {' | '.join(map(printable.markdown, row))} |"
        if section.notes:
            yield ""
        for note in section.notes:
            yield f"- {printable.markdown(note)}"


def title_of(record: Record, subject: str) -> str:
    """The first line of a record's tables."""
    device = record["device"]
    return f"{subject} on {device['name']}, {device['driver']}, {record['date']}"


def absences(record: Record) -> list[str]:
    """A line for each peer that was not measured, and one for each that was."""
    lines = [f"{name}: version {peer['version']}, on {peer['runs_on']}" for name, peer in record["peers"].items()]
    for reason in dict.fromkeys(record["absent_peers"].values()):
        names = [name for name, why in record["absent_peers"].items() if why == reason]
        lines.append(f"peer{'s' * (len(names) > 1)} {', '.join(names)}: absent, {reason}")
    return lines


def origin(record: Record, command: str) -> str:
    """How a record's page was made, for the page."""
    versions = record["versions"]
    installed = versions["dmlvk"] if versions["dmlvk"][:1].isdigit() else f"({versions['dmlvk']})"
    return (
        f"Measured by {printable.markdown_code(command)} with dmlvk {printable.markdown(installed)}, "
        f"Python {printable.markdown(versions['python'])} and NumPy {printable.markdown(versions['numpy'])}. Both "
        "`--markdown` in that run and `--from-json` with `--markdown` write this page."
    )


def ratio_text(ratio: float) -> str:
    """A ratio with two digits that count."""
    return f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.3f}"


def us_text(seconds: float) -> str:
    """Microseconds, with a decimal if they are few."""
    return f"{seconds * 1e6:,.1f}" if seconds < 1e-3 else f"{seconds * 1e6:,.0f}"


def _colour(cell: str) -> str:
    return "red" if DIFFERENT in cell else "green" if cell.partition(":")[0] == EQUAL else ""


def _is_number(text: str) -> bool:
    return text in ("", "-") or text[:1].isdigit()
