"""Tensors whose rows lie between each other's, as the parts of a Concat do if their channels are last."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from dmlvk.tensor_desc import TensorDesc

# Kernels read and write words of up to so many bytes.
WORD = 16


class Rows(NamedTuple):
    """Bytes in rows of one length at one distance.

    distance: bytes from the start of a row to that of the next.
    length: bytes of a row; the others up to the next one belong to no element.
    """

    distance: int
    length: int


def rows_of(desc: TensorDesc) -> Rows | None:
    """The rows in which a tensor lies; None where there are no whole words between them."""
    return None if desc.is_packed else _rows_of(desc)


@cache
def _rows_of(desc: TensorDesc) -> Rows | None:
    item = desc.data_type.size_in_bytes
    pairs = zip(desc.element_strides, desc.sizes, strict=True)
    steps = sorted((stride * item, size) for stride, size in pairs if size > 1)
    end = item
    for number, (step, size) in enumerate(steps):
        length = -(-end // WORD) * WORD
        if step > length and not any(outer % step for outer, _ in steps[number:]) and step % WORD == 0:
            return Rows(step, length)
        end += (size - 1) * step
    return None


def are_apart(start: int, rows: Rows | None, other_start: int, other_rows: Rows | None) -> bool:
    """Whether two tensors of one memory surely share no word, because the rows of each lie between the other's.

    start, other_start: bytes from the memory's start, multiples of a word.
    """
    if rows is None or other_rows is None or rows.distance != other_rows.distance:
        return False
    distance = rows.distance
    return (other_start - start) % distance >= rows.length and (start - other_start) % distance >= other_rows.length
