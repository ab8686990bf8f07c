"""All that a comparison finds, for every form in which it is shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from dmlvk.conformance.comparison.agreement import Agreement, Disagreement, agreement_of
from dmlvk.conformance.comparison.changes import (
    Figures,
    SpeedUpdate,
    Update,
    differing_kernels,
    speed_updates_of,
    updates_of,
)
from dmlvk.conformance.comparison.elements import KeptOutputs
from dmlvk.conformance.comparison.runs import ComparisonError, DeviceRun, read_runs
from dmlvk.conformance.reports.matrices import Matrix, matrices
from dmlvk.conformance.results import Status


@dataclass(frozen=True)
class Findings:
    """A comparison.

    notes: what a reader has to know, one sentence each: cut files, different cases, other kernels.
    differences: the first element that differs, by the name of the case, where it is known.
    """

    runs: tuple[DeviceRun, ...]
    notes: tuple[str, ...]
    agreement: Agreement
    differences: Mapping[str, str]
    updates: tuple[Update, ...]
    speed_updates: tuple[SpeedUpdate, ...]

    @cached_property
    def counts(self) -> Mapping[Status, tuple[int, ...]]:
        """Results of each run by status; only statuses that some run has."""
        counts = [run.counts() for run in self.runs]
        found = {status: tuple(each.get(status, 0) for each in counts) for status in Status}
        return {status: numbers for status, numbers in found.items() if any(numbers)}

    @property
    def disagreements(self) -> tuple[Disagreement, ...]:
        """The cases on which there is more than one digest."""
        return self.agreement.disagreements

    @property
    def verdict(self) -> str:
        """The result in one sentence."""
        compared, digests = self.agreement.compared, self.agreement.digests
        if self.disagreements:
            return f"{len(self.disagreements):,} of {compared:,} outputs are not the same everywhere."
        if not compared:
            return "No output was given twice: there is nothing to compare."
        return f"All {digests:,} digests agree: the same bits for {compared:,} outputs, wherever they were computed."


def compare(paths: Sequence[Path], figures: Sequence[Figures], recorded: Mapping[str, str]) -> Findings:
    """Compare results.

    figures: figures of `dmlvk bench`, for what got slower.
    recorded: digests by case name that take part in the comparison.
    Raises ComparisonError, ResultsError, OSError: a file cannot be compared.
    """
    if not paths and not figures:
        raise ComparisonError("no file is given; name results of `dmlvk conformance --json`")
    runs, notes = read_runs(paths)
    return findings_of(runs, notes, figures, recorded)


def findings_of(
    runs: Sequence[DeviceRun], notes: Sequence[str], figures: Sequence[Figures], recorded: Mapping[str, str]
) -> Findings:
    """What there is to say of runs. `notes` are sentences that come first."""
    agreement = agreement_of(runs, recorded)
    elements = KeptOutputs()
    differences = {found.case: elements.first_difference(found) for found in agreement.disagreements}
    return Findings(
        tuple(runs),
        (*notes, *_notes(runs), *_notes_on_figures(figures)),
        agreement,
        {case: text for case, text in differences.items() if text},
        tuple(updates_of(runs)),
        tuple(speed_updates_of(figures)),
    )


def _notes(runs: Sequence[DeviceRun]) -> list[str]:
    """What makes runs comparable in part only."""
    notes = []
    keys = [run.results.keys() for run in runs]
    if len({frozenset(each) for each in keys}) > 1:
        common = set.intersection(*(set(each) for each in keys))
        counts = ", ".join(f"{run.label} {len(run.results):,}" for run in runs)
        notes.append(
            f"The runs hold different cases ({counts}); {len(common):,} are common to all. "
            "A case is compared where it was run."
        )
    if runs:
        base = runs[0]
        for run in runs[1:]:
            if run.environment.kernels != base.environment.kernels:
                text = differing_kernels(base.environment.kernels, run.environment.kernels)
                notes.append(f"{run.label} ran other kernels than {base.label}: {text}.")
    for run in runs:
        if run.environment.path:
            notes.append(f"On {run.label} the cases that leave the path open took the path {run.environment.path}.")
    return notes


def _notes_on_figures(figures: Sequence[Figures]) -> list[str]:
    in_pairs = {id(found) for update in speed_updates_of(figures) for found in (update.before, update.after)}
    return [
        f"{found.place} is the only one with figures of {found.device}: no speed is compared with it."
        for found in figures
        if id(found) not in in_pairs
    ]


def matrices_by_device(runs: Sequence[DeviceRun]) -> list[Matrix]:
    """A matrix for each operator, over all profiles, with devices as rows."""
    return matrices(("", run.label, result) for run in runs for result in run.results.values())
