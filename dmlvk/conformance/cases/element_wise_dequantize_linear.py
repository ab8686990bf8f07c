"""Cases of ELEMENT_WISE_DEQUANTIZE_LINEAR."""

from __future__ import annotations

import numpy as np

from dmlvk.conformance.case import Workload
from dmlvk.conformance.cases.by_declaration import declared_form
from dmlvk.conformance.cases.byte_table import BYTES
from dmlvk.conformance.cases.combinations import PLANNERS_CHOICE, Groups, Parameters
from dmlvk.conformance.cases.element_wise_quantize_linear import BROKEN_RULES, add_parameters
from dmlvk.data_type import DataType
from dmlvk.operators import ElementWiseDequantizeLinearDesc
from dmlvk.tensor_desc import TensorDesc

__all__ = ["BROKEN_RULES", "GROUPS"]


GROUPS = Groups("element_wise_dequantize_linear", declared_form(ElementWiseDequantizeLinearDesc))


@GROUPS.of(
    mantissas=("random", "ones", "none"), type=BYTES, zero_point=(0, 117, 255), path=(PLANNERS_CHOICE, "integers")
)
def exponents(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Every byte times scales of every exponent: denormals, roundings up to the next power of two, infinities, NaN."""
    mantissas = numbers.integers(0, 1 << 23, 512, np.uint32)
    mantissas[::8] = {"random": mantissas[::8], "ones": 0x7FFFFF, "none": 0}[p.mantissas]
    scales = (np.arange(512, dtype=np.uint32) << 23 | mantissas).view(np.float32)
    sizes = (512, 256)
    desc = ElementWiseDequantizeLinearDesc(
        input_tensor=TensorDesc(p.type, sizes),
        scale_tensor=TensorDesc(DataType.FLOAT32, sizes, (1, 0)),
        zero_point_tensor=TensorDesc(p.type, (1, 1)),
    )
    inputs = {
        "input_tensor": np.tile(np.arange(256, dtype=np.uint8), (512, 1)).view(p.type.numpy_dtype),
        "scale_tensor": np.broadcast_to(scales[:, np.newaxis], sizes),
        "zero_point_tensor": np.array([[p.zero_point]], np.uint8).view(p.type.numpy_dtype),
    }
    return Workload(desc, inputs)


add_parameters(GROUPS, ElementWiseDequantizeLinearDesc)
