"""A tensor as NumPy sees it: attributes, conversion, what it refuses."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import dmlvk
from dmlvk.runtime.array_protocol import HINT
from tests.vulkan.variants import copy_desc, open_variant

DESC = dmlvk.TensorDesc("int32", (3, 4))
VALUES = np.random.default_rng(17).integers(-1000, 1000, (3, 4)).astype(np.int32)
ONE = np.array([[7]], np.int32)
needs_refused_comparisons = pytest.mark.skipif(
    tuple(map(int, np.__version__.split(".")[:2])) < (1, 25), reason="before 1.25 NumPy's == hides an exception"
)


@pytest.fixture(scope="module", params=["direct", "staged"])
def own(request: pytest.FixtureRequest, device: dmlvk.Device) -> Iterator[dmlvk.Device]:
    """The device with and without memory that the host reaches."""
    with open_variant(device, request.param) as opened:
        yield opened


@pytest.mark.parametrize("data_type", dmlvk.DataType, ids=lambda data_type: data_type.name)
def test_attributes_are_those_of_the_array(device: dmlvk.Device, data_type: dmlvk.DataType) -> None:
    array = np.random.default_rng(data_type).integers(0, 100, (2, 3, 5)).astype(data_type.numpy_dtype)
    tensor = device.tensor(array)
    for name in ("shape", "dtype", "ndim", "size", "nbytes"):
        assert getattr(tensor, name) == getattr(array, name), name
    assert len(tensor) == 2
    assert tensor.tolist() == array.tolist()
    assert [type(each) for each in tensor.tolist()[0][0]] == [type(each) for each in array.tolist()[0][0]]
    assert device.tensor(array[1:, :1, 4:]).item() == array[1, 0, 4].item()


def test_gaps_are_no_part_of_the_array(device: dmlvk.Device) -> None:
    tensor = device.tensor(dmlvk.TensorDesc("int16", (3, 5), (20, 3), total_size_in_bytes=400))
    assert (tensor.shape, tensor.ndim, tensor.size, tensor.nbytes, len(tensor)) == ((3, 5), 2, 15, 30, 3)


def test_attributes_outlive_the_memory(device: dmlvk.Device) -> None:
    tensor = device.tensor(VALUES)
    tensor.free()
    assert (tensor.shape, tensor.dtype, len(tensor)) == ((3, 4), np.dtype(np.int32), 3)
    uses: list[Callable[[], object]] = [lambda: np.asarray(tensor), tensor.tolist, device.tensor(ONE).item]
    for use in uses[:2]:
        with pytest.raises(dmlvk.BindingError, match="was freed"):
            use()
    assert uses[2]() == 7


def test_numpy_takes_a_tensor_for_an_array(own: dmlvk.Device) -> None:
    tensor = own.tensor(VALUES)
    converted = np.asarray(tensor)
    assert type(converted) is np.ndarray
    assert (converted.dtype, converted.shape) == (VALUES.dtype, VALUES.shape)
    assert np.array_equal(tensor, VALUES)
    assert not np.array_equal(tensor, VALUES + 1)
    np.testing.assert_array_equal(tensor, VALUES)
    with pytest.raises(AssertionError, match="not equal"):
        np.testing.assert_array_equal(tensor, VALUES + 1)
    as_floats = np.asarray(tensor, np.float64)
    assert as_floats.dtype == np.float64
    assert np.array_equal(as_floats, VALUES)
    assert tensor.__array__(np.float64).dtype == np.float64
    assert np.array_equal(np.concatenate([tensor, tensor]), np.concatenate([VALUES, VALUES]))
    assert np.array_equal(np.asarray([tensor, tensor]), np.stack([VALUES, VALUES]))
    assert np.mean(tensor) == VALUES.mean()


def test_the_array_is_a_copy(own: dmlvk.Device) -> None:
    tensor = own.tensor(VALUES)
    for converted in (np.asarray(tensor), np.array(tensor), tensor.__array__(np.dtype(np.int32), True)):
        converted += 1
    np.testing.assert_array_equal(tensor, VALUES)
    with pytest.raises(ValueError, match="from_dlpack"):
        tensor.__array__(copy=False)


def random_memory() -> np.ndarray:
    return np.random.default_rng(5).integers(-(2**31), 2**31, (9, 13)).astype(np.int32)


# Memory, and where in it the elements are to be put.
OUTS: dict[str, tuple[Callable[[], np.ndarray], Any]] = {
    "packed": (lambda: VALUES + 1, ...),
    "rows of more": (random_memory, np.s_[2:5, 1:5]),
    "every other": (random_memory, np.s_[1:7:2, 2:10:2]),
    "backwards": (random_memory, np.s_[6:0:-2, 9:1:-2]),
    "Fortran order": (lambda: np.asfortranarray(VALUES + 1), ...),
    "a matrix": (lambda: np.matrix(VALUES + 1), ...),
}


@pytest.mark.filterwarnings("ignore:the matrix subclass")
@pytest.mark.parametrize("kind", OUTS)
@pytest.mark.parametrize("strides", [None, (1, 3), (9, 2)], ids=["packed", "permuted", "gaps"])
def test_numpy_fills_an_array(own: dmlvk.Device, kind: str, strides: tuple[int, int] | None) -> None:
    tensor = own.tensor(dmlvk.TensorDesc("int32", (3, 4), strides))
    tensor.write(VALUES)
    make, index = OUTS[kind]
    memory = make()
    expected = memory.copy()
    expected[index] = VALUES
    out = memory[index]
    assert tensor.numpy(out=out) is out
    np.testing.assert_array_equal(memory, expected)


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_a_large_matrix_is_filled(own: dmlvk.Device) -> None:
    """Of many pieces: rows of the matrix itself would be taken for its bytes."""
    values = np.random.default_rng(3).integers(0, 256, (1000, 9000), np.uint8)
    out = np.matrix(np.full_like(values, 7))
    np.testing.assert_array_equal(own.tensor(values).numpy(out=out), values)


@pytest.mark.parametrize(
    ("out", "error", "message"),
    [
        (np.ones((4, 3), np.int32), dmlvk.BindingError, r"shape \(4, 3\) and dtype int32; .*need \(3, 4\) and int32"),
        (np.ones((3, 4, 1), np.int32), dmlvk.BindingError, r"shape \(3, 4, 1\)"),
        (np.ones((3, 4), np.uint32), dmlvk.BindingError, r"dtype uint32; .* int32"),
        (np.ones((3, 4), ">i4"), dmlvk.BindingError, r"dtype >i4"),
        (np.broadcast_to(np.int32(1), (3, 4)), dmlvk.BindingError, "read-only"),
        (np.ones((3, 4), np.int32).tolist(), TypeError, "numpy.ndarray, not list"),
        (np.ones((3, 4), np.int32).data, TypeError, "numpy.ndarray, not memoryview"),
    ],
    ids=["shape", "rank", "dtype", "byte order", "read-only", "a list", "a buffer"],
)
def test_an_array_that_cannot_be_filled_is_refused_and_kept(
    device: dmlvk.Device, out: Any, error: type[Exception], message: str
) -> None:
    tensor = device.tensor(VALUES)
    with pytest.raises(error, match=message):
        tensor.numpy(out=out)
    assert np.asarray(out).min() == np.asarray(out).max() == 1


BINARY = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "lshift", "rshift", "and_", "or_", "xor"]


@pytest.mark.parametrize("name", BINARY)
def test_arithmetic_is_refused_with_a_hint(device: dmlvk.Device, name: str) -> None:
    tensor = device.tensor(VALUES)
    compute, in_place = getattr(operator, name), getattr(operator, f"i{name.rstrip('_')}")
    for other in (2, 2.5, VALUES, VALUES.tolist(), np.int32(3), device.tensor(VALUES)):
        for use in (lambda a, b: compute(a, b), lambda a, b: compute(b, a), lambda a, b: in_place(a, b)):
            with pytest.raises(TypeError, match="computes nothing by itself") as caught:
                use(tensor, other)
            assert str(caught.value) == HINT
    np.testing.assert_array_equal(tensor, VALUES)


@pytest.mark.parametrize(
    "compute",
    [
        operator.neg,
        operator.pos,
        operator.abs,
        operator.invert,
        lambda tensor: divmod(tensor, 2),
        lambda tensor: divmod(2, tensor),
        np.sqrt,
        np.sum,
        lambda tensor: np.add.reduce(tensor),
        lambda tensor: np.add(VALUES, 1, out=tensor),
        pytest.param(lambda tensor: tensor == VALUES, marks=needs_refused_comparisons),
        pytest.param(lambda tensor: tensor != VALUES, marks=needs_refused_comparisons),
        pytest.param(lambda tensor: operator.eq(VALUES, tensor), marks=needs_refused_comparisons),
        lambda tensor: operator.lt(VALUES, tensor),
    ],
)
def test_other_arithmetic_is_refused_with_the_hint(device: dmlvk.Device, compute: Callable[[Any], object]) -> None:
    with pytest.raises(TypeError, match="computes nothing by itself"):
        compute(device.tensor(VALUES))


def test_tensors_have_no_order_and_are_equal_to_themselves_alone(device: dmlvk.Device) -> None:
    tensor, other = device.tensor(VALUES), device.tensor(VALUES)
    comparisons: list[Callable[[Any, Any], bool]] = [operator.lt, operator.le, operator.gt, operator.ge]
    for compare in comparisons:
        for value in (2, other):
            with pytest.raises(TypeError, match="not supported"):
                compare(tensor, value)
        # A method of the class would make each comparison of tensors look for methods by name: a call compares its own.
        assert getattr(dmlvk.Tensor, f"__{compare.__name__}__") is getattr(object, f"__{compare.__name__}__")
    assert tensor == tensor
    assert tensor != other
    assert {tensor: 1, other: 2}[tensor] == 1


def test_single_elements_are_refused(device: dmlvk.Device) -> None:
    tensor = device.tensor(VALUES)
    uses: list[Callable[[Any], object]] = [
        lambda tensor: tensor[0],
        lambda tensor: tensor[...],
        lambda tensor: tensor[:, 1],
        list,
        lambda tensor: [*tensor],
        lambda tensor: 3 in tensor,
        lambda tensor: next(iter(tensor)),
    ]
    for use in uses:
        with pytest.raises(TypeError, match=r"not indexed or iterated over.*numpy\(\).*slice1"):
            use(tensor)
    with pytest.raises(TypeError, match=r"not written.*write\(array\)"):
        tensor[0] = VALUES[0]  # type: ignore[index]
    np.testing.assert_array_equal(tensor, VALUES)


def test_one_element_is_true_or_false_and_several_are_neither(device: dmlvk.Device) -> None:
    assert device.tensor(ONE)
    assert not device.tensor(ONE - 7)
    assert device.tensor(np.array([np.nan], np.float32))
    for array in (VALUES, VALUES * 0):
        with pytest.raises(ValueError, match="neither true nor false"):
            bool(device.tensor(array))


def test_several_elements_are_no_item(device: dmlvk.Device) -> None:
    with pytest.raises(ValueError, match=r"sizes \(3, 4\) has 12 elements, not one: use tolist"):
        device.tensor(VALUES).item()


def test_an_array_in_place_of_a_tensor_is_refused_each_time(device: dmlvk.Device) -> None:
    """A repeated call compares its arguments with those of the last one, and an array compares by element."""
    copy = device.compile(copy_desc(DESC))
    source, target = device.tensor(VALUES), device.tensor(DESC)
    for _ in range(3):
        copy(input_tensor=source, output_tensor=target)
        with pytest.raises(dmlvk.BindingError, match=r"input_tensor is a ndarray, not a dmlvk\.Tensor"):
            copy(input_tensor=VALUES, output_tensor=target)  # type: ignore[arg-type]
    np.testing.assert_array_equal(target, VALUES)
