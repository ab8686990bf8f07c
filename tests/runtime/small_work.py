"""Work that is done soon, and a counter of Vulkan calls."""

from __future__ import annotations

import numpy as np
import pytest

import dmlvk
from dmlvk.vulkan.library import vk

DESC = dmlvk.TensorDesc(dmlvk.DataType.INT32, (64,))
VALUES = np.arange(64, dtype=np.int32)


def reverse_desc(desc: dmlvk.TensorDesc = DESC) -> dmlvk.Slice1Desc:
    return dmlvk.Slice1Desc(
        input_tensor=desc,
        output_tensor=desc,
        input_window_offsets=[0],
        input_window_sizes=desc.sizes,
        input_window_strides=[-1],
    )


class Counter:
    """Counts the calls of a function of the Vulkan library."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.count = 0
        self._function = getattr(vk, name)
        monkeypatch.setattr(vk, name, self)

    def __call__(self, *arguments: object) -> object:
        self.count += 1
        return self._function(*arguments)
