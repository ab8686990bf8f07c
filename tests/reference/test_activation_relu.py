"""ACTIVATION_RELU's reference has the bits of ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

import dmlvk
from dmlvk import TensorDesc
from dmlvk.operators import ActivationReluDesc
from tests.onnx.models import model_of, onnx_runtime
from tests.reference.test_element_wise_add import KINDS, pairs


@pytest.mark.parametrize("kind", KINDS)
def test_activations_have_the_bits_of_onnx_runtime(kind: str) -> None:
    x, _ = pairs(kind)
    (expected,) = onnx_runtime(model_of([("Relu", ["x"], ["y"], {})], {"x": x}, {"y": np.float32}), {"x": x})
    found = dmlvk.reference.run(ActivationReluDesc(input_tensor=TensorDesc.of(x)), input_tensor=x)
    assert np.array_equal(found.view(np.uint32), expected.view(np.uint32))
