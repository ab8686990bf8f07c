"""The declaration of QUANTIZED_LINEAR_CONVOLUTION_TABLE: its two operators."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dmlvk import DataType, DescriptorError, TensorDesc
from dmlvk.conformance.cases.invalid import valid
from dmlvk.operators import QuantizedLinearConvolutionTableDesc


def example() -> QuantizedLinearConvolutionTableDesc:
    desc = valid(QuantizedLinearConvolutionTableDesc)
    assert isinstance(desc, QuantizedLinearConvolutionTableDesc)
    return desc


def test_the_table_takes_the_convolution_s_output() -> None:
    desc = example()
    assert desc.lookup.input_tensor == desc.convolution.output_tensor == desc.output_tensor == desc.lookup.output_tensor
    assert desc.lookup.table_tensor == desc.table_tensor


def test_a_table_of_another_length_is_refused() -> None:
    desc = example()
    with pytest.raises(DescriptorError, match="must have one element for each byte"):
        replace(desc, table_tensor=TensorDesc(desc.table_tensor.data_type, (255,)))


def test_a_table_of_another_type_is_refused() -> None:
    desc = example()
    other = DataType.INT8 if desc.output_tensor.data_type is DataType.UINT8 else DataType.UINT8
    with pytest.raises(DescriptorError, match="output_tensor"):
        replace(desc, table_tensor=TensorDesc(other, (256,)))


def test_directml_does_not_have_it() -> None:
    assert example().minimum_feature_level is None
