"""ELEMENT_WISE_ADD's reference has the bits of ONNX Runtime."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import dmlvk
from dmlvk import TensorDesc
from dmlvk.conformance.cases.element_wise_add import EXPONENTS, floats
from dmlvk.operators import ElementWiseAddDesc
from tests.onnx.models import model_of, onnx_runtime

Array = np.ndarray[Any, Any]
KINDS = (*EXPONENTS, "special")


def pairs(kind: str) -> tuple[Array, Array]:
    random = np.random.default_rng(len(kind))
    return floats(random, kind, 0x7FFFFF).view(np.float32), floats(random, kind, 0x700001).view(np.float32)


def added(a: Array, b: Array) -> Array:
    desc = ElementWiseAddDesc(a_tensor=TensorDesc.of(a), b_tensor=TensorDesc.of(b))
    return dmlvk.reference.run(desc, a_tensor=a, b_tensor=b)


@pytest.mark.parametrize("kind", KINDS)
def test_sums_have_the_bits_of_onnx_runtime(kind: str) -> None:
    a, b = pairs(kind)
    model = model_of([("Add", ["a", "b"], ["s"], {})], {"a": a, "b": b}, {"s": np.float32})
    (expected,) = onnx_runtime(model, {"a": a, "b": b})
    assert np.array_equal(added(a, b).view(np.uint32), expected.view(np.uint32))


def test_a_sum_is_rounded_once_and_keeps_denormals() -> None:
    for kind in ("near", "denormal"):
        a, b = (each[:300] for each in pairs(kind))
        for first, second, found in zip(a.tolist(), b.tolist(), added(a, b), strict=True):
            exact = Fraction(first) + Fraction(second)
            distance = abs(Fraction(float(found)) - exact)
            for end in (-np.inf, np.inf):
                assert distance <= abs(Fraction(float(np.nextafter(found, np.float32(end)))) - exact)
