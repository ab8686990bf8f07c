"""What operators share that do more with a convolution's output: in its kernel, or by a dispatch of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from dmlvk.device_profile import DeviceProfile
from dmlvk.planning.plan import SCRATCH, Access, Dispatch, Window

PlannedStages = tuple[tuple[Dispatch, ...], ...]
OUTPUT = "output_tensor"
# The specialization constant of kernels with a form whose last step looks bytes up, and what a table takes of their
# shared memory: see kernels/quantized_linear_convolution_table/table.glsl.
HAS_TABLE, TABLE_SIZE = "HAS_TABLE", 256


def is_output(window: Window) -> bool:
    """Whether a dispatch stores the convolution's output through a window."""
    return window.tensor == OUTPUT and window.access is Access.WRITE


def in_last_step(
    stages: PlannedStages, profile: DeviceProfile, change: Callable[[Dispatch], Dispatch | None]
) -> PlannedStages | None:
    """Stages whose kernels do in their last step what `change` makes them do; None if one that stores cannot."""
    found: list[tuple[Dispatch, ...]] = []
    for stage in stages:
        dispatches: list[Dispatch] = []
        for dispatch in stage:
            changed = change(dispatch) if any(map(is_output, dispatch.windows)) else dispatch
            if changed is None:
                return None
            if changed is not dispatch and (
                len(changed.windows) > profile.limits.max_per_stage_descriptor_storage_buffers
                or 4 * len(changed.push_constants) > profile.limits.max_push_constants_size
            ):
                return None
            dispatches.append(changed)
        found.append(tuple(dispatches))
    return tuple(found)


def moved(stages: PlannedStages, places: Mapping[str, tuple[str, int]]) -> PlannedStages:
    """Stages whose windows of some memory lie in other memory, so many bytes behind its start."""

    def window(window: Window) -> Window:
        tensor, start = places.get(window.tensor, (window.tensor, 0))
        return replace(window, tensor=tensor, offset=start + window.offset)

    return tuple(
        tuple(replace(dispatch, windows=tuple(map(window, dispatch.windows))) for dispatch in stage) for stage in stages
    )


def stored_in_scratch(stages: PlannedStages, start: int) -> PlannedStages:
    """A convolution's stages, whose output lies in scratch memory."""
    return moved(stages, {OUTPUT: (SCRATCH, start)})
