"""ELEMENT_WISE_DEQUANTIZE_LINEAR: the cases of ELEMENT_WISE_QUANTIZE_LINEAR, backwards."""

from __future__ import annotations

from collections.abc import Iterator

from dmlvk import ElementWiseDequantizeLinearDesc
from dmlvk.benchmark.cases.element_wise_quantize_linear import linear_cases
from dmlvk.benchmark.cases.scale import Scale
from dmlvk.conformance.case import Case


def cases(scale: Scale) -> Iterator[Case]:
    """Cases in both layouts."""
    return linear_cases(ElementWiseDequantizeLinearDesc, scale)
