"""Runs a pooling operator with its tensors laid between random bytes, and compares all of that memory afterwards."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from hypothesis import strategies as st

import dmlvk
from dmlvk import DataType, TensorDesc
from dmlvk.operators import OperatorDesc
from dmlvk.operators.quantized_linear_convolution import output_size
from tests.layouts import input_strides, output_strides, random_bytes, view

GUARD = 64


def run(
    device: dmlvk.Device,
    desc: OperatorDesc,
    inputs: Mapping[str, np.ndarray],
    expected: Mapping[str, np.ndarray],
    *,
    offset: int = 0,
    seed: int = 0,
    path: str | None = None,
) -> None:
    """Compile and dispatch; check that the outputs have the expected bits and that every other byte is unchanged.

    Parameters
    ----------
    device : Device
    desc : OperatorDesc
    inputs : mapping of str to ndarray
        The whole memory of each input, by field, of any type.
    expected : mapping of str to ndarray
        The elements of each output, by field.
    offset : int
        Where outputs begin in their buffers, a multiple of 16.
    path : str, optional
        Forces a kernel path.
    """
    tensors, outputs = {}, {}
    for field, memory in inputs.items():
        tensors[field] = device.tensor(desc.tensors[field])
        tensors[field].write_bytes(memory.tobytes())
    for number, field in enumerate(expected):
        tensor = desc.tensors[field]
        before = random_bytes(seed + number, offset + -(-tensor.total_size_in_bytes // 16) * 16 + GUARD)
        buffer = device.buffer(before.size)
        everything = buffer.tensor(TensorDesc(DataType.UINT8, [before.size]))
        everything.write_bytes(before.tobytes())
        outputs[field] = before, everything
        tensors[field] = buffer.tensor(tensor, offset=offset)
    operator = device.compile(desc, path=path)
    operator(**tensors).wait()
    for field, (before, everything) in outputs.items():
        tensor, wanted = desc.tensors[field], before.copy()
        after = np.frombuffer(everything.read_bytes(), np.uint8)
        view(wanted, tensor, offset)[...] = expected[field].view(f"u{tensor.data_type.size_in_bytes}")
        different = np.flatnonzero(after != wanted)
        assert different.size == 0, (
            f"{field}: {different.size} bytes differ, the first at {different[0] - offset}: {after[different[0]]} in "
            f"place of {wanted[different[0]]} (was {before[different[0]]}); "
            f"{[dispatch.kernel for dispatch in operator.plan.dispatches]}; {desc}"
        )


@st.composite
def spatial_fields(draw: st.DrawFn, sizes: list[int]) -> dict[str, list[int]]:
    """Windows of which each has a tap inside an input of these sizes."""
    fields: dict[str, list[int]] = {
        name: [] for name in ("window_size", "strides", "dilations", "start_padding", "end_padding")
    }
    for size in sizes:
        window, stride = draw(st.integers(1, 4)), draw(st.integers(1, 3))
        dilation = draw(st.integers(1, min(3, size)))
        reach = (window - 1) * dilation
        start = draw(st.integers(0, reach))
        end = draw(st.integers(max(0, reach + 1 - size - start), max(0, reach + 1 - size - start) + 3))
        while (output_size(size, window, stride, dilation, start, end) - 1) * stride - start >= size:
            end -= 1
        for name, value in zip(fields, (window, stride, dilation, start, end), strict=True):
            fields[name].append(value)
    return fields


@st.composite
def tensor_sizes(draw: st.DrawFn) -> list[int]:
    """Of rank 4 or 5, at most some thousand elements."""
    rank = draw(st.sampled_from([4, 4, 5]))
    sizes = [draw(st.integers(1, 2)), draw(st.sampled_from([1, 2, 3, 4, 5, 8, 16, 20]))]
    return sizes + [draw(st.sampled_from([1, 2, 3, 5, 6, 7, 9])) for _ in range(rank - 3)] + [draw(st.integers(1, 21))]


@st.composite
def layouts(draw: st.DrawFn, sizes: tuple[int, ...], *, is_output: bool) -> tuple[int, ...] | None:
    """Strides: channels last, aligned or not, or any."""
    kind = draw(st.sampled_from(["last", "last", "rows", "any"]))
    if kind == "any":
        return draw(output_strides(sizes) if is_output else input_strides(sizes))
    order = [1, *range(len(sizes) - 1, 1, -1), 0] if kind == "last" else [*range(len(sizes) - 1, -1, -1)]
    strides, step = [0] * len(sizes), 1
    gap = draw(st.sampled_from([1, 1, 4, 16]))
    for dimension in order:
        strides[dimension] = step
        step *= sizes[dimension]
        step = -(-step // gap) * gap
    return tuple(strides)
