"""np.from_dlpack with `device` and `copy`, which NumPy has since 2.1, for every NumPy that dmlvk takes."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest

import dmlvk
from dmlvk.runtime.exchange import HOST, NUMPY_TAKES_VERSIONS

needs_writable_arrays = pytest.mark.skipif(
    not NUMPY_TAKES_VERSIONS, reason="before NumPy 2.1 the arrays of np.from_dlpack are read-only"
)


class _Asking:
    """A tensor whose memory is asked for with arguments that an older NumPy does not pass on."""

    def __init__(self, tensor: dmlvk.Tensor, arguments: dict[str, Any]) -> None:
        self._tensor = tensor
        self._arguments = arguments

    def __dlpack__(self, stream: object = None) -> object:
        return self._tensor.__dlpack__(**self._arguments)

    def __dlpack_device__(self) -> tuple[int, int]:
        return HOST


def from_dlpack(tensor: dmlvk.Tensor, *, device: Literal["cpu"] | None = None, copy: bool | None = None) -> np.ndarray:
    """A tensor's elements as an array, shared or copied."""
    if NUMPY_TAKES_VERSIONS:
        return np.from_dlpack(tensor, device=device, copy=copy)
    asking: Any = _Asking(tensor, {"dl_device": HOST if device else None, "copy": copy})
    return np.from_dlpack(asking)
