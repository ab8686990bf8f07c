"""The declaration of QUANTIZED_LINEAR_CONVOLUTION_ADD: its two operators."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dmlvk import DataType, DescriptorError, TensorDesc, TensorFlags
from dmlvk.conformance.cases.invalid import valid
from dmlvk.operators import QuantizedLinearConvolutionAddDesc

ONE = TensorDesc(DataType.FLOAT32, (1,), flags=TensorFlags.OWNED_BY_DML)


def example(addend_comes_first: bool) -> QuantizedLinearConvolutionAddDesc:
    desc = valid(QuantizedLinearConvolutionAddDesc)
    assert isinstance(desc, QuantizedLinearConvolutionAddDesc)
    return replace(desc, addend_scale_tensor=ONE, addend_comes_first=addend_comes_first)


@pytest.mark.parametrize("addend_comes_first", [False, True])
def test_the_sum_takes_the_convolution_s_output(addend_comes_first: bool) -> None:
    desc = example(addend_comes_first)
    addend, convolved = ("a", "b") if addend_comes_first else ("b", "a")
    assert desc.sum.tensors[f"{addend}_tensor"] == desc.addend_tensor
    assert desc.sum.tensors[f"{convolved}_tensor"] == desc.convolution.output_tensor == desc.output_tensor
    assert desc.sum_fields[f"{convolved}_scale_tensor"] == "output_scale_tensor"
    assert desc.sum_fields["output_scale_tensor"] == "sum_scale_tensor"


def test_parameters_of_the_sum_have_its_rank() -> None:
    scale = example(False).sum.b_scale_tensor
    assert (scale.sizes, scale.flags) == ((1, 1, 1, 1), TensorFlags.OWNED_BY_DML)


def test_an_addend_of_other_sizes_is_refused() -> None:
    desc = example(False)
    other = TensorDesc(desc.addend_tensor.data_type, (1, 1, 1, 1))
    with pytest.raises(DescriptorError, match="must equal the sizes of output_tensor; an input broadcasts"):
        replace(desc, addend_tensor=other)


def test_a_bad_convolution_is_refused_as_such() -> None:
    with pytest.raises(DescriptorError, match=r"QuantizedLinearConvolutionAddDesc\.group_count"):
        replace(example(False), group_count=1000)


def test_directml_does_not_have_it() -> None:
    assert example(False).minimum_feature_level is None
