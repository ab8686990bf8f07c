"""Cases as products of named parameters, and the choice of the default cases."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from dmlvk.conformance.case import Case, NotSupported, Workload, generator
from dmlvk.device_profile import DeviceProfile, DeviceType

# These parameters say how a case is run. They change neither the result nor the data: cases that differ only in them
# have the same digest.
WAYS = ("path", "device", "images", "position", "way")

PLANNERS_CHOICE = "auto"

# A device as it is, or planned for as another kind.
DEVICES: Mapping[str, DeviceType | None] = {"own": None, "gpu": DeviceType.DISCRETE_GPU, "cpu": DeviceType.CPU}

Parameters = Any  # a SimpleNamespace with an attribute for each parameter
Build = Callable[[np.random.Generator, Parameters], Workload]


@dataclass(frozen=True)
class Group:
    """Cases of one rule: a product of parameters.

    Attributes
    ----------
    name : str
        "slice1:window".
    build : callable
        Makes the workload from random numbers and the parameters, given as attributes.
    parameters : mapping of str to mapping or sequence
        A parameter's values by their labels; a sequence's values are labelled by what they print as. "path" forces a
        kernel path, and "device" is one of DEVICES.
    default : str
        Which combinations run by default: "all", "none", or "pairs": as many as it takes for each value of each
        parameter to meet each value of every other.
    keep : callable, optional
        Whether a combination makes sense, given its labels.
    support : callable, optional
        What a device must have for a combination, given the profile and the parameters.
    about : str
        What the group tests, in a sentence or two; by default the documentation of `build`.
    """

    name: str
    build: Build
    parameters: Mapping[str, Mapping[str, Any] | Sequence[Any]]
    default: str = "pairs"
    keep: Callable[[Mapping[str, str]], bool] | None = None
    support: Callable[[DeviceProfile, Parameters], NotSupported | None] | None = None
    about: str = ""

    @cached_property
    def sentence(self) -> str:
        """What the group tests, in one line."""
        return self.about or " ".join((inspect.getdoc(self.build) or "").split())

    def cases(self, default_only: bool = False) -> Iterator[Case]:
        """All of them, or those that run by default, in the parameters' order."""
        values = {name: _labelled(choices) for name, choices in self.parameters.items()}
        if self.default != "all":
            defaults = self._defaults(values)
            if default_only:
                places = [{label: k for k, label in enumerate(labels)} for labels in values.values()]
                order = lambda labels: [place[label] for place, label in zip(places, labels, strict=True)]  # noqa: E731
                yield from (self._case(values, labels, True) for labels in sorted(defaults, key=order))
                return
        for labels in itertools.product(*values.values()):
            if self.keep is None or self.keep(dict(zip(values, labels, strict=True))):
                yield self._case(values, labels, self.default == "all" or labels in defaults)

    def _defaults(self, values: Mapping[str, Mapping[str, Any]]) -> Set[tuple[str, ...]]:
        if self.default != "pairs":
            return frozenset()
        return _kept_pairs(tuple(values), tuple(tuple(labels) for labels in values.values()), self.keep)

    def _case(self, values: Mapping[str, Mapping[str, Any]], labels: tuple[str, ...], is_default: bool) -> Case:
        name = f"{self.name}:{';'.join(f'{key}={label}' for key, label in zip(values, labels, strict=True))}"
        chosen = {key: values[key][label] for key, label in zip(values, labels, strict=True)}
        path = chosen.get("path", PLANNERS_CHOICE)
        parameters = SimpleNamespace(**{"device": None, **chosen})

        def build() -> Workload:
            return self.build(generator(data_name(name)), parameters)

        support = None if self.support is None else partial(_swapped, self.support, parameters)
        forced = None if path == PLANNERS_CHOICE else path
        return Case(name, build, forced, is_default, support, self.sentence)


def _swapped(
    support: Callable[[DeviceProfile, Parameters], NotSupported | None], parameters: Parameters, profile: DeviceProfile
) -> NotSupported | None:
    return support(profile, parameters)


def data_name(name: str) -> str:
    """A case's name without the parameters that only say how it is run."""
    groups, _, parameters = name.rpartition(":")
    kept = [pair for pair in parameters.split(";") if pair.partition("=")[0] not in WAYS]
    return f"{groups}:{';'.join(kept)}"


@lru_cache(maxsize=512)  # the groups of a module that makes them anew for each list of cases
def _kept_pairs(
    names: tuple[str, ...], labels: tuple[tuple[str, ...], ...], keep: Callable[[Mapping[str, str]], bool] | None
) -> Set[tuple[str, ...]]:
    return covering_pairs(labels, lambda chosen: keep is None or keep(dict(zip(names, chosen, strict=True))))


def covering_pairs(values: Sequence[Sequence[str]], keep: Callable[[tuple[str, ...]], bool]) -> set[tuple[str, ...]]:
    """A small set of combinations that covers each pair of values found together in any kept combination.

    Each pair not yet covered is completed to a combination, with the values that cover most further pairs.
    """
    count = len(values)
    if count == 1:
        return {(value,) for value in values[0] if keep((value,))}
    # The longest lists first: their pairs need the most combinations, and the others' fit in beside.
    order = sorted(range(count), key=lambda k: -len(values[k]))
    missing = {
        (i, a, j, b): None
        for i, j in itertools.combinations(order, 2)
        for a, b in itertools.product(values[i], values[j])
    }
    taken: set[tuple[str, ...]] = set()
    turn = 0
    while missing:
        pair = next(iter(missing))
        del missing[pair]
        turn += 1
        found = _completed({pair[0]: pair[1], pair[2]: pair[3]}, order, values, missing, keep, turn)
        if found is not None:
            taken.add(found)
            for i, j in itertools.combinations(order, 2):
                missing.pop((i, found[i], j, found[j]), None)
    return taken


def _completed(
    fixed: dict[int, str],
    order: Sequence[int],
    values: Sequence[Sequence[str]],
    missing: Mapping[tuple[int, str, int, str], None],
    keep: Callable[[tuple[str, ...]], bool],
    turn: int,
) -> tuple[str, ...] | None:
    """A combination that is kept, with some values fixed; None where there is none."""
    free = next((k for k in order if k not in fixed), None)
    if free is None:
        labels = tuple(fixed[k] for k in range(len(order)))
        return labels if keep(labels) else None
    place = {k: position for position, k in enumerate(order)}

    def gain(value: str) -> int:
        return sum(
            ((k, label, free, value) if place[k] < place[free] else (free, value, k, label)) in missing
            for k, label in fixed.items()
        )

    # Equal gains take turns, so that values without pairs to cover are spread as well.
    start = turn % len(values[free])
    rotated = [*values[free][start:], *values[free][:start]]
    for value in sorted(rotated, key=gain, reverse=True):
        found = _completed({**fixed, free: value}, order, values, missing, keep, turn)
        if found is not None:
            return found
    return None


def _labelled(choices: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
    return dict(choices) if isinstance(choices, Mapping) else {str(value): value for value in choices}
