"""The exact search for elements of a strided layout that share memory."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlvk._common.overlap import find_overlap
from dmlvk.data_type import DataType
from dmlvk.tensor_desc import TensorDesc

LARGEST = 2**32 - 1
FLOAT32 = DataType.FLOAT32


def share_an_element(sizes: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """By listing every element."""
    places = [sum(map(int.__mul__, c, strides)) for c in itertools.product(*map(range, sizes))]
    return len(set(places)) < len(places)


LAYOUTS = st.integers(1, 6).flatmap(
    lambda rank: st.tuples(
        st.tuples(*[st.integers(1, 4)] * rank),
        st.tuples(*[st.one_of(st.integers(0, 8), st.integers(1, 60), st.integers(1, 400))] * rank),
    )
)


@given(LAYOUTS)
def test_overlap_is_what_listing_every_element_finds(layout: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    sizes, strides = layout
    found = find_overlap(sizes, strides)
    assert (found is not None) == share_an_element(sizes, strides)
    assert TensorDesc(FLOAT32, sizes, strides).has_overlap() == (found is not None)
    if found is not None:
        assert found.first is not None and found.second is not None and found.first != found.second
        for coordinate in (found.first, found.second):
            assert all(0 <= c < size for c, size in zip(coordinate, sizes, strict=True))
        assert np.dot(found.first, strides) == np.dot(found.second, strides)


def test_overlap_of_many_small_layouts() -> None:
    generator = np.random.default_rng(5)
    overlapping = 0
    for _ in range(3000):
        rank = int(generator.integers(2, 6))
        sizes = tuple(generator.integers(1, 5, rank).tolist())
        strides = tuple(generator.integers(1, generator.choice([8, 40, 200]), rank).tolist())
        expected = share_an_element(sizes, strides)
        overlapping += expected
        assert (find_overlap(sizes, strides) is not None) == expected, (sizes, strides)
    assert 500 < overlapping < 2500


@pytest.mark.parametrize(
    ("sizes", "strides"),
    [
        ((3, 2), (2, 3)),  # neither nests in the other
        ((9, 16), (16, 9)),
        ((5, 1, 7), (7, 0, 1)),
        ((2, 64, 56, 56), (64 * 56 * 56, 1, 64 * 56, 64)),  # NHWC
        ((65536, 65535), (65535, 1)),
        ((65537, 65535), (1, 65537)),
        ((65521, 65537), (65537, 65521)),
        ((2, 2**31 - 1), (LARGEST, 2)),
        ((2,) * 8, (1, 2, 4, 8, 16, 32, 64, 128)),
        ((40, 50, 60, 30), (3 * 10**6, 7 * 10**4, 1001, 11)),
    ],
)
def test_layouts_without_overlap(sizes: tuple[int, ...], strides: tuple[int, ...]) -> None:
    assert find_overlap(sizes, strides) is None


@pytest.mark.parametrize(
    ("sizes", "strides"),
    [
        ((2,), (0,)),
        ((4, 3), (2, 3)),
        ((65538, 65522), (65521, 65537)),
        ((LARGEST, 1), (0, 1)),
        ((2, 2**31 - 1), (2**31, 2)),
        ((16, 16, 16, 16, 16, 16, 16, 8), (101, 211, 307, 401, 503, 601, 701, 809)),
        ((3, 1000, 1000), (999_999, 1000, 1)),
        ((2**16, 2**15, 2), (2**16 + 1, 2, LARGEST)),
    ],
)
def test_layouts_with_overlap(sizes: tuple[int, ...], strides: tuple[int, ...]) -> None:
    found = find_overlap(sizes, strides)
    assert found is not None and found.first is not None and found.second is not None
    places = [sum(map(int.__mul__, coordinate, strides)) for coordinate in (found.first, found.second)]
    assert places[0] == places[1] and found.first != found.second
    assert all(
        c < size for coordinate in (found.first, found.second) for c, size in zip(coordinate, sizes, strict=True)
    )


def test_a_layout_that_cannot_be_decided_counts_as_overlapping() -> None:
    sizes, strides = (26, 56, 26, 2, 19, 3, 2, 82), (
        1241960688, 2609434726, 1261818556, 4163387725, 3026203898, 1951115829, 732691333, 3030307949,
    )  # fmt: skip
    found = find_overlap(sizes, strides, 1000)
    assert found is not None and found.first is None
    assert "could not be decided" in str(found)
