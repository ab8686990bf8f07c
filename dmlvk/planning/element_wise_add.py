"""ELEMENT_WISE_ADD: a sum for each element, in floats or in integers: see `dmlvk.planning.float32`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dmlvk.planning.families.element_wise import operation_plan
from dmlvk.planning.float32 import PATHS, chosen_path

if TYPE_CHECKING:
    from dmlvk.device_profile import DeviceProfile
    from dmlvk.operators import ElementWiseAddDesc
    from dmlvk.planning.plan import Plan

__all__ = ["PATHS", "plan"]


def plan(
    desc: ElementWiseAddDesc, profile: DeviceProfile, *, path: str | None = None, offsets: Mapping[str, int]
) -> Plan:
    """Plan an ELEMENT_WISE_ADD."""
    return operation_plan(desc, profile, chosen_path(desc, profile, path), offsets)
