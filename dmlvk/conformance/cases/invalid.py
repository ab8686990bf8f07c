"""Descriptors that break one rule each. The operator has to refuse them, and the error has to name the field and rule.

refusals.json holds each of them whole, as plain data, with the error: a table of its own for those who test another
implementation. `python -m tools.expected_digests` writes it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from functools import cache, partial
from typing import Any

from dmlvk._common import files
from dmlvk.conformance.case import Case, Refusal, Workload
from dmlvk.conformance.cases.broken_rules import OUTPUT_RULES, Changes, base_content, broken_rules
from dmlvk.operators import OperatorDesc
from dmlvk.operators.declared import INT32_MAX, INT32_MIN
from dmlvk.operators.registry import OPERATORS, parts

ABOUT = "Descriptors that break one rule each: the error must name the field and the rule."
REFUSALS = "refusals.json"

Content = dict[str, Any]


def tensor(data_type: str, *sizes: int) -> Content:
    """A packed tensor."""
    return {"data_type": data_type, "sizes": list(sizes)}


# A valid descriptor of each operator.
BASES: Mapping[str, Content] = {
    "slice1": {
        "operator": "SLICE1",
        "input_tensor": tensor("FLOAT32", 1, 1, 4, 4),
        "output_tensor": tensor("FLOAT32", 1, 1, 2, 2),
        "input_window_offsets": [0, 0, 0, 1],
        "input_window_sizes": [1, 1, 4, 3],
        "input_window_strides": [1, 1, 2, 2],
    },
    "one_hot": {
        "operator": "ONE_HOT",
        "indices_tensor": tensor("INT32", 2, 3, 1),
        "values_tensor": tensor("UINT8", 1, 1, 2),
        "output_tensor": tensor("UINT8", 2, 3, 5),
        "axis": 2,
    },
    "diagonal_matrix1": {
        "operator": "DIAGONAL_MATRIX1",
        "input_tensor": tensor("UINT8", 5, 7),
        "output_tensor": tensor("UINT8", 5, 7),
        "value": 7,
        "diagonal_fill_begin": 0,
        "diagonal_fill_end": 2,
    },
    "quantized_linear_convolution": {
        "operator": "QUANTIZED_LINEAR_CONVOLUTION",
        "input_tensor": tensor("UINT8", 2, 6, 9, 11),
        "input_scale_tensor": tensor("FLOAT32", 1, 1, 1, 1),
        "input_zero_point_tensor": tensor("UINT8", 1, 1, 1, 1),
        "filter_tensor": tensor("INT8", 8, 3, 3, 3),
        "filter_scale_tensor": tensor("FLOAT32", 1, 8, 1, 1),
        "filter_zero_point_tensor": tensor("INT8", 1, 8, 1, 1),
        "bias_tensor": tensor("INT32", 1, 8, 1, 1),
        "output_scale_tensor": tensor("FLOAT32", 1, 1, 1, 1),
        "output_zero_point_tensor": tensor("UINT8", 1, 1, 1, 1),
        "output_tensor": tensor("UINT8", 2, 8, 9, 11),
        "strides": [1, 1],
        "dilations": [1, 1],
        "start_padding": [1, 1],
        "end_padding": [1, 1],
        "group_count": 2,
    },
    "slice": {
        "operator": "SLICE",
        "input_tensor": tensor("FLOAT16", 6, 9),
        "output_tensor": tensor("FLOAT16", 3, 4),
        "offsets": [0, 1],
        "sizes": [3, 4],
        "strides": [2, 2],
    },
    "diagonal_matrix": {
        "operator": "DIAGONAL_MATRIX",
        "output_tensor": tensor("INT8", 4, 6),
        "offset": 1,
        "value": 10.6,
    },
}
# The rules of every tensor, broken by SLICE1's input.
TENSOR_BASE = "slice1"
LARGEST = 2**32 - 1

RULES: Mapping[str, Mapping[str, Changes]] = {
    "tensor": {
        "no_dimensions": {"input_tensor.sizes": []},
        "nine_dimensions": {"input_tensor.sizes": [1] * 9},
        "size_0": {"input_tensor.sizes": [1, 1, 0, 4]},
        "negative_size": {"input_tensor.sizes": [1, 1, -4, 4]},
        "fractional_size": {"input_tensor.sizes": [1, 1, 4.5, 4]},
        "size_past_32_bits": {"input_tensor.sizes": [1, 1, 4, 2**32]},
        "too_many_elements": {"input_tensor.sizes": [1, 1, 2**16, 2**16]},
        "stride_count": {"input_tensor.strides": [4, 1]},
        "negative_stride": {"input_tensor.strides": [16, 16, 4, -1]},
        "stride_past_32_bits": {"input_tensor.strides": [16, 16, 2**32, 1]},
        "end_past_64_bits": {"input_tensor.sizes": [1, 1, 1, LARGEST], "input_tensor.strides": [0, 0, 0, LARGEST]},
        "total_size_too_small": {"input_tensor.total_size_in_bytes": 63},
        "alignment_no_power_of_two": {"input_tensor.guaranteed_base_offset_alignment": 24},
        "alignment_below_an_element": {"input_tensor.guaranteed_base_offset_alignment": 2},
        "unknown_flag": {"input_tensor.flags": 2},
    },
    "slice1": {
        "input_absent": {"input_tensor": None},
        "output_data_type": {"output_tensor.data_type": "INT32"},
        "output_rank": {"output_tensor.sizes": [1, 2, 2]},
        "offset_count": {"input_window_offsets": [0, 1]},
        "size_count": {"input_window_sizes": [1, 1, 1, 4, 3]},
        "stride_count": {"input_window_strides": [2, 2]},
        "negative_offset": {"input_window_offsets": [0, 0, -1, 1]},
        "empty_window": {"input_window_sizes": [1, 1, 0, 3]},
        "stride_past_32_bits": {"input_window_strides": [1, 1, INT32_MAX + 1, 2]},
        "stride_below_32_bits": {"input_window_strides": [1, 1, INT32_MIN - 1, 2]},
        "stride_0": {"input_window_strides": [1, 1, 0, 2]},
        "window_begins_past_the_end": {"input_window_offsets": [0, 0, 4, 1]},
        "window_ends_past_the_end": {"input_window_sizes": [1, 1, 4, 4]},
        "output_larger_than_the_window_gives": {"output_tensor.sizes": [1, 1, 2, 3]},
        **OUTPUT_RULES,
    },
    "one_hot": {
        "indices_absent": {"indices_tensor": None},
        "values_absent": {"values_tensor": None},
        "output_absent": {"output_tensor": None},
        "index_data_type": {"indices_tensor.data_type": "INT16"},
        "output_data_type": {"output_tensor.data_type": "INT8"},
        "values_rank": {"values_tensor.sizes": [1, 2]},
        "output_rank": {"output_tensor.sizes": [2, 3, 5, 1]},
        "axis_past_the_rank": {"axis": 3},
        "negative_axis": {"axis": -1},
        "size_along_the_axis": {"indices_tensor.sizes": [2, 3, 4]},
        "one_value": {"values_tensor.sizes": [1, 1, 1]},
        "output_sizes": {"output_tensor.sizes": [2, 4, 5]},
        **OUTPUT_RULES,
    },
    "diagonal_matrix1": {
        "begin_past_32_bits": {"diagonal_fill_begin": INT32_MAX + 1},
        "end_below_32_bits": {"diagonal_fill_end": INT32_MIN - 1},
        "neither_input_nor_output": {"input_tensor": None, "output_tensor": None},
        "input_rank_without_output": {"input_tensor.sizes": [1, 1, 1, 5, 7], "output_tensor": None},
        "output_rank_1": {"input_tensor": None, "output_tensor.sizes": [35]},
        "output_rank_5": {"input_tensor": None, "output_tensor.sizes": [1, 1, 1, 5, 7]},
        "input_data_type": {"input_tensor.data_type": "INT8"},
        "input_rank": {"input_tensor.sizes": [1, 5, 7]},
        "input_sizes": {"input_tensor.sizes": [1, 7]},
        "value_data_type": {"value_data_type": "FLOAT32"},
        "value_past_its_type": {"value": 256},
        "negative_value_of_an_unsigned_type": {"value": -1},
        "fractional_value_of_an_integer_type": {"value": 0.5},
        "finite_value_too_large_for_float16": {
            "input_tensor.data_type": "FLOAT16",
            "output_tensor.data_type": "FLOAT16",
            "value": 65520.0,
        },
        "value_of_other_bytes": {"value": "0700"},
        "value_no_number": {"value": [7]},
        **OUTPUT_RULES,
    },
    "quantized_linear_convolution": {
        "input_absent": {"input_tensor": None},
        "input_scale_absent": {"input_scale_tensor": None},
        "filter_absent": {"filter_tensor": None},
        "filter_scale_absent": {"filter_scale_tensor": None},
        "output_scale_absent": {"output_scale_tensor": None},
        "input_data_type": {"input_tensor.data_type": "INT16"},
        "filter_data_type": {"filter_tensor.data_type": "INT32"},
        "output_data_type": {"output_tensor.data_type": "FLOAT32"},
        "input_rank": {"input_tensor.sizes": [2, 6, 1, 9, 11]},
        "filter_rank": {"filter_tensor.sizes": [8, 3, 3]},
        "output_rank": {"output_tensor.sizes": [2, 8, 99]},
        "input_scale_data_type": {"input_scale_tensor.data_type": "FLOAT16"},
        "filter_scale_data_type": {"filter_scale_tensor.data_type": "FLOAT64"},
        "output_scale_data_type": {"output_scale_tensor.data_type": "INT32"},
        "input_zero_point_data_type": {"input_zero_point_tensor.data_type": "INT8"},
        "filter_zero_point_data_type": {"filter_zero_point_tensor.data_type": "UINT8"},
        "output_zero_point_data_type": {"output_zero_point_tensor.data_type": "INT8"},
        "output_zero_point_data_type_without_output": {
            "output_tensor": None,
            "output_zero_point_tensor.data_type": "INT32",
        },
        "scale_rank": {"input_scale_tensor.sizes": [1, 1, 1, 1, 1]},
        "zero_point_rank": {"filter_zero_point_tensor.sizes": [1, 8, 1, 1, 1]},
        "bias_data_type": {"bias_tensor.data_type": "FLOAT32"},
        "bias_rank": {"bias_tensor.sizes": [8]},
        "bias_sizes": {"bias_tensor.sizes": [1, 1, 1, 8]},
        "stride_0": {"strides": [1, 0]},
        "dilation_0": {"dilations": [0, 1]},
        "negative_start_padding": {"start_padding": [1, -1]},
        "negative_end_padding": {"end_padding": [-1, 1]},
        "stride_count": {"strides": [1, 1, 1]},
        "dilation_count": {"dilations": [1]},
        "other_count_at_rank_3": {"rank": 3, "strides": [1, 1], "dilations": [1]},
        "height_stride_at_rank_3": {"rank": 3, "strides": [2, 1]},
        "height_padding_at_rank_3": {
            "rank": 3,
            "strides": [1, 1],
            "dilations": [1, 1],
            "start_padding": [1, 1],
            "end_padding": [0, 1],
        },
        "group_count_0": {"group_count": 0},
        "groups_do_not_divide_channels": {"group_count": 4},
        "groups_do_not_divide_filters": {"group_count": 2, "filter_tensor.sizes": [7, 3, 3, 3]},
        "filter_channels": {"filter_tensor.sizes": [8, 6, 3, 3]},
        "input_scale_sizes": {"input_scale_tensor.sizes": [1, 6, 1, 1]},
        "input_zero_point_sizes": {"input_zero_point_tensor.sizes": [6]},
        "output_scale_sizes": {"output_scale_tensor.sizes": [1, 8, 1, 1]},
        "output_zero_point_sizes": {"output_zero_point_tensor.sizes": [8]},
        "filter_scale_sizes": {"filter_scale_tensor.sizes": [1, 4, 1, 1]},
        "filter_scale_in_another_dimension": {"filter_scale_tensor.sizes": [8, 1, 1, 1]},
        "filter_zero_point_sizes": {"filter_zero_point_tensor.sizes": [7]},
        "filter_larger_than_the_input": {"dilations": [6, 1]},
        "output_too_large_for_a_tensor": {
            "output_tensor": None,
            "start_padding": [LARGEST, 1],
            "end_padding": [LARGEST, 1],
        },
        "output_batch": {"output_tensor.sizes": [1, 8, 9, 11]},
        "output_channels": {"output_tensor.sizes": [2, 6, 9, 11]},
        "output_sizes": {"output_tensor.sizes": [2, 8, 9, 10]},
        **OUTPUT_RULES,
    },
    "slice": {
        "input_absent": {"input_tensor": None},
        "offset_count": {"offsets": [1]},
        "negative_offset": {"offsets": [0, -1]},
        "empty_slice": {"sizes": [3, 0]},
        "stride_0": {"strides": [0, 2]},
        "negative_stride": {"strides": [2, -2]},
        "begins_past_the_end": {"offsets": [6, 1]},
        "ends_past_the_end": {"offsets": [0, 3]},
        "output_data_type": {"output_tensor.data_type": "FLOAT32"},
        "output_rank": {"output_tensor.sizes": [12]},
        "output_sizes": {"output_tensor.sizes": [3, 3]},
        **OUTPUT_RULES,
    },
    "diagonal_matrix": {
        "output_absent": {"output_tensor": None},
        "offset_past_32_bits": {"offset": INT32_MAX + 1},
        "output_rank_1": {"output_tensor.sizes": [24]},
        "output_rank_5": {"output_tensor.sizes": [1, 1, 1, 4, 6]},
        "value_past_its_type": {"value": 128.5},
        "value_no_integer_holds": {"value": "0000c07f"},
        "finite_value_too_large_for_float16": {"output_tensor.data_type": "FLOAT16", "value": 1e5},
        "finite_value_too_large_for_a_float": {"value": 1e39},
        **OUTPUT_RULES,
    },
}

# Operators without rules above break those of their declarations, and those that their own module names.
NAMED_RULES: Mapping[type[OperatorDesc], Mapping[str, Changes]] = parts(
    "dmlvk.conformance.cases", "BROKEN_RULES", default=lambda _: {}
)
BY_DECLARATION: Mapping[str, type[OperatorDesc]] = {desc.stem: desc for desc in OPERATORS if desc.stem not in RULES}

# The convolution's tensors at rank 3, where they differ.
RANK_3: Mapping[str, Any] = {
    "input_tensor": tensor("UINT8", 2, 6, 11),
    "filter_tensor": tensor("INT8", 8, 3, 3),
    "bias_tensor": tensor("INT32", 1, 8, 1),
    "output_tensor": tensor("UINT8", 2, 8, 11),
    "strides": [1],
    "dilations": [1],
    "start_padding": [1],
    "end_padding": [1],
}


def invalid_content(operator: str, rule: str) -> Content:
    """The whole descriptor, as plain data."""
    declared = BY_DECLARATION.get(operator)
    changes = dict(rules()[operator][rule])
    base = BASES[TENSOR_BASE if operator == "tensor" else operator] if declared is None else base_content(declared)
    content = copy.deepcopy(dict(base))
    if changes.pop("rank", 4) == 3:
        content |= copy.deepcopy(dict(RANK_3))
    for name, value in changes.items():
        field, _, member = name.partition(".")
        if value == "broadcast":
            value = [0] * len(content[field]["sizes"])
        if member:
            content[field][member] = value
        else:
            content[field] = value
    return content


@cache
def recorded_refusals() -> Mapping[str, Any]:
    """The published table: by case name, the descriptor and the error."""
    return dict(files.packaged_json("dmlvk.conformance", REFUSALS, {}))


@cache
def rules() -> Mapping[str, Mapping[str, Changes]]:
    """The broken rules of each operator, by their names."""
    declared = {stem: {**broken_rules(desc), **NAMED_RULES[desc]} for stem, desc in BY_DECLARATION.items()}
    return {**RULES, **declared}


def _no_workload(name: str) -> Workload:
    raise ValueError(f"{name} has no tensors: its descriptor has to be refused")


def cases(default_only: bool = False) -> Iterator[Case]:
    """One case for each rule; all cases run by default."""
    for operator, broken in rules().items():
        for rule in broken:
            name = f"invalid:{operator}:rule={rule}"
            recorded = recorded_refusals().get(name, {}).get("error", {})
            refusal = Refusal(
                partial(invalid_content, operator, rule),
                recorded.get("descriptor", ""),
                recorded.get("field", ""),
                recorded.get("rule", ""),
            )
            yield Case(name, partial(_no_workload, name), is_default=True, about=ABOUT, refusal=refusal)
