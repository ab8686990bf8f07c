"""The rules of DML_BUFFER_TENSOR_DESC, the desc of an array, and how a desc is written."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import dmlvk
from dmlvk.data_type import DataType
from dmlvk.errors import DescriptorError
from dmlvk.tensor_desc import TensorDesc, TensorFlags
from tests.layouts import tensor_descs

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


@pytest.mark.parametrize(
    ("dtype", "advice"), [(bool, "view it as uint8"), ("bfloat16", "astype"), ("unit8", "did you mean uint8")]
)
def test_an_error_about_a_data_type_says_what_to_do_instead(dtype: Any, advice: str) -> None:
    refused("data_type", dtype, advice, dtype, (1,))


class TestOfAnArray:
    def test_it_is_packed_by_default(self) -> None:
        array = np.zeros((4, 6), np.int16)
        for view in (array, array.T.copy().T, np.broadcast_to(array[:1], (4, 6)), array[::-1, ::-1]):
            assert TensorDesc.of(view) == TensorDesc("int16", (4, 6))
        assert TensorDesc.of(array.T) == TensorDesc("int16", (6, 4))

    def test_its_own_strides_are_those_of_its_memory(self) -> None:
        array = np.zeros((4, 6, 3), np.float32)
        nchw = array.transpose(2, 0, 1)
        assert TensorDesc.of(nchw, strides="array") == TensorDesc("float32", (3, 4, 6), (1, 18, 3))
        assert TensorDesc.of(array[::2, :, 1:], strides="array") == TensorDesc("float32", (2, 6, 2), (36, 3, 1))
        assert TensorDesc.of(np.broadcast_to(array[0], array.shape), strides="array").strides == (0, 3, 1)
        assert TensorDesc.of(array, strides="array") == TensorDesc("float32", (4, 6, 3)), "packed, so None"

    def test_strides_of_one_element_do_not_count(self) -> None:
        array = np.zeros((5, 1, 4), np.int8)
        odd = np.lib.stride_tricks.as_strided(array, (5, 1, 4), (4, -77, 1))
        assert TensorDesc.of(odd, strides="array") == TensorDesc.of(array) == TensorDesc("int8", (5, 1, 4))
        assert TensorDesc.of(array[::2], strides="array").strides == (8, 4, 1)

    def test_strides_may_be_given(self) -> None:
        assert TensorDesc.of(np.zeros((2, 3)), strides=(8, 2)) == TensorDesc("float64", (2, 3), (8, 2))
        assert TensorDesc.of([1.5, 2], strides=[3]).strides == (3,)

    def test_flags(self) -> None:
        owned = TensorDesc("int8", (2,), flags=TensorFlags.OWNED_BY_DML)
        assert TensorDesc.of(np.zeros(2, np.int8), flags=TensorFlags.OWNED_BY_DML) == owned

    @pytest.mark.parametrize("number", [np.array(3.0), np.float64(3), 3.0])
    def test_an_array_without_dimensions_has_one_element(self, number: Any) -> None:
        assert TensorDesc.of(number) == TensorDesc.of(number, strides="array") == TensorDesc("float64", (1,))

    def test_anything_that_numpy_takes(self) -> None:
        assert TensorDesc.of([[1.0, 2], [3, 4]]) == TensorDesc("float64", (2, 2))
        assert TensorDesc.of(np.zeros(3, ">u4")) == TensorDesc("uint32", (3,))
        assert TensorDesc.of(memoryview(b"abc")) == TensorDesc("uint8", (3,))

    def test_no_element_is_read_where_there_are_a_dtype_and_a_shape(self) -> None:
        class Remote:
            dtype, shape, strides = np.dtype(np.float16), (3, 4), (2, 6)

            def __array__(self, *arguments: Any) -> Any:
                raise AssertionError("which would be a transfer")

        assert TensorDesc.of(Remote()) == TensorDesc("float16", (3, 4))
        assert TensorDesc.of(Remote(), strides="array") == TensorDesc("float16", (3, 4), (1, 3))

    def test_the_desc_of_a_tensor(self) -> None:
        class Tensor:
            desc = TensorDesc("int8", (2, 3), (1, 2), total_size_in_bytes=64, flags=TensorFlags.OWNED_BY_DML)

        assert TensorDesc.of(Tensor()) == TensorDesc("int8", (2, 3))
        assert TensorDesc.of(Tensor(), strides="array") == TensorDesc("int8", (2, 3), (1, 2))

    @pytest.mark.parametrize(
        ("array", "dtype"), [([True], "bool"), (np.zeros(2, bool), "bool"), (np.zeros(2, "U3"), "str")]
    )
    def test_a_dtype_that_directml_lacks_is_refused(self, array: Any, dtype: str) -> None:
        with pytest.raises(TypeError, match=f"dtype {dtype}.* has no DirectML data type"):
            TensorDesc.of(array)

    def test_bfloat16_is_refused_with_what_to_do_instead(self) -> None:
        class Brain:
            """As an array of ml_dtypes or a torch tensor: its dtype is known by its name."""

            dtype, shape = type("dtype", (), {"__module__": "torch", "__str__": lambda self: "torch.bfloat16"})(), (2,)

        with pytest.raises(TypeError, match=r"dtype bfloat16 .*; array\.astype\(np\.float32\)"):
            TensorDesc.of(Brain())

    def test_what_no_tensor_can_hold_is_refused(self) -> None:
        def refusal(field: str, rule: str, array: Any, strides: Any = None) -> DescriptorError:
            with pytest.raises(DescriptorError, match=rule) as caught:
                TensorDesc.of(array, strides=strides)
            assert caught.value.field == field
            return caught.value

        refusal("sizes[1]", "1 or more", np.zeros((2, 0)))
        refusal("sizes", "1 to 8 dimensions", np.zeros((1,) * 9))
        backwards = refusal("strides", "backwards", np.zeros((2, 3), np.int32)[:, ::-1], "array")
        assert backwards.value == (3, -1) and backwards.expected is not None and "packed" in backwards.expected
        field = np.zeros(4, "i4,i1")["f0"]
        assert refusal("strides", "no multiples of the 4 bytes", field, "array").value == (5,)
        refusal("strides", "names no strides", np.zeros(2), "packed")
        refusal("strides", "one stride a dimension", np.zeros(2), (1, 1))


class TestRepr:
    @pytest.mark.parametrize(
        "text",
        [
            "TensorDesc('uint8', (1, 3, 224, 224))",
            "TensorDesc('float16', (5,))",
            "TensorDesc('int64', (3, 64, 64), strides=(1, 192, 3))",
            "TensorDesc('int8', (2, 2), strides=(2, 1))",
            "TensorDesc('float32', (2,), total_size_in_bytes=64, guaranteed_base_offset_alignment=16)",
            "TensorDesc('int8', (8, 16, 3, 3), flags=TensorFlags.OWNED_BY_DML)",
        ],
    )
    def test_it_is_the_shortest_call(self, text: str) -> None:
        desc = eval(text, {"TensorDesc": TensorDesc, "TensorFlags": TensorFlags})
        assert repr(desc) == str(desc) == text

    @given(tensor_descs())
    def test_it_evaluates_to_an_equal_desc(self, desc: TensorDesc) -> None:
        assert eval(repr(desc), {name: getattr(dmlvk, name) for name in dmlvk.__all__}) == desc
