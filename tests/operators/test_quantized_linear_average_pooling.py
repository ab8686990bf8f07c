"""The rules of DML_QUANTIZED_LINEAR_AVERAGE_POOLING_OPERATOR_DESC; those of windows: test_max_pooling2.py."""

from __future__ import annotations

from typing import Any

import pytest

from dmlvk.data_type import DataType
from dmlvk.errors import DescriptorError
from dmlvk.operators import FeatureLevel, QuantizedLinearAveragePoolingDesc
from dmlvk.tensor_desc import TensorDesc

ONE = TensorDesc(DataType.FLOAT32, (1, 1, 1, 1))


def describe(**changes: Any) -> QuantizedLinearAveragePoolingDesc:
    fields: dict[str, Any] = {
        "input_tensor": TensorDesc(DataType.UINT8, (2, 3, 8, 7)),
        "input_scale_tensor": ONE,
        "output_scale_tensor": ONE,
        "strides": (2, 2),
        "window_size": (3, 3),
        "start_padding": (1, 0),
        "end_padding": (1, 0),
        "dilations": (1, 1),
        "include_padding": False,
    }
    return QuantizedLinearAveragePoolingDesc(**(fields | changes))


def refused(field: str, rule: str, **changes: Any) -> None:
    with pytest.raises(DescriptorError) as caught:
        describe(**changes)
    assert caught.value.field == field and rule in caught.value.rule, str(caught.value)


def test_the_output_has_the_type_of_its_zero_point_or_of_the_input() -> None:
    assert describe().output_tensor == TensorDesc(DataType.UINT8, (2, 3, 4, 3))
    desc = describe(output_zero_point_tensor=TensorDesc(DataType.INT8, (1,)))
    assert desc.output_tensor == TensorDesc(DataType.INT8, (2, 3, 4, 3))


def test_parameters_are_one_or_one_a_channel() -> None:
    for sizes in ((1,), (3,), (1, 3), (1, 3, 1), (1, 1, 1, 1), (1, 3, 1, 1, 1)):
        desc = describe(input_scale_tensor=TensorDesc(DataType.FLOAT32, sizes))
        assert desc.channel_stride("input_scale_tensor") == (1 if 3 in sizes else 0)
    refused(
        "input_scale_tensor.sizes", "one for each channel (3)", input_scale_tensor=TensorDesc(DataType.FLOAT32, (2,))
    )
    refused("output_scale_tensor.data_type", "data type", output_scale_tensor=TensorDesc(DataType.FLOAT16, (1,)))
    refused("input_zero_point_tensor.data_type", "DataType", input_zero_point_tensor=TensorDesc(DataType.INT8, (1,)))


def test_windows_keep_the_rules_of_pooling() -> None:
    refused("window_size[0]", "may not be larger", window_size=(11, 3))
    refused("start_padding[1]", "each window must have a tap inside the input", start_padding=(1, 3))
    refused("output_tensor.sizes", "floor(", output_tensor=TensorDesc(DataType.UINT8, (2, 3, 4, 4)))
    refused("include_padding", "", include_padding=2)


def test_a_window_of_the_whole_plane_without_padding_is_the_global_mean() -> None:
    whole: dict[str, Any] = {"window_size": (8, 7), "start_padding": (0, 0), "end_padding": (0, 0)}
    assert describe(**whole).is_global and describe(**whole, include_padding=True).is_global
    assert not describe(**(whole | {"end_padding": (1, 0)})).is_global
    assert not describe(**(whole | {"window_size": (7, 7)})).is_global


def test_minimum_feature_level() -> None:
    assert describe().minimum_feature_level is FeatureLevel.FEATURE_LEVEL_6_2
