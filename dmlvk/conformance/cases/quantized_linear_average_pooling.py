"""QUANTIZED_LINEAR_AVERAGE_POOLING: rules that its declaration does not say, as those of MAX_POOLING2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dmlvk.conformance.cases.max_pooling2 import WINDOW_RULES

BROKEN_RULES: Mapping[str, Mapping[str, Any]] = {
    name: {field: value for field, value in changes.items() if field != "output_indices_tensor"}
    for name, changes in WINDOW_RULES.items()
}
