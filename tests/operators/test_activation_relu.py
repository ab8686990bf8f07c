"""The rules of ACTIVATION_RELU."""

from __future__ import annotations

import pytest

from dmlvk import DescriptorError, TensorDesc
from dmlvk.operators import ActivationReluDesc

FLOATS = TensorDesc("float32", (2, 3, 4, 5))


def test_the_output_has_the_sizes_of_the_input() -> None:
    assert ActivationReluDesc(input_tensor=FLOATS).output_tensor == FLOATS


def test_what_breaks_a_rule_is_refused() -> None:
    with pytest.raises(DescriptorError, match=r"ActivationReluDesc\.input_tensor\.data_type = 'INT8'"):
        ActivationReluDesc(input_tensor=TensorDesc("int8", FLOATS.sizes))
    with pytest.raises(DescriptorError, match=r"ActivationReluDesc\.output_tensor\.sizes"):
        ActivationReluDesc(input_tensor=FLOATS, output_tensor=TensorDesc("float32", (2, 3, 4, 1)))


@pytest.mark.parametrize(("rank", "level"), [(1, 0x3000), (4, 0x1000), (5, 0x2000), (8, 0x3000)])
def test_feature_levels(rank: int, level: int) -> None:
    assert ActivationReluDesc(input_tensor=TensorDesc("float32", (2,) * rank)).minimum_feature_level == level
