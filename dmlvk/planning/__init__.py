"""How an operator runs: pure functions from a descriptor and a device's profile to a plan."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from itertools import chain
from types import MappingProxyType
from typing import Any, Protocol

from dmlvk._common.arguments import as_argument
from dmlvk.device_profile import DeviceProfile
from dmlvk.errors import PathError, shown
from dmlvk.operators import OperatorDesc
from dmlvk.operators.registry import parts
from dmlvk.planning.plan import (
    CLEAN,
    GENERAL_PATH,
    MAXIMUM_SUBMISSION_SECONDS,
    NO_OFFSETS,
    PERSISTENT,
    SCRATCH,
    Access,
    Dispatch,
    Plan,
    Window,
)
from dmlvk.planning.question import Question

__all__ = [
    "CLEAN",
    "GENERAL_PATH",
    "KERNEL_PATHS",
    "MAXIMUM_SUBMISSION_SECONDS",
    "PERSISTENT",
    "QUESTIONS",
    "SCRATCH",
    "Access",
    "Dispatch",
    "PathError",
    "Plan",
    "Window",
    "close_paths",
    "plan",
    "preferred_path",
    "require_descriptor",
    "require_path_name",
]

# All kernel paths of each operator, over all devices.
KERNEL_PATHS: Mapping[type[OperatorDesc], tuple[str, ...]] = MappingProxyType(parts(__name__, "PATHS", is_shared=True))


class Planner(Protocol):
    """The function `plan` of an operator's module: `path` is one of its paths or None, which chooses."""

    def __call__(
        self, desc: Any, profile: DeviceProfile, /, *, path: str | None = None, offsets: Mapping[str, int]
    ) -> Plan: ...


# What a driver has to answer right before a kernel path is taken, by the path's name.
QUESTIONS: Mapping[str, tuple[Question, ...]] = MappingProxyType(
    dict(chain.from_iterable(found.items() for found in parts(__name__, "QUESTIONS", default=lambda _: {}).values()))
)
PLANNERS: Mapping[type[OperatorDesc], Planner] = MappingProxyType(parts(__name__, "plan", is_shared=True))


def plan(
    desc: OperatorDesc,
    profile: DeviceProfile,
    *,
    path: str | None = None,
    offsets: Mapping[str, int] = NO_OFFSETS,
) -> Plan:
    """Plan an operator for a device.

    Args:
        desc (OperatorDesc): A descriptor of any operator of the registry.
        profile (DeviceProfile): The device: its limits and features decide.
        path (str, optional): Forces one of the operator's kernel paths. If it is None, the planner chooses the best
            one.
        offsets (mapping of str to int, optional): Bytes from the start of its memory to a tensor's own start, by
            descriptor field. Matters only for a tensor that lies across the boundary of two memory segments.

    Raises:
        PathError: When the path does not exist at all or on this device. The message lists the paths that do.
        ValueError: For an offset that is no integer, or negative.
        TypeError: For a `desc` that is no descriptor, or a `path` that is no text.
    """
    if path is not None and not isinstance(path, str):
        raise TypeError(f"path is None or a str, not {type(path).__name__}")
    rule = "a tensor starts inside its memory"
    offsets = {
        field: as_argument(f"offsets[{shown(field)}]", offset, 0, None, rule, ValueError)
        for field, offset in offsets.items()
    }
    require_descriptor(desc)
    return PLANNERS[type(desc)](desc, profile, path=path, offsets=offsets)


class Ranking(Protocol):
    """The function `close_paths` of an operator's module, if it has one."""

    def __call__(self, desc: Any, profile: DeviceProfile, /, *, every: bool) -> list[str]: ...


def close_paths(desc: OperatorDesc, profile: DeviceProfile, *, every: bool = False) -> list[str]:
    """The kernel paths that may be the fastest for an operator on a device, the planner's choice first.

    Those whose estimate is not much more than the least, with tiles by name; or all paths, with `every` or for an
    operator without estimates.
    """
    require_descriptor(desc)
    module = sys.modules[PLANNERS[type(desc)].__module__]
    ranking: Ranking | None = getattr(module, "close_paths", None)
    if ranking is not None:
        return ranking(desc, profile, every=every)
    chosen = plan(desc, profile).path
    found = [chosen]
    for path in KERNEL_PATHS[type(desc)]:
        if path not in (chosen, GENERAL_PATH):
            with suppress(PathError):
                found.append(plan(desc, profile, path=path).path)
    return found


def require_descriptor(desc: object) -> None:
    """Raise a TypeError that says what to pass, unless this is the descriptor of an operator of the registry."""
    if type(desc) in PLANNERS:
        return
    if isinstance(desc, type):
        advice = f"this is the class {desc.__name__}: describe an operator by calling it, {desc.__name__}(...)"
    elif isinstance(desc, (list, tuple)):
        advice = "pass one at a time, or all to compile_all"
    else:
        advice = (
            "describe the operator, such as dmlvk.Slice1Desc(input_tensor=dmlvk.TensorDesc.of(array), ...), or call a "
            "one-liner, such as dmlvk.slice1(array, ...)"
        )
    raise TypeError(f"desc = {shown(desc)}: {type(desc).__name__} is not an operator descriptor; {advice}")


def preferred_path(desc: OperatorDesc, name: str) -> str | None:
    """The path that $DMLVK_KERNEL, a name for all operators, forces on this one; None if it has no such path.

    Raises ValueError: no operator has a path of that name.
    """
    require_path_name(name)
    require_descriptor(desc)
    return name if name in KERNEL_PATHS[type(desc)] else None


def require_path_name(name: str) -> None:
    """Raise a ValueError unless some operator has a kernel path with the name that $DMLVK_KERNEL gives for all."""
    if not any(name in paths for paths in KERNEL_PATHS.values()):
        known = ", ".join(sorted({repr(path) for paths in KERNEL_PATHS.values() for path in paths}))
        raise ValueError(f"DMLVK_KERNEL = {shown(name)}: no operator has a kernel path of this name; there are {known}")
