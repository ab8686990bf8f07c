"""The sizes of the benchmark's cases."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """The sizes of the cases.

    data_bytes: bytes of an input of the data movement operators, which move about twice as many; a power of two.
    batch: the number of images of a convolution.
    filter_is_owned: whether a convolution's filter is OWNED_BY_DML: given once, before the first dispatch.
    parameters_are_owned: whether its scales, zero points and bias are.
    """

    data_bytes: int
    batch: int
    filter_is_owned: bool = True
    parameters_are_owned: bool = True
