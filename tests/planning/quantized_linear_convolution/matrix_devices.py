"""The recorded GPUs with matrix units, and what plans tell their kernels."""

from __future__ import annotations

from dmlvk.device_profile import DeviceType
from dmlvk.planning.kernel_interface import kernel_interface
from dmlvk.planning.plan import Dispatch
from dmlvk.planning.quantized_linear_convolution.matrix import matrix_of
from tests import profiles

# lavapipe is excluded: it never chooses the path `matrix`, and would cut the largest convolutions into millions of
# dispatches.
MATRIX_DEVICES = [
    name
    for name in profiles.NAMES
    if matrix_of(profiles.load(name)) is not None and profiles.load(name).device_type is not DeviceType.CPU
]
# Subgroups of 32 or more: those of Intel's drivers have 8 or 16.
SPLIT_K_DEVICES = [name for name in MATRIX_DEVICES if profiles.load(name).min_subgroup_size >= 32]


def push_constant(dispatch: Dispatch, name: str) -> int:
    """A push constant of one word, by its name."""
    return dispatch.push_constants[kernel_interface(dispatch.kernel).word_of(name)]


def constant(dispatch: Dispatch, name: str) -> int:
    """A specialization constant, by its name."""
    return dispatch.specialization[kernel_interface(dispatch.kernel).specialization_constants.index(name)]


def size_of(dispatch: Dispatch, name: str) -> int:
    """A size: the specialization constant, or the push constant of its name if that is 0, as the kernels take it."""
    interface = kernel_interface(dispatch.kernel)
    value = constant(dispatch, name) if name in interface.specialization_constants else 0
    if value == 0 and name.lower() in interface.push_constants:
        return push_constant(dispatch, name.lower())
    return value
