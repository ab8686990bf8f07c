"""The output of DMLVK_DEBUG: a line for each dispatch, and at level 2 its plan too."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from dmlvk._printable import printable
from dmlvk.operators import OperatorDesc
from dmlvk.planning.plan import Dispatch
from dmlvk.runtime.engine import Engine
from dmlvk.runtime.submission import Submission

if TYPE_CHECKING:
    from dmlvk.runtime.binding import Binding


def debug_level() -> int:
    """$DMLVK_DEBUG as a number: 0 prints nothing, 1 dispatches, 2 plans and specialization constants as well.

    Raises ValueError: the variable is neither empty nor one of these numbers.
    """
    text = os.environ.get("DMLVK_DEBUG", "")
    if text not in ("", "0", "1", "2"):
        raise ValueError(f"DMLVK_DEBUG is {text!r}; it can be 0, 1 (a line for each dispatch) or 2 (plans too)")
    return int(text or 0)


def note(engine: Engine, desc: OperatorDesc, text: str) -> None:
    """Print a line about an operator to standard error, if $DMLVK_DEBUG asked for lines."""
    if engine.debug_level:
        _print(f"dmlvk {engine.name}: {desc.operator_name} {text}")


def report(engine: Engine, bindings: Iterable[Binding], submission: Submission) -> None:
    """Wait for a submission and print its dispatches to standard error, one line each."""
    submission.wait()
    times = iter(submission.measured_times() or ())
    for binding in bindings:
        for number, stage in enumerate(binding.dispatches):
            for dispatch in stage:
                line = f"dmlvk {engine.name}: {binding.operator_name} {dispatch_text(dispatch)}"
                _print(line + time_text(dispatch, next(times, None)))
                if engine.debug_level > 1:
                    _print(plan_text(binding, number, dispatch))


def _print(text: str) -> None:
    print(printable(text, is_multiline=True), file=sys.stderr)


def dispatch_text(dispatch: Dispatch) -> str:
    """Kernel, grid and workgroup size."""
    groups = "x".join(map(str, dispatch.groups))
    return f"{dispatch.kernel} {groups} groups of {dispatch.specialization[0] if dispatch.specialization else 1}"


def time_text(dispatch: Dispatch, seconds: float | None) -> str:
    """Time on the GPU, and the rates that follow from it."""
    if seconds is None:
        return ", no timestamps on this queue"
    text = f" {seconds * 1e6:.1f} us"
    if seconds > 0:
        text += f" {dispatch.bytes_moved / seconds / 1e9:.2f} GB/s"
        if dispatch.operations:
            text += f" {dispatch.operations / seconds / 1e12:.3f} TOPS"
    return text


def plan_text(binding: Binding, stage: int, dispatch: Dispatch) -> str:
    """The planner's decisions for a dispatch."""
    windows = ", ".join(
        f"{window.access.value} {window.tensor}[{window.offset}:{window.offset + window.size}]"
        for window in dispatch.windows
    )
    plan = binding.plan
    return (
        f"    path {plan.path}, stage {stage}, scratch {plan.scratch_size} bytes, estimate "
        f"{dispatch.seconds * 1e6:.1f} us\n"
        f"    specialization constants {list(dispatch.specialization)}\n"
        f"    push constants {list(dispatch.push_constants)}\n"
        f"    {windows}"
    )
