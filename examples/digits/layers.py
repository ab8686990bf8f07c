"""The layers of a network in NumPy's doubles: their outputs, and the gradients of their parameters."""

from __future__ import annotations

from typing import Protocol

import numpy as np

Array = np.ndarray


class Layer(Protocol):
    """A function of a batch, with parameters.

    Attributes:
        parameters, gradients (list of ndarray): Of equal shapes. `backward` writes the gradients.
    """

    parameters: list[Array]
    gradients: list[Array]

    def forward(self, x: Array) -> Array:
        """The output, and what `backward` needs is kept."""

    def backward(self, gradient: Array) -> Array:
        """The gradient by the input, from that by the output of the last `forward`."""


class Convolution:
    """A cross-correlation of rank 4, {n,c,h,w} with {m,c/group,k,k}, plus a bias.

    Args:
        generator (Generator): Of the first weights, which are normal with variance 2 / fan-in (He).
        channels, filters (int):
        size (int): Side of the filters.
        stride (int):
        group (int): Channels and filters are cut into this many groups, which do not see each other.

    The input is padded with (size - 1) / 2 zeros on each side.
    """

    def __init__(
        self, generator: np.random.Generator, channels: int, filters: int, size: int, stride: int = 1, group: int = 1
    ) -> None:
        shape = (filters, channels // group, size, size)
        self.weight = generator.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))
        self.bias = np.zeros(filters)
        self.stride, self.group, self.padding = stride, group, (size - 1) // 2
        self.parameters = [self.weight, self.bias]
        self.gradients = [np.zeros_like(parameter) for parameter in self.parameters]

    def forward(self, x: Array) -> Array:
        n, channels = x.shape[:2]
        filters, taps, size, _ = self.weight.shape
        pad, step = self.padding, self.stride
        self._padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
        windows = np.lib.stride_tricks.sliding_window_view(self._padded, (size, size), (2, 3))[:, :, ::step, ::step]
        rows, columns = windows.shape[2:4]
        grouped = windows.reshape(n, self.group, channels // self.group, rows, columns, size, size)
        # One row for each place of the filter: {n, group, rows * columns, taps}.
        self._seen = grouped.transpose(0, 1, 3, 4, 2, 5, 6).reshape(n, self.group, rows * columns, -1)
        weight = self.weight.reshape(self.group, filters // self.group, taps * size * size)
        y = self._seen @ weight.transpose(0, 2, 1)
        return y.transpose(0, 1, 3, 2).reshape(n, filters, rows, columns) + self.bias[:, None, None]

    def backward(self, gradient: Array) -> Array:
        n, filters, rows, columns = gradient.shape
        taps, size = self.weight.shape[1:3]
        by_place = gradient.reshape(n, self.group, filters // self.group, rows * columns)
        self.gradients[0][...] = (by_place @ self._seen).sum(axis=0).reshape(self.weight.shape)
        self.gradients[1][...] = gradient.sum(axis=(0, 2, 3))
        weight = self.weight.reshape(self.group, filters // self.group, taps * size * size)
        by_seen = (by_place.transpose(0, 1, 3, 2) @ weight).reshape(n, self.group, rows, columns, taps, size, size)
        by_tap = by_seen.transpose(0, 1, 4, 5, 6, 2, 3).reshape(n, self.group * taps, size, size, rows, columns)
        padded = np.zeros_like(self._padded)
        for i in range(size):
            for j in range(size):
                at = np.s_[:, :, i : i + self.stride * rows : self.stride, j : j + self.stride * columns : self.stride]
                padded[at] += by_tap[:, :, i, j]
        inside = slice(self.padding, -self.padding or None)
        return padded[:, :, inside, inside]


class Rectifier:
    """max(x, 0)."""

    def __init__(self) -> None:
        self.parameters: list[Array] = []
        self.gradients: list[Array] = []

    def forward(self, x: Array) -> Array:
        self._positive = x > 0
        return x * self._positive

    def backward(self, gradient: Array) -> Array:
        return gradient * self._positive


class Dense:
    """The elements of each picture times a matrix, plus a bias: {n,...} to {n,m}."""

    def __init__(self, generator: np.random.Generator, inputs: int, outputs: int) -> None:
        self.weight = generator.standard_normal((inputs, outputs)) * np.sqrt(1 / inputs)
        self.bias = np.zeros(outputs)
        self.parameters = [self.weight, self.bias]
        self.gradients = [np.zeros_like(parameter) for parameter in self.parameters]

    def forward(self, x: Array) -> Array:
        self._shape, self._flat = x.shape, x.reshape(len(x), -1)
        return self._flat @ self.weight + self.bias

    def backward(self, gradient: Array) -> Array:
        self.gradients[0][...] = self._flat.T @ gradient
        self.gradients[1][...] = gradient.sum(axis=0)
        return (gradient @ self.weight.T).reshape(self._shape)
