"""The first element at which two outputs differ, where outputs were kept."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from dmlvk._common.bits import as_bits, first_difference
from dmlvk.conformance.case import Case
from dmlvk.conformance.comparison.agreement import Disagreement, Holder, Side
from dmlvk.conformance.names import OUR_CASES, CaseFinder, case_source
from dmlvk.conformance.outputs import kept_output, outputs_folder
from dmlvk.conformance.running.execution import digest

Array = npt.NDArray[Any]


class KeptOutputs:
    """Finds elements in the outputs that were kept and, for the recorded digests, in those of the reference."""

    def __init__(self) -> None:
        self._finder = CaseFinder(case_source(OUR_CASES))

    def first_difference(self, disagreement: Disagreement) -> str:
        """The first element at which each side differs from the first side, as far as it is known.

        Where no output was kept, the message of a failed case says it.
        """
        first, *others = disagreement.sides
        texts = [self._between(first, side) for side in others]
        return " ".join(dict.fromkeys(filter(None, texts)))

    def _between(self, first: Side, side: Side) -> str:
        theirs = self._kept(side)
        ours = self._kept(first) or self._reference(disagreeing_name(first, side), first) if theirs else None
        if theirs is None or ours is None:
            failed = next((holder for holder in side.holders if holder.result.message), None)
            return "" if failed is None else f"On {failed.text}: {failed.result.message.partition(chr(10))[0]}"
        (our_name, mine), (their_name, other) = ours, theirs
        if mine.shape != other.shape or mine.dtype != other.dtype:
            return (
                f"{our_name} has {mine.dtype} elements of shape {mine.shape}, "
                f"{their_name} has {other.dtype} elements of shape {other.shape}."
            )
        return difference(our_name, mine, their_name, other)

    def _kept(self, side: Side) -> tuple[str, Array] | None:
        for holder in side.holders:
            found = kept_output(outputs_folder(holder.run.places[holder.result.key]), holder.result)
            if found is not None and digest(found) == holder.result.digest:  # else it is that of another run
                return holder.text, found
        return None

    def _reference(self, name: str, side: Side) -> tuple[str, Array] | None:
        """The right output, if it is known and has the side's digest."""
        case = self._case(name)
        if case is None:
            return None
        try:
            workload = case.build()
            found = workload.digested(workload.result())
        except Exception:  # a case may need a package that is not installed
            return None
        if digest(found) != side.digest:
            return None
        return side.holders[0].text if side.holders else "the reference", found

    def _case(self, name: str) -> Case | None:
        try:
            return self._finder.find(name)
        except LookupError:
            return None


def disagreeing_name(first: Side, side: Side) -> str:
    """A full name of the case that two sides disagree on."""
    holder: Holder = next(iter((*first.holders, *side.holders)))
    return holder.result.name


def difference(one_name: str, one: Array, other_name: str, other: Array) -> str:
    """The first coordinate at which two outputs of one shape differ, with the elements, and how many differ."""
    found = first_difference(one, other)
    if found is None:
        return "All elements are equal."
    coordinate, count = found
    width = 2 + 2 * one.dtype.itemsize

    def shown(array: Array) -> str:
        return f"{array[coordinate]} ({int(as_bits(array)[coordinate]):#0{width}x})"

    return (
        f"{count} of {one.size} elements differ, the first at {coordinate}: "
        f"{shown(one)} on {one_name}, {shown(other)} on {other_name}."
    )
