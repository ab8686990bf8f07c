"""The sizes of the benchmark's cases."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """The sizes of the cases.

    Attributes
    ----------
    data_bytes : int
        Bytes of an input of the data movement operators, which move about twice as many; a power of two.
    batch : int
        The number of images of a convolution.
    filter_is_owned : bool
        Whether a convolution's filter is OWNED_BY_DML: given once, before the first dispatch.
    parameters_are_owned : bool
        Whether its scales, zero points and bias are.
    """

    data_bytes: int
    batch: int
    filter_is_owned: bool = True
    parameters_are_owned: bool = True
