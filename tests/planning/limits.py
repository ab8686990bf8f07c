"""What every plan has to keep to, whatever the operator and the device."""

from __future__ import annotations

from dmlvk.conformance.plans import violations
from dmlvk.device_profile import DeviceProfile
from dmlvk.operators import OperatorDesc
from dmlvk.planning import Plan


def check_plan(plan: Plan, desc: OperatorDesc, profile: DeviceProfile) -> None:
    """Fail when the device could not carry out the plan, or when it touches memory that is not the operator's."""
    assert list(violations(plan, desc, profile)) == []
