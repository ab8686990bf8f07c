"""Random shapes: convolutions as networks may have them, and movements of elements.

Any beginning of the row is spread over the whole space, so that a short sweep is a smaller sample and no other one.
"""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.sweep import OPERATORS
from dmlvk import DataType, QuantizedLinearConvolutionDesc, Slice1Desc, TensorDesc, reference
from dmlvk._common.bits import equal_bits
from dmlvk.benchmark.cases.quantized_linear_convolution import Layer
from dmlvk.benchmark.cases.slice1 import random_elements
from dmlvk.benchmark.networks.work import LAYOUTS, constants_of, desc_of, noise
from dmlvk.benchmark.work import Work, work_of

Array = npt.NDArray[Any]

CHANNELS = (3, 8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 255, 256, 320, 384, 512, 576, 768, 960, 1024, 1280, 2048)
SIZES = (7, 8, 13, 14, 19, 20, 28, 32, 56, 64, 80, 112, 128, 224, 256)
KERNELS = (1, 1, 1, 3, 3, 3, 5, 7)
# Of a convolution: dense ones, depthwise ones (0), and groups in between.
GROUPS = (1, 1, 1, 1, 0, 0, 2, 4, 8, 32)
BATCHES = (1, 1, 8, 32)
# Elements of the output that are held against the reference, which takes minutes for a large convolution.
SAMPLES = 64

INNER_SIZES = (1, 2, 3, 4, 5, 7, 8, 12, 16, 25, 32, 49, 64, 100, 128)
MOVED_TYPES = (DataType.UINT8, DataType.UINT16, DataType.UINT32, DataType.UINT64)
MOST_RANK = 6


class SweptShape(ABC):
    """One operator with sizes."""

    @property
    @abstractmethod
    def name(self) -> str:
        """For people; the same shape has the same name."""

    @property
    @abstractmethod
    def desc(self) -> Any:
        """The descriptor."""

    @property
    def work(self) -> Work:
        """The least that must be moved and computed."""
        return work_of(self.desc)

    @abstractmethod
    def inputs(self) -> dict[str, Array]:
        """Random data by field."""

    @abstractmethod
    def is_right(self, inputs: Mapping[str, Array], output: Array) -> bool:
        """Whether an output is right, bit for bit."""


@dataclass(frozen=True)
class ConvolutionShape(SweptShape):
    """A convolution whose constants are OWNED_BY_DML."""

    layer: Layer
    batch: int
    layout: str

    @property
    def name(self) -> str:
        return f"{OPERATORS[0]}:{self.layer.name}:batch={self.batch};layout={self.layout}"

    @property
    def desc(self) -> QuantizedLinearConvolutionDesc:
        return desc_of(self.layer, self.batch, self.layout)

    def inputs(self) -> dict[str, Array]:
        sizes = self.desc.tensors["input_tensor"].sizes
        image = noise(f"{self.name}:images", math.prod(sizes)).reshape(sizes)
        return {"input_tensor": image, **constants_of(self.layer, 0)}

    def is_right(self, inputs: Mapping[str, Array], output: Array) -> bool:
        places = self._places(output.shape)
        return equal_bits(np.array([output[place] for place in places]), self._expected(inputs, places))

    def _places(self, sizes: Sequence[int]) -> list[tuple[int, ...]]:
        """The corners of the output, and random elements."""
        drawn = random.Random(self.name)
        corners = [tuple(drawn.choice((0, size - 1)) for size in sizes) for _ in range(SAMPLES // 4)]
        return corners + [tuple(drawn.randrange(size) for size in sizes) for _ in range(SAMPLES - len(corners))]

    def _expected(self, inputs: Mapping[str, Array], places: Sequence[tuple[int, ...]]) -> Array:
        """The reference's elements: those of one convolution with a group for each of them, and one pixel."""
        layer, images = self.layer, inputs["input_tensor"]
        inside, margin, kernel = layer.channels // layer.groups, layer.margin, layer.kernel
        patches = np.full((len(places), inside, kernel, kernel), inputs["input_zero_point_tensor"].item(), images.dtype)
        for patch, (image, filter_, y, x) in zip(patches, places, strict=True):
            first = filter_ * layer.groups // layer.filters * inside
            top, left = y * layer.stride - margin, x * layer.stride - margin
            rows = slice(max(0, top), min(layer.size, top + kernel))
            columns = slice(max(0, left), min(layer.size, left + kernel))
            inner = images[image, first : first + inside, rows, columns]
            patch[:, rows.start - top : rows.stop - top, columns.start - left : columns.stop - left] = inner
        filters = [filter_ for _, filter_, _, _ in places]
        apart = Layer(len(places) * inside, kernel, len(places), kernel, groups=len(places), padding=0)
        taken = {
            field: array[:, filters] if array.shape[1] > 1 else array
            for field, array in inputs.items()
            if field not in ("input_tensor", "filter_tensor")
        }
        taken["input_tensor"] = patches.reshape(1, -1, kernel, kernel)
        taken["filter_tensor"] = inputs["filter_tensor"][filters]
        desc = desc_of(apart, 1, "nchw")
        return reference.run(desc, **taken)[0, :, 0, 0]


@dataclass(frozen=True)
class MovementShape(SweptShape):
    """A window of a tensor whose dimensions lie in memory in some order."""

    data_type: DataType
    sizes: tuple[int, ...]
    order: tuple[int, ...]
    steps: tuple[int, ...]

    @property
    def name(self) -> str:
        sizes, order = "x".join(map(str, self.sizes)), "".join(map(str, self.order))
        steps = "" if set(self.steps) == {1} else f";steps={','.join(map(str, self.steps))}"
        return f"{OPERATORS[1]}:{sizes}:type={self.data_type.name};order={order}{steps}"

    @property
    def desc(self) -> Slice1Desc:
        strides = [0] * len(self.sizes)
        step = 1
        for dimension in reversed(self.order):
            strides[dimension] = step
            step *= self.sizes[dimension]
        return Slice1Desc(
            input_tensor=TensorDesc(self.data_type, self.sizes, strides),
            input_window_offsets=[0] * len(self.sizes),
            input_window_sizes=self.sizes,
            input_window_strides=self.steps,
        )

    def inputs(self) -> dict[str, Array]:
        in_memory = [self.sizes[dimension] for dimension in self.order]
        elements = random_elements(self.data_type, math.prod(self.sizes))
        return {"input_tensor": elements.reshape(in_memory).transpose(np.argsort(self.order))}

    def expected(self, inputs: Mapping[str, Array]) -> Array:
        """The window as NumPy indexes it."""
        elements: Array = inputs["input_tensor"][tuple(slice(None, None, step) for step in self.steps)]
        return elements

    def is_right(self, inputs: Mapping[str, Array], output: Array) -> bool:
        return equal_bits(output, np.ascontiguousarray(self.expected(inputs)))


def shapes(operators: Sequence[str], seed: int, data_bytes: int) -> Iterator[SweptShape]:
    """An endless row of different shapes, of each operator in turn.

    operators: some of OPERATORS.
    seed: the same seed gives the same row.
    data_bytes: bytes of the input of a movement, about; and the most that a convolution's input and output may have.
    """
    drawn = random.Random(seed)
    known: set[str] = set()
    while True:
        for operator in operators:
            shape: SweptShape | None = None
            while shape is None or shape.name in known:
                shape = DRAWN[operator](drawn, data_bytes)
            known.add(shape.name)
            yield shape


def _convolution(drawn: random.Random, most_bytes: int) -> ConvolutionShape | None:
    kernel, size = drawn.choice(KERNELS), drawn.choice(SIZES)
    channels, filters, groups = drawn.choice(CHANNELS), drawn.choice(CHANNELS), drawn.choice(GROUPS)
    if groups == 0:
        groups, filters = channels, channels
    if channels % groups or filters % groups:
        return None
    stride = drawn.choice((1, 1, 2))
    layer = Layer(channels, size, filters, kernel, stride, groups)
    batch, layout = drawn.choice(BATCHES), drawn.choice(LAYOUTS)
    images = batch * (channels * size**2 + filters * layer.output_size**2)
    if images + channels // groups * filters * kernel**2 > most_bytes:
        return None
    return ConvolutionShape(layer, batch, layout)


def _movement(drawn: random.Random, data_bytes: int) -> MovementShape | None:
    data_type = drawn.choice(MOVED_TYPES)
    rank = drawn.randint(2, MOST_RANK)
    sizes = [drawn.choice(INNER_SIZES) for _ in range(rank)]
    # One dimension is as long as the bytes demand.
    long = drawn.randrange(rank)
    sizes[long] = 1
    sizes[long] = data_bytes // data_type.size_in_bytes // math.prod(sizes)
    if sizes[long] < 1:
        return None
    order = list(range(rank))
    drawn.shuffle(order)
    steps = [1] * rank
    if drawn.random() < 0.3:
        steps[drawn.randrange(rank)] = drawn.choice((-1, 2, 3, -2))
    return MovementShape(data_type, tuple(sizes), tuple(order), tuple(steps))


DRAWN: Mapping[str, Callable[[random.Random, int], SweptShape | None]] = dict(
    zip(OPERATORS, (_convolution, _movement), strict=True)
)
