"""Cases as products of named parameters, and the choice of the default cases."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property, partial
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

GPU_AND_OWN = {label: DEVICES[label] for label in ("own", "gpu")}
# For cases of many workgroups: a CPU driver's dispatches are kept too short for them.
GPU = {"gpu": DeviceType.DISCRETE_GPU}

Parameters = Any  # a SimpleNamespace with an attribute for each parameter
Build = Callable[[np.random.Generator, Parameters], Workload]


@dataclass(frozen=True)
class Group:
    """Cases of one rule: a product of parameters.

    name: "slice1:window".
    build: makes the workload from random numbers and the parameters, given as attributes.
    parameters: a parameter's values by their labels; a sequence's values are labelled by what they print as. "path"
        forces a kernel path, and "device" is one of DEVICES.
    default: which combinations run by default: "all", "none", or "pairs": as many as it takes for each value of each
        parameter to meet each value of every other.
    keep: whether a combination makes sense, given its labels.
    left_out: whether there is no case for a combination, although the default combinations are chosen as if there were.
    support: what a device must have for a combination, given the profile and the parameters.
    about: what the group tests, in a sentence or two; by default the documentation of `build`.
    """

    name: str
    build: Build
    parameters: Mapping[str, Mapping[str, Any] | Sequence[Any]]
    default: str = "pairs"
    keep: Callable[[Mapping[str, str]], bool] | None = None
    left_out: Callable[[Mapping[str, str]], bool] | None = None
    support: Callable[[DeviceProfile, Parameters], NotSupported | None] | None = None
    about: str = ""

    @cached_property
    def sentence(self) -> str:
        """What the group tests, in one line."""
        return self.about or " ".join((inspect.getdoc(self.build) or "").split())

    def cases(self, default_only: bool = False) -> Iterator[Case]:
        """All of them, or those that run by default, in the parameters' order."""
        for case in self._combinations(default_only):
            if self.left_out is None or not self.left_out(case.parameters):
                yield case

    def _combinations(self, default_only: bool) -> Iterator[Case]:
        values, defaults = self._values, self._defaults
        if self.default != "all" and default_only:
            places = [{label: k for k, label in enumerate(labels)} for labels in values.values()]
            order = lambda labels: [place[label] for place, label in zip(places, labels, strict=True)]  # noqa: E731
            yield from (self._case(values, labels, True) for labels in sorted(defaults, key=order))
            return
        for labels in itertools.product(*values.values()):
            if self.keep is None or self.keep(dict(zip(values, labels, strict=True))):
                yield self._case(values, labels, self.default == "all" or labels in defaults)

    @cached_property
    def _values(self) -> dict[str, Mapping[str, Any]]:
        return {name: labelled(choices) for name, choices in self.parameters.items()}

    @cached_property
    def _defaults(self) -> set[tuple[str, ...]]:
        """The labels of the combinations that run by default. Cached: to find them takes most of the time of a list."""
        if self.default != "pairs":
            return set()
        values = {name: tuple(labels) for name, labels in self._values.items()}
        return covering_pairs(values, self.keep or (lambda _: True))

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


class Groups(list[Group]):
    """The groups of an operator's cases, in their order. `of` makes a group of the function below it.

    operator: the operator's stem, with which the groups' names begin.
    """

    def __init__(self, operator: str, *groups: Group) -> None:
        super().__init__(groups)
        self._operator = operator

    def of(self, **parameters: Any) -> Callable[[Build], Build]:
        """Make a group of a function, which gives it its name. The arguments are those of `add`."""

        def added(build: Build) -> Build:
            self.add(build.__name__, build, **parameters)
            return build

        return added

    def add(
        self,
        name: str,
        build: Build,
        *,
        default: str = "pairs",
        keep: Callable[[Mapping[str, str]], bool] | None = None,
        left_out: Callable[[Mapping[str, str]], bool] | None = None,
        support: Callable[[DeviceProfile, Parameters], NotSupported | None] | None = None,
        about: str = "",
        **parameters: Mapping[str, Any] | Sequence[Any],
    ) -> None:
        """Add a group whose parameters are the further arguments, in their order. "in", a word of Python, is in_."""
        named = {parameter.rstrip("_"): values for parameter, values in parameters.items()}
        self.append(Group(f"{self._operator}:{name}", build, named, default, keep, left_out, support, about))


def only(values: Mapping[str, Any], *labels: str) -> dict[str, Any]:
    """Some of a parameter's values."""
    return {label: values[label] for label in labels}


def by_sizes(*values: Sequence[int]) -> dict[str, Sequence[int]]:
    """A parameter's values that are sizes or steps, labelled as "3x5"."""
    return {"x".join(map(str, value)): value for value in values}


def _swapped(
    support: Callable[[DeviceProfile, Parameters], NotSupported | None], parameters: Parameters, profile: DeviceProfile
) -> NotSupported | None:
    return support(profile, parameters)


def data_name(name: str) -> str:
    """A case's name without the parameters that only say how it is run."""
    groups, _, parameters = name.rpartition(":")
    kept = [pair for pair in parameters.split(";") if pair.partition("=")[0] not in WAYS]
    return f"{groups}:{';'.join(kept)}"


class _Asked(Mapping[str, str]):
    """A combination that notes which of its parameters are asked for."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._labels = labels
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> str:
        self.names.add(name)
        return self._labels[name]

    def __iter__(self) -> Iterator[str]:
        self.names.update(self._labels)
        return iter(self._labels)

    def __len__(self) -> int:
        return len(self._labels)


def covering_pairs(
    values: Mapping[str, Sequence[str]], keep: Callable[[Mapping[str, str]], bool]
) -> set[tuple[str, ...]]:
    """A small set of combinations that covers each pair of values found together in any kept combination.

    Each pair not yet covered is completed to a combination, with the values that cover most further pairs.
    """
    if len(values) == 1:
        ((name, labels),) = values.items()
        return {(label,) for label in labels if keep({name: label})}
    # The longest lists first: their pairs need the most combinations, and the others' fit in beside.
    order = sorted(values, key=lambda name: -len(values[name]))
    missing = {
        (one, a, other, b): None
        for one, other in itertools.combinations(order, 2)
        for a, b in itertools.product(values[one], values[other])
    }
    # The same pairs: for a parameter, its value and another parameter, the values of the other.
    partners = {
        (one, a, other): set(values[other]) for one, other in itertools.permutations(order, 2) for a in values[one]
    }

    def cover(one: str, a: str, other: str, b: str) -> None:
        missing.pop((one, a, other, b), None)
        partners[one, a, other].discard(b)
        partners[other, b, one].discard(a)

    taken: set[tuple[str, ...]] = set()
    turn = 0
    while missing:
        one, a, other, b = next(iter(missing))
        cover(one, a, other, b)
        turn += 1
        chosen = {one: a, other: b}
        if _complete(chosen, [name for name in order if name not in chosen], values, partners, keep, turn) is None:
            taken.add(tuple(chosen[name] for name in values))
            for one, other in itertools.combinations(order, 2):
                cover(one, chosen[one], other, chosen[other])
    return taken


def _complete(
    chosen: dict[str, str],
    free: Sequence[str],
    values: Mapping[str, Sequence[str]],
    partners: Mapping[tuple[str, str, str], Set[str]],
    keep: Callable[[Mapping[str, str]], bool],
    turn: int,
) -> set[str] | None:
    """Add values of the free parameters, so that the combination is kept.

    Returns None, or, where there is no such combination, the parameters for whose values there is none: those that
    `keep` has asked for. Other values of the rest would change nothing.
    """
    if not free:
        asked = _Asked(chosen)
        return None if keep(asked) else asked.names
    first, rest = free[0], free[1:]
    # Equal gains take turns, so that values without pairs to cover are spread as well.
    start = turn % len(values[first])
    rotated = [*values[first][start:], *values[first][:start]]
    sought = [found for name, label in chosen.items() if (found := partners[name, label, first])]
    if sought:
        rotated.sort(key=lambda value: sum(value in found for found in sought), reverse=True)
    blamed: set[str] = set()
    for value in rotated:
        chosen[first] = value
        names = _complete(chosen, rest, values, partners, keep, turn)
        if names is None:
            return None
        if first not in names:
            blamed = names
            break
        blamed |= names
    del chosen[first]
    return blamed - {first}


def labelled(choices: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
    """A parameter's values by their labels."""
    return dict(choices) if isinstance(choices, Mapping) else {str(value): value for value in choices}
