"""Outputs are poisoned: memory that a kernel leaves unwritten holds random bytes, which no test expects."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dmlvk


@pytest.fixture(autouse=True)
def _poison(monkeypatch: pytest.MonkeyPatch) -> None:
    random, make = np.random.default_rng(), dmlvk.Device.tensor

    def make_poisoned(self: dmlvk.Device, array_or_desc: Any, dtype: Any = None) -> dmlvk.Tensor:
        tensor = make(self, array_or_desc, dtype)
        if isinstance(array_or_desc, dmlvk.TensorDesc):
            tensor.write_bytes(random.bytes(array_or_desc.total_size_in_bytes))
        return tensor

    monkeypatch.setattr(dmlvk.Device, "tensor", make_poisoned)
