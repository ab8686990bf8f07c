"""ELEMENT_WISE_DEQUANTIZE_LINEAR: a product for each element.

float32
    In float32, on devices that promise to round it to nearest even.
integers
    In integers, on any device.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dmlvk.device_profile import DeviceProfile
from dmlvk.errors import PathError
from dmlvk.planning.device_traits import ROUNDING
from dmlvk.planning.element_wise_quantize_linear import linear_plan
from dmlvk.planning.plan import Plan, require_path

if TYPE_CHECKING:
    from dmlvk.operators import ElementWiseDequantizeLinearDesc

FLOAT32, INTEGERS = "float32", "integers"
PATHS = (FLOAT32, INTEGERS)


def plan(
    desc: ElementWiseDequantizeLinearDesc,
    profile: DeviceProfile,
    *,
    path: str | None = None,
    offsets: Mapping[str, int],
) -> Plan:
    """Plan an ELEMENT_WISE_DEQUANTIZE_LINEAR."""
    require_path(desc.operator_name, path, PATHS)
    rounds = ROUNDING in profile.properties
    if path == FLOAT32 and not rounds:
        raise PathError(f"{desc.operator_name} has the path {FLOAT32!r} on devices with {ROUNDING} only")
    chosen = path or (FLOAT32 if rounds else INTEGERS)
    return linear_plan(desc, profile, chosen, desc.input_tensor.data_type, offsets)
