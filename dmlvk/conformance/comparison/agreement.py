"""Whether all devices agree: every digest of a case is compared with every other, of any device, path and profile."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dmlvk.conformance.cases.combinations import data_name
from dmlvk.conformance.comparison.runs import DeviceRun
from dmlvk.conformance.results import Result

# The name of the side of the digests that come with dmlvk.
RECORDED = "recorded"


@dataclass(frozen=True)
class Holder:
    """A result with a digest."""

    run: DeviceRun
    result: Result

    @property
    def text(self) -> str:
        """ "NVIDIA H200 580.159.04 (matrix)", with the profile if the device is narrowed."""
        ways = [self.result.path, *([self.result.profile] if self.result.profile != "device" else [])]
        return f"{self.run.label} ({', '.join(filter(None, ways))})" if any(ways) else self.run.label


@dataclass(frozen=True)
class Side:
    """All that gave one digest.

    holders: empty if only the recorded digests have it.
    is_recorded: whether it is the digest that comes with dmlvk.
    """

    digest: str
    holders: tuple[Holder, ...]
    is_recorded: bool

    @property
    def names(self) -> tuple[str, ...]:
        """Each holder in a few words, the recorded digests first."""
        found = [RECORDED] if self.is_recorded else []
        return (*found, *dict.fromkeys(holder.text for holder in self.holders))


@dataclass(frozen=True)
class Disagreement:
    """A case with more than one digest.

    case: the case's name, excluding the parameters that do not change the result.
    sides: the recorded digest first, then the one with the most holders.
    """

    case: str
    sides: tuple[Side, ...]


@dataclass(frozen=True)
class Agreement:
    """What all the digests say.

    compared: outputs that were given at least twice, the recorded digests included.
    """

    compared: int
    digests: int
    disagreements: tuple[Disagreement, ...]


def agreement_of(runs: Sequence[DeviceRun], recorded: Mapping[str, str]) -> Agreement:
    """Compare all digests.

    recorded: digests by case name that take part like those of a device, for the cases that were run.
    """
    recorded_by_data = {data_name(name): digest for name, digest in recorded.items()}
    holders: dict[str, dict[str, list[Holder]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        for result in run.results.values():
            if result.digest:
                holders[data_name(result.name)][result.digest].append(Holder(run, result))
    compared = digests = 0
    found = []
    for case, by_digest in holders.items():
        expected = recorded_by_data.get(case)
        count = sum(map(len, by_digest.values()))
        if count + (expected is not None) > 1:
            compared += 1
            digests += count
        if by_digest.keys() | ({expected} - {None}) != {next(iter(by_digest))}:
            found.append(Disagreement(case, _sides(by_digest, expected)))
    return Agreement(compared, digests, tuple(found))


def _sides(by_digest: Mapping[str, Iterable[Holder]], expected: str | None) -> tuple[Side, ...]:
    sides = [Side(digest, tuple(holders), digest == expected) for digest, holders in by_digest.items()]
    if expected is not None and expected not in by_digest:
        sides.append(Side(expected, (), True))
    return tuple(sorted(sides, key=lambda side: (not side.is_recorded, -len(side.holders))))
