"""Making tensors: of anything that holds elements, without contents, and of zeros."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dmlvk
from dmlvk.runtime import exchange
from dmlvk.vulkan.allocation import Allocation
from tests import layouts
from tests.vulkan.variants import SMALL_SEGMENT, open_variant

VALUES = np.random.default_rng(23).integers(-100, 100, (3, 4, 5)).astype(np.int16)


@pytest.fixture(scope="module", params=["direct", "staged", "segmented", "segmented-staged-copy-queue"])
def own(request: pytest.FixtureRequest, device: dmlvk.Device) -> Iterator[dmlvk.Device]:
    """The device opened in some variants."""
    with open_variant(device, request.param) as opened:
        yield opened


class OnlyDLPack:
    """Another library's array, which NumPy reaches through DLPack alone.

    Parameters
    ----------
    array : ndarray
    kind : int, optional
        The DLDeviceType that it says it lies on; without it, it does not say that.
    """

    def __init__(self, array: np.ndarray, kind: int | None = 1) -> None:
        self._array = array
        self.asked: list[dict[str, Any]] = []
        if kind is not None:
            self.__dlpack_device__ = lambda: (kind, 0)

    def __dlpack__(self, **arguments: Any) -> object:
        self.asked.append(arguments)
        return self._array.__dlpack__(
            **{name: arguments[name] for name in ("max_version", "copy") if name in arguments}
        )


class OldDLPack(OnlyDLPack):
    """As before the newer arguments of __dlpack__."""

    def __dlpack__(self, stream: object = None) -> object:  # type: ignore[override]
        return self._array.__dlpack__()


class OnlyArray:
    """An object with __array__ alone."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        return self._array


def expect(tensor: dmlvk.Tensor, array: np.ndarray) -> None:
    """The tensor is packed and has the sizes, the data type and the bits of an array."""
    assert tensor.desc == dmlvk.TensorDesc(array.dtype.newbyteorder("="), array.shape or (1,))
    assert tensor.numpy().tobytes() == array.astype(array.dtype.newbyteorder("=")).tobytes()


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    """An array of any type, byte order, rank and strides: permuted, backwards, with steps, broadcast."""
    dtype = draw(layouts.DATA_TYPES).numpy_dtype
    sizes = draw(layouts.sizes(draw(st.integers(1, 8)), 3000))
    steps = [draw(st.sampled_from([1, 1, 1, -1, 2, -3])) for _ in sizes]
    order = draw(st.permutations(range(len(sizes))))
    memory_sizes = [sizes[k] * abs(steps[k]) for k in order]
    memory = layouts.random_bytes(draw(st.integers(0, 1000)), int(np.prod(memory_sizes)) * dtype.itemsize)
    memory = memory.view(dtype.newbyteorder(draw(st.sampled_from("<>")))).reshape(memory_sizes)
    array = memory.transpose(np.argsort(order))[tuple(slice(None, None, step) for step in steps)]
    if draw(st.booleans()):
        broadcast = draw(st.integers(0, array.ndim - 1))
        array = np.broadcast_to(
            array[tuple(slice(0, 1) if k == broadcast else slice(None) for k in range(array.ndim))], sizes
        )
    assert array.shape == sizes
    return array


@given(array=arrays())
def test_an_array_of_any_layout_becomes_a_packed_tensor(own: dmlvk.Device, array: np.ndarray) -> None:
    expect(own.tensor(array), array)
    expect(own.tensor(OnlyArray(array)), array)


@given(array=arrays())
def test_another_librarys_array_becomes_a_packed_tensor(own: dmlvk.Device, array: np.ndarray) -> None:
    array = array.astype(array.dtype.newbyteorder("="), order="K")  # DLPack knows the host's byte order alone
    expect(own.tensor(OnlyDLPack(array)), array)


@pytest.mark.parametrize(
    "values", [7, 2.5, -1, [1, 2, 3], [[1.5], [2]], (True + 1, 4), range(5), np.float16(1.5)], ids=repr
)
def test_numbers_and_lists_have_numpys_types(own: dmlvk.Device, values: Any) -> None:
    expect(own.tensor(values), np.asarray(values))


def test_a_buffer_of_python_is_taken(own: dmlvk.Device) -> None:
    expect(own.tensor(VALUES.data), VALUES)
    expect(own.tensor(bytearray(b"abc")), np.array([97, 98, 99], np.uint8))


@pytest.mark.parametrize("kind", [None, 1, 3, 11], ids=["unnamed", "host", "CUDA's host", "ROCm's host"])
def test_memory_of_the_host_is_shared_until_it_is_written(device: dmlvk.Device, kind: int | None) -> None:
    other = OnlyDLPack(VALUES, kind)
    expect(device.tensor(other), VALUES)
    assert not any(asked.get("copy") for asked in other.asked)


def test_memory_of_another_device_is_copied_by_its_library(device: dmlvk.Device) -> None:
    other = OnlyDLPack(VALUES, 2)
    if not exchange.NUMPY_TAKES_VERSIONS:
        with pytest.raises(TypeError, match=r"NumPy 2\.1 or newer"):
            device.tensor(other)
        return
    expect(device.tensor(other), VALUES)
    assert (other.asked[-1]["dl_device"], other.asked[-1]["copy"]) == ((1, 0), True)


def test_a_library_that_does_not_copy_is_named(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"{OldDLPack.__module__}.OldDLPack"
    if exchange.NUMPY_TAKES_VERSIONS:
        with pytest.raises(TypeError, match=f"this {name} is another device's: copy it to the host first.*dl_device"):
            device.tensor(OldDLPack(VALUES, 2))
    expect(device.tensor(OldDLPack(VALUES)), VALUES)
    monkeypatch.setattr(exchange, "NUMPY_TAKES_VERSIONS", False)
    with pytest.raises(TypeError, match=f"this {name} is another device's: .* or use NumPy 2.1 or newer"):
        device.tensor(OldDLPack(VALUES, 2))


def test_a_librarys_refusal_arrives(device: dmlvk.Device) -> None:
    class Refuses(OnlyDLPack):
        def __dlpack__(self, **arguments: Any) -> object:
            raise BufferError("requires gradients")

    for kind in (1, 2) if exchange.NUMPY_TAKES_VERSIONS else (1,):
        with pytest.raises(BufferError, match="requires gradients"):
            device.tensor(Refuses(VALUES, kind))


@pytest.mark.parametrize("strides", [None, (1, 3, 12), (60, 0, 3), (31, 7, 1)], ids=str)
def test_a_tensor_of_a_tensor_is_packed(
    own: dmlvk.Device, device: dmlvk.Device, strides: tuple[int, ...] | None
) -> None:
    for other in (own, device):
        source = other.buffer(1024).tensor(dmlvk.TensorDesc("int16", VALUES.shape, strides), 48)
        source.write(VALUES)
        expected = source.numpy()
        made = own.tensor(source)
        expect(made, expected)
        converted = own.tensor(source, dtype="float32")
        source.write(-VALUES)
        expect(made, expected)
        expect(converted, expected.astype(np.float32))


def test_a_tensor_sees_the_other_tensors_work(own: dmlvk.Device) -> None:
    """A tensor of a tensor, and writing one to another, come in order with what is submitted."""
    desc = dmlvk.TensorDesc("int16", VALUES.shape)
    source, target = own.tensor(VALUES), own.tensor(desc)
    flip = own.compile(
        dmlvk.Slice1Desc(
            input_tensor=desc,
            output_tensor=desc,
            input_window_offsets=(0, 0, 0),
            input_window_sizes=VALUES.shape,
            input_window_strides=(1, 1, -1),
        )
    )
    flip(input_tensor=source, output_tensor=target)
    made = own.tensor(target)
    source.write(target)
    target.write(-VALUES)
    flipped = VALUES[..., ::-1]
    expect(made, flipped)
    expect(source, flipped)
    expect(target, -VALUES)


def test_a_tensor_is_written_to_itself_and_to_its_neighbours(own: dmlvk.Device) -> None:
    buffer = own.buffer(256)
    memory = layouts.random_bytes(4, 256)
    buffer.tensor(dmlvk.TensorDesc("uint8", (256,))).write(memory)
    expected = memory.copy()
    expected[16:80] = memory[0:64].copy()
    first, second = (buffer.tensor(dmlvk.TensorDesc("uint8", (64,)), offset) for offset in (0, 16))
    second.write(first)
    first.write(first)
    expected[:64] = expected[:64].copy()
    assert buffer.tensor(dmlvk.TensorDesc("uint8", (256,))).read_bytes() == expected.tobytes()


@pytest.mark.parametrize("data_type", dmlvk.DataType, ids=lambda data_type: data_type.name)
def test_dtype_converts_as_numpy_does(own: dmlvk.Device, data_type: dmlvk.DataType) -> None:
    numbers = np.array([[0, 1, 77], [100, 3, 5]])
    for values in (numbers, numbers.astype(np.float32).T, numbers.astype(">u2"), numbers > 4, numbers.tolist()):
        for dtype in (data_type, data_type.name.lower(), data_type.numpy_dtype, int(data_type)):
            expect(own.tensor(values, dtype), np.asarray(values).astype(data_type.numpy_dtype))
    expect(own.tensor(own.tensor(numbers), dtype=data_type), numbers.astype(data_type.numpy_dtype))


def test_another_librarys_floats_are_converted(own: dmlvk.Device) -> None:
    values = np.array([1.5, -2, 3e38, np.inf])
    expect(
        own.tensor(values.astype(ml_dtypes.bfloat16), "float32"), values.astype(ml_dtypes.bfloat16).astype(np.float32)
    )


class BFloat16(OnlyDLPack):
    dtype = "torch.bfloat16"


class TestErrors:
    @pytest.mark.parametrize(
        ("values", "message"),
        [
            ([True, False], "dtype bool has no DirectML data type; .*view it as uint8"),
            (np.zeros(3, np.complex64), "dtype complex64 has no DirectML data type"),
            (["a", "b"], r"elements\[0\] = 'a': must be a number, not str"),
            (
                "photo.png",
                r"= 'photo.png': must be numbers or an array, not text; a file .* np.load\(path\)",
            ),
            (Path("photo.png"), r"Path\('photo.png'\): must be numbers or an array, not text; a file is read first"),
            (b"abc", r"= b'abc': must be numbers or an array, not bytes; np.frombuffer"),
            (None, r"= None: must be numbers or an array; device.empty\(sizes"),
            ({"a": [1]}, r"= \{'a': \[1\]\}: must be numbers or an array, not a dict; pass one of its values"),
            ({1, 2}, r"must be numbers or an array, not a set, which has no order; sorted\(values\)"),
            (iter([1]), r"must be numbers or an array, not an iterator, which has no size; list\(values\)"),
            (np.ndarray, r"must be numbers or an array, not a class; a type of elements is passed as dtype="),
            (object(), r"must be numbers, a list of them, or an array of NumPy or another library, not object"),
            ([[1, 2], [3, None]], r"elements\[1\]\[1\] = None: must be a number, not NoneType"),
            (np.array([1, 2], object), r"Python objects \(dtype object\); array.astype\(np.int64\)"),
            (np.datetime64("2026-11-23"), "dtype datetime64"),
            (np.zeros(2, [("a", np.int8)]), r"a structured array has the fields a: pass one of them, array\['a'\]"),
            (np.ones(2, ml_dtypes.bfloat16), r"dtype bfloat16 has .*array.astype\(np.float32\) keeps its values"),
            (BFloat16(VALUES), r"bfloat16 has no DirectML data type: convert .* float32 first \(torch: x.float\(\)\)"),
        ],
        ids=[
            "bool",
            "complex",
            "a list of text",
            "text",
            "a path",
            "bytes",
            "None",
            "a dict",
            "a set",
            "an iterator",
            "a class",
            "an object",
            "None within",
            "objects",
            "dates",
            "structures",
            "bfloat16",
            "torch's bfloat16",
        ],
    )
    def test_elements_without_a_data_type_are_refused(self, device: dmlvk.Device, values: Any, message: str) -> None:
        with pytest.raises(TypeError, match=message):
            device.tensor(values)

    @pytest.mark.parametrize("values", [None, [None], "1", ["1", "2"], b"1", [1j], np.datetime64("2026-11-23")])
    def test_elements_that_are_no_numbers_are_not_converted(self, device: dmlvk.Device, values: Any) -> None:
        rule = "must be (a )?number|are not converted to FLOAT32: bools, integers and floats are"
        with pytest.raises(TypeError, match=rule):
            device.tensor(values, dtype="float32")

    def test_structures_are_not_converted(self, device: dmlvk.Device) -> None:
        with pytest.raises(TypeError, match="a structured array has the fields a: pass one of them"):
            device.tensor(np.ones(2, [("a", np.int8)]), dtype="int8")

    def test_integers_that_no_type_holds_are_refused_or_rounded(self, device: dmlvk.Device) -> None:
        with pytest.raises(OverflowError, match=f"{2**70}: no data type holds this integer, and dtype='float64' would"):
            device.tensor([1, 2**70])
        assert device.tensor([1, 2**70], dtype="float64").tolist() == [1.0, 2.0**70]

    def test_lists_of_unequal_lengths_are_refused(self, device: dmlvk.Device) -> None:
        with pytest.raises(ValueError, match=r"elements = \[\[1\], \[2, 3\]\]: the lists have unequal lengths"):
            device.tensor([[1], [2, 3]])

    @pytest.mark.parametrize("wrap", [list, np.array, OnlyDLPack, np.ma.masked_array], ids=lambda wrap: wrap.__name__)
    @pytest.mark.parametrize(
        ("values", "dtype", "place", "limits"),
        [
            ([1, 300], "uint8", 1, "UINT8 has 0 to 255"),
            ([-1, 3], "uint8", 0, "UINT8 has 0 to 255"),
            ([5, 128], "int8", 1, "INT8 has -128 to 127"),
            ([5, 2**31], "int32", 1, "INT32 has -2147483648 to 2147483647"),
            ([2**63], "int64", 0, "INT64 has "),
            ([-1], "uint64", 0, "UINT64 has 0 to "),
            ([1.0, 256.0], "uint8", 1, "UINT8 has 0 to 255"),
            ([1.0, -1.0], "uint32", 1, "UINT32 has 0 to "),
            ([2.0**63], "int64", 0, "INT64 has "),
            ([2.0**64], "uint64", 0, "UINT64 has "),
            ([1.0, np.inf], "int32", 1, "INT32 has "),
            ([-np.inf], "int8", 0, "INT8 has "),
        ],
        ids=str,
    )
    def test_a_number_that_the_type_cannot_hold_is_refused(
        self, device: dmlvk.Device, wrap: Any, values: Any, dtype: str, place: int, limits: str
    ) -> None:
        with pytest.raises(OverflowError, match=rf"elements\[{place}\] = .*: {limits}.*np.clip"):
            device.tensor(wrap(np.array(values)) if wrap is OnlyDLPack else wrap(values), dtype=dtype)

    @pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "uint64", "int64"])
    def test_nan_is_no_integer(self, device: dmlvk.Device, dtype: str) -> None:
        for values in ([[0.0, float("nan")]], np.array([[1, np.nan]], np.float16)):
            with pytest.raises(ValueError, match=rf"elements\[0\]\[1\] = nan: {dtype.upper()} has .*, and no NaN"):
                device.tensor(values, dtype=dtype)

    @pytest.mark.filterwarnings("error")
    def test_what_a_type_can_hold_is_converted_as_numpy_does(self, device: dmlvk.Device) -> None:
        for values, dtype in (
            (np.array([255.9, 0.0, -0.9]), "uint8"),  # fractions are cut off
            (np.array([2.0**63 - 1024, -(2.0**63)]), "int64"),
            (np.array([0, 2**64 - 1], np.uint64), "uint64"),
            (np.array([-128, 127]), "int8"),
            (np.array([True, False]), "int8"),
            (np.array([np.nan, -np.inf, 1e-50]), "float32"),
            (np.array([65504.0, 1.0 + 2**-12]), "float16"),
        ):
            expect(device.tensor(values, dtype=dtype), values.astype(dtype))
        # Rounded to the nearest, past the largest, without NumPy's warning.
        assert device.tensor([1e300, -1e300], dtype="float32").tolist() == [np.inf, -np.inf]
        assert device.tensor(np.array([70000.0], np.float32), dtype="float16").tolist() == [np.inf]

    def test_a_mask_is_not_lost(self, device: dmlvk.Device) -> None:
        masked = np.ma.masked_array([1, 2, 3], [False, True, False])
        message = r"1 of the 3 elements of a masked array are masked.*array.filled\(value\).*array.data"
        window = {"input_window_offsets": (0,), "input_window_sizes": (3,), "input_window_strides": (1,)}
        for use in (
            device.tensor,
            partial(device.tensor, dtype="uint8"),
            device.tensor(np.arange(3)).write,
            partial(dmlvk.slice1, **window, device=device),
        ):
            with pytest.raises(ValueError, match=message):
                use(masked)
            with pytest.raises(ValueError, match=message):
                use(np.ma.masked_less(np.arange(3), 1))
        expect(device.tensor(np.ma.masked_array([1, 2, 3])), np.array([1, 2, 3]))

    @pytest.mark.parametrize(
        "values", [[], np.zeros((2, 0, 3)), OnlyDLPack(np.zeros((0, 2)))], ids=["list", "array", "DLPack"]
    )
    def test_nothing_is_refused(self, device: dmlvk.Device, values: Any) -> None:
        with pytest.raises(dmlvk.DescriptorError, match="sizes"):
            device.tensor(values)

    def test_nine_dimensions_are_refused(self, device: dmlvk.Device) -> None:
        for values in (np.ones((1,) * 9), [[[[[[[[[1]]]]]]]]], OnlyDLPack(np.ones((1,) * 9))):
            with pytest.raises(dmlvk.DescriptorError, match="1 to 8 dimensions, not 9"):
                device.tensor(values)

    @pytest.mark.parametrize("dtype", [bool, "complex64", "bfloat16", "text", object, 0, 12, [1]], ids=repr)
    def test_a_dtype_without_a_data_type_is_refused(self, device: dmlvk.Device, dtype: Any) -> None:
        with pytest.raises(dmlvk.DescriptorError, match=r"Device.tensor.dtype = .*one of FLOAT32, "):
            device.tensor(VALUES, dtype=dtype)

    def test_a_desc_has_its_own_data_type(self, device: dmlvk.Device) -> None:
        with pytest.raises(TypeError, match="dtype = 'int8': a TensorDesc has a data type; pass one of the two"):
            device.tensor(dmlvk.TensorDesc("int8", (3,)), dtype="int8")

    def test_tensors_that_are_gone_are_refused(self, device: dmlvk.Device) -> None:
        freed = device.tensor(VALUES)
        freed.free()
        with open_variant(device, "direct") as other:
            closed = other.tensor(VALUES)
        target = device.tensor(VALUES)
        for source, error, message in ((freed, dmlvk.BindingError, "freed"), (closed, dmlvk.DeviceError, "closed")):
            for use in (device.tensor, target.write):
                with pytest.raises(error, match=message):
                    use(source)
        expect(target, VALUES)


@pytest.mark.parametrize("data_type", dmlvk.DataType, ids=lambda data_type: data_type.name)
def test_zeros_are_zeros_whatever_was_there(
    own: dmlvk.Device, data_type: dmlvk.DataType, monkeypatch: pytest.MonkeyPatch
) -> None:
    transfers = own.vulkan.transfers
    clear, poisoned = transfers.clear, []

    def poison(allocation: Allocation, offset: int, size: int) -> None:
        transfers.write(allocation, offset, layouts.random_bytes(size, size))
        poisoned.append(size)
        clear(allocation, offset, size)

    monkeypatch.setattr(transfers, "clear", poison)
    for sizes in ((1,), (3, 1, 5), (7, 41), (2 * SMALL_SEGMENT // data_type.size_in_bytes + 3,)):
        desc = dmlvk.TensorDesc(data_type, sizes)
        assert own.empty(sizes, data_type).desc == desc
        tensor = own.zeros(sizes, data_type)
        assert tensor.desc == desc
        assert tensor.read_bytes() == bytes(desc.total_size_in_bytes)
        assert poisoned.pop() == desc.total_size_in_bytes


def test_zeros_leave_their_neighbours_alone(own: dmlvk.Device) -> None:
    neighbours = [own.tensor(layouts.random_bytes(number, 256)) for number in range(40)]
    del neighbours[::2]
    zeros = [own.zeros(256, "uint8") for _ in range(20)]
    for number, neighbour in zip(range(1, 40, 2), neighbours, strict=True):
        np.testing.assert_array_equal(neighbour, layouts.random_bytes(number, 256))
    assert not any(each.numpy().any() for each in zeros)


def test_zeros_are_seen_by_work_and_by_large_transfers(own: dmlvk.Device) -> None:
    sizes = (1 << 20,)
    values = layouts.random_bytes(1, *sizes)
    zeros = own.zeros(sizes, "uint8")
    made = own.tensor(zeros)
    zeros.write(values)  # on the copy queue, where there is one
    assert not made.numpy().any()
    np.testing.assert_array_equal(zeros, values)


@pytest.mark.parametrize("make", [dmlvk.Device.empty, dmlvk.Device.zeros], ids=["empty", "zeros"])
class TestSizes:
    @pytest.mark.parametrize("sizes", [(2, 3), [2, 3], np.array([2, 3]), range(2, 4), (np.int64(2), 3)], ids=repr)
    def test_sizes_are_any_sequence(self, device: dmlvk.Device, make: Any, sizes: Any) -> None:
        assert make(device, sizes).desc == dmlvk.TensorDesc("float32", (2, 3))

    @pytest.mark.parametrize("size", [5, np.uint8(5)], ids=repr)
    def test_a_number_is_one_size(self, device: dmlvk.Device, make: Any, size: Any) -> None:
        assert make(device, size, np.int8).desc == dmlvk.TensorDesc("int8", (5,))

    @pytest.mark.parametrize("sizes", [0, -1, True, 2.0, None, "3", (), (2, 0), (1,) * 9, (2**31, 2)], ids=repr)
    def test_other_sizes_are_refused(self, device: dmlvk.Device, make: Any, sizes: Any) -> None:
        with pytest.raises(dmlvk.DescriptorError, match=r"TensorDesc\.sizes"):
            make(device, sizes)

    @pytest.mark.parametrize("data_type", [bool, "complex64", None, 12], ids=repr)
    def test_other_types_are_refused(self, device: dmlvk.Device, make: Any, data_type: Any) -> None:
        with pytest.raises(dmlvk.DescriptorError, match=r"TensorDesc\.data_type"):
            make(device, 3, data_type)

    def test_more_than_there_is_is_refused(self, device: dmlvk.Device, make: Any) -> None:
        heap = max(heap.size for heap in device.vulkan.context.physical.memory_heaps)
        if heap >= 8 * (2**32 - 1):
            pytest.fail("a device of more than 32 GiB needs another test")
        with pytest.raises(dmlvk.DeviceError, match="out of memory"):
            make(device, 2**32 - 1, "int64")
