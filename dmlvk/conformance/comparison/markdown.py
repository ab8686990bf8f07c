"""A comparison as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dmlvk._printable import markdown, markdown_code
from dmlvk.conformance.comparison.changes import Change, SpeedChange
from dmlvk.conformance.comparison.findings import Findings, matrices_by_device

# At most this many cases of one kind are listed; the files of --html and --json have all.
MOST_LISTED = 50


def page(findings: Findings) -> str:
    """The tables, and all that does not agree or that changed."""
    return "\n".join(_lines(findings)).rstrip() + "\n"


def _lines(findings: Findings) -> Iterator[str]:
    if findings.runs:
        yield from ("# Devices", "", f"**{markdown(findings.verdict)}**", "")
        yield from _devices(findings)
        yield from _operators(findings)
    if findings.notes:
        yield from ("## Notes", "", *(f"- {markdown(note)}" for note in findings.notes), "")
    yield from _disagreements(findings)
    for update in findings.updates:
        causes = markdown("; ".join(update.causes))
        yield from (f"## {markdown(update.after.label)} after {markdown(update.before.label)}", "")
        yield from (f"{causes}. Cases of both: {update.common:,}.", "")
        yield from _changes(update.lists)
    for speed_update in findings.speed_updates:
        before, after = speed_update.before, speed_update.after
        yield from (f"## Speed of {markdown(after.device)}", "")
        texts = (f"{found.driver}, dmlvk {found.package} ({found.date})" for found in (after, before))
        yield from (f"{markdown(' after '.join(texts))}. Cases of both: {speed_update.common:,}.", "")
        yield from _changes(speed_update.lists)


def _devices(findings: Findings) -> Iterator[str]:
    headings = ("device", "type", "vendor", "driver", "Vulkan", "dmlvk", "date", "cases")
    rows = []
    for place, run in enumerate(findings.runs):
        environment = run.environment
        facts = (environment.device, run.kind, run.vendor, environment.driver, environment.vulkan, environment.package)
        numbers = (f"{counts[place]:,}" if counts[place] else "" for counts in findings.counts.values())
        rows.append([*facts, run.date, f"{len(run.results):,}", *numbers])
    yield from table([*headings, *(status.value for status in findings.counts)], rows, right_from=len(headings) - 1)


def _operators(findings: Findings) -> Iterator[str]:
    for matrix in matrices_by_device(findings.runs):
        yield from (f"## {markdown(matrix.operator)}", "")
        rows = [[label, *(cell.text if cell else "" for cell in cells)] for label, cells in matrix.rows]
        yield from table(["device", *matrix.columns], rows, right_from=1)
    if findings.runs:
        yield "How many cases gave what they must on each kernel path, or how many of all did not. A dash: the device"
        yield from ("does not have the path, or the path does not take these cases.", "")


def _disagreements(findings: Findings) -> Iterator[str]:
    if not findings.disagreements:
        return
    yield from ("## Disagreements", "")
    for found in findings.disagreements[:MOST_LISTED]:
        yield f"- {markdown_code(found.case)}"
        for side in found.sides:
            yield f"  - {markdown_code(side.digest)}: {markdown(', '.join(side.names))}"
        if found.case in findings.differences:
            yield f"  - {markdown(findings.differences[found.case])}"
    yield from (*_rest(len(findings.disagreements)), "")


def _changes(lists: Mapping[str, Sequence[Change | SpeedChange]]) -> Iterator[str]:
    for heading, changes in lists.items():
        if changes:
            yield from (f"### {heading}: {len(changes):,}", "")
        for change in changes[:MOST_LISTED]:
            profile = f" (profile {markdown(change.profile)})" if change.profile else ""
            yield f"- {markdown_code(change.case)}{profile}: {markdown(change.text)}"
        if changes:
            yield from (*_rest(len(changes)), "")


def _rest(count: int) -> Iterator[str]:
    if count > MOST_LISTED:
        yield f"- and {count - MOST_LISTED:,} more"


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], right_from: int) -> Iterator[str]:
    """A table and an empty line. Columns from `right_from` on hold numbers, aligned to the right."""
    yield f"| {' | '.join(map(markdown, headings))} |"
    yield f"| {' | '.join('---:' if k >= right_from else '---' for k in range(len(headings)))} |"
    for row in rows:
        yield f"| {' | '.join(map(markdown, row))} |"
    yield ""
