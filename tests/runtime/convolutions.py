"""Small convolutions with their data, for tests of how operators are compiled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import dmlvk
from dmlvk import QuantizedLinearConvolutionDesc, TensorDesc, TensorFlags

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Convolution:
    """A convolution of one image, with filters that differ by a number, and what the reference makes of it."""

    desc: QuantizedLinearConvolutionDesc
    constants: dict[str, Array]
    image: Array

    def filters(self, number: int) -> Array:
        return np.roll(self.constants["filter_tensor"], number)

    def expected(self, number: int = 0) -> Array:
        arrays = {**self.constants, "filter_tensor": self.filters(number), "input_tensor": self.image}
        return dmlvk.reference.run(self.desc, **arrays)

    @property
    def owned(self) -> list[str]:
        return [name for name, tensor in self.desc.tensors.items() if tensor.flags & TensorFlags.OWNED_BY_DML]

    def tensors(self, device: dmlvk.Device) -> dict[str, dmlvk.Tensor]:
        """What a call takes."""
        output = device.tensor(self.desc.output_tensor)
        output.write_bytes(b"\xa5" * output.desc.total_size_in_bytes)
        given = {name: array for name, array in self.constants.items() if name not in self.owned}
        given["input_tensor"] = self.image
        return {**{name: device.tensor(array) for name, array in given.items()}, "output_tensor": output}

    def initialize(self, operator: Any, number: int = 0) -> None:
        if self.owned:
            arrays = {**self.constants, "filter_tensor": self.filters(number)}
            operator.initialize(**{name: arrays[name] for name in self.owned})


def convolution(channels: int = 8, size: int = 7, kernel: int = 3, *, groups: int = 1, owned: bool) -> Convolution:
    """A convolution that keeps the number of channels; `owned` says whether its filter is OWNED_BY_DML."""
    numbers = np.random.default_rng([channels, size, kernel, groups])
    shape = (channels, channels // groups, kernel, kernel)
    flags = TensorFlags.OWNED_BY_DML if owned else TensorFlags.NONE
    one = TensorDesc("float32", (1,))
    desc = QuantizedLinearConvolutionDesc(
        input_tensor=TensorDesc("uint8", (1, channels, size, size)),
        input_scale_tensor=one,
        input_zero_point_tensor=TensorDesc("uint8", (1,)),
        filter_tensor=TensorDesc("int8", shape, flags=flags),
        filter_scale_tensor=one,
        output_scale_tensor=one,
        output_tensor=TensorDesc("int8", (1, channels, size, size)),
        strides=(1, 1),
        dilations=(1, 1),
        start_padding=(kernel // 2, kernel // 2),
        end_padding=((kernel - 1) // 2, (kernel - 1) // 2),
        group_count=groups,
    )
    constants: dict[str, Array] = {
        "input_scale_tensor": np.array([0.5], np.float32),
        "input_zero_point_tensor": np.array([130], np.uint8),
        "filter_tensor": numbers.integers(-128, 128, shape, np.int8),
        "filter_scale_tensor": np.array([0.25], np.float32),
        "output_scale_tensor": np.array([16.0 * (channels // groups) ** 0.5 * kernel], np.float32),
    }
    return Convolution(desc, constants, numbers.integers(0, 256, (1, channels, size, size), np.uint8))
