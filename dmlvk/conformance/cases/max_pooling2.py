"""MAX_POOLING2: rules that its declaration does not say, with a descriptor that breaks each. All else is derived."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Windows that fit a plane of 7 x 16; each rule changes some of it.
_WINDOWS: Mapping[str, Any] = {
    "output_tensor": None,
    "output_indices_tensor": None,
    "strides": [2, 2],
    "window_size": [3, 2],
    "start_padding": [1, 0],
    "end_padding": [1, 0],
    "dilations": [1, 3],
}
# For all operators with windows.
WINDOW_RULES: Mapping[str, Mapping[str, Any]] = {
    "window_larger_than_the_input": {**_WINDOWS, "window_size": [10, 2]},
    "dilated_window_larger_than_the_input": {**_WINDOWS, "dilations": [1, 16]},
    "window_before_the_input": {**_WINDOWS, "start_padding": [3, 0]},
    "window_behind_the_input": {**_WINDOWS, "end_padding": [4, 0]},
    "window_that_steps_over_the_input": {
        **_WINDOWS,
        "start_padding": [1, 1],
        "dilations": [1, 18],
        "end_padding": [1, 3],
    },
    "output_past_32_bits": {
        **_WINDOWS,
        "strides": [1, 1],
        "window_size": [65_536, 65_536],
        "start_padding": [65_535, 65_535],
        "end_padding": [65_535, 65_535],
        "dilations": [1, 1],
    },
    "output_sizes": {"output_tensor.sizes": [3, 2, 1, 1]},
}
BROKEN_RULES: Mapping[str, Mapping[str, Any]] = WINDOW_RULES
