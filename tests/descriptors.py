"""Hypothesis strategies for valid descriptors of every operator, with tensors of any kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from dmlvk import DataType, TensorDesc
from dmlvk.operators import (
    DiagonalMatrix1Desc,
    DiagonalMatrixDesc,
    OneHotDesc,
    OperatorDesc,
    QuantizedLinearConvolutionDesc,
    Slice1Desc,
    SliceDesc,
)
from dmlvk.operators.one_hot import INDEX_DATA_TYPES
from dmlvk.operators.quantized_linear_convolution import output_size
from tests.layouts import DATA_TYPES, sizes, tensor_descs

QUANTIZED = st.sampled_from([DataType.INT8, DataType.UINT8])
INT32 = st.integers(-(2**31), 2**31 - 1)


@st.composite
def outputs(draw: st.DrawFn, data_type: DataType, extents: tuple[int, ...]) -> TensorDesc | None:
    """An output of these sizes, or none: left out."""
    return draw(st.none() | tensor_descs(data_type, extents, is_output=True))


@st.composite
def slice1(draw: st.DrawFn) -> Slice1Desc:
    """A window inside the input, all of it or a part."""
    source = draw(tensor_descs())
    offsets = [draw(st.integers(0, size - 1)) for size in source.sizes]
    window = [draw(st.integers(1, size - offset)) for size, offset in zip(source.sizes, offsets, strict=True)]
    strides = [draw(st.sampled_from([1, 1, -1, 2, -3, 2**31 - 1, -(2**31)])) for _ in window]
    most = [1 + (size - 1) // abs(stride) for size, stride in zip(window, strides, strict=True)]
    taken = tuple(draw(st.integers(1, size) | st.just(size)) for size in most)
    output = draw(outputs(source.data_type, taken))
    return Slice1Desc(
        input_tensor=source,
        output_tensor=output,  # type: ignore[arg-type]  # None as if it were left out
        input_window_offsets=offsets,
        input_window_sizes=window,
        input_window_strides=strides,
    )


@st.composite
def predecessor_slice(draw: st.DrawFn) -> SliceDesc:
    """A slice inside the input."""
    source = draw(tensor_descs())
    offsets = [draw(st.integers(0, size - 1)) for size in source.sizes]
    strides = [draw(st.sampled_from([1, 1, 2, 3, 2**32 - 1])) for _ in offsets]
    most = [1 + (n - 1 - offset) // stride for n, offset, stride in zip(source.sizes, offsets, strides, strict=True)]
    taken = tuple(draw(st.integers(1, size)) for size in most)
    output: Any = draw(outputs(source.data_type, taken))
    return SliceDesc(input_tensor=source, output_tensor=output, offsets=offsets, sizes=taken, strides=strides)


@st.composite
def one_hot(draw: st.DrawFn) -> OneHotDesc:
    """Indices of any type along any axis."""
    extents = draw(st.integers(1, 8).flatmap(sizes))
    axis = draw(st.integers(0, len(extents) - 1))
    kind = draw(DATA_TYPES)
    pair = draw(st.permutations([2, *[1] * (len(extents) - 1)]))
    return OneHotDesc(
        indices_tensor=draw(
            tensor_descs(draw(st.sampled_from(INDEX_DATA_TYPES)), (*extents[:axis], 1, *extents[axis + 1 :]))
        ),
        values_tensor=draw(tensor_descs(kind, tuple(pair))),
        output_tensor=draw(tensor_descs(kind, extents, is_output=True)),
        axis=axis,
    )


def elements(data_type: DataType) -> st.SearchStrategy[Any]:
    """A value of a data type: any bits, and Python's numbers."""
    size = data_type.size_in_bytes
    bits = st.binary(min_size=size, max_size=size)
    if data_type.is_floating_point:
        return bits | st.floats(width=16) | st.sampled_from([float("nan"), -0.0, 0.1, 1e-7, 65504.0])
    return bits | st.integers(0, 127)


@st.composite
def diagonal_matrix1(draw: st.DrawFn) -> DiagonalMatrix1Desc:
    """With an input or without; without an output only with an input."""
    extents, kind = draw(st.integers(2, 4).flatmap(sizes)), draw(DATA_TYPES)
    source = draw(st.none() | tensor_descs(kind, extents))
    output: Any = draw(tensor_descs(kind, extents, is_output=True) if source is None else outputs(kind, extents))
    return DiagonalMatrix1Desc(
        input_tensor=source,
        output_tensor=output,
        value_data_type=draw(st.sampled_from([None, kind])),
        value=draw(elements(kind)),
        diagonal_fill_begin=draw(INT32),
        diagonal_fill_end=draw(INT32),
    )


@st.composite
def diagonal_matrix(draw: st.DrawFn) -> DiagonalMatrixDesc:
    """A FLOAT that the output's type can hold."""
    extents, kind = draw(st.integers(2, 4).flatmap(sizes)), draw(DATA_TYPES)
    is_float = kind in (DataType.FLOAT32, DataType.FLOAT64)
    value = draw(elements(DataType.FLOAT32) if is_float else st.integers(0, 100) | st.floats(0, 100, width=16))
    output = draw(tensor_descs(kind, extents, is_output=True))
    return DiagonalMatrixDesc(output_tensor=output, offset=draw(INT32), value=value)


@st.composite
def convolution(draw: st.DrawFn) -> QuantizedLinearConvolutionDesc:
    """Any types, groups, paddings, and any of the tensors that may be absent."""
    rank, groups, batch = draw(st.sampled_from([3, 4])), draw(st.integers(1, 3)), draw(st.integers(1, 2))
    channels, filters = (groups * draw(st.integers(1, 3)) for _ in range(2))
    count = rank - 2
    filter_size = [draw(st.integers(1, 3)) for _ in range(count)]
    size = [draw(st.integers(9, 12)) for _ in range(count)]
    spatial: dict[str, Any] = {
        name: [draw(st.integers(least, 3)) for _ in range(count)]
        for name, least in (("strides", 1), ("dilations", 1), ("start_padding", 0), ("end_padding", 0))
    }
    given = [output_size(size[k], filter_size[k], *(values[k] for values in spatial.values())) for k in range(count)]
    kinds = {name: draw(QUANTIZED) for name in ("input", "filter", "output")}
    ones = (1, filters, 1, 1)[:rank]

    def scalar(data_type: DataType, is_per_channel: bool = False) -> TensorDesc:
        one = draw(st.integers(1, 4).map(lambda r: (1,) * r))
        return draw(tensor_descs(data_type, draw(st.sampled_from([one, ones])) if is_per_channel else one))

    tensors: dict[str, Any] = {
        "input_tensor": draw(tensor_descs(kinds["input"], (batch, channels, *size))),
        "filter_tensor": draw(tensor_descs(kinds["filter"], (filters, channels // groups, *filter_size))),
    }
    for name, data_type in kinds.items():
        tensors[f"{name}_scale_tensor"] = scalar(DataType.FLOAT32, name == "filter")
        if draw(st.booleans()):
            tensors[f"{name}_zero_point_tensor"] = scalar(data_type, name == "filter")
    if draw(st.booleans()):
        tensors["bias_tensor"] = draw(tensor_descs(DataType.INT32, ones))
    tensors["output_tensor"] = draw(outputs(kinds["output"], (batch, filters, *given)))
    return QuantizedLinearConvolutionDesc(**tensors, **spatial, group_count=groups)


STRATEGIES: Mapping[type[OperatorDesc], st.SearchStrategy[OperatorDesc]] = {
    Slice1Desc: slice1(),
    OneHotDesc: one_hot(),
    DiagonalMatrix1Desc: diagonal_matrix1(),
    QuantizedLinearConvolutionDesc: convolution(),
    SliceDesc: predecessor_slice(),
    DiagonalMatrixDesc: diagonal_matrix(),
}
DESCRIPTORS: st.SearchStrategy[OperatorDesc] = st.one_of(*STRATEGIES.values())
