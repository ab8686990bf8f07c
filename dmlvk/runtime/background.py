"""Compiling in the background: an operator's first results come from a general kernel that is compiled already."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace
from weakref import ref

from dmlvk import planning
from dmlvk.device_profile import DeviceType
from dmlvk.errors import DeviceError, ValidationError
from dmlvk.operators import OperatorDesc
from dmlvk.planning.plan import GENERAL_PATH, Plan
from dmlvk.runtime import debug
from dmlvk.runtime.engine import Engine
from dmlvk.runtime.implementation import Implementation
from dmlvk.vulkan.host_threads import core_count, in_background

# A general kernel answers only if the planner estimates less than this for it, in seconds: a driver compiles a special
# kernel in a third of a second. The rates of GPUs are those of a large one.
LONGEST_GENERAL_RUN = {DeviceType.CPU: 0.3}
LONGEST_GENERAL_RUN_ON_GPU = 0.05


def is_allowed() -> bool:
    """Whether kernels may be compiled in the background: on several cores, and not with DMLVK_BACKGROUND=0.

    Raises ValueError: the variable has another value than "", "0" or "1".
    """
    text = os.environ.get("DMLVK_BACKGROUND", "")
    if text not in ("", "0", "1"):
        raise ValueError(
            f"DMLVK_BACKGROUND is {text!r}; it can be 0 (each kernel is compiled before its first call) or 1"
        )
    return text != "0" and core_count() > 1


def built(
    engine: Engine, desc: OperatorDesc, plan: Plan, path: str | None, *, is_forced: bool, waits: bool
) -> Implementation:
    """An implementation that can run: the plan's own, or a general one until the plan's own is compiled.

    plan: the plan that was chosen for the descriptor.
    path: the path that the plan was asked for by.
    is_forced: whether no other path will do. Its pipelines are waited for.
    waits: whether to wait for the plan's own pipelines.
    Raises DeviceError: the driver refuses a kernel, or the device is closed.
    """
    first = None if waits or is_forced or not is_allowed() else _general_plan(engine, desc)
    special = Implementation(engine, desc, plan, path, is_forced=is_forced)
    if first is None or special.build_without_compiler():
        special.build()
        return special
    general = Implementation(engine, desc, first, GENERAL_PATH, special=special)
    debug.note(engine, desc, f"path {first.path} answers until path {plan.path} is compiled")
    _open_early(engine, general)
    reference = ref(general)
    in_background(lambda: _build_special(reference))
    general.build()
    return general


def _open_early(engine: Engine, general: Implementation) -> None:
    """In the background: open the Device that known questions are asked on, if the general kernel has to be compiled.

    That is the case for the first convolution, which takes a while anyway. Later a submission would wait for the driver
    to open a device.
    """
    self_test = engine.self_test
    if self_test is None or self_test.has_begun:
        return
    if general.build_without_compiler() or self_test.has_answered_all(engine):
        return
    reference = ref(engine)

    def work() -> None:
        engine = reference()
        if engine is not None:
            self_test.open_early(engine)

    in_background(work)


def held_back(engine: Engine, desc: OperatorDesc, path: str | None = None) -> Implementation:
    """A general implementation that runs until somebody calls `build_special`: nothing is compiled in the background.

    With it the moment of the take-over can be chosen, on any number of cores.

    path: the kernel path that takes over; the planner's choice by default.
    Raises PathError: the operator has no general kernel, or no such path.
    Raises DeviceError: the driver refuses a kernel, or the device is closed.
    """
    special = Implementation(engine, desc, engine.plan(desc, path), path, is_forced=path is not None)
    general = Implementation(engine, desc, engine.plan(desc, GENERAL_PATH), GENERAL_PATH, special=special)
    general.build()
    return general


def _general_plan(engine: Engine, desc: OperatorDesc) -> Plan | None:
    """The plan of an operator's general kernel; None if there is none, or if it would take too long."""
    if GENERAL_PATH not in planning.KERNEL_PATHS[type(desc)]:
        return None
    try:
        plan = engine.plan(desc, GENERAL_PATH)
    except planning.PathError:
        return None
    longest = LONGEST_GENERAL_RUN.get(engine.profile.device_type, LONGEST_GENERAL_RUN_ON_GPU)
    return plan if plan.predicted_seconds <= longest else None


def _build_special(reference: ref[Implementation]) -> None:
    """In a thread of the background: build the implementation that takes over, unless nobody uses the operator."""
    general = reference()
    if general is None:
        return
    try:
        general.build_special(gives_way=True)
    except BaseException as error:
        general.stay(error)
        # The operator may stay on the general kernel if the driver refuses the special one or the device is closed.
        _report_mistake(error, general.desc)


def is_ready(engine: Engine, desc: OperatorDesc, plan: Plan, path: str | None) -> bool:
    """Whether an operator's pipelines are there: see `Device.is_ready`."""
    if not is_allowed() or Implementation(engine, desc, plan, path).build_without_compiler():
        return True
    if desc not in engine.compiled_later:
        engine.compiled_later.add(desc)
        reference = ref(engine)
        in_background(lambda: _compile(reference, desc))
    return False


def _compile(reference: ref[Engine], desc: OperatorDesc) -> None:
    """In a thread of the background: compile an operator, so that `Device.compile` finds it later."""
    engine = reference()
    if engine is None:
        return
    try:
        engine.device.compile(desc)
    except BaseException as error:  # whoever needs the operator hears what the driver says
        _report_mistake(error, desc)
    finally:
        engine.compiled_later.discard(desc)


def _report_mistake(error: BaseException, desc: OperatorDesc) -> None:
    """Show an error of the background, unless it is a driver's: no caller is there to see it."""
    if isinstance(error, DeviceError) and not isinstance(error, ValidationError):
        return
    message = "Exception ignored while dmlvk compiled a kernel in the background"
    report = SimpleNamespace(
        exc_type=type(error),
        exc_value=error,
        exc_traceback=error.__traceback__,
        err_msg=message,
        object=desc.operator_name,
    )
    sys.unraisablehook(report)  # type: ignore[arg-type]
