"""How large the benchmark's cases are."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """How large the cases are.

    Attributes
    ----------
    data_bytes : int
        Bytes of an input of the data movement operators, which move about twice as many. A power of two.
    batch : int
        Images of a convolution.
    filter_is_owned : bool
        Whether a convolution's filter is OWNED_BY_DML: given once, before the first dispatch.
    """

    data_bytes: int
    batch: int
    filter_is_owned: bool = True
