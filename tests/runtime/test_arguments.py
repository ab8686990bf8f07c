"""Numbers, device selectors, timeouts and paths that callers pass to devices, buffers and submissions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import dmlvk
from dmlvk.vulkan.physical_device import choose
from tests.argument_values import HUGE, INT32, INTEGERS, MOST_CHARACTERS, NO_INTEGERS, UINT8
from tests.vulkan.variants import copy_desc


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
        with pytest.raises(dmlvk.DeviceError, match=r"bytes\)? requested; the heap has .* bytes\)") as caught:
            device.buffer(size)
        assert len(str(caught.value)) < MOST_CHARACTERS
        assert device.memory_used == before

    @pytest.mark.parametrize("total", [np.int64(2**62), 2**62, np.uint64(2**64 - 1), 2**64 - 1])
    def test_so_does_a_tensor_beyond_the_device(self, device: dmlvk.Device, total: Any) -> None:
        before = device.memory_used
        with pytest.raises(dmlvk.DeviceError, match="requested; the heap has"):
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
        for name in ("gpu_time", "dispatch_times"):
            with pytest.raises(dmlvk.DeviceError, match="made by hand"):
                getattr(made, name)

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
        with pytest.raises(TypeError, match=r"selector = .*: must be None, an index, part of a name, or a dmlvk.D"):
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
            with pytest.raises(
                dmlvk.DeviceError,
                match=r"no device(: a number is an index, here from 0 to .*)?; give the index or part of the name",
            ) as caught:
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
