"""Layouts that are turned on the device: the same bits as the host's own strided copy, and no other byte touched."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from weakref import ref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dmlvk
from dmlvk.errors import OutOfMemoryError
from dmlvk.runtime import background
from dmlvk.runtime import layouts as turning
from dmlvk.runtime.layouts import LEAST_SIZE_TURNED_ON_DEVICE, HostLayout
from tests import layouts
from tests.amount import examples
from tests.vulkan.variants import open_variant

PERMUTED = dmlvk.TensorDesc("int16", (3, 4, 5), (1, 15, 3))
VALUES = np.random.default_rng(37).integers(-(2**15), 2**15, (3, 4, 5)).astype(np.int16)
# A guard of this many bytes stands before and after each tensor.
GUARD = 48


@pytest.fixture(scope="module", params=["direct", "staged", "segmented-staged", "staged-copy-queue"])
def own(request: pytest.FixtureRequest, device: dmlvk.Device) -> Iterator[dmlvk.Device]:
    """The device, from and to whose memory elements go in different ways."""
    with open_variant(device, request.param) as opened:
        yield opened


@pytest.fixture(scope="module")
def staged(device: dmlvk.Device) -> Iterator[dmlvk.Device]:
    with open_variant(device, "staged") as opened:
        yield opened


@pytest.fixture
def _small_ones_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tensors are turned by the device as large ones are."""
    monkeypatch.setattr("dmlvk.runtime.tensor.LEAST_SIZE_TURNED_ON_DEVICE", 0)


@pytest.fixture
def turned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls of `turn`, a letter each."""
    calls: list[str] = []
    turn = turning.turn

    def counted(source: dmlvk.Tensor, destination: dmlvk.Tensor) -> None:
        calls.append("t")
        turn(source, destination)

    monkeypatch.setattr(turning, "turn", counted)
    return calls


@st.composite
def sizes_and_type(draw: st.DrawFn) -> tuple[tuple[int, ...], dmlvk.DataType]:
    return draw(layouts.sizes(draw(st.integers(1, 8)), 2000)), draw(layouts.DATA_TYPES)


@st.composite
def descs(
    draw: st.DrawFn, sizes: tuple[int, ...], data_type: dmlvk.DataType, *, output: bool = True
) -> dmlvk.TensorDesc:
    """A tensor with any layout: packed, permuted, with gaps; as an input also broadcast or sheared."""
    strides = draw(layouts.output_strides(sizes) if output else layouts.input_strides(sizes))
    desc = dmlvk.TensorDesc(data_type, sizes, strides)
    padding = draw(st.sampled_from([0, 0, 1, 4, 100]))
    return dmlvk.TensorDesc(data_type, sizes, strides, total_size_in_bytes=desc.minimum_size_in_bytes + padding)


@st.composite
def windows(
    draw: st.DrawFn, sizes: tuple[int, ...], dtype: np.dtype, *, output: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Memory of random bytes, and an array of any strides in it: permuted, backwards, with steps; input: broadcast."""
    steps = [draw(st.sampled_from([1, 1, 1, -1, 2, -3])) for _ in sizes]
    order = draw(st.permutations(range(len(sizes))))
    repeated = draw(st.sampled_from([None, None, *range(len(sizes))])) if not output else None
    counts = [1 if k == repeated else size for k, size in enumerate(sizes)]
    memory_sizes = [counts[k] * abs(steps[k]) for k in order]
    memory = layouts.random_bytes(draw(st.integers(0, 1000)), int(np.prod(memory_sizes)) * dtype.itemsize)
    array = memory.view(dtype).reshape(memory_sizes).transpose(np.argsort(order))
    array = array[tuple(slice(None, None, step) for step in steps)]
    return memory, array if output else np.broadcast_to(array, sizes)


class Guarded:
    """A tensor between guards, in memory of random bytes."""

    def __init__(self, own: dmlvk.Device, desc: dmlvk.TensorDesc, seed: int) -> None:
        everything = dmlvk.TensorDesc("uint8", (GUARD + desc.total_size_in_bytes + GUARD,))
        buffer = own.buffer(everything.total_size_in_bytes)
        self._everything = buffer.tensor(everything)
        self.memory = layouts.random_bytes(seed, everything.total_size_in_bytes)
        self._everything.write_bytes(self.memory)
        self.tensor = buffer.tensor(desc, GUARD)

    @property
    def elements(self) -> np.ndarray:
        """What the elements are expected to be, as unsigned integers."""
        return layouts.view(self.memory, self.tensor.desc, GUARD)

    def check(self) -> None:
        """The memory is as expected."""
        assert self._everything.read_bytes() == self.memory.tobytes()


def bits(array: np.ndarray) -> np.ndarray:
    """The elements in the host's byte order as unsigned integers."""
    array = array.astype(array.dtype.newbyteorder("="))
    return array.view(f"u{array.itemsize}")


@pytest.mark.usefixtures("_small_ones_too")
@given(data=st.data(), seed=st.integers(0, 1000))
@examples(0.4)
def test_an_array_of_any_layout_is_written_to_any_layout(own: dmlvk.Device, data: st.DataObject, seed: int) -> None:
    sizes, data_type = data.draw(sizes_and_type())
    dtype = data.draw(st.sampled_from([data_type.numpy_dtype, data_type.numpy_dtype.newbyteorder()]))
    _, array = data.draw(windows(sizes, dtype))
    guarded = Guarded(own, data.draw(descs(sizes, data_type)), seed)
    guarded.tensor.write(array)
    guarded.elements[...] = bits(array)
    guarded.check()
    assert guarded.tensor.numpy().tobytes() == np.ascontiguousarray(bits(array)).tobytes()


@pytest.mark.usefixtures("_small_ones_too")
@given(data=st.data(), seed=st.integers(0, 1000))
@examples(0.4)
def test_a_tensor_of_any_layout_is_read_into_any_layout(own: dmlvk.Device, data: st.DataObject, seed: int) -> None:
    sizes, data_type = data.draw(sizes_and_type())
    guarded = Guarded(own, data.draw(descs(sizes, data_type, output=False)), seed)
    memory, out = data.draw(windows(sizes, data_type.numpy_dtype, output=True))
    expected = memory.copy()
    inside = np.ndarray(out.shape, f"u{out.itemsize}", expected, out.ctypes.data - memory.ctypes.data, out.strides)
    inside[...] = guarded.elements
    assert guarded.tensor.numpy(out=out) is out
    assert memory.tobytes() == expected.tobytes()
    assert guarded.tensor.numpy().tobytes() == np.ascontiguousarray(guarded.elements).tobytes()
    guarded.check()


@given(data=st.data(), seed=st.integers(0, 1000))
@examples(0.4)
def test_a_tensor_of_any_layout_is_written_to_another(own: dmlvk.Device, data: st.DataObject, seed: int) -> None:
    sizes, data_type = data.draw(sizes_and_type())
    source = Guarded(own, data.draw(descs(sizes, data_type, output=False)), seed)
    target = Guarded(own, data.draw(descs(sizes, data_type)), seed + 1)
    target.tensor.write(source.tensor)
    target.elements[...] = source.elements
    target.check()
    source.check()


@pytest.mark.usefixtures("_small_ones_too")
@pytest.mark.parametrize("strides", [(0, 5, 1), (20, 0, 0), (1, 1, 1), (2, 3, 1)], ids=str)
def test_elements_that_share_memory_keep_the_last(own: dmlvk.Device, strides: tuple[int, ...]) -> None:
    """The device promises no order, so the host writes these."""
    guarded = Guarded(own, dmlvk.TensorDesc("int16", VALUES.shape, strides), 5)
    for source in (VALUES, np.asfortranarray(VALUES), VALUES.astype(">i2"), own.tensor(VALUES)):
        guarded.tensor.write(np.zeros_like(VALUES))
        guarded.tensor.write(source)
        flat = guarded.memory[GUARD : GUARD + guarded.tensor.desc.minimum_size_in_bytes].view(np.int16)
        for coordinate in np.ndindex(*VALUES.shape):
            flat[np.dot(coordinate, strides)] = VALUES[coordinate]
        guarded.check()


class TestWhereItIsTurned:
    """Which transfers go through SLICE1's kernels."""

    @pytest.fixture(autouse=True)
    def _small(self, _small_ones_too: None) -> None:
        pass

    @pytest.mark.parametrize(
        ("array", "expected"),
        [
            (VALUES, "t"),
            (np.asfortranarray(VALUES), "t"),
            (VALUES[:, ::-1], "t"),
            (VALUES.astype(">i2"), "t"),
            (np.ascontiguousarray(VALUES.transpose(1, 2, 0)).transpose(2, 0, 1), ""),
        ],
        ids=["packed", "Fortran order", "backwards", "big endian", "as the tensor lies"],
    )
    def test_an_array_is_turned_unless_it_lies_as_the_tensor(
        self, staged: dmlvk.Device, turned: list[str], array: np.ndarray, expected: str
    ) -> None:
        tensor = staged.tensor(PERMUTED)
        tensor.write(array)
        assert "".join(turned) == expected
        turned.clear()
        np.testing.assert_array_equal(tensor.numpy(), array)
        assert turned == ["t"]

    def test_an_out_array_is_filled_in_place_where_it_is_whole(self, staged: dmlvk.Device, turned: list[str]) -> None:
        tensor = staged.tensor(PERMUTED)
        tensor.write(VALUES)
        turned.clear()
        alike = np.ones_like(np.ascontiguousarray(VALUES.transpose(1, 2, 0))).transpose(2, 0, 1)
        tensor.numpy(out=alike)
        assert not turned
        other = np.asfortranarray(np.ones_like(VALUES))
        tensor.numpy(out=other)
        assert turned == ["t"]
        window = np.ones((3, 4, 10), np.int16)[:, :, ::2]
        tensor.numpy(out=window)
        assert turned == ["t"]  # the host puts these elements one by one
        for out in (alike, other, window):
            np.testing.assert_array_equal(out, VALUES)

    def test_what_the_host_reaches_is_not_turned(self, device: dmlvk.Device, turned: list[str]) -> None:
        tensor = device.tensor(PERMUTED)
        tensor.write(VALUES)
        np.testing.assert_array_equal(tensor.numpy(), VALUES)
        assert not turned

    def test_work_in_flight_is_not_overtaken(self, staged: dmlvk.Device) -> None:
        packed = dmlvk.TensorDesc("int16", VALUES.shape)
        turn = dmlvk.Slice1Desc(
            input_tensor=PERMUTED,
            output_tensor=packed,
            input_window_offsets=(0, 0, 0),
            input_window_sizes=VALUES.shape,
            input_window_strides=(1, 1, -1),
        )
        operator = staged.compile(turn)
        source, target = staged.tensor(PERMUTED), staged.tensor(packed)
        for number in range(5):
            source.write(VALUES + number)
            operator(input_tensor=source, output_tensor=target)
            source.write(-VALUES)
            np.testing.assert_array_equal(target.numpy(), (VALUES + number)[:, :, ::-1])


@pytest.mark.parametrize("elements", [LEAST_SIZE_TURNED_ON_DEVICE // 2, LEAST_SIZE_TURNED_ON_DEVICE // 2 - 4])
def test_large_tensors_are_turned_and_small_ones_are_not(
    staged: dmlvk.Device, turned: list[str], elements: int
) -> None:
    is_large = 2 * elements >= LEAST_SIZE_TURNED_ON_DEVICE
    values = np.random.default_rng(1).integers(0, 2**16, (elements // 4, 4)).astype(np.uint16)
    tensor = staged.tensor(dmlvk.TensorDesc("uint16", values.shape, (1, elements // 4)))
    tensor.write(values)
    np.testing.assert_array_equal(tensor.numpy(), values)
    assert turned == ["t", "t"] * is_large


class TestWithoutItsKernel:
    """Small arrays do not wait for the driver's compiler: the host turns them until the kernel is there."""

    @pytest.fixture
    def jobs(self, _small_ones_too: None, monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
        """What the background has to do, and does not do by itself."""
        monkeypatch.setenv("DMLVK_BACKGROUND", "1")
        monkeypatch.setattr(background, "core_count", lambda: 2)
        started: list[Callable[[], None]] = []
        monkeypatch.setattr(background, "in_background", started.append)
        return started

    @pytest.fixture
    def fresh(self, device: dmlvk.Device) -> Iterator[dmlvk.Device]:
        with open_variant(device, "staged") as opened:
            yield opened

    @staticmethod
    def move(tensor: dmlvk.Tensor, number: int) -> None:
        """Write and read, and compare the bits."""
        values = VALUES + number
        tensor.write_bytes(b"\xa5" * tensor.desc.total_size_in_bytes)
        tensor.write(values)
        expected = np.ascontiguousarray(values.transpose(1, 2, 0)).tobytes()
        assert tensor.read_bytes() == expected
        np.testing.assert_array_equal(tensor.numpy(), values)

    def test_the_host_turns_until_it_is_compiled(
        self, fresh: dmlvk.Device, turned: list[str], jobs: list[Callable[[], None]]
    ) -> None:
        tensor = fresh.tensor(PERMUTED)
        for number in range(3):
            self.move(tensor, number)
        assert turned == [] and len(jobs) == 2, "one kernel to write and one to read, each compiled once"
        for job in tuple(jobs):
            job()
        for number in (3, 4):
            self.move(tensor, number)
        assert turned == ["t"] * 4 and len(jobs) == 2

    @pytest.mark.parametrize("why", ["large", "off", "one core", "compiled"])
    def test_the_device_turns(
        self,
        fresh: dmlvk.Device,
        turned: list[str],
        jobs: list[Callable[[], None]],
        monkeypatch: pytest.MonkeyPatch,
        why: str,
    ) -> None:
        tensor = fresh.tensor(PERMUTED)
        if why == "large":
            monkeypatch.setattr(turning, "LEAST_SIZE_THAT_WAITS_FOR_COMPILER", PERMUTED.total_size_in_bytes)
        elif why == "off":
            monkeypatch.setenv("DMLVK_BACKGROUND", "0")
        elif why == "one core":
            monkeypatch.setattr(background, "core_count", lambda: 1)
        else:
            packed = dmlvk.TensorDesc("int16", VALUES.shape)
            for source, destination in ((packed, PERMUTED), (PERMUTED, packed)):
                fresh.compile(turning._whole(source, destination))
        self.move(tensor, 0)
        assert turned == ["t"] * 2 and jobs == []

    @pytest.mark.parametrize(
        ("error", "is_told"), [(dmlvk.DeviceError("refused"), False), (KeyError("a mistake"), True)]
    )
    def test_a_kernel_that_is_not_to_be_had(
        self,
        fresh: dmlvk.Device,
        turned: list[str],
        jobs: list[Callable[[], None]],
        monkeypatch: pytest.MonkeyPatch,
        error: Exception,
        is_told: bool,
    ) -> None:
        """The host goes on, and the background tries again."""

        def fail(*_: object) -> None:
            raise error

        told: list[object] = []
        monkeypatch.setattr("sys.unraisablehook", lambda report: told.append(report.exc_value))
        tensor = fresh.tensor(PERMUTED)
        self.move(tensor, 0)
        with monkeypatch.context() as patch:
            patch.setattr(fresh.vulkan.pipelines, "get", fail)
            for job in jobs[:2]:
                job()
        assert told == [error] * 2 * is_told
        self.move(tensor, 1)
        assert turned == [] and len(jobs) == 4

    def test_a_device_that_is_gone_is_not_kept(self, device: dmlvk.Device, jobs: list[Callable[[], None]]) -> None:
        with open_variant(device, "staged") as own:
            self.move(own.tensor(PERMUTED), 0)
        jobs.pop()()  # closed, and no error is shown
        alive = ref(own)
        del own
        gc.collect()
        assert alive() is None
        jobs.pop()()


FAILURES: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "the staged tensor": lambda patch: patch.setattr(dmlvk.Device, "tensor", out_of_memory),
    "the turning": lambda patch: patch.setattr(turning, "turn", out_of_memory),
}


def out_of_memory(*arguments: object) -> None:
    raise OutOfMemoryError("out of memory: 1 byte asked")


@pytest.mark.usefixtures("_small_ones_too")
@pytest.mark.parametrize("failure", FAILURES)
def test_without_memory_on_the_device_the_host_does_it(
    staged: dmlvk.Device, monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    tensor = staged.tensor(PERMUTED)
    out = np.asfortranarray(np.ones_like(VALUES))
    with monkeypatch.context() as patch:
        FAILURES[failure](patch)
        tensor.write(VALUES)
        np.testing.assert_array_equal(tensor.numpy(), VALUES)
        tensor.numpy(out=out)
    np.testing.assert_array_equal(out, VALUES)
    np.testing.assert_array_equal(tensor.numpy(), VALUES)


def test_another_failure_is_not_hidden(staged: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*arguments: object) -> None:
        raise dmlvk.DeviceError("lost")

    monkeypatch.setattr("dmlvk.runtime.tensor.LEAST_SIZE_TURNED_ON_DEVICE", 0)
    tensor = staged.tensor(PERMUTED)
    monkeypatch.setattr(turning, "turn", lost)
    for use in (tensor.numpy, lambda: tensor.write(VALUES)):
        with pytest.raises(dmlvk.DeviceError, match="lost"):
            use()


class TestHostLayout:
    @given(data=st.data())
    def test_a_whole_array_has_one(self, data: st.DataObject) -> None:
        sizes, data_type = data.draw(sizes_and_type())
        order = data.draw(st.permutations(range(len(sizes))))
        packed = layouts.random_bytes(1, int(np.prod(sizes)) * data_type.size_in_bytes).view(data_type.numpy_dtype)
        array = packed.reshape([sizes[k] for k in order]).transpose(np.argsort(order))
        layout = HostLayout.of(array)
        assert layout is not None
        assert np.shares_memory(layout.memory, array)
        assert layout.memory.tobytes() == packed.tobytes()
        assert (layout.desc.sizes, layout.desc.data_type) == (sizes, data_type)
        # The layout is that of a tensor with the same bytes.
        np.testing.assert_array_equal(bits(array), layouts.view(layout.memory, layout.desc))
        assert layout.is_layout_of(layout.desc)
        assert HostLayout.require(array).memory is not None

    @pytest.mark.parametrize(
        "array",
        [VALUES[:, ::-1], VALUES[:, ::2], VALUES[:, :3], VALUES.astype(">i2"), np.broadcast_to(VALUES[:1], (3, 4, 5))],
        ids=["backwards", "steps", "a window", "big endian", "broadcast"],
    )
    def test_an_array_with_gaps_has_none_and_gets_a_packed_one(self, array: np.ndarray) -> None:
        assert HostLayout.of(array) is None
        layout = HostLayout.require(array)
        assert layout.memory.view(np.int16).tolist() == array.ravel().tolist()
        assert layout.is_layout_of(dmlvk.TensorDesc("int16", array.shape))
        assert not layout.is_layout_of(dmlvk.TensorDesc("int16", array.shape, (100, 10, 1)))

    def test_a_dimension_of_one_element_has_any_stride(self) -> None:
        strided = np.lib.stride_tricks.as_strided(VALUES, (3, 1, 20), (40, 4444, 2))
        layout = HostLayout.of(strided)
        assert layout is not None
        assert layout.is_layout_of(dmlvk.TensorDesc("int16", (3, 1, 20), (20, 2**32 - 1, 1)))
