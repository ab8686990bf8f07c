"""The two kernel paths of operators that compute in binary32.

float32
    In floats, on devices that promise to round them to nearest even.
integers
    In integers, on any device.
"""

from __future__ import annotations

from dmlvk.device_profile import DeviceProfile
from dmlvk.errors import PathError
from dmlvk.operators import OperatorDesc
from dmlvk.planning.device_traits import ROUNDING
from dmlvk.planning.plan import require_path

FLOAT32, INTEGERS = "float32", "integers"
PATHS = (FLOAT32, INTEGERS)


def chosen_path(desc: OperatorDesc, profile: DeviceProfile, path: str | None) -> str:
    """The path that was asked for, or else the one that the device has.

    Raises PathError: the device does not promise how it rounds.
    """
    require_path(desc.operator_name, path, PATHS)
    rounds = ROUNDING in profile.properties
    if path == FLOAT32 and not rounds:
        raise PathError(f"{desc.operator_name} has the path {FLOAT32!r} on devices with {ROUNDING} only")
    return path or (FLOAT32 if rounds else INTEGERS)
