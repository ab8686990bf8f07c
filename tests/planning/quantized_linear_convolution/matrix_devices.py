"""The recorded GPUs with matrix units, and what plans tell their kernels."""

from __future__ import annotations

from dmlvk.device_profile import DeviceType
from dmlvk.planning.kernel_interface import kernel_interface
from dmlvk.planning.plan import Dispatch
from dmlvk.planning.quantized_linear_convolution.matrix_tiles import matrix_of
from tests import profiles

# lavapipe is excluded: it never chooses the path `matrix`, and would cut the largest convolutions into millions of
# dispatches.
MATRIX_DEVICES = [
    name
    for name in profiles.NAMES
    if matrix_of(profiles.load(name)) is not None and profiles.load(name).device_type is not DeviceType.CPU
]


def push_constant(dispatch: Dispatch, name: str) -> int:
    """A push constant of one word, by its name."""
    return dispatch.push_constants[kernel_interface(dispatch.kernel).word_of(name)]
