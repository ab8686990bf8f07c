"""Numbers that callers pass, anywhere: Python's and NumPy's integers by value, all else refused with what is right."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import dmlvk
from dmlvk.arguments import as_argument, as_integers, as_seconds, integer_of
from dmlvk.benchmark.harness import Settings
from dmlvk.benchmark.tuner import random_workload, tune
from dmlvk.errors import LONGEST_VALUE, shown
from dmlvk.vulkan.physical_device import choose
from tests.vulkan.variants import copy_desc

UINT8, INT32, FLOAT16, FLOAT32, FLOAT64 = (
    dmlvk.DataType[name] for name in ("UINT8", "INT32", "FLOAT16", "FLOAT32", "FLOAT64")
)
HUGE = 10**5000  # Python does not write it in digits
INTEGERS = [np.dtype(code).type for code in "bBhHiIlLqQ"]
NO_INTEGERS = {
    "bool": True,
    "numpy bool": np.True_,
    "float": 16.0,
    "numpy float": np.float64(16),
    "0-d array": np.array(16),
    "array of one": np.array([16]),
    "text": "16",
    "bytes": b"16",
    "None": None,
    "list": [16],
    "timedelta": np.timedelta64(16, "s"),
    "fraction": Fraction(16),
}
MOST_CHARACTERS = 2000


class Number(int):
    """An integer with its own ideas."""

    def __int__(self) -> int:
        return 7

    def __index__(self) -> int:
        return 7


@pytest.mark.parametrize("kind", INTEGERS)
def test_numpy_s_integers_become_python_s(kind: Any) -> None:
    for value in (np.iinfo(kind).max, np.iinfo(kind).min, 16):
        found = integer_of(kind(value))
        assert type(found) is int and found == value


@pytest.mark.parametrize("value", [UINT8, Number(5), dmlvk.TensorFlags.OWNED_BY_DML])
def test_integers_of_other_classes_become_python_s_by_value(value: int) -> None:
    found = integer_of(value)
    assert type(found) is int and found == value


@pytest.mark.parametrize("value", NO_INTEGERS.values(), ids=NO_INTEGERS)
def test_all_else_is_no_integer(value: Any) -> None:
    assert integer_of(value) is None


def test_an_argument_s_error_says_what_would_be_right() -> None:
    with pytest.raises(dmlvk.BindingError) as caught:
        as_argument("size", np.uint8(0), 1, None, "a buffer has 1 byte or more")
    assert str(caught.value) == "size = 0: a buffer has 1 byte or more; expected an integer of 1 or more"
    with pytest.raises(
        ValueError, match=r"rounds = 1.5: must be an integer, not float; expected an integer from 1 to 9"
    ):
        as_argument("rounds", 1.5, 1, 9, "", ValueError)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(0, 0.0), (np.uint8(200), 200.0), (np.float16(0.5), 0.5), (math.inf, math.inf), (HUGE, math.inf)],
    ids=["zero", "uint8", "float16", "infinity", "huge"],
)
def test_seconds_are_numbers_by_value(value: Any, seconds: float) -> None:
    found = as_seconds("timeout", value)
    assert type(found) is float and found == seconds


@pytest.mark.parametrize("value", [-1, -0.5, math.nan, np.float32("nan"), -HUGE], ids=lambda v: type(v).__name__)
def test_seconds_are_not_negative(value: Any) -> None:
    with pytest.raises(ValueError, match=r"timeout = .*0 seconds or more"):
        as_seconds("timeout", value)


@pytest.mark.parametrize("value", [True, "1", np.array(1.0), [1], np.timedelta64(1, "s"), 1j])
def test_seconds_are_numbers(value: Any) -> None:
    with pytest.raises(TypeError, match=r"timeout = .*seconds as an int or a float"):
        as_seconds("timeout", value)


class TestMessages:
    @pytest.mark.parametrize(
        "value",
        [
            HUGE,
            -HUGE,
            [HUGE],
            Fraction(HUGE, 3),
            "x" * 1_000_000,
            b"x" * 1_000_000,
            list(range(1_000_000)),
            (("a" * 1000,) * 100,) * 100,
            np.arange(1_000_000),
            np.array([HUGE], object),
            {number: number for number in range(1000)},
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_a_value_is_shortened(self, value: Any) -> None:
        assert 0 < len(shown(value)) <= LONGEST_VALUE

    @pytest.mark.parametrize("value", [5, -(2**64), (1, 2, 3), "text", np.int8(3), None, FLOAT16])
    def test_what_is_short_is_shown_whole(self, value: Any) -> None:
        assert shown(value) == repr(value)

    def test_a_repr_that_raises_does_no_harm(self) -> None:
        class Broken:
            def __repr__(self) -> str:
                raise RuntimeError

        assert "Broken" in shown(Broken())

    @pytest.mark.parametrize(
        ("sizes", "message"),
        [
            ([HUGE], r"sizes\[0\] = about 10\*\*5000"),
            ([-HUGE], r"sizes\[0\] = about -10\*\*5000"),
            ([1] * 1_000_000, "more than 64 elements"),
            (itertools.count(1), "more than 64 elements"),
            ({1, 2}, "must be a sequence"),
        ],
        ids=["huge", "negative", "a million", "endless", "without order"],
    )
    def test_errors_are_of_bounded_length(self, sizes: Any, message: str) -> None:
        with pytest.raises(dmlvk.DescriptorError, match=message) as caught:
            dmlvk.TensorDesc(UINT8, sizes)
        assert len(str(caught.value)) < MOST_CHARACTERS

    def test_a_dtype_that_is_none(self) -> None:
        dtypes: tuple[Any, ...] = ("f4," * 100_000, "(", "x" * 1_000_000, 5, HUGE)
        for dtype in dtypes:
            with pytest.raises(TypeError, match="supported are float32") as caught:
                dmlvk.DataType.from_numpy(dtype)
            assert len(str(caught.value)) < MOST_CHARACTERS


def test_sequences_are_taken_by_value() -> None:
    sizes = np.array([2, 3], np.uint8)
    assert as_integers("TensorDesc", "sizes", sizes, 1, 9, "") == (2, 3)
    desc = dmlvk.TensorDesc(UINT8, sizes)
    sizes += 1
    assert desc.sizes == (2, 3)
    assert all(type(size) is int for size in desc.sizes)


class TestDescriptors:
    @pytest.mark.parametrize("value", NO_INTEGERS.values(), ids=NO_INTEGERS)
    def test_every_integer_of_every_descriptor(self, value: Any) -> None:
        desc = dmlvk.TensorDesc(FLOAT32, (4, 4))
        window = {"input_window_offsets": (0, 0), "input_window_sizes": (4, 4), "input_window_strides": (1, 1)}
        calls: list[Callable[[], Any]] = [
            lambda: dmlvk.TensorDesc(FLOAT32, (4, value)),
            lambda: dmlvk.TensorDesc(FLOAT32, (4, 4), (4, value)),
            lambda: dmlvk.TensorDesc(FLOAT32, (4, 4), guaranteed_base_offset_alignment=value),
            lambda: dmlvk.TensorDesc(FLOAT32, (4, 4), flags=value),
            lambda: dmlvk.OneHotDesc(indices_tensor=desc, values_tensor=desc, output_tensor=desc, axis=value),
            lambda: dmlvk.DiagonalMatrix1Desc(
                output_tensor=desc, value=0.0, diagonal_fill_begin=value, diagonal_fill_end=0
            ),
        ]
        if value is not None:
            calls.append(lambda: dmlvk.TensorDesc(FLOAT32, (4, 4), total_size_in_bytes=value))
        for name in window:
            changed: dict[str, Any] = {**window, name: (0, value)}
            calls.append(lambda changed=changed: dmlvk.Slice1Desc(input_tensor=desc, output_tensor=desc, **changed))  # type: ignore[misc]
        for call in calls:
            with pytest.raises(dmlvk.DescriptorError, match=r" = .*: .*"):
                call()

    @pytest.mark.parametrize("data_type", [np.array(5), True, None, 12, HUGE, [5]], ids=lambda v: type(v).__name__)
    def test_a_data_type_is_no_array(self, data_type: Any) -> None:
        with pytest.raises(dmlvk.DescriptorError, match="data_type"):
            dmlvk.TensorDesc(data_type, (4,))


def element(value: Any, data_type: dmlvk.DataType) -> Any:
    """What DIAGONAL_MATRIX1 fills with."""
    desc = dmlvk.DiagonalMatrix1Desc(
        output_tensor=dmlvk.TensorDesc(data_type, (2, 2)), value=value, diagonal_fill_begin=0, diagonal_fill_end=1
    )
    return np.frombuffer(desc.value_bytes, data_type.numpy_dtype)[0]


class TestRounding:
    """A value is rounded once. By way of float64 what lies just beside a tie falls on it, and then the wrong way."""

    @pytest.mark.parametrize(("data_type", "tie"), [(FLOAT32, 2**24 + 1), (FLOAT16, 2**11 + 1)])
    @pytest.mark.parametrize("sign", [1, -1])
    def test_of_fractions(self, data_type: dmlvk.DataType, tie: int, sign: int) -> None:
        tiny = Fraction(1, 10**40)
        assert element(sign * (tie + tiny), data_type) == sign * (tie + 1)
        assert element(sign * (tie - tiny), data_type) == sign * (tie - 1)
        assert element(sign * Fraction(tie), data_type) == sign * (tie - 1), "to even"
        assert element(sign * (tie + 2 - tiny), data_type) == sign * (tie + 1)

    @pytest.mark.skipif(np.finfo(np.longdouble).nmant <= 52, reason="long double is float64 here")
    def test_of_long_doubles(self) -> None:
        tie = np.longdouble(2**24 + 1)
        assert element(tie + np.longdouble(2) ** -38, FLOAT32) == 2**24 + 2
        assert element(tie - np.longdouble(2) ** -38, FLOAT32) == 2**24
        scale = np.asarray(tie + np.longdouble(2) ** -38).astype(np.float32)
        assert scale == 2**24 + 2, "NumPy itself, as scales are converted, rounds once"
        with pytest.raises(dmlvk.DescriptorError, match="too large for FLOAT64"):
            element(np.longdouble("1e4000"), FLOAT64)

    def test_of_denormals(self) -> None:
        half = Fraction(1, 2**150)  # half of the smallest float32
        assert element(half, FLOAT32) == 0.0
        assert element(half + Fraction(1, 10**400), FLOAT32) == np.float32(2**-149)
        assert np.signbit(element(Fraction(-1, 10**5000), FLOAT32))

    @pytest.mark.parametrize("value", [True, np.True_, np.timedelta64(3, "s"), np.timedelta64(3), "3", 3j, [3]])
    @pytest.mark.parametrize("data_type", [UINT8, FLOAT32])
    def test_what_is_no_number_is_refused(self, data_type: dmlvk.DataType, value: Any) -> None:
        with pytest.raises(dmlvk.DescriptorError, match="must be one number, not"):
            element(value, data_type)

    def test_signs_of_zeros_and_infinities_stay(self) -> None:
        assert np.signbit(element(-0.0, FLOAT32)) and np.signbit(element(np.longdouble(-0.0), FLOAT16))
        assert element(-math.inf, FLOAT16) == -math.inf and np.isnan(element(np.longdouble("nan"), FLOAT32))

    @pytest.mark.parametrize("value", [HUGE, Fraction(HUGE, 3), Fraction(-(10**309))], ids=lambda v: type(v).__name__)
    def test_what_is_too_large_is_refused(self, value: Any) -> None:
        for data_type in (FLOAT16, FLOAT32, FLOAT64):
            with pytest.raises(dmlvk.DescriptorError, match="too large"):
                element(value, data_type)


class TestMemory:
    @pytest.mark.parametrize("value", NO_INTEGERS.values(), ids=NO_INTEGERS)
    def test_sizes_and_offsets_are_integers(self, device: dmlvk.Device, value: Any) -> None:
        with pytest.raises(dmlvk.BindingError, match=r"size_in_bytes = .*must be an integer, not"):
            device.buffer(value)
        with pytest.raises(dmlvk.BindingError, match=r"offset = .*must be an integer, not"):
            device.buffer(64).tensor(dmlvk.TensorDesc(UINT8, (16,)), value)

    @pytest.mark.parametrize("kind", INTEGERS)
    def test_small_numpy_integers_do_not_wrap(self, device: dmlvk.Device, kind: Any) -> None:
        before = device.memory_used
        buffer = device.buffer(kind(127))
        assert type(buffer.size_in_bytes) is int
        tensor = buffer.tensor(dmlvk.TensorDesc(UINT8, (12,)), kind(112))
        assert type(tensor.offset) is int and tensor.offset == 112
        assert device.memory_used - before == 256

    def test_a_size_of_uint8_is_padded_beyond_it(self, device: dmlvk.Device) -> None:
        before = device.memory_used
        size: Any = np.uint8(128)
        buffer = device.buffer(size)
        assert (buffer.size_in_bytes, device.memory_used - before) == (128, 256)

    @pytest.mark.parametrize(
        "size", [np.int64(2**63 - 1), np.uint64(2**64 - 1), 2**70, 10**1000, HUGE], ids=lambda v: type(v).__name__
    )
    def test_a_size_beyond_the_device_says_what_there_is(self, device: dmlvk.Device, size: Any) -> None:
        before = device.memory_used
        with pytest.raises(dmlvk.DeviceError, match=r"bytes\)? asked; the heap has .* bytes\)") as caught:
            device.buffer(size)
        assert len(str(caught.value)) < MOST_CHARACTERS
        assert device.memory_used == before

    @pytest.mark.parametrize("total", [np.int64(2**62), 2**62, np.uint64(2**64 - 1), 2**64 - 1])
    def test_so_does_a_tensor_beyond_the_device(self, device: dmlvk.Device, total: Any) -> None:
        before = device.memory_used
        with pytest.raises(dmlvk.DeviceError, match="asked; the heap has"):
            device.tensor(dmlvk.TensorDesc(UINT8, (4,), total_size_in_bytes=total))
        assert device.memory_used == before

    @pytest.mark.parametrize("offset", [HUGE, -HUGE, np.int64(-16), 2**70], ids=["huge", "-huge", "negative", "2**70"])
    def test_an_offset_outside_the_buffer(self, device: dmlvk.Device, offset: Any) -> None:
        with pytest.raises(dmlvk.BindingError, match="multiple of 16; expected an integer from 0 to 64"):
            device.buffer(64).tensor(dmlvk.TensorDesc(UINT8, (16,)), offset)


class TestSubmissions:
    DESC = dmlvk.TensorDesc(INT32, (4, 8))

    def submission(self, device: dmlvk.Device) -> dmlvk.Submission:
        operator = device.compile(copy_desc(self.DESC))
        return operator(input_tensor=device.tensor(self.DESC), output_tensor=device.tensor(self.DESC))

    @pytest.mark.parametrize(
        "timeout", [None, np.uint8(60), np.float32(60), math.inf, HUGE], ids=lambda v: str(type(v))
    )
    def test_timeouts(self, device: dmlvk.Device, timeout: Any) -> None:
        self.submission(device).wait(timeout)

    @pytest.mark.parametrize("timeout", [True, "5", np.array(5.0)])
    def test_a_timeout_is_a_number(self, device: dmlvk.Device, timeout: Any) -> None:
        with pytest.raises(TypeError, match="timeout = "):
            self.submission(device).wait(timeout)

    @pytest.mark.parametrize("timeout", [-1, math.nan])
    def test_a_timeout_is_not_negative(self, device: dmlvk.Device, timeout: Any) -> None:
        with pytest.raises(ValueError, match="timeout = "):
            self.submission(device).wait(timeout)

    def test_one_made_by_hand_says_where_they_come_from(self) -> None:
        made = dmlvk.Submission()
        for use in (made.wait, lambda: made.wait(5), lambda: made.done):
            with pytest.raises(TypeError, match=r"calling an operator gives one, and so do Device.submit"):
                use()
        assert repr(made) == "<dmlvk.Submission of nothing>"
        assert made.gpu_time is None

    def test_one_binding_is_no_list(self, device: dmlvk.Device) -> None:
        binding = device.compile(copy_desc(self.DESC)).bind(
            input_tensor=device.tensor(self.DESC), output_tensor=device.tensor(self.DESC)
        )
        for use in (device.submit, device.sequence):
            with pytest.raises(TypeError, match=r"submit\(\[binding\]\)"):
                use(binding)  # type: ignore[arg-type]

    @pytest.mark.parametrize("array", [np.zeros((4, 8), np.int32), np.zeros((1, 1)), [[0] * 8] * 4])
    def test_an_array_in_place_of_a_tensor_after_a_good_call(self, device: dmlvk.Device, array: Any) -> None:
        operator = device.compile(copy_desc(self.DESC))
        good = {name: device.tensor(self.DESC) for name in ("input_tensor", "output_tensor")}
        for _ in range(2):
            operator(**good).wait()
            for name in good:
                with pytest.raises(dmlvk.BindingError, match=f"{name} is a {type(array).__name__}, not a dmlvk.Tensor"):
                    operator(**{**good, name: array})


class TestDevices:
    @pytest.mark.parametrize("kind", INTEGERS)
    def test_a_selector_may_be_any_integer(self, device: dmlvk.Device, kind: Any) -> None:
        names = [info.name for info in dmlvk.devices()]
        assert choose(kind(len(names) - 1)).profile.name == names[-1]

    @pytest.mark.parametrize("selector", [True, 0.0, np.array(0), [0], b"0"])
    def test_a_selector_of_another_type(self, device: dmlvk.Device, selector: Any) -> None:
        with pytest.raises(TypeError, match="a device selector is None, an int or a str, not"):
            choose(selector)

    @pytest.mark.parametrize("selector", [-1, HUGE, "9" * 5000, "x" * 100_000], ids=lambda v: type(v).__name__)
    def test_a_selector_that_matches_nothing(self, device: dmlvk.Device, selector: Any) -> None:
        with pytest.raises(dmlvk.DeviceError, match="matches no device") as caught:
            choose(selector)
        assert len(str(caught.value)) < MOST_CHARACTERS

    @pytest.mark.parametrize("given", [True, 0.0, np.array(0), [0], b"0", object()])
    def test_a_one_liner_s_device_is_one_or_names_one(self, device: dmlvk.Device, given: Any) -> None:
        for indices in ([[0]], device.tensor(np.array([[0]]))):
            with pytest.raises(TypeError, match=r"device = .*: must be None, a dmlvk.Device, an index .*, not "):
                dmlvk.one_hot(indices, [0, 1], output_length=2, axis=1, device=given)

    @pytest.mark.parametrize("given", [-1, HUGE, "9" * 5000, "x" * 100_000], ids=lambda v: type(v).__name__)
    def test_a_one_liner_s_device_that_is_not_there(self, device: dmlvk.Device, given: Any) -> None:
        for indices in ([[0]], device.tensor(np.array([[0]]))):
            with pytest.raises(dmlvk.DeviceError, match="matches no device; give an index or part of a name") as caught:
                dmlvk.one_hot(indices, [0, 1], output_length=2, axis=1, device=given)
            assert len(str(caught.value)) < MOST_CHARACTERS

    def test_paths_are_text(self, device: dmlvk.Device) -> None:
        desc = copy_desc(dmlvk.TensorDesc(INT32, (4, 8)))
        with pytest.raises(TypeError, match="path is None or a str, not int"):
            device.compile(desc, path=5)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="no kernel path") as caught:
            device.compile(desc, path="x" * 100_000)
        assert len(str(caught.value)) < MOST_CHARACTERS

    def test_offsets_that_are_planned_for_are_integers(self, device: dmlvk.Device) -> None:
        desc = copy_desc(dmlvk.TensorDesc(INT32, (4, 8)))
        for offset in (-16, 16.0, np.array(16)):
            with pytest.raises(ValueError, match=r"offsets\['input_tensor'\] = "):
                device.plan(desc, offsets={"input_tensor": offset})  # type: ignore[dict-item]
        device.plan(desc, offsets={"input_tensor": np.uint8(16)})  # type: ignore[dict-item]


@pytest.mark.parametrize("rounds", [0, 1.0, True, "3"])
def test_rounds_are_counted(device: dmlvk.Device, rounds: Any) -> None:
    with pytest.raises(ValueError, match="rounds = "):
        tune(device, random_workload(copy_desc(dmlvk.TensorDesc(INT32, (4, 8)))), rounds)
    with pytest.raises(ValueError, match="rounds = "):
        Settings(None, rounds, ())  # type: ignore[arg-type]


class TestOneLiners:
    ARRAY = np.arange(20, dtype=np.int16).reshape(4, 5)

    def test_iterators_are_read_once(self, device: dmlvk.Device) -> None:
        output = dmlvk.slice1(
            self.ARRAY,
            input_window_offsets=iter((1, 0)),
            input_window_sizes=iter((3, 5)),
            input_window_strides=iter((np.int8(-2), 3)),
            device=device,
        )
        np.testing.assert_array_equal(output, self.ARRAY[3:0:-2, ::3])

    @pytest.mark.parametrize("field", ["strides", "dilations", "start_padding", "end_padding"])
    @pytest.mark.parametrize("value", [1, (1, 1.0), (np.array(1), 1), ([1], 1), (HUGE, 1), "11", (1, -1)])
    def test_a_convolution_s_numbers(self, field: str, value: Any) -> None:
        x = np.zeros((1, 1, 4, 4), np.uint8)
        with pytest.raises(dmlvk.DescriptorError, match=field) as caught:
            dmlvk.quantized_linear_convolution(x, 1.0, x, 1.0, 1.0, **{field: value})
        assert len(str(caught.value)) < MOST_CHARACTERS
