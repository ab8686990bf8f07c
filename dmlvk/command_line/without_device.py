"""What `dmlvk conformance` does with cases without a device: lists them, plans them, writes them as models."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

from dmlvk.command_line.terminal import console, one_line, shown_progress
from dmlvk.conformance import recorded
from dmlvk.conformance.case import Case
from dmlvk.conformance.dxdispatch import export_models
from dmlvk.conformance.plans import check_plans
from dmlvk.conformance.reports.terminal import plan_table, with_problems


def listed(cases: list[Case]) -> Iterator[str]:
    """The names, one a line. Before each group a line, which begins with "#", says what the group tests."""
    for group, members in itertools.groupby(cases, lambda case: case.group):
        names = list(members)
        about = f": {names[0].about}" if names[0].about else ""
        count = f"{len(names):,} case{'s' if len(names) > 1 else ''}"
        yield f"# {group} ({count}){about}"
        yield from (case.name for case in names)


def check_recorded_devices(cases: list[Case], path: str | None) -> int:
    """Check plans without running them, report, and return the exit status.

    path: the kernel path for cases that leave the choice to the planner.
    """
    terminal = console()
    with shown_progress(terminal, len(cases)) as step:
        checks = list(with_problems(terminal, check_plans(cases, recorded.NAMES, path), step))
    terminal.print(plan_table(checks))
    return 1 if any(check.problems for check in checks) else 0


def export_for_dxdispatch(cases: list[Case], folder: Path) -> int:
    """Write cases as models, and return the exit status: 1 if there are none that could be written.

    A descriptor that has to be refused is no model.
    """
    cases = [case for case in cases if case.refusal is None]
    terminal = console()
    written = 0
    with shown_progress(terminal, len(cases)) as progress:
        for case, result in export_models(cases, folder):
            progress(case.name)
            if isinstance(result, Exception):
                terminal.print(f"Not exported: {case.name}: {one_line(result)}", soft_wrap=True)
            else:
                written += 1
    terminal.print(
        f"{written} of {len(cases)} cases are in {folder}; run model.json in each, then check.py", soft_wrap=True
    )
    return 0 if written else 1
