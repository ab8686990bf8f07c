"""MAX_POOLING2: windows of networks, and rules that its declaration does not say. All else is derived."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dmlvk.conformance.case import Workload
from dmlvk.conformance.cases.by_declaration import declared_form
from dmlvk.conformance.cases.combinations import Groups, Parameters
from dmlvk.conformance.cases.layouts import LIMITS, lay_out
from dmlvk.conformance.cases.values import random_array
from dmlvk.data_type import DataType
from dmlvk.operators import MaxPooling2Desc
from dmlvk.tensor_desc import TensorDesc

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

# Window, strides, dilations, padding, and the sizes of the input: as in networks, and with rows that are far apart.
WINDOWS: Mapping[str, tuple[int, int, int, int, tuple[int, ...]]] = {
    "3x3_stride_1": (3, 1, 1, 1, (2, 16, 12, 28)),
    "3x3_stride_2": (3, 2, 1, 1, (2, 32, 16, 24)),
    "2x2_stride_2": (2, 2, 1, 0, (3, 16, 10, 16)),
    "3x3_dilated": (3, 1, 2, 2, (2, 16, 9, 12)),
    "5x5_stride_1": (5, 1, 1, 2, (1, 20, 8, 12)),
    "2x2_stride_3": (2, 3, 1, 0, (2, 16, 11, 23)),
}
SPATIAL = ("window_size", "strides", "dilations", "start_padding")


def pooled(window: tuple[int, int, int, int, tuple[int, ...]]) -> dict[str, Any]:
    """The fields of windows that are alike along both dimensions."""
    fields = {name: (value, value) for name, value in zip(SPATIAL, window[:4], strict=True)}
    return fields | {"end_padding": fields["start_padding"]}


def laid_out(data_type: DataType, sizes: tuple[int, ...], layout: str) -> TensorDesc:
    """A packed tensor {N, C, H, W} in a layout."""
    return lay_out(data_type, sizes, {"NHWC": "channels_last", "NCHW": "packed"}[layout])


GROUPS = Groups("max_pooling2", declared_form(MaxPooling2Desc))


@GROUPS.of(
    window=WINDOWS,
    layout=("NCHW", "NHWC"),
    type={kind.name.lower(): kind for kind in (DataType.INT8, DataType.UINT8, DataType.INT16)},
)
def windows(numbers: np.random.Generator, p: Parameters) -> Workload:
    """The windows of networks, in both layouts, of each type that kernels take words of."""
    sizes, fields = p.window[-1], pooled(p.window)
    output = MaxPooling2Desc(input_tensor=TensorDesc(p.type, sizes), **fields).output_tensor.sizes
    desc = MaxPooling2Desc(
        input_tensor=laid_out(p.type, sizes, p.layout), output_tensor=laid_out(p.type, output, p.layout), **fields
    )
    inputs = {"input_tensor": random_array(numbers, desc.input_tensor)}
    return Workload(desc, inputs, limits=LIMITS["own"])
