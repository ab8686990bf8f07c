"""The rules of DML_BUFFER_TENSOR_DESC, and the exact search for elements that overlap."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlvk.data_type import DataType
from dmlvk.errors import DescriptorError
from dmlvk.tensor_desc import TensorDesc, TensorFlags, find_overlap

LARGEST = 2**32 - 1
FLOAT32 = DataType.FLOAT32


def refused(field: str, value: object, rule: str, /, *arguments: Any, **options: Any) -> DescriptorError:
    with pytest.raises(DescriptorError) as caught:
        TensorDesc(*arguments, **options)
    assert (caught.value.descriptor, caught.value.field, caught.value.value) == ("TensorDesc", field, value)
    assert rule in caught.value.rule
    assert field in str(caught.value) and repr(value) in str(caught.value)
    return caught.value


def test_a_packed_tensor() -> None:
    desc = TensorDesc(DataType.FLOAT16, (2, 3, 5))
    assert (desc.rank, desc.element_count, desc.strides, desc.element_strides) == (3, 30, None, (15, 5, 1))
    assert (desc.minimum_size_in_bytes, desc.total_size_in_bytes) == (60, 60)
    assert desc.is_packed and not desc.has_overlap()
    assert desc.flags is TensorFlags.NONE and desc.guaranteed_base_offset_alignment == 0


def test_a_strided_tensor() -> None:
    desc = TensorDesc(DataType.INT8, [2, 3], np.array([1, 7], np.uint32), total_size_in_bytes=np.int64(21))
    assert (desc.strides, desc.element_strides, desc.is_packed) == ((1, 7), (1, 7), False)
    assert (desc.minimum_size_in_bytes, desc.total_size_in_bytes) == (16, 21)
    assert all(type(number) is int for number in (*desc.sizes, *desc.element_strides, desc.total_size_in_bytes))


def test_strides_of_sizes_of_1_do_not_matter_to_packing() -> None:
    assert TensorDesc(FLOAT32, (2, 1, 3), (3, 99, 1)).is_packed
    assert not TensorDesc(FLOAT32, (2, 2, 3), (3, 99, 1)).is_packed


def test_descriptors_are_values() -> None:
    desc = TensorDesc(FLOAT32, (2, 3), (4, 1), total_size_in_bytes=64, guaranteed_base_offset_alignment=32)
    assert pickle.loads(pickle.dumps(desc)) == desc == copy.deepcopy(desc)
    assert hash(desc) == hash(copy.copy(desc)) and desc != TensorDesc(FLOAT32, (2, 3), (4, 1))
    assert desc.has_overlap() is False and desc.element_strides == (4, 1)
    assert dataclasses.replace(desc, flags=TensorFlags(1)).flags is TensorFlags.OWNED_BY_DML
    with pytest.raises(dataclasses.FrozenInstanceError):
        desc.sizes = (1,)  # type: ignore[misc]


@pytest.mark.parametrize("data_type", [FLOAT32, 1, np.float32, np.dtype("float32"), "float32", np.int8(1)])
def test_data_types_may_be_values_or_numpy_s(data_type: object) -> None:
    assert TensorDesc(data_type, (1,)).data_type is FLOAT32


@pytest.mark.parametrize("data_type", [0, 12, 13, -1, None, True, 1.5, "float24", bool, "c8"])
def test_other_data_types_are_refused(data_type: object) -> None:
    error = refused("data_type", data_type, "data types", data_type, (1,))
    assert error.expected is not None and "FLOAT32, FLOAT16" in error.expected


def test_rank_is_1_to_8() -> None:
    assert TensorDesc(FLOAT32, (1,) * 8).rank == 8
    refused("sizes", (), "1 to 8 dimensions, not 0", FLOAT32, ())
    refused("sizes", (1,) * 9, "1 to 8 dimensions, not 9", FLOAT32, (1,) * 9)


def test_sizes_are_1_or_more() -> None:
    refused("sizes[1]", 0, "1 or more", FLOAT32, (2, 0))
    refused("sizes[0]", -3, "1 or more", FLOAT32, (-3, 2))


def test_there_are_at_most_2_to_the_32_minus_1_elements() -> None:
    assert TensorDesc(FLOAT32, (LARGEST,)).total_size_in_bytes == 4 * LARGEST
    assert TensorDesc(DataType.UINT8, (1, LARGEST, 1)).minimum_size_in_bytes == 2**32
    assert TensorDesc(DataType.UINT8, (65535, 65537)).element_count == LARGEST
    refused("sizes[0]", 2**32, "1 or more", FLOAT32, (2**32,))
    refused("sizes", (65536, 65536), "at most 2**32 - 1 elements, not 4294967296", FLOAT32, (65536, 65536))
    refused("sizes", (LARGEST,) * 8, "at most", FLOAT32, (LARGEST,) * 8)


@pytest.mark.parametrize(("sizes", "field"), [((2.0,), "sizes[0]"), ((3, "2"), "sizes[1]"), ((None,), "sizes[0]")])
def test_sizes_are_integers(sizes: Any, field: str) -> None:
    refused(field, sizes[-1], "must be an integer, not", FLOAT32, sizes)


@pytest.mark.parametrize("flag", [True, np.True_])
def test_bools_are_not_integers(flag: Any) -> None:
    refused("sizes[0]", flag, "not a bool", FLOAT32, (flag,))


@pytest.mark.parametrize("sizes", [5, "12", b"12", None])
def test_sizes_are_a_sequence(sizes: Any) -> None:
    refused("sizes", sizes, "sequence of integers", FLOAT32, sizes)


def test_strides_have_32_unsigned_bits() -> None:
    assert TensorDesc(FLOAT32, (2,), (LARGEST,)).minimum_size_in_bytes == 4 * 2**32
    refused("strides[0]", 2**32, "32 unsigned bits", FLOAT32, (2,), (2**32,))
    refused("strides[0]", -1, "32 unsigned bits", FLOAT32, (2,), (-1,))
    refused("strides[0]", 1.0, "not float", FLOAT32, (2,), (1.0,))


def test_there_is_one_stride_a_dimension() -> None:
    assert refused("strides", (1,), "one stride a dimension", FLOAT32, (2, 3), (1,)).expected == "2 strides"


def test_the_minimum_size_does_not_wrap() -> None:
    assert TensorDesc(DataType.FLOAT64, (3, 3), (LARGEST, LARGEST)).minimum_size_in_bytes == 8 * (4 * LARGEST + 1)
    sizes, strides = (65536, 65535), (LARGEST, LARGEST)
    assert TensorDesc(DataType.UINT8, sizes, strides).minimum_size_in_bytes == (65535 + 65534) * LARGEST + 1
    refused("strides", (LARGEST,), "64 bits", DataType.FLOAT64, (LARGEST,), (LARGEST,))


@pytest.mark.parametrize(("data_type", "size"), [(DataType.FLOAT16, 12), (DataType.INT8, 8), (DataType.INT64, 40)])
def test_the_minimum_size_is_rounded_up_to_4_bytes(data_type: DataType, size: int) -> None:
    assert TensorDesc(data_type, (5,)).minimum_size_in_bytes == size


def test_the_total_size_holds_the_elements() -> None:
    assert TensorDesc(FLOAT32, (5,), total_size_in_bytes=20).total_size_in_bytes == 20
    error = refused("total_size_in_bytes", 16, "must hold the elements", FLOAT32, (5,), total_size_in_bytes=16)
    assert error.expected is not None and error.expected.startswith("an integer from 20 to")
    refused("total_size_in_bytes", 5, "must hold", DataType.INT8, (5,), total_size_in_bytes=5)
    refused("total_size_in_bytes", 2**64, "must hold", FLOAT32, (5,), total_size_in_bytes=2**64)
    refused("total_size_in_bytes", 20.0, "not float", FLOAT32, (5,), total_size_in_bytes=20.0)


@pytest.mark.parametrize("alignment", [0, 8, 16, 32, 2**31])
def test_alignment_is_0_or_a_power_of_two(alignment: int) -> None:
    desc = TensorDesc(DataType.INT64, (1,), guaranteed_base_offset_alignment=alignment)
    assert desc.guaranteed_base_offset_alignment == alignment


@pytest.mark.parametrize("alignment", [1, 4, 12, 48, 2**32, -16])
def test_other_alignments_are_refused(alignment: int) -> None:
    field, rule = "guaranteed_base_offset_alignment", "power of two that is no smaller than an element of INT64"
    refused(field, alignment, rule, DataType.INT64, (1,), guaranteed_base_offset_alignment=alignment)


@pytest.mark.parametrize("flags", [2, -1, "NONE"])
def test_flags_are_known(flags: Any) -> None:
    refused("flags", flags, "must be", FLOAT32, (1,), flags=flags)


def share_an_element(sizes: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether two elements share memory, from a list of all elements."""
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
        ((3, 2), (2, 3)),  # neither dimension nests in the other
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
