"""ACTIVATION_RELU in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dmlvk.operators import ActivationReluDesc


def run(desc: ActivationReluDesc, *, input_tensor: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Put 0 in the place of what is below 0.

    Source: DML_ACTIVATION_RELU_OPERATOR_DESC (directml.h).
    """
    return np.where(input_tensor < 0, np.float32(0), input_tensor)
