"""Runs an operator with its tensors laid between random bytes, and compares all of that memory afterwards."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

import dmlvk
from dmlvk.operators import OperatorDesc
from tests.layouts import random_bytes, view


def check(
    device: dmlvk.Device,
    desc: OperatorDesc,
    expected: np.ndarray,
    inputs: Mapping[str, np.ndarray],
    *,
    offset: int = 0,
    seed: int = 0,
    path: str | None = None,
) -> None:
    """Compile and dispatch; check that the output has the expected bits and that every other byte is unchanged.

    Tensors that are OWNED_BY_DML are given at initialization.

    Parameters
    ----------
    device : Device
    desc : OperatorDesc
        Has one output, `output_tensor`.
    expected : ndarray
        The output's elements in any type of the same size.
    inputs : mapping of str to ndarray of uint8
        The whole memory of each input tensor, by field.
    offset : int
        Where the output begins in its buffer, a multiple of 16: random bytes lie before and after it.
    path : str, optional
        Forces a kernel path.
    """
    tensors = {}
    for field, memory in inputs.items():
        tensors[field] = device.tensor(desc.tensors[field])
        tensors[field].write_bytes(memory.tobytes())
    output = desc.tensors["output_tensor"]
    guard = 64
    before = random_bytes(seed, offset + -(-output.total_size_in_bytes // 16) * 16 + guard)
    buffer = device.buffer(before.size)
    everything = buffer.tensor(dmlvk.TensorDesc(dmlvk.DataType.UINT8, [before.size]))
    everything.write_bytes(before.tobytes())
    operator = device.compile(desc, path=path)
    owned = {field for field in tensors if desc.tensors[field].flags & dmlvk.TensorFlags.OWNED_BY_DML}
    if owned:
        operator.initialize(**{field: tensors.pop(field) for field in owned})
    operator(output_tensor=buffer.tensor(output, offset=offset), **tensors).wait()

    after = np.frombuffer(everything.read_bytes(), np.uint8)
    wanted = before.copy()
    view(wanted, output, offset)[...] = expected.view(f"u{output.data_type.size_in_bytes}")
    different = np.flatnonzero(after != wanted)
    assert different.size == 0, (
        f"{different.size} bytes differ, the first at {different[0] - offset} of the output tensor: "
        f"{after[different[0]]} in place of {wanted[different[0]]} (was {before[different[0]]}); path {path}; {desc}"
    )


def input_memory(desc: OperatorDesc, seed: int) -> dict[str, np.ndarray]:
    """Random bytes for every input tensor."""
    return {
        field: random_bytes(seed + index, desc.tensors[field].total_size_in_bytes)
        for index, field in enumerate(desc.input_fields)
        if field in desc.tensors
    }
