"""The least work that an operator can do, and random data for it.

Bytes and operations are counted from the descriptor alone. `COUNTERS` and `SOURCES` name the operators for which these
are not what the declaration says of any operator: each tensor is moved once, and data are as their roles say.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlvk import reference
from dmlvk.conformance.case import Workload
from dmlvk.conformance.cases.values import elements_of
from dmlvk.operators import (
    DiagonalMatrix1Desc,
    OneHotDesc,
    OperatorDesc,
    QuantizedLinearConvolutionDesc,
    Slice1Desc,
    SliceDesc,
)
from dmlvk.tensor_desc import TensorDesc

# Memory is read in units of this many bytes.
SECTOR_SIZE = 32
# The standard deviation of uniformly distributed bytes, and the one that a convolution's output should have.
SPREAD_OF_BYTES, SPREAD_OF_OUTPUT = 74.0, 50.0

Arrays = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Work:
    """The bytes that must be read and written, and the operations. A multiply-add counts as two operations."""

    bytes_read: int
    bytes_written: int
    operations: int = 0

    @property
    def bytes_moved(self) -> int:
        return self.bytes_read + self.bytes_written


def work_of(desc: OperatorDesc) -> Work:
    """Count an operator's work. Each tensor counts once, however often a kernel reads it.

    Raises TypeError: `desc` is not a descriptor.
    """
    if not isinstance(desc, OperatorDesc):
        raise TypeError(f"{type(desc).__name__} is not an operator descriptor")
    return COUNTERS.get(type(desc), _each_tensor_once)(desc)


def random_inputs_of(desc: OperatorDesc, random: np.random.Generator) -> Arrays:
    """Random data for an operator's inputs, by field, like that of its common uses."""
    usual = _random_bits if desc.family == "data_movement" else _by_role
    return SOURCES.get(type(desc), usual)(desc, random)


def random_workload(desc: OperatorDesc) -> Workload:
    """Random data for any descriptor, such as the recorded ones; its result is the reference's."""
    inputs = random_inputs_of(desc, np.random.default_rng(0))
    return Workload(desc, inputs, expected=reference.run(desc, **inputs))


def size_of(tensor: TensorDesc) -> int:
    """Bytes of a tensor's elements, excluding gaps."""
    return math.prod(tensor.sizes) * tensor.data_type.size_in_bytes


def _distinct_size_of(tensor: TensorDesc) -> int:
    """Bytes of a tensor's elements; those that are broadcast by a stride of 0 count once."""
    layout = zip(tensor.sizes, tensor.element_strides, strict=True)
    return math.prod(size for size, stride in layout if stride) * tensor.data_type.size_in_bytes


def _each_tensor_once(desc: OperatorDesc) -> Work:
    sizes = {name: _distinct_size_of(tensor) for name, tensor in desc.tensors.items()}
    written = sum(size for name, size in sizes.items() if name in desc.output_fields)
    return Work(sum(sizes.values()) - written, written)


def _convolution(desc: QuantizedLinearConvolutionDesc) -> Work:
    """Each tap of each output is a multiply-add."""
    return replace(
        _each_tensor_once(desc), operations=2 * math.prod(desc.output_tensor.sizes) * desc.geometry.tap_count
    )


def _one_hot(desc: OneHotDesc) -> Work:
    return Work(size_of(desc.indices_tensor), size_of(desc.output_tensor))


def _slice(desc: Slice1Desc | SliceDesc) -> Work:
    """With steps, whole sectors of memory are read."""
    size = desc.input_tensor.data_type.size_in_bytes
    distances = [
        abs(stride * step) * size
        for stride, step, extent in zip(
            desc.input_tensor.element_strides, desc.input_window_strides, desc.output_tensor.sizes, strict=True
        )
        if extent > 1 and stride
    ]
    read_for_each = min(SECTOR_SIZE, min(distances, default=size))
    return Work(math.prod(desc.output_tensor.sizes) * read_for_each, size_of(desc.output_tensor))


def _diagonal_matrix(desc: DiagonalMatrix1Desc) -> Work:
    """Count the elements that are not filled: only these are read."""
    output = desc.output_tensor
    kept = 0 if desc.input_tensor is None else math.prod(output.sizes) - _filled(desc)
    return Work(kept * output.data_type.size_in_bytes, size_of(output))


def _filled(desc: DiagonalMatrix1Desc) -> int:
    """The number of elements that become Value."""
    *batch, rows, columns = desc.output_tensor.sizes

    def below(limit: int) -> int:
        """The number of elements with x - y < limit."""
        return sum(min(columns, max(0, y + limit)) for y in range(rows))

    begin, end = desc.diagonal_fill_begin, desc.diagonal_fill_end
    count = below(end) - below(begin)
    # Begin > End fills all elements except End <= x - y < Begin.
    return math.prod(batch) * (count if begin <= end else rows * columns + count)


def _bits(tensor: TensorDesc, random: np.random.Generator) -> npt.NDArray[Any]:
    return np.frombuffer(random.bytes(size_of(tensor)), tensor.data_type.numpy_dtype).reshape(tensor.sizes)


def _random_bits(desc: OperatorDesc, random: np.random.Generator) -> Arrays:
    """What operators move may be any bits."""
    return {name: _bits(desc.tensors[name], random) for name in desc.input_fields if name in desc.tensors}


def _by_role(desc: OperatorDesc, random: np.random.Generator) -> Arrays:
    """Elements for each input, as its role says."""
    return {
        name: elements_of(random, tensor, desc.tensor_rules[name].role)
        for name, tensor in desc.tensors.items()
        if name in desc.input_fields
    }


def _indices(desc: OneHotDesc, random: np.random.Generator) -> Arrays:
    """Indices in range, and values with random bits."""
    indices, depth = desc.indices_tensor, desc.output_tensor.sizes[desc.axis]
    return {
        "indices_tensor": random.integers(0, depth, indices.sizes).astype(indices.data_type.numpy_dtype),
        "values_tensor": _bits(desc.values_tensor, random),
    }


def _convolved(desc: QuantizedLinearConvolutionDesc, random: np.random.Generator) -> Arrays:
    """Random bytes, and scales with which the output uses the range of a byte."""
    inputs = _by_role(desc, random)
    spread = SPREAD_OF_BYTES**2 * desc.geometry.tap_count**0.5
    sizes = desc.output_scale_tensor.sizes
    inputs["output_scale_tensor"] = np.full(sizes, 0.0125 * 0.0125 * spread / SPREAD_OF_OUTPUT, np.float32)
    return inputs


COUNTERS: Mapping[type[OperatorDesc], Callable[[Any], Work]] = {
    Slice1Desc: _slice,
    SliceDesc: _slice,
    OneHotDesc: _one_hot,
    DiagonalMatrix1Desc: _diagonal_matrix,
    QuantizedLinearConvolutionDesc: _convolution,
}
SOURCES: Mapping[type[OperatorDesc], Callable[[Any, np.random.Generator], Arrays]] = {
    OneHotDesc: _indices,
    QuantizedLinearConvolutionDesc: _convolved,
}
