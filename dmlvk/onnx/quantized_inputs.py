"""Large inputs that the host quantizes on their way to the device, so that a quarter of their bytes crosses the bus.

The host reads each float once in any case. ONNX Runtime's threads do so without Python's interpreter, for which threads
that copy arrays wait after each part.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dmlvk.onnx.host import processors, quantizer
from dmlvk.onnx.program import Array, Operation, Program, Value
from dmlvk.operators import ElementWiseQuantizeLinearDesc, Slice1Desc
from dmlvk.runtime.tensor import Tensor
from dmlvk.tensor_desc import TensorDesc
from dmlvk.vulkan.transfers import LARGE


@dataclass(frozen=True)
class Quantization:
    """How an input becomes levels.

    levels: their tensor, packed.
    storage: where the host writes them.
    """

    levels: TensorDesc
    storage: int
    scale: Array
    zero_point: Array


def quantized_on_host(program: Program, inputs: Mapping[str, Value]) -> tuple[Program, dict[str, Quantization]]:
    """A program that begins with the levels of large inputs, and how the host gets these.

    inputs: inputs that a single dispatch uses, which converts them element by element.
    """
    sizes, operations = list(program.sizes), list(program.operations)
    found: dict[str, Quantization] = {}
    for name, value in inputs.items():
        (whole,) = (each for each in operations if value.storage in {at for at, _ in each.places.values()})
        made = _quantization(whole, value, len(sizes))
        if made is not None:
            found[name] = made
            sizes.append(made.levels.total_size_in_bytes)
            operations = [_copy(whole, made) if each is whole else each for each in operations]
    return replace(program, operations=operations, sizes=sizes), found


def _quantization(operation: Operation, value: Value, storage: int) -> Quantization | None:
    """How the host does the work of a dispatch; None if it does not."""
    desc = operation.desc
    if not isinstance(desc, ElementWiseQuantizeLinearDesc) or value.size_in_bytes < LARGE:
        return None
    source, output = desc.input_tensor, desc.tensors["output_tensor"]
    scale = operation.owned.get("scale_tensor")
    zero_point = operation.owned.get("zero_point_tensor", np.zeros(1, output.data_type.numpy_dtype))
    if scale is None or scale.size != 1 or zero_point.size != 1 or not source.is_packed or source.sizes != value.sizes:
        return None
    if quantizer(zero_point.dtype, 1, os.getpid()) is None:
        return None
    return Quantization(TensorDesc(output.data_type, output.sizes), storage, scale.reshape(()), zero_point.reshape(()))


def _copy(operation: Operation, made: Quantization) -> Operation:
    """The dispatch that brings levels to where a dispatch would have written them."""
    levels = made.levels
    desc = Slice1Desc(
        input_tensor=levels,
        output_tensor=operation.desc.tensors["output_tensor"],
        input_window_offsets=(0,) * levels.rank,
        input_window_sizes=levels.sizes,
        input_window_strides=(1,) * levels.rank,
    )
    places = {"input_tensor": (made.storage, 0), "output_tensor": operation.places["output_tensor"]}
    return Operation(desc, places, {})


def crossing_bytes(target: Tensor | QuantizedInput, size: int) -> int:
    """Bytes that cross the bus for a value of some bytes that is written to a target."""
    return target.levels.desc.total_size_in_bytes if isinstance(target, QuantizedInput) else size


class QuantizedInput:
    """An input whose levels lie in the host's memory.

    desc: the whole input.
    levels: their tensor.
    threads: that quantize; 0 for as many as there are processors.
    """

    def __init__(self, desc: TensorDesc, levels: Tensor, made: Quantization, threads: int) -> None:
        self.desc = desc
        self.levels = levels
        vulkan = levels.engine.vulkan
        self._during, self._transfers, self._memory = vulkan.visits.during, vulkan.transfers, levels.memory()
        self._session = quantizer(made.zero_point.dtype, threads or processors(), os.getpid())
        self._binding = self._session.io_binding()
        self._binding.bind_cpu_input("scale", made.scale)
        self._binding.bind_cpu_input("zero_point", made.zero_point)
        self._during(self._bind_levels)
        # The public method of the same name would keep the array until the next run. Both are far shorter than those
        # that take an address: between two runs the processor's caches lose what a call needs.
        self._bind = self._binding._iobinding.bind_input

    def _bind_levels(self) -> None:
        """Bind the memory of the levels, which stays where it is, and is looked at in visits alone."""
        levels = self.levels.desc
        view = self._transfers.mapped(self._memory, self.levels.offset, levels.total_size_in_bytes)
        assert view is not None, "the host reaches its own memory"
        kind, sizes = levels.data_type.numpy_dtype, list(levels.sizes)
        self._binding.bind_output("levels", "cpu", 0, kind, sizes, view.ctypes.data)

    def write(self, array: Any) -> None:
        """Quantize an array of the input's sizes, whose elements are floats or their bits."""
        self._during(self._write, np.ascontiguousarray(array, array.dtype.newbyteorder("=")).view(np.float32))

    def _write(self, elements: Array) -> None:
        self._transfers.wait_for_uses(self._memory)
        self._bind("x", elements)
        self._session.run_with_iobinding(self._binding)
