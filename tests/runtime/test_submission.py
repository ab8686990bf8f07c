"""Submissions: order, times, and that they keep all that they use."""

from __future__ import annotations

import numpy as np
import pytest

import dmlvk
from tests.runtime.small_work import DESC, VALUES, reverse_desc
from tests.vulkan.variants import copy_desc, open_variant

pytestmark = pytest.mark.every_driver


def test_work_runs_in_order(own: dmlvk.Device) -> None:
    reverse, copy = own.compile(reverse_desc()), own.compile(copy_desc(DESC))
    first, second, third = own.tensor(VALUES), own.tensor(DESC), own.tensor(DESC)
    for _ in range(20):
        reverse(input_tensor=first, output_tensor=second)
        copy(input_tensor=second, output_tensor=third)
        copy(input_tensor=third, output_tensor=first)
    reverse(input_tensor=first, output_tensor=second)
    np.testing.assert_array_equal(second.numpy(), VALUES[::-1])


def test_a_write_waits_for_work_that_still_reads(own: dmlvk.Device) -> None:
    large = dmlvk.TensorDesc(dmlvk.DataType.INT32, (1 << 19,))
    copy = own.compile(copy_desc(large))
    source, targets = own.tensor(large), [own.tensor(large) for _ in range(4)]
    for number, target in enumerate(targets):
        source.write(np.full(1 << 19, number, np.int32))
        copy(input_tensor=source, output_tensor=target)
    for number, target in enumerate(targets):
        assert (target.numpy() == number).all()


def test_a_list_of_bindings_runs_in_order(own: dmlvk.Device) -> None:
    reverse, copy = own.compile(reverse_desc()), own.compile(copy_desc(DESC))
    a, b, c = own.tensor(VALUES), own.tensor(DESC), own.tensor(DESC)
    bindings = [
        reverse.bind(input_tensor=a, output_tensor=b),
        copy.bind(input_tensor=b, output_tensor=c),
        reverse.bind(input_tensor=c, output_tensor=a),
    ]
    submission = own.submit(bindings * 9)
    submission.wait()
    assert submission.done
    np.testing.assert_array_equal(a.numpy(), VALUES)
    np.testing.assert_array_equal(c.numpy(), VALUES[::-1])


class TestTimes:
    def test_there_are_none_unless_asked_for(self, device: dmlvk.Device) -> None:
        copy = device.compile(copy_desc(DESC))
        submission = copy(input_tensor=device.tensor(VALUES), output_tensor=device.tensor(DESC))
        sequence = device.sequence([copy.bind(input_tensor=device.tensor(VALUES), output_tensor=device.tensor(DESC))])
        for measured in (submission, sequence.submit()):
            assert measured.measured_times() is None
            for name in ("gpu_time", "dispatch_times"):
                with pytest.raises(dmlvk.DeviceError, match=r"not timed: set device.timestamps = True before"):
                    getattr(measured, name)

    def test_are_seconds_on_the_device(self, device: dmlvk.Device) -> None:
        desc = dmlvk.TensorDesc(dmlvk.DataType.INT32, (1 << 20,))
        with open_variant(device, "direct", timestamps=True) as own:
            copy = own.compile(copy_desc(desc))
            binding = copy.bind(input_tensor=own.tensor(desc), output_tensor=own.tensor(desc))
            submission = own.submit([binding] * 3)
            times = submission.dispatch_times
            assert times is not None
            assert len(times) == 3
            assert all(1e-6 < seconds < 10 for seconds in times)
            assert submission.gpu_time == sum(times)

    def test_of_a_closed_device_are_an_error(self, device: dmlvk.Device) -> None:
        own = open_variant(device, "direct", timestamps=True)
        submission = own.compile(copy_desc(DESC))(input_tensor=own.tensor(VALUES), output_tensor=own.tensor(DESC))
        own.close()
        with pytest.raises(dmlvk.DeviceError, match="closed"):
            _ = submission.gpu_time


def test_dropping_everything_while_it_runs_is_safe(device: dmlvk.Device) -> None:
    desc = dmlvk.TensorDesc(dmlvk.DataType.UINT8, (1 << 20,))
    with open_variant(device, "direct") as own:
        for _ in range(5):
            operator = own.compile(reverse_desc(desc))
            binding = operator.bind(input_tensor=own.tensor(desc), output_tensor=own.tensor(desc))
            own.sequence([binding]).submit()
            own.submit([binding])
            del operator, binding
        own.wait()
        assert own.memory_used == 0
