"""The interface of a peer, and the functions that several peers share."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from dmlvk._common.bits import equal_bits
from dmlvk.benchmark.records import Record, one_line
from dmlvk.benchmark.timing import Times
from dmlvk.conformance.case import Workload
from dmlvk.operators import DiagonalMatrix1Desc, OperatorDesc, Slice1Desc
from dmlvk.operators.declared import INT32_MIN
from dmlvk.tensor_desc import TensorDesc

AnyPart = TypeVar("AnyPart")
AnyPeer = TypeVar("AnyPeer", bound="Peer")

EQUAL, DIFFERENT = "equal", "DIFFERENT"
# The peer computes something else that serves a network as well: other types, or no zero points.
OTHER_ARITHMETIC = "other arithmetic"


class UnsupportedError(Exception):
    """The peer lacks the operator, or lacks it for such tensors; the message says what is missing."""


@dataclass(frozen=True)
class Trial:
    """A peer's measurement on one piece of work.

    result: EQUAL or DIFFERENT, compared with the expected result, or OTHER_ARITHMETIC.
    """

    times: Times
    result: str


class Peer(ABC):
    """A library that does the same work as dmlvk.

    name: the name for --peer.
    runs_on: "CPU", "CUDA" or "Vulkan".
    """

    name: str
    runs_on: ClassVar[str]

    @abstractmethod
    def absence(self) -> str | None:
        """Why the peer cannot run here; None if it can."""

    @abstractmethod
    def version(self) -> str:
        """The library's version."""

    def trial(self, measure: Callable[..., Record], *arguments: Any) -> Record:
        """The record of a measurement, or why there is none. A peer's failure is a finding and does not end the run."""
        try:
            return {"peer": self.name, **measure(*arguments)}
        except UnsupportedError as error:
            return {"peer": self.name, "unsupported": str(error)}
        except Exception as error:
            return {"peer": self.name, "failure": one_line(error)}


def taking_part(peers: Iterable[AnyPeer], left_out: Mapping[str, str]) -> tuple[list[AnyPeer], Record]:
    """The peers that can run here; and a record of them, and of the reasons why the others do not take part."""
    found: list[AnyPeer] = []
    absent: dict[str, str] = {}
    for peer in peers:
        try:
            reason = peer.absence()
        except Exception as error:  # a broken installation may raise anything
            reason = f"it cannot be loaded: {one_line(error)}"
        if reason is None:
            found.append(peer)
        else:
            absent[peer.name] = reason
    about = {peer.name: {"version": peer.version(), "runs_on": peer.runs_on} for peer in found}
    return found, {"peers": about, "absent_peers": {**absent, **left_out}}


class OperatorPeer(Peer):
    """A library that has operators of dmlvk.

    operators: the descriptors of the operators that the peer has, even if it has them for some tensors only.
    """

    operators: ClassVar[Collection[type[OperatorDesc]]]

    @abstractmethod
    def measure(self, workload: Workload, expected: npt.NDArray[Any], rounds: int) -> Trial:
        """Do the work and time it.

        Raises UnsupportedError: the peer cannot do this work. Any other exception is a failure of the peer and is
            reported as such.
        """


def part_for(parts: Mapping[type[OperatorDesc], AnyPart], desc: OperatorDesc) -> AnyPart:
    """A peer's part for an operator.

    Raises UnsupportedError: the peer has no part for it.
    """
    if type(desc) not in parts:
        raise UnsupportedError(f"the peer has no {desc.operator_name}")
    return parts[type(desc)]


def missing_package(*modules: str) -> str | None:
    """A text that names the first module that cannot be imported; None if all can."""
    for module in modules:
        try:
            found = importlib.util.find_spec(module)
        except ModuleNotFoundError:
            found = None
        if found is None:
            return f"the Python package {module} is not installed"
    return None


def package_version(*names: str) -> str:
    """The version of the first of these distributions that is installed."""
    for name in names:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return "unknown"


def compare(result: npt.NDArray[Any], expected: npt.NDArray[Any]) -> str:
    """EQUAL or DIFFERENT, bit for bit; a peer may call an unsigned type by its signed name."""
    same_type = (result.itemsize, result.shape) == (expected.itemsize, expected.shape)
    return EQUAL if same_type and equal_bits(np.ascontiguousarray(result), expected) else DIFFERENT


def memory_of(array: npt.NDArray[Any], tensor: TensorDesc) -> npt.NDArray[Any]:
    """An array's elements as they lie in a tensor's memory, one-dimensional."""
    if tensor.strides is None and array.flags.c_contiguous:
        return array.reshape(-1)
    strides = tensor.element_strides
    length = 1 + sum((size - 1) * stride for size, stride in zip(tensor.sizes, strides, strict=True))
    memory = np.zeros(length, array.dtype)
    shown(memory, tensor)[...] = array
    return memory


def shown(memory: npt.NDArray[Any], tensor: TensorDesc) -> npt.NDArray[Any]:
    """A tensor's elements in its memory."""
    strides = [stride * memory.itemsize for stride in tensor.element_strides]
    return np.lib.stride_tricks.as_strided(memory, tensor.sizes, strides)


@dataclass(frozen=True)
class Slices:
    """A SLICE1 as Python slices, and as slices with positive steps for libraries without negative steps.

    flipped: the dimensions to reverse after `positive`.
    """

    signed: tuple[slice, ...]
    positive: tuple[slice, ...]
    flipped: tuple[int, ...]

    @classmethod
    def of(cls, desc: Slice1Desc) -> Slices:
        """The slices of a descriptor."""
        signed, positive, flipped = [], [], []
        for dimension, (offset, size, step, count) in enumerate(
            zip(
                desc.input_window_offsets,
                desc.input_window_sizes,
                desc.input_window_strides,
                desc.output_tensor.sizes,
                strict=True,
            )
        ):
            if step > 0:
                signed.append(slice(offset, offset + (count - 1) * step + 1, step))
                positive.append(signed[-1])
            else:
                first = offset + size - 1
                last = first + (count - 1) * step
                signed.append(slice(first, last - 1 if last else None, step))
                positive.append(slice(last, first + 1, -step))
                flipped.append(dimension)
        return cls(tuple(signed), tuple(positive), tuple(flipped))


def require_upper_triangle_or_identity(desc: DiagonalMatrix1Desc) -> None:
    """Accept only the two forms of DIAGONAL_MATRIX1 that other libraries have.

    Raises UnsupportedError.
    """
    begin, end = desc.diagonal_fill_begin, desc.diagonal_fill_end
    if desc.input_tensor is None and (begin, end) == (0, 1):
        return
    if desc.input_tensor is not None and begin == INT32_MIN and not any(desc.value_bytes):
        return
    raise UnsupportedError("the peer takes only upper triangles and identity matrices")
