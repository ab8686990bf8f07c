"""A run in the terminal: progress during the run, a table at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dmlvk._common.unbroken import unbroken
from dmlvk._printable import printable
from dmlvk.conformance.plans import PlanCheck
from dmlvk.conformance.results import Result, Run, Status
from dmlvk.conformance.waivers import WaiverReport

# Told what goes on, for a bar or a line of progress.
Advance = Callable[[str], object]
COLOURS = {
    Status.PASS: "green",
    Status.UNPREDICTABLE: "blue",
    Status.NOT_SUPPORTED: "cyan",
    Status.FAIL: "red",
    Status.FLAKY: "magenta",
    Status.DEVICE_LOST: "red",
    Status.TIMEOUT: "yellow",
}
# At most this many reasons of NotSupported are listed one by one; the rest is in the JSON lines.
REASON_COUNT = 12
# At most this many waived cases that pass are listed one by one; the page of HTML has all.
PASSING_COUNT = 12


def with_failures(console: Console, results: Iterable[Result], step: Advance) -> Iterator[Result]:
    """Pass results on. Says each case's name as it is done, and prints a line for each result that is not good."""
    step("the first case")
    for result in results:
        if not result.is_good:
            console.print(failure_text(result), soft_wrap=True)
        step(result.name)
        yield result


def with_problems(console: Console, checks: Iterable[PlanCheck], step: Advance) -> Iterator[PlanCheck]:
    """Pass checks on. Says each case's name as it begins, and prints a line for each problem."""
    case = ""
    for check in checks:
        if check.case != case:
            case = check.case
            step(case)
        for problem in check.problems:
            text = Text.assemble((check.device, "red"), printable(f" {check.case}: {problem}"))
            console.print(text, soft_wrap=True)
        yield check


def plan_table(checks: Iterable[PlanCheck]) -> Table:
    """For each recorded device, the number of plans, of the paths that they take, and of plans with a problem."""
    rows: dict[str, list[PlanCheck]] = {}
    for check in checks:
        rows.setdefault(check.device, []).append(check)
    table = Table(title="Plans on the recorded devices", title_justify="left")
    table.add_column("device")
    for heading in ("plans", "paths", "not for it", "problems"):
        table.add_column(heading, justify="right")
    for device, row in rows.items():
        # A path's name may go on with its tile.
        paths = [check.path.partition(":")[0] for check in row if check.path]
        problems = sum(bool(check.problems) for check in row)
        numbers = (len(paths), len(set(paths)), len(row) - len(paths))
        table.add_row(device, *map(str, numbers), Text(str(problems), "red" if problems else ""))
    return table


def failure_text(result: Result) -> Text:
    """One failure in a line."""
    where = "" if result.profile == "device" else f" [{result.profile}]"
    colour = COLOURS[result.status]
    first_line = result.message.partition("\n")[0]
    return Text.assemble((result.status.value, colour), printable(f" {result.name}{where}: {first_line}"))


def summary_table(run: Run) -> Table:
    """The number of cases with each status that there is, by group and profile."""
    table = Table()
    profiles = dict.fromkeys(profile for profile, _ in run.results)
    shows_profile = list(profiles) != ["device"]
    rows: dict[tuple[str, str], Counter[Status]] = {}
    for result in run.results.values():
        rows.setdefault((result.name.partition(":")[0], result.profile), Counter())[result.status] += 1
    table.add_column("group")
    if shows_profile:
        table.add_column("profile")
    statuses = [status for status in Status if run.counts()[status]]
    for status in statuses:
        table.add_column(status.value, justify="right", style=COLOURS[status])
    for (group, profile), counts in rows.items():
        names = (group, profile) if shows_profile else (group,)
        table.add_row(*names, *_numbers(counts, statuses))
    if len(rows) > 1:
        table.add_section()
        table.add_row("all", *([""] if shows_profile else []), *_numbers(run.counts(), statuses))
    return table


def _numbers(counts: Counter[Status], statuses: list[Status]) -> list[str]:
    return [str(counts[status] or "") for status in statuses]


def print_summary(console: Console, run: Run, waivers: WaiverReport) -> None:
    """Print the device, the table and the remarks about it."""
    environment = run.environment
    if environment is not None:
        console.print(f"{environment.device}, {environment.driver}, Vulkan {environment.vulkan}", highlight=False)
    console.print(unbroken(summary_table(run), console))
    for path, fault in (environment.distrusted_paths if environment is not None else {}).items():
        console.print(
            f"Path {path} is not taken on this device, a known question was answered wrong: {fault}", highlight=False
        )
    reasons = Counter(result.reason for result in run.results.values() if result.status is Status.NOT_SUPPORTED)
    for reason, count in reasons.most_common(REASON_COUNT):
        console.print(f"NotSupported {reason}: {count}", highlight=False)
    for result in waivers.waived:
        console.print(f"Waived {result.name}: {result.waiver}", highlight=False)
    for result in waivers.passing[:PASSING_COUNT]:
        text = f"Passes although it is waived: {result.name} ({result.waiver})"
        console.print(text, highlight=False)
    if len(waivers.passing) > PASSING_COUNT:
        console.print(f"... and {len(waivers.passing) - PASSING_COUNT} more waived cases pass", highlight=False)
    for waiver in waivers.unneeded:
        text = f"Nothing that this waiver names failed, so that it can go: {', '.join(waiver.cases)} ({waiver.reason})"
        console.print(text, highlight=False)
    for waiver in waivers.expired:
        text = f"Waiver of {waiver.expires} has expired: {', '.join(waiver.cases)} ({waiver.reason})"
        console.print(text, highlight=False)
