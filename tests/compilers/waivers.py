"""The list of what is over a limit for now: waivers.toml. It can only shrink.

Each entry has the chip, the kernel, what is over its limit, up to which number it may be, and the reason. A number over
a limit is a fault without an entry, and over the entry's number with it. An entry that is not needed is a fault too.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.compilers.chips import CHIPS
from tests.compilers.compiled import LIMITS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE = Path(__file__).with_name("waivers.toml")
HEAD = """# What is over a limit of tests/compilers/compiled.py for now, and why. The list can only shrink: an entry
# that is not needed is an error. `python -m tests.compilers --shrink` takes it out and lowers the numbers of others.
"""


@dataclass(frozen=True)
class Waiver:
    """One entry. `at_most` is the number that `what` may be, in the unit of the limit."""

    chip: str
    kernel: str
    what: str
    at_most: int
    reason: str


def read(text: str) -> list[Waiver]:
    """The entries of a file.

    Raises
    ------
    ValueError
        An entry is none, or is there twice.
    """
    found: dict[tuple[str, str, str], Waiver] = {}
    for entry in tomllib.loads(text).get("waiver", []):
        waiver = _waiver(entry)
        key = (waiver.chip, waiver.kernel, waiver.what)
        if key in found:
            raise ValueError(f"waivers.toml has two entries of {' '.join(key)}: one is right")
        found[key] = waiver
    return list(found.values())


def _waiver(entry: Mapping[str, Any]) -> Waiver:
    if set(entry) != {"chip", "kernel", "what", "at_most", "reason"}:
        raise ValueError(f"waivers.toml has {entry}: an entry has chip, kernel, what, at_most and reason")
    waiver = Waiver(**entry)
    if waiver.chip not in CHIPS:
        raise ValueError(f"waivers.toml names the chip {waiver.chip}: one of {', '.join(CHIPS)} is right")
    if waiver.what not in LIMITS:
        raise ValueError(f"waivers.toml waives {waiver.what!r}: one of {', '.join(LIMITS)} is right")
    if waiver.at_most <= LIMITS[waiver.what]:
        raise ValueError(f"waivers.toml allows {waiver.what} = {waiver.at_most}: the limit allows that by itself")
    if not waiver.reason.strip():
        raise ValueError(f"waivers.toml has no reason for {waiver.chip} {waiver.kernel} {waiver.what}")
    return waiver


def write(waivers: Iterable[Waiver]) -> str:
    """The text of a file, by chip and kernel."""
    order = list(CHIPS)
    parts = [HEAD]
    for each in sorted(waivers, key=lambda each: (order.index(each.chip), each.kernel, each.what)):
        strings = {"chip": each.chip, "kernel": each.kernel, "what": each.what}
        lines = [f"{name} = {json.dumps(value)}\n" for name, value in strings.items()]
        reason = f"reason = {json.dumps(each.reason, ensure_ascii=False)}\n"
        parts.append("".join(["[[waiver]]\n", *lines, f"at_most = {each.at_most}\n", reason]))
    return "\n".join(parts)


def faults(chip: str, measured: Mapping[tuple[str, str], int], waivers: Iterable[Waiver]) -> Iterator[str]:
    """What is over a limit and not waived, and the waivers of the chip that are not needed."""
    allowed = {(each.kernel, each.what): each.at_most for each in waivers if each.chip == chip}
    for (kernel, what), number in measured.items():
        at_most = allowed.get((kernel, what), LIMITS[what])
        if number > at_most:
            yield f"{chip}: {kernel}: {what}: {number}, and at most {at_most} is allowed"
    for kernel, what in allowed:
        if measured.get((kernel, what), 0) <= LIMITS[what]:
            yield f"{chip}: {kernel}: {what}: the waiver is not needed any more: take it out of {FILE.name}"


def shrunk(chip: str, measured: Mapping[tuple[str, str], int], waivers: Iterable[Waiver]) -> Iterator[Waiver]:
    """The waivers without those of the chip that are not needed, each with the least number that is enough."""
    for each in waivers:
        needed = measured.get((each.kernel, each.what), 0) if each.chip == chip else each.at_most
        if needed > LIMITS[each.what]:
            yield Waiver(each.chip, each.kernel, each.what, min(needed, each.at_most), each.reason)
