"""ELEMENT_WISE_QUANTIZE_LINEAR: an estimate by the scale's reciprocal, divided in integers near the middle of two."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dmlvk.data_type import DataType
from dmlvk.device_profile import DeviceProfile
from dmlvk.planning.families.element_wise import FIRST, SECOND, THIRD, Stepping, element_wise_dispatches
from dmlvk.planning.plan import Plan, require_path

if TYPE_CHECKING:
    from dmlvk.operators import ElementWiseDequantizeLinearDesc, ElementWiseQuantizeLinearDesc

ESTIMATE = "estimate"
PATHS = (ESTIMATE,)
# Elements that an invocation writes.
UNIT = 4

PLACES = {FIRST: "input_tensor", SECOND: "scale_tensor", THIRD: "zero_point_tensor"}


def plan(
    desc: ElementWiseQuantizeLinearDesc,
    profile: DeviceProfile,
    *,
    path: str | None = None,
    offsets: Mapping[str, int],
) -> Plan:
    """Plan an ELEMENT_WISE_QUANTIZE_LINEAR."""
    require_path(desc.operator_name, path, PATHS)
    return linear_plan(desc, profile, ESTIMATE, desc.output_tensor.data_type, offsets)


def linear_plan(
    desc: ElementWiseQuantizeLinearDesc | ElementWiseDequantizeLinearDesc,
    profile: DeviceProfile,
    path: str,
    quantized: DataType,
    offsets: Mapping[str, int],
) -> Plan:
    """Plan either of the two operators with the kernel of a path; `quantized` is the type of the bytes."""
    tensors, output = desc.tensors, desc.output_tensor
    dispatches = element_wise_dispatches(
        f"{desc.operator_name.lower()}/{path}",
        UNIT,
        ("output_tensor", output),
        [Stepping.of(place, field, tensors[field], output.rank) for place, field in PLACES.items() if field in tensors],
        profile,
        specialization={
            "HAS_ZERO_POINT": int("zero_point_tensor" in tensors),
            "UNSIGNED_TYPES": int(quantized is DataType.UINT8),
        },
        offsets=offsets,
    )
    return Plan(path=path, stages=(dispatches,))
