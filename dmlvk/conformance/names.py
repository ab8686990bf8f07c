"""Choosing cases by their names: patterns, a sample, a shard."""

from __future__ import annotations

import hashlib
import re
import traceback
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from importlib import import_module
from itertools import chain

from dmlvk.conformance.case import Case, CaseSource, current_name
from dmlvk.conformance.costs import parts_of_equal_cost
from dmlvk.conformance.errors import ConformanceError
from dmlvk.operators.registry import OPERATORS

STEMS = frozenset(desc.stem for desc in OPERATORS)

OUR_CASES = "dmlvk.conformance.cases:all_cases"

# If a pattern asks for an unknown value of a parameter, the message names at most this many known values.
MOST_VALUES = 12
# A pattern that names nothing is compared with at most this many names. Each comparison takes a third of a millisecond.
MOST_NAMES = 2000

WILDCARD = re.compile(r"[*?[]")


class SelectionError(ConformanceError):
    """The request chooses no case; the message says what would."""


def case_source(name: str) -> CaseSource:
    """The function "package.module:function" that lists cases.

    Raises SelectionError: there is no function of that name. Or the function fails while it lists cases, or lists
        something else.
    """
    module_name, _, function_name = name.partition(":")
    try:
        found = getattr(import_module(module_name), function_name)
    except Exception as error:  # a user's module may raise anything
        raise SelectionError(f"{name!r} must be the MODULE:FUNCTION that lists the cases: {error}") from error

    def listed(default_only: bool) -> Iterator[Case]:
        try:
            for case in found(default_only):
                if not isinstance(case, Case):
                    raise TypeError(f"it listed a {type(case).__name__}, not a Case")
                yield case
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            raise SelectionError(
                f"{name!r} must be a MODULE:FUNCTION that lists Cases, given whether to list only those that run by "
                f"default; it raised {type(error).__name__}: {error} ({last.filename}, line {last.lineno})"
            ) from error

    return listed


def matches(pattern: str, case: Case) -> bool:
    """Whether a pattern names a case.

    A pattern is a name with the wildcards * and ?, or the name of a group, which stands for all that is in it. Where it
    ends in parameters and ";*", such as "slice1:*:type=uint8;path=tiles;*", these may stand in any order and between
    others.
    """
    pattern = current_name(_with_stem(pattern))
    if pattern == case.name or fnmatchcase(case.name, pattern) or fnmatchcase(case.name, f"{pattern}:*"):
        return True
    groups, _, last = pattern.rpartition(":")
    if not last.endswith(";*") or not fnmatchcase(":".join(case.groups), groups or "*"):
        return False
    parameters = case.parameters
    pairs = (pair.partition("=") for pair in last[:-2].split(";"))
    return all(name in parameters and fnmatchcase(parameters[name], value) for name, _, value in pairs)


def _named(pattern: str, cases: Sequence[Case]) -> list[Case]:
    """The cases that a pattern names. Of a million cases, most begin otherwise than the pattern."""
    text = current_name(_with_stem(pattern))
    beginning = WILDCARD.split(text.rpartition(":")[0] if text.endswith(";*") else text)[0]
    return [case for case in cases if case.name.startswith(beginning) and matches(pattern, case)]


def _with_stem(pattern: str) -> str:
    """A pattern with the operator's name as cases have it; it may be in upper case, as DirectML writes it."""
    operator, colon, rest = pattern.partition(":")
    return f"{operator.lower()}{colon}{rest}" if operator.lower() in STEMS else pattern


class CaseFinder:
    """Finds cases of a source by name. Reads the source only as far as needed: first the defaults, which list fast."""

    def __init__(self, source: CaseSource) -> None:
        self._cases = chain(source(True), source(False))
        self._seen: dict[str, Case] = {}

    def find(self, name: str) -> Case:
        """The case with this name.

        Raises LookupError: there is none.
        """
        name = current_name(name)
        while name not in self._seen:
            case = next(self._cases, None)
            if case is None:
                raise LookupError(f"no case is named {name!r}")
            self._seen[case.name] = case
        return self._seen[name]


def select(
    source: CaseSource,
    patterns: Sequence[str] = (),
    *,
    full: bool = False,
    sample: int | None = None,
    seed: int = 0,
    shard: tuple[int, int] | None = None,
    fraction: tuple[int, int] | None = None,
) -> list[Case]:
    """The cases to run, in the source's order.

    patterns: a case is chosen if any pattern names it. Without patterns, all cases are chosen.
    full: whether to choose the cases that do not run by default too. A pattern that names only such cases chooses them
        anyway.
    sample: draw this many of the cases at random. The same seed draws the same cases on every machine.
    shard: (i, n) with 1 <= i <= n: the i-th of n parts, which together contain each case exactly once. Equally many
        cases.
    fraction: likewise, but parts of about equal time, as `costs.cost_of` predicts it.
    Raises SelectionError: a pattern names no case.
    """
    chosen = list(source(not full))
    if patterns:
        named = [_named(pattern, chosen) for pattern in patterns]
        if not all(named) and not full:
            chosen = list(source(False))
            named = [found or _named(pattern, chosen) for found, pattern in zip(named, patterns, strict=True)]
        for found, pattern in zip(named, patterns, strict=True):
            if not found:
                raise SelectionError(_nothing_named(pattern, chosen))
        names = {case.name for found in named for case in found}
        chosen = [case for case in chosen if case.name in names]
    if sample is not None and sample < len(chosen):
        drawn = {case.name for case in sorted(chosen, key=lambda case: _draw(seed, case.name))[:sample]}
        chosen = [case for case in chosen if case.name in drawn]
    if shard is not None:
        # Every n-th case rather than n blocks: neighbours are alike, so all parts take about the same time.
        chosen = chosen[shard[0] - 1 :: shard[1]]
    if fraction is not None:
        chosen = parts_of_equal_cost(chosen, fraction[1])[fraction[0] - 1]
    return chosen


def parse_shard(text: str, option: str = "a shard") -> tuple[int, int]:
    """(2, 8) of "2/8". An error names the option.

    Raises SelectionError.
    """
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise SelectionError(f"{option} must be I/N with 1 <= I <= N, such as 2/8, not {text!r}")
    return int(found[1]), int(found[2])


def _draw(seed: int, name: str) -> bytes:
    """A case's random rank, from its name: adding or removing a case does not move any other."""
    return hashlib.sha256(f"{seed}:{name}".encode()).digest()


def _nothing_named(pattern: str, cases: list[Case]) -> str:
    # There are a hundred groups, and more than a million cases.
    whole_groups = dict.fromkeys(case.group for case in cases)
    wrong = _wrong_parameter(pattern, cases, list(whole_groups))
    if wrong:
        return f"no case is named {pattern!r}: {wrong}"
    whole = [group.split(":") for group in whole_groups]
    groups = dict.fromkeys(":".join(group[: depth + 1]) for group in whole for depth in range(len(group)))
    known = [*groups, *(case.name for case in cases[:MOST_NAMES])]
    close = get_close_matches(pattern.rstrip(":*"), known, 3, 0.5) or list(groups)[:8]
    return f"no case is named {pattern!r}; there are {', '.join(close) or 'none'}"


def _wrong_parameter(pattern: str, cases: list[Case], all_groups: list[str]) -> str:
    """A text about the parameter of a pattern that no case of its groups has, or has with that value; else empty."""
    groups, _, last = pattern.rpartition(":")
    known: dict[str, dict[str, None]] = {}
    meant = {group for group in all_groups if fnmatchcase(group, groups or "*")}
    asks = [pair for pair in last.removesuffix(";*").split(";") if "=" in pair]
    for case in cases if asks else ():
        if case.group in meant:
            for name, value in case.parameters.items():
                known.setdefault(name, {})[value] = None
    for pair in asks if known else ():
        name, _, value = pair.partition("=")
        if name not in known:
            return f"the cases there have no parameter {name!r}; they have {', '.join(known)}"
        if not any(fnmatchcase(there, value) for there in known[name]):
            values = list(known[name])
            text = ", ".join(values[:MOST_VALUES]) + (", ..." if len(values) > MOST_VALUES else "")
            return f"{name} is never {value!r} there; it is one of {text}"
    return ""
