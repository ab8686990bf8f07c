"""A QUANTIZED_LINEAR_CONVOLUTION as a matrix product sees it: it steps over the input, and narrow groups are joined."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import lru_cache

from dmlvk.operators.quantized_linear_convolution import ConvolutionGeometry

# Groups are joined up to this many channels. Every further group only adds zeros.
WIDEST_JOINED_GROUP = 128


@dataclass(frozen=True)
class ProductGeometry(ConvolutionGeometry):
    """The same convolution, with several of its groups side by side in one.

    Outside of its own group, an output channel sees the filter's zero point: a real zero. So the joined convolution has
    the same outputs, as an ordinary convolution of fewer and wider groups. A kernel for wide groups takes it. It
    multiplies more, but nothing else helps a matrix unit that has sixteen columns and a group that has four.
    """

    joined: int = 1  # the descriptor's groups that make one group here

    @property
    def filter_sizes(self) -> tuple[int, int, int, int]:
        """Sizes of the filter, which knows nothing of joined groups, along M, C, H and W."""
        return self.output_channels, self.input_channels_per_group // self.joined, *self.filter_size

    @property
    def own_tap_count(self) -> int:
        """Multiply-adds for one output element, without those with the zeros of joined groups."""
        return math.prod(self.filter_sizes[1:])

    def with_joined(self, count: int) -> ProductGeometry:
        """The convolution with `count` times as many groups in one; `count` divides the groups."""
        return replace(self, group_count=self.group_count // count, joined=self.joined * count)


@lru_cache(maxsize=64)
def folded_geometry(geometry: ConvolutionGeometry) -> ProductGeometry:
    """The same convolution, which steps over the input in dimensions with one tap and packs only what it reads.

    A filter of size 1 with stride s reads only every s-th position. That equals stride 1 on an input with s times the
    element stride, as long as the padding is a multiple of s.
    """
    sizes, strides = list(geometry.input_size), list(geometry.strides)
    dilations, padding = list(geometry.dilations), list(geometry.start_padding)
    input_strides = list(geometry.input_strides)
    for k in range(2):
        if geometry.filter_size[k] != 1:
            continue
        dilations[k] = 1
        if padding[k] % strides[k] == 0:
            padding[k] //= strides[k]
            sizes[k] = -(-sizes[k] // strides[k])
            input_strides[2 + k] *= strides[k]
            strides[k] = 1
    found = {each.name: getattr(geometry, each.name) for each in fields(geometry)}
    found |= {"input_size": tuple(sizes), "strides": tuple(strides), "dilations": tuple(dilations)}
    return ProductGeometry(**{**found, "start_padding": tuple(padding), "input_strides": tuple(input_strides)})


def joinable_counts(geometry: ConvolutionGeometry) -> list[int]:
    """The numbers of groups that can be joined to one that is not too wide: 1, and divisors of the number of groups."""
    channels = max(geometry.input_channels_per_group, geometry.output_channels_per_group)
    most = max(1, min(geometry.group_count, WIDEST_JOINED_GROUP // channels))
    return [count for count in range(1, most + 1) if geometry.group_count % count == 0]


def joined_groups(geometry: ConvolutionGeometry) -> int:
    """The descriptor's groups that make one group of a geometry."""
    return geometry.joined if isinstance(geometry, ProductGeometry) else 1


def has_whole_planes(geometry: ConvolutionGeometry) -> bool:
    """Whether an output pixel reads only the input pixel at its own place."""
    return (
        geometry.filter_size == (1, 1)
        and geometry.strides == (1, 1)
        and not any(geometry.start_padding)
        and geometry.input_size == geometry.output_size
    )


def packs_channels(geometry: ConvolutionGeometry) -> bool:
    """Whether a word of the output holds four channels (contiguous in NHWC) rather than four pixels."""
    return geometry.output_strides[1] == 1 and geometry.output_channels > 1
