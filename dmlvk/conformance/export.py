"""A case as a self-contained folder for a driver's maintainers, who need no dmlvk to run it.

case.json            device, status, descriptor, plan: every dispatch with its arguments
*/*.spv              the kernels
*.npy                the elements of inputs and of the expected output
*.bin                the memory of each tensor before the run, guard bytes included
output_tensor.expected.bin   the output's right memory after the run
replay.py            runs the dispatches and compares: needs Python, NumPy and the `vulkan` package
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlvk._common import files
from dmlvk.conformance.case import Case
from dmlvk.conformance.outputs import folder_name, require_own
from dmlvk.conformance.profiles import workload_profile
from dmlvk.conformance.results import Environment, Result
from dmlvk.conformance.running.placement import Placement, placed_tensors
from dmlvk.device_profile import DeviceProfile
from dmlvk.planning import CLEAN, PERSISTENT, SCRATCH, Dispatch, Plan, plan
from dmlvk.runtime.kernel_modules import spirv

CASE = "case.json"


def export_case(case: Case, result: Result, environment: Environment, parent: Path) -> Path:
    """Write a case into a folder of its own.

    parent: the folder in which the new folder is made.
    Returns the folder.
    Raises ValueError: the device does not have the path that the case forces.
    Raises OSError: the folder cannot be written, or it exists and contains something other than an exported case.
    """
    device = DeviceProfile.from_record(environment.record)
    workload = case.build()
    profile = workload_profile(device, result.profile, workload)
    placements = placed_tensors(case.name, workload, profile)
    made = plan(workload.desc, profile, path=case.path, offsets=crossing_offsets(placements, profile))
    folder = parent / folder_name(result)
    require_own(folder, CASE, {"result", "environment", "stages"}, "an exported case")
    folder.mkdir(parents=True, exist_ok=True)
    output = placements["output_tensor"]
    record = {
        "result": result.to_json(),
        "environment": environment.to_json(),
        "descriptor": str(workload.desc),
        "path": made.path,
        "features": sorted(profile.features & set(environment.features)),
        "segment_size": profile.segment_size,
        "memory": _memory_sizes(made, placements),
        "output": {**output.layout, "is_defined": workload.is_defined},
        "initialization": _stages(made.initialization, placements, profile),
        "stages": _stages(made.stages, placements, profile),
        "plan": json.loads(json.dumps(asdict(made), default=str)),
    }
    # Written first, because this file marks the folder as an export.
    files.write_text(folder / CASE, json.dumps(record, indent=1, default=list))
    for kernel in {dispatch.kernel for stage in (*made.initialization, *made.stages) for dispatch in stage}:
        place = folder / f"{kernel}.spv"
        place.parent.mkdir(exist_ok=True)
        files.write_bytes(place, spirv(kernel))
    for field, placement in placements.items():
        files.write_bytes(folder / f"{field}.bin", placement.content.data)
        if field in workload.inputs:
            _write_array(folder / f"{field}.npy", np.asarray(workload.inputs[field]))
    expected = workload.result()
    _write_array(folder / "output_tensor.expected.npy", expected)
    files.write_bytes(folder / "output_tensor.expected.bin", output.content_with(expected).data)
    files.write_bytes(folder / "replay.py", files.packaged_bytes("dmlvk.conformance", "replay.py"))
    return folder


def _write_array(path: Path, array: npt.NDArray[Any]) -> None:
    files.write_bytes(path, files.npy_bytes(array))


def crossing_offsets(placements: Mapping[str, Placement], profile: DeviceProfile) -> dict[str, int]:
    """The offsets that the planner needs for tensors that lie across the boundary of two memory segments."""
    segment = profile.segment_size
    offsets = {}
    for field, placement in placements.items():
        end = placement.start + placement.desc.total_size_in_bytes
        if placement.start % segment and placement.start // segment != (end - 1) // segment:
            offsets[field] = placement.start % segment
    return offsets


def _memory_sizes(made: Plan, placements: Mapping[str, Placement]) -> dict[str, int]:
    sizes = {field: placement.size for field, placement in placements.items()}
    given = ((SCRATCH, made.scratch_size), (PERSISTENT, made.persistent_size), (CLEAN, made.clean_size))
    for name, size in given:
        if size:
            sizes[name] = size
    return sizes


def _stages(
    stages: Sequence[Sequence[Dispatch]], placements: Mapping[str, Placement], profile: DeviceProfile
) -> list[list[dict[str, Any]]]:
    return [[_dispatch(dispatch, placements, profile) for dispatch in stage] for stage in stages]


def _dispatch(dispatch: Dispatch, placements: Mapping[str, Placement], profile: DeviceProfile) -> dict[str, Any]:
    """A dispatch as recorded: bindings at aligned addresses, and push constants that correct for the alignment."""
    push_constants = list(dispatch.push_constants)
    bindings = []
    for window in dispatch.windows:
        start = placements[window.tensor].start if window.tensor in placements else 0
        segment, address = divmod(start + window.offset, profile.segment_size)
        distance = address % profile.offset_alignment
        word = push_constants[window.base_word] + distance // window.base_unit
        push_constants[window.base_word] = word & 0xFFFFFFFF
        bindings.append(
            {
                "memory": window.tensor,
                "segment": segment,
                "offset": address - distance,
                "size": window.size + distance,
                "access": window.access.value,
            }
        )
    return {
        "kernel": dispatch.kernel,
        "specialization": list(dispatch.specialization),
        "push_constants": push_constants,
        "groups": list(dispatch.groups),
        "subgroup_size": dispatch.subgroup_size,
        "bindings": bindings,
    }
