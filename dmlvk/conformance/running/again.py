"""Runs failed cases again. A case that passes only then is flaky: it never counts as passed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from dmlvk.conformance.results import PASSED, Result, Status
from dmlvk.conformance.running.runner import Item

# The beginning of the reason of a result that passed on a further run: "again:3" on the third.
AGAIN = "again:"


def run_again(
    run: Callable[[Sequence[Item]], Iterator[Result]], failed: Mapping[Item, Result], most_runs: Mapping[Item, int]
) -> Iterator[Result]:
    """Run failed cases again, until each has passed once or has no run left.

    run: runs cases and yields their results.
    failed: the results of the first run.
    most_runs: the number of further runs of each; 0 if absent.
    Yields for each of these cases: Flaky if a further run passed; otherwise the first result, which then says how often
        the case failed.
    """
    left = {item: result for item, result in failed.items() if most_runs.get(item, 0) > 0}
    number = 1
    while left:
        number += 1
        # What ended the process may keep cases from being run at all: their results do not come.
        for result in run(list(left)):
            if result.key in left and result.status in PASSED:
                yield _flaky(left.pop(result.key), number)
        for item in [item for item in left if most_runs[item] < number]:
            first = left.pop(item)
            yield replace(first, message=f"{first.message} (It failed in each of {number} runs.)".strip())


def _flaky(first: Result, number: int) -> Result:
    """The result of a case that failed first and passed on a later run."""
    reason = f" {first.reason}" if first.reason else ""
    text = f"it passed on run {number}; the first run was {first.status.value}{reason}: {first.message}"
    return replace(first, status=Status.FLAKY, reason=f"{AGAIN}{number}", message=text)
