"""Cases of ELEMENT_WISE_ADD."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dmlvk.conformance.case import Workload
from dmlvk.conformance.cases.by_declaration import declared_form
from dmlvk.conformance.cases.combinations import DEVICES, PLANNERS_CHOICE, Groups, Parameters
from dmlvk.conformance.cases.values import SPECIAL_BITS
from dmlvk.data_type import DataType
from dmlvk.operators import ElementWiseAddDesc
from dmlvk.planning import KERNEL_PATHS
from dmlvk.tensor_desc import TensorDesc

Array = npt.NDArray[Any]

# Exponents, with their bias of 127, of numbers whose sums are of a kind: the second one is not in the range.
EXPONENTS = {"near": (118, 136), "denormal": (0, 3), "large": (250, 255), "any": (0, 256)}
# Bits of the mantissa: of few bits many sums lie in the middle between two numbers, and many are 0.
MANTISSAS = {"random": 0x7FFFFF, "few": 0x700001}
COUNT = 1 << 14


def floats(numbers: np.random.Generator, kind: str, mantissas: int) -> Array:
    """The bits of numbers of a kind, with both signs."""
    if kind == "special":
        return numbers.choice(np.array([*SPECIAL_BITS[DataType.FLOAT32], 0, 0x3F800000], np.uint32), COUNT)
    exponents = numbers.integers(*EXPONENTS[kind], COUNT, np.uint32)
    signs = numbers.integers(0, 2, COUNT, np.uint32) << 31
    return signs | exponents << 23 | numbers.integers(0, 1 << 23, COUNT, np.uint32) & mantissas


GROUPS = Groups("element_wise_add", declared_form(ElementWiseAddDesc))


@GROUPS.of(
    a=(*EXPONENTS, "special"),
    b=(*EXPONENTS, "special"),
    mantissas=MANTISSAS,
    path=(PLANNERS_CHOICE, *KERNEL_PATHS[ElementWiseAddDesc]),
    device=DEVICES,
)
def kinds(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Sums of numbers of each kind; among them numbers and their negatives, and two zeros of either sign."""
    a, b = (floats(numbers, kind, p.mantissas) for kind in (p.a, p.b))
    if p.a == p.b:
        b[::7] = a[::7] ^ (1 << 31)
    a[::11], b[::11], b[::22] = 1 << 31, 1 << 31, 0
    tensor = TensorDesc(DataType.FLOAT32, (COUNT,))
    desc = ElementWiseAddDesc(a_tensor=tensor, b_tensor=tensor)
    return Workload(desc, {"a_tensor": a.view(np.float32), "b_tensor": b.view(np.float32)}, device_type=p.device)
