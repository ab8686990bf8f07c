"""Hypothesis strategies for tensors of any layout, and NumPy views of such tensors in memory."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st

from dmlvk import DataType, TensorDesc

DATA_TYPES = st.sampled_from(list(DataType))


def view(memory: np.ndarray, desc: TensorDesc, offset: int = 0) -> np.ndarray:
    """A tensor's elements inside an array of bytes, as unsigned integers so that no bit is interpreted."""
    size = desc.data_type.size_in_bytes
    return np.ndarray(
        desc.sizes, np.dtype(f"u{size}"), memory.data, offset, [stride * size for stride in desc.element_strides]
    )


@st.composite
def sizes(draw: st.DrawFn, rank: int, largest: int = 20_000) -> tuple[int, ...]:
    """Sizes of a rank: mostly small, sometimes with a long dimension, at most `largest` elements."""
    result: list[int] = []
    for _ in range(rank):
        room = largest // math.prod(result)
        result.append(draw(st.integers(1, min(room, draw(st.sampled_from([1, 2, 3, 5, 9, 40, 700]))))))
    return tuple(draw(st.permutations(result)))


@st.composite
def output_strides(draw: st.DrawFn, tensor_sizes: tuple[int, ...]) -> tuple[int, ...] | None:
    """Strides without overlap: packed, or any order of the dimensions, with gaps between elements and between rows."""
    if draw(st.booleans()):
        return None
    strides = [0] * len(tensor_sizes)
    step = draw(st.sampled_from([1, 1, 1, 2, 3]))
    for dimension in draw(st.permutations(range(len(tensor_sizes)))):
        strides[dimension] = step
        step = step * tensor_sizes[dimension] + draw(st.sampled_from([0, 0, 0, 1, 2, 5]))
    return tuple(strides)


@st.composite
def interleaved_output(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Sizes and strides that neither nest nor overlap: {a, b} with strides {b, a}, a and b coprime."""
    a, b = draw(st.sampled_from([(3, 2), (2, 5), (7, 4), (9, 16), (5, 3)]))
    # No overlap: b * i + a * j = b * i' + a * j' requires that b divides j - j', and |j - j'| < b.
    return (a, b), (b, a)


@st.composite
def input_strides(draw: st.DrawFn, tensor_sizes: tuple[int, ...]) -> tuple[int, ...] | None:
    """Any strides: those of an output, and broadcast or overlapping strides."""
    strides = draw(output_strides(tensor_sizes))
    kind = draw(st.sampled_from(["plain", "plain", "broadcast", "sheared"]))
    if strides is None or kind == "plain":
        return strides
    changed = list(strides)
    dimension = draw(st.integers(0, len(changed) - 1))
    changed[dimension] = 0 if kind == "broadcast" else draw(st.integers(1, 7))
    return tuple(changed)


@st.composite
def tensor_descs(
    draw: st.DrawFn,
    data_type: DataType | None = None,
    tensor_sizes: tuple[int, ...] | None = None,
    is_output: bool = False,
) -> TensorDesc:
    """A desc of any kind, or of the given data type and sizes: any strides, more memory, an alignment, flags."""
    kind = draw(DATA_TYPES) if data_type is None else data_type
    extents = draw(st.integers(1, 8).flatmap(sizes)) if tensor_sizes is None else tensor_sizes
    strides = draw(output_strides(extents) if is_output else input_strides(extents))
    alignment = draw(st.sampled_from([0, 0, 8, 16, 256]))
    packed = TensorDesc(kind, extents, strides)
    more = draw(st.sampled_from([0, 0, 1, 4, 1000]))
    return TensorDesc(
        kind,
        extents,
        strides,
        total_size_in_bytes=packed.total_size_in_bytes + more,
        guaranteed_base_offset_alignment=alignment,
        flags=0 if is_output else draw(st.sampled_from([0, 0, 1])),
    )


def random_bytes(seed: int, count: int) -> np.ndarray:
    """Bytes that no kernel would write by accident."""
    return np.random.default_rng(seed).integers(0, 256, count, np.uint8)
