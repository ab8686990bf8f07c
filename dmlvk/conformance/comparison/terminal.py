"""A comparison in the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dmlvk._common.unbroken import unbroken
from dmlvk._printable import printable
from dmlvk.conformance.comparison.changes import Change, SpeedChange, SpeedUpdate, Update
from dmlvk.conformance.comparison.findings import Findings
from dmlvk.conformance.reports.terminal import COLOURS

# At most this many cases of one kind are listed; the files of --html and --json have all.
MOST_LISTED = 12
WORDS = {"Broke": "red", "Mended": "green", "Changed": "cyan", "Slower": "red", "Faster": "green"}


def print_findings(console: Console, findings: Findings) -> None:
    """Print the table of devices, then what does not agree, then what changed."""
    if findings.runs:
        console.print(unbroken(device_table(findings), console))
    for note in findings.notes:
        console.print(f"Note: {note}", soft_wrap=True)
    for update in findings.updates:
        _print_update(console, update)
    for speed_update in findings.speed_updates:
        _print_speed_update(console, speed_update)
    if not findings.runs:
        return
    shown = findings.disagreements[:MOST_LISTED]
    for found in shown:
        console.print(Text.assemble(("Disagreement", "red"), f" {printable(found.case)}"), soft_wrap=True)
        for side in found.sides:
            console.print(f"  {side.digest}: {', '.join(side.names)}", soft_wrap=True)
        if found.case in findings.differences:
            console.print(f"  {findings.differences[found.case]}", soft_wrap=True)
    _print_rest(console, len(findings.disagreements), "disagreements")
    console.print(Text(printable(findings.verdict), "red" if findings.disagreements else "green"), soft_wrap=True)


def device_table(findings: Findings) -> Table:
    """Devices by status."""
    table = Table(title="Devices", title_justify="left")
    for heading in ("device", "driver", "dmlvk", "date"):
        table.add_column(heading, overflow="fold")
    table.add_column("cases", justify="right")
    for status in findings.counts:
        table.add_column(status.value, justify="right", style=COLOURS[status])
    for place, run in enumerate(findings.runs):
        environment = run.environment
        numbers = [str(counts[place] or "") for counts in findings.counts.values()]
        cases = f"{len(run.results):,}"
        table.add_row(run.label, environment.driver, environment.package, run.date, cases, *numbers)
    return table


def _print_update(console: Console, update: Update) -> None:
    console.print(
        f"{update.after.label} after {update.before.label} ({'; '.join(update.causes)}), {update.common:,} cases of "
        f"both: {len(update.broke)} broke, {len(update.mended)} mended, {len(update.others)} changed otherwise",
        soft_wrap=True,
    )
    _print_changes(console, update.lists)


def _print_speed_update(console: Console, update: SpeedUpdate) -> None:
    console.print(
        f"{update.after.device}, {update.after.driver}, dmlvk {update.after.package} ({update.after.place}) after "
        f"{update.before.driver}, dmlvk {update.before.package} ({update.before.place}), {update.common:,} cases of "
        f"both: {len(update.slower)} slower, {len(update.faster)} faster",
        soft_wrap=True,
    )
    _print_changes(console, update.lists)


def _print_changes(console: Console, lists: Mapping[str, Sequence[Change | SpeedChange]]) -> None:
    for heading, changes in lists.items():
        word = heading.partition(" ")[0]
        for change in changes[:MOST_LISTED]:
            profile = f" [{change.profile}]" if change.profile else ""
            text = Text.assemble((word, WORDS[word]), printable(f" {change.case}{profile}: {change.text}"))
            console.print(text, soft_wrap=True)
        _print_rest(console, len(changes), "such cases")


def _print_rest(console: Console, count: int, what: str) -> None:
    if count > MOST_LISTED:
        console.print(f"... and {count - MOST_LISTED:,} more {what}; --html and --json name all", soft_wrap=True)
