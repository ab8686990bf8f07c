"""A run as one self-contained page of HTML."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import jinja2
from markupsafe import Markup, escape

from dmlvk._common import files
from dmlvk._printable import printable
from dmlvk.conformance.reports.matrices import Cell, Matrix, matrices
from dmlvk.conformance.results import Result, Run, Status
from dmlvk.conformance.waivers import WaiverReport

# At most this many of the slowest cases are listed.
SLOWEST_COUNT = 10


def matrices_by_types(results: Iterable[Result]) -> list[Matrix]:
    """The matrices of a run, with types as rows."""
    found = matrices((result.profile, result.types, result) for result in results)
    for matrix in found:
        matrix.rows.sort(key=lambda row: row[0])
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
        matrices=matrices_by_types(results),
        groups=tested_groups(results, groups),
        failures=[result for result in run.failures if not result.waiver],
        waivers=waivers,
        not_supported=Counter(
            (result.reason, result.message) for result in results if result.status is Status.NOT_SUPPORTED
        ).most_common(),
        slowest=sorted(results, key=lambda result: -result.seconds)[:SLOWEST_COUNT],
        seconds=sum(result.seconds for result in results),
    )
