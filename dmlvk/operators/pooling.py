"""What the operators share that reduce windows of a tensor: their geometry, and the rules of their fields."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn

from dmlvk.operators.declared import Choices, OperatorDesc, dimensions_of, integers
from dmlvk.operators.quantized_linear_convolution import output_size
from dmlvk.tensor_desc import MAXIMUM_UINT32, TensorDesc

Three = tuple[int, int, int]
Five = tuple[int, int, int, int, int]


@dataclass(frozen=True)
class PoolingGeometry:
    """Windows over a tensor {N, C, D, H, W}; of a tensor of rank 4, D is 1. Triples are (depth, height, width).

    input_size, output_size: tuple of 3 int.
    window, strides, dilations, start_padding: tuple of 3 int. Output o has taps at the positions o * stride -
        start_padding + t * dilation, for t below the window's size.
    input_strides, output_strides: tuple of 5 int. Strides of the tensors in elements.
    """

    batch: int
    channels: int
    input_size: Three
    output_size: Three
    window: Three
    strides: Three
    dilations: Three
    start_padding: Three
    input_strides: Five
    output_strides: Five

    @property
    def tap_count(self) -> int:
        """Taps of a window, including those on padding."""
        return math.prod(self.window)

    @property
    def output_sizes(self) -> Five:
        """Sizes of the output along N, C, D, H and W."""
        return self.batch, self.channels, *self.output_size

    def taps_inside(self, k: int, position: int) -> range:
        """Which taps along spatial dimension k lie inside the input, for the output at a position."""
        first = position * self.strides[k] - self.start_padding[k]
        low = max(0, -(first // self.dilations[k]))
        high = min(self.window[k], (self.input_size[k] - 1 - first) // self.dilations[k] + 1)
        return range(low, max(low, high))


class PoolingDesc(OperatorDesc):
    """What pooling operators have in common: an input and an output of rank 4 or 5, and windows.

    A declaration has these fields. The last five are `spatial`.
    """

    input_tensor: TensorDesc
    output_tensor: TensorDesc
    strides: Sequence[int]
    window_size: Sequence[int]
    start_padding: Sequence[int]
    end_padding: Sequence[int]
    dilations: Sequence[int]

    @classmethod
    def tied(cls, choose: Choices, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Windows with a tap inside the input."""
        return _drawn_windows(choose, fields)

    def check(self) -> None:
        """Check that the windows fit the padded input, and that each of them has a tap inside the input."""
        for k, size in enumerate(_pooled_sizes(self)[2:]):
            _check_taps(self, k, size)

    def output_sizes(self) -> tuple[int, ...]:
        """The number of windows along each dimension."""
        sizes = _pooled_sizes(self)
        if math.prod(sizes) > MAXIMUM_UINT32:
            rule = "the other fields give an output of these sizes, and a tensor has at most 2**32 - 1 elements"
            self._fail("output_tensor.sizes", sizes, f"{rule}, not {math.prod(sizes)}")
        return sizes

    def check_output(self) -> None:
        """Check that the output has an element for each window."""
        expected = _pooled_sizes(self)
        if self.output_tensor.sizes != expected:
            rule = (
                "must be the batch and the channels of input_tensor, and for each spatial dimension "
                "floor((input + start + end padding - (1 + (window_size - 1) * dilations)) / strides) + 1"
            )
            self._fail("output_tensor.sizes", self.output_tensor.sizes, rule, str(expected))

    @cached_property
    def geometry(self) -> PoolingGeometry:
        """Sizes, strides and paddings in the form of rank 5."""
        return PoolingGeometry(
            batch=self.input_tensor.sizes[0],
            channels=self.input_tensor.sizes[1],
            input_size=_triple(self.input_tensor.sizes[2:], 1),
            output_size=_triple(self.output_tensor.sizes[2:], 1),
            window=_triple(self.window_size, 1),
            strides=_triple(self.strides, 1),
            dilations=_triple(self.dilations, 1),
            start_padding=_triple(self.start_padding, 0),
            input_strides=five_strides(self.input_tensor),
            output_strides=five_strides(self.output_tensor),
        )


def spatial(least: int) -> Any:
    """A field with an element of at least 0 or 1 for each spatial dimension."""
    count = dimensions_of("input_tensor", excluding=2)
    return integers(least, MAXIMUM_UINT32, f"must be {least} or more", count=count)


def _drawn_windows(choose: Choices, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Random windows, each with a tap inside the input."""
    drawn: dict[str, Any] = {}
    for size in fields["input_tensor"].sizes[2:]:
        window, stride = choose.integer("window_size", 1, 4), choose.integer("strides", 1, 3)
        dilation = choose.integer("dilations", 1, min(3, size))
        reach = (window - 1) * dilation
        start = choose.integer("start_padding", 0, reach)
        needed = max(0, reach + 1 - size - start)
        end = needed + choose.integer("end_padding", 0, 2)
        while end > needed and (output_size(size, window, stride, dilation, start, end) - 1) * stride - start >= size:
            end -= 1
        values = {"strides": stride, "window_size": window, "start_padding": start, "end_padding": end}
        for name, value in {**values, "dilations": dilation}.items():
            drawn[name] = (*drawn.get(name, ()), value)
    return drawn


def _pooled_sizes(desc: PoolingDesc) -> tuple[int, ...]:
    sizes = list(desc.input_tensor.sizes[:2])
    for k, size in enumerate(desc.input_tensor.sizes[2:]):
        window, dilation = desc.window_size[k], desc.dilations[k]
        start, end = desc.start_padding[k], desc.end_padding[k]
        sizes.append(output_size(size, window, desc.strides[k], dilation, start, end))
        if sizes[-1] < 1:
            rule = (
                f"the dilated window, 1 + (window_size - 1) * dilations = {1 + (window - 1) * dilation}, "
                f"may not be larger than the padded input, {size} + {start} + {end} = {size + start + end}"
            )
            desc._fail(f"window_size[{k}]", window, rule, "a smaller window or more padding")
    return tuple(sizes)


def _check_taps(desc: PoolingDesc, k: int, count: int) -> None:
    """Check that each of `count` windows along dimension k has a tap inside the input."""
    size, stride, dilation = desc.input_tensor.sizes[2 + k], desc.strides[k], desc.dilations[k]
    start, reach = desc.start_padding[k], (desc.window_size[k] - 1) * dilation
    last = (count - 1) * stride - start
    if last >= size:
        _fail_empty(desc, "end_padding", k, count - 1, f"the last window begins at {last}, behind the input")
    if start > reach:
        _fail_empty(desc, "start_padding", k, 0, f"the first window ends at {reach - start}, before the input")
    # Taps before the input are at negative positions. The first tap from 0 on has the position first % dilation.
    before = min(count, -(-start // stride))
    empty = first_of(before, stride, -start, dilation, size)
    if empty is not None:
        rule = f"a dilation of {dilation} steps over the whole input, of size {size}"
        _fail_empty(desc, "start_padding", k, empty, rule)


def _fail_empty(desc: PoolingDesc, field: str, k: int, window: int, reason: str) -> NoReturn:
    rule = (
        f"each window must have a tap inside the input; window {window} along spatial dimension {k} has none: "
        f"{reason} (the input's positions there are 0 to {desc.input_tensor.sizes[2 + k] - 1})"
    )
    desc._fail(f"{field}[{k}]", getattr(desc, field)[k], rule, "less padding")


def _triple(values: Sequence[int], neutral: int) -> Three:
    depth, height, width = (neutral,) * (3 - len(values)) + tuple(values)
    return depth, height, width


def five_strides(tensor: TensorDesc) -> Five:
    """Element strides along N, C, D, H and W; the depth of a tensor of rank 4, which is 1, has stride 0."""
    strides = tensor.element_strides
    n, c, d, h, w = (*strides[:2], 0, *strides[2:]) if len(strides) == 4 else strides
    return n, c, d, h, w


def first_of(count: int, step: int, start: int, modulus: int, limit: int) -> int | None:
    """The first i < count with (start + i * step) % modulus >= limit; None if there is none."""
    start %= modulus
    if limit >= modulus or count <= 0:
        return None
    found = 0 if start >= limit else _first_between(step, modulus, limit - start, modulus - 1 - start)
    return None if found is None or found >= count else found


def _first_between(step: int, modulus: int, low: int, high: int) -> int | None:
    """The first i >= 0 with low <= i * step % modulus <= high, by Euclid's steps; None if there is none."""
    if low == 0:
        return 0
    step %= modulus
    if step == 0:
        return None
    if 2 * step > modulus:
        return _first_between(modulus - step, modulus, modulus - high, modulus - low)
    first = -(-low // step)
    if first * step <= high:
        return first
    rounds = _first_between(modulus, step, -high % step, -low % step)
    return None if rounds is None else -(-(low + modulus * rounds) // step)
