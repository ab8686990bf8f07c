"""ELEMENT_WISE_QUANTIZED_LINEAR_ADD on devices, against the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dmlvk
from dmlvk import DataType, TensorDesc
from dmlvk.operators import ElementWiseQuantizedLinearAddDesc
from tests.amount import THOROUGH, examples
from tests.kernels.element_wise import check_against_reference, elements, inputs, memory_of, outputs, owned, shapes
from tests.kernels.element_wise import narrow_device as narrow_device

TYPES = (DataType.UINT8, DataType.INT8)


def described(a: TensorDesc, b: TensorDesc, output: TensorDesc, flags: Any = 0, present: int = 7) -> Any:
    """One-element scales and zero points of the tensors' rank; bits of `present` say which zero points there are."""
    one = (1,) * a.rank
    tensors: dict[str, Any] = {"a_tensor": a, "b_tensor": b, "output_tensor": output}
    for bit, name in enumerate(("a", "b", "output")):
        tensors[f"{name}_scale_tensor"] = TensorDesc(DataType.FLOAT32, one, flags=flags)
        if present >> bit & 1:
            tensors[f"{name}_zero_point_tensor"] = TensorDesc(tensors[f"{name}_tensor"].data_type, one, flags=flags)
    return ElementWiseQuantizedLinearAddDesc(**tensors)


@st.composite
def descriptors(draw: st.DrawFn) -> ElementWiseQuantizedLinearAddDesc:
    extents = draw(shapes())
    a, b, output = (draw(st.sampled_from(TYPES)) for _ in range(3))
    desc: ElementWiseQuantizedLinearAddDesc = described(
        draw(inputs(a, extents)),
        draw(inputs(b, extents)),
        draw(outputs(output, extents)),
        draw(owned()),
        draw(st.integers(0, 7)),
    )
    return desc


PATHS = st.sampled_from(["sum", "table"])
KINDS = st.integers(0, 3)
SEEDS = st.integers(0, 1 << 20)


@given(descriptors(), PATHS, KINDS, SEEDS)
@examples(0.4)
def test_any_layout(
    device: dmlvk.Device, desc: ElementWiseQuantizedLinearAddDesc, path: str, kind: int, seed: int
) -> None:
    check_against_reference(device, desc, memory_of(desc, seed, kind), seed=seed, path=path)


@given(descriptors(), KINDS, SEEDS)
@examples(0.2)
def test_few_storage_buffers(
    narrow_device: dmlvk.Device, desc: ElementWiseQuantizedLinearAddDesc, kind: int, seed: int
) -> None:
    check_against_reference(narrow_device, desc, memory_of(desc, seed, kind), seed=seed)


def test_tensors_that_are_cut(narrow_device: dmlvk.Device) -> None:
    """Each of the tensors is larger than a storage buffer; the second broadcasts along the channels."""
    sizes = (3, 5, 150, 151)
    desc = described(
        TensorDesc(DataType.UINT8, sizes),
        TensorDesc(DataType.INT8, sizes, (150 * 151, 0, 151, 1)),
        TensorDesc(DataType.UINT8, sizes, (5 * 150 * 160, 150 * 160, 160, 1)),
    )
    for path in ("sum", "table"):
        check_against_reference(narrow_device, desc, memory_of(desc, 1, 0), path=path)


@pytest.mark.every_driver
@pytest.mark.parametrize("path", ["sum", "table"])
def test_all_pairs_of_bytes(device: dmlvk.Device, path: str) -> None:
    """Of all eight combinations of types, with scales whose sums are often ties, and other ones."""
    first, second = np.meshgrid(np.arange(256), np.arange(256), indexing="ij")
    pairs = {"a_tensor": first.astype(np.uint8).ravel(), "b_tensor": second.astype(np.uint8).ravel()}
    # By day each combination once on further drivers.
    for number in range(0, 24, 1 if THOROUGH or device.name.startswith("llvmpipe") else 3):
        a, b, output = (TensorDesc(TYPES[number >> bit & 1], (1 << 16,)) for bit in range(3))
        kind = 0 if number < 16 else number % 4
        check_against_reference(
            device, described(a, b, output), memory_of(described(a, b, output), number, kind) | pairs, path=path
        )


def test_scales_that_are_owned_count_from_initialization_on(device: dmlvk.Device) -> None:
    """The table is made once: runs after the first do not make it again, and see what the initialization saw."""
    tensor = TensorDesc(DataType.UINT8, (1000,))
    desc = described(tensor, tensor, tensor, dmlvk.TensorFlags.OWNED_BY_DML)
    memory = memory_of(desc, 3, 1)
    fields = [field for field in memory if "scale" in field or "zero" in field]
    operator = device.compile(desc)
    operator.initialize(**{field: device.tensor(desc.tensors[field]) for field in fields})  # zeros
    given_tensors = {field: device.tensor(desc.tensors[field]) for field in fields}
    for field, each in given_tensors.items():
        each.write_bytes(memory[field].tobytes())
    operator.initialize(**given_tensors)
    for each in given_tensors.values():
        each.write_bytes(bytes(each.desc.total_size_in_bytes))
    for seed in (4, 5):
        data = memory_of(desc, seed, 1)
        bound = {field: device.tensor(data[field]) for field in ("a_tensor", "b_tensor")}
        output = device.tensor(tensor)
        operator(output_tensor=output, **bound).wait()
        now = {**memory, **{field: data[field] for field in bound}}
        np.testing.assert_array_equal(output.numpy(), dmlvk.reference.run(desc, **elements(desc, now)))
