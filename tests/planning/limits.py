"""The check of a plan against a device, for any operator."""

from __future__ import annotations

from dmlvk.conformance.plans import violations
from dmlvk.device_profile import DeviceProfile
from dmlvk.operators import OperatorDesc
from dmlvk.planning import Plan


def check_plan(plan: Plan, desc: OperatorDesc, profile: DeviceProfile) -> None:
    """Fail if the device cannot carry out the plan, or if the plan accesses memory that is not the operator's."""
    assert list(violations(plan, desc, profile)) == []
