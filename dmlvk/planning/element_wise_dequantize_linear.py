"""ELEMENT_WISE_DEQUANTIZE_LINEAR: a product for each element. For its paths see `dmlvk.planning.float32`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dmlvk.planning.element_wise_quantize_linear import linear_plan
from dmlvk.planning.float32 import PATHS, chosen_path

if TYPE_CHECKING:
    from dmlvk.device_profile import DeviceProfile
    from dmlvk.operators import ElementWiseDequantizeLinearDesc
    from dmlvk.planning.plan import Plan

__all__ = ["PATHS", "plan"]


def plan(
    desc: ElementWiseDequantizeLinearDesc,
    profile: DeviceProfile,
    *,
    path: str | None = None,
    offsets: Mapping[str, int],
) -> Plan:
    """Plan an ELEMENT_WISE_DEQUANTIZE_LINEAR."""
    return linear_plan(desc, profile, chosen_path(desc, profile, path), desc.input_tensor.data_type, offsets)
