"""The conformance cases of QUANTIZED_LINEAR_CONVOLUTION."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dmlvk.conformance.cases.quantized_linear_convolution.rules import GROUPS
from dmlvk.tensor_desc import MAXIMUM_UINT32

__all__ = ["BROKEN_RULES", "GROUPS"]

# The tensors at rank 3, and fields with one element for the width.
_RANK_3 = {
    "input_tensor.sizes": [2, 3, 41],
    "filter_tensor.sizes": [3, 1, 3],
    "bias_tensor.sizes": [1, 3, 1],
    "output_tensor.sizes": [2, 3, 45],
    **{field: [1] for field in ("strides", "dilations", "start_padding", "end_padding")},
}
_NEUTRAL = {"strides": [1, 1], "dilations": [1, 1], "start_padding": [0, 3], "end_padding": [0, 3]}
# What no rule of a field says, in the descriptor of `invalid.valid`.
BROKEN_RULES: Mapping[str, Mapping[str, Any]] = {
    "output_zero_point_data_type_without_output": {
        "output_tensor": None,
        "output_zero_point_tensor.data_type": "INT32",
    },
    "other_count_at_rank_3": {**_RANK_3, "strides": [1, 1]},
    "height_stride_at_rank_3": {**_RANK_3, **_NEUTRAL, "strides": [2, 1]},
    "height_padding_at_rank_3": {**_RANK_3, **_NEUTRAL, "start_padding": [1, 3]},
    "groups_do_not_divide_channels": {"group_count": 2},
    "groups_do_not_divide_filters": {"filter_tensor.sizes": [4, 1, 2, 3]},
    "filter_channels": {"filter_tensor.sizes": [3, 3, 2, 3]},
    "filter_scale_in_another_dimension": {"filter_scale_tensor.sizes": [3, 1, 1, 1]},
    "filter_larger_than_the_input": {"dilations": [30, 1]},
    "padded_input_past_32_bits": {"start_padding": [MAXIMUM_UINT32, 3]},
    "output_too_large_for_a_tensor": {"output_tensor": None, "start_padding": [2**31, 3]},
    "output_batch": {"output_tensor.sizes": [1, 3, 22, 45]},
    "output_channels": {"output_tensor.sizes": [2, 6, 22, 45]},
    "output_sizes": {"output_tensor.sizes": [2, 3, 22, 44]},
}
