"""What changed between two runs of one device: what broke, what was mended, what got slower."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from dmlvk.conformance.comparison.runs import DeviceRun, moment, short_name
from dmlvk.conformance.results import Result

# A case is slower if its median is so much longer and the middle halves of its times do not overlap.
NOTICEABLE = 1.03


@dataclass(frozen=True)
class Change:
    """A case with another status, or with another digest."""

    before: Result
    after: Result

    @property
    def case(self) -> str:
        """The case's name."""
        return self.after.name

    @property
    def profile(self) -> str:
        """The profile of the case; empty for the device's own."""
        return "" if self.after.profile == "device" else self.after.profile

    @property
    def text(self) -> str:
        """ "Pass, now Fail: difference"."""
        reason = f": {self.after.reason}" if self.after.reason else ""
        if self.before.status is self.after.status and self.before.digest != self.after.digest:
            return f"{self.after.status.value}, but its digest {self.before.digest} is now {self.after.digest}"
        return f"{self.before.status.value}, now {self.after.status.value}{reason}"


@dataclass(frozen=True)
class Update:
    """Two runs of one device, one after the other.

    causes: what differs between the runs: "driver 22.3.6, now 25.0.7".
    common: cases that both ran.
    broke, mended, others: good results that became bad, bad ones that became good, and other changes.
    """

    before: DeviceRun
    after: DeviceRun
    causes: tuple[str, ...]
    common: int
    broke: tuple[Change, ...]
    mended: tuple[Change, ...]
    others: tuple[Change, ...]

    @property
    def lists(self) -> Mapping[str, tuple[Change, ...]]:
        """The changes under their headings."""
        return {"Broke": self.broke, "Mended": self.mended, "Changed otherwise": self.others}


def updates_of(runs: Sequence[DeviceRun]) -> list[Update]:
    """Each run of a device with the one before it. The runs of a device stand beside each other, oldest first."""
    return [_update(before, after) for before, after in pairwise(runs) if before.device == after.device]


def _update(before: DeviceRun, after: DeviceRun) -> Update:
    common = [key for key in before.results if key in after.results]
    broke, mended, others = [], [], []
    for key in common:
        old, new = before.results[key], after.results[key]
        change = Change(old, new)
        if old.is_good and not new.is_good:
            broke.append(change)
        elif not old.is_good and new.is_good:
            mended.append(change)
        elif old.status is not new.status or (old.digest and new.digest and old.digest != new.digest):
            others.append(change)
    return Update(before, after, _causes(before, after), len(common), tuple(broke), tuple(mended), tuple(others))


def _causes(before: DeviceRun, after: DeviceRun) -> tuple[str, ...]:
    old, new = before.environment, after.environment
    facts = {
        "driver": (old.driver_version, new.driver_version),
        "dmlvk": (old.package, new.package),
        "Vulkan": (old.vulkan, new.vulkan),
        "forced path": (old.path or "none", new.path or "none"),
        "system": (old.system, new.system),
    }
    found = [f"{name} {first}, now {second}" for name, (first, second) in facts.items() if first != second]
    if old.kernels != new.kernels:
        found.append(f"kernels: {differing_kernels(old.kernels, new.kernels)}")
    return tuple(found) or ("no cause that the results record",)


# Differing kernels that a sentence names.
MOST_NAMED = 3


def differing_kernels(first: Mapping[str, str], second: Mapping[str, str]) -> str:
    """The kernels that two runs do not share: "slice1/tiles, one_hot/words and 5 others differ"."""
    names = sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))
    if len(names) == 1:
        return f"{names[0]} differs"
    if len(names) <= MOST_NAMED:
        return f"{', '.join(names[:-1])} and {names[-1]} differ"
    return f"{', '.join(names[:MOST_NAMED])} and {len(names) - MOST_NAMED} others differ"


@dataclass(frozen=True)
class CaseTiming:
    """How long one case of `dmlvk bench` took.

    sizes: sizes of its tensors: only equal work is compared.
    median, first_quartile, third_quartile: seconds.
    """

    path: str
    sizes: Mapping[str, Sequence[int]]
    median: float
    first_quartile: float
    third_quartile: float


@dataclass(frozen=True)
class Figures:
    """The figures of one run of `dmlvk bench`.

    place: the file.
    numbers: the vendor's and the device's number.
    package: the version of dmlvk.
    date: ISO 8601.
    timings: by case name.
    """

    place: str
    device: str
    driver: str
    numbers: tuple[int, ...]
    package: str
    date: str
    timings: Mapping[str, CaseTiming]


@dataclass(frozen=True)
class SpeedChange:
    """A case of `dmlvk bench` in two runs."""

    case: str
    before: CaseTiming
    after: CaseTiming
    profile: ClassVar[str] = ""

    @property
    def ratio(self) -> float:
        """The time after, divided by the time before."""
        return self.after.median / self.before.median

    @property
    def text(self) -> str:
        """ "1.25 times as long: 80.0 us, was 64.0 us; path tiles, was blocks"."""
        old, new = self.before, self.after
        paths = f"; path {new.path}, was {old.path}" if new.path != old.path else ""
        return f"{self.ratio:.2f} times as long: {microseconds(new.median)}, was {microseconds(old.median)}{paths}"


def microseconds(seconds: float) -> str:
    """ "64.0 us"."""
    return f"{seconds * 1e6:,.1f} us"


@dataclass(frozen=True)
class SpeedUpdate:
    """Two runs of `dmlvk bench` on one device, one after the other.

    common: cases of equal sizes in both.
    slower, faster: cases that differ by more than 3% and beyond the noise; the largest differences first.
    """

    before: Figures
    after: Figures
    common: int
    slower: tuple[SpeedChange, ...]
    faster: tuple[SpeedChange, ...]

    @property
    def lists(self) -> Mapping[str, tuple[SpeedChange, ...]]:
        """The changes under their headings."""
        return {"Slower": self.slower, "Faster": self.faster}


def speed_updates_of(figures: Sequence[Figures]) -> list[SpeedUpdate]:
    """The figures of each device, each with the ones before it, oldest first."""

    def device(found: Figures) -> tuple[object, ...]:
        return (*found.numbers, short_name(found.device))

    by_device: dict[tuple[object, ...], list[Figures]] = {}
    for found in figures:
        by_device.setdefault(device(found), []).append(found)
    return [
        _speed_update(before, after)
        for group in by_device.values()
        for before, after in pairwise(sorted(group, key=lambda found: moment(found.date)))
    ]


def _speed_update(before: Figures, after: Figures) -> SpeedUpdate:
    pairs = [
        SpeedChange(case, old, after.timings[case])
        for case, old in before.timings.items()
        if case in after.timings and old.sizes == after.timings[case].sizes
    ]
    slower = [pair for pair in pairs if _is_longer(pair.before, pair.after)]
    faster = [pair for pair in pairs if _is_longer(pair.after, pair.before)]
    return SpeedUpdate(
        before,
        after,
        len(pairs),
        tuple(sorted(slower, key=lambda pair: -pair.ratio)),
        tuple(sorted(faster, key=lambda pair: pair.ratio)),
    )


def _is_longer(one: CaseTiming, other: CaseTiming) -> bool:
    """Whether the other took noticeably longer than the one."""
    return other.median > one.median * NOTICEABLE and other.first_quartile > one.third_quartile
