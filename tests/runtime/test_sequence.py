"""Sequences: new contents, submissions that overlap, times."""

from __future__ import annotations

import numpy as np
import pytest

import dmlvk
from dmlvk.planning.plan import MAXIMUM_SUBMISSION_SECONDS
from dmlvk.runtime.sequence import Sequence
from tests.runtime.small_work import DESC, VALUES, Counter, reverse_desc
from tests.vulkan.variants import copy_desc, open_variant

pytestmark = pytest.mark.every_driver


class TestSequence:
    def test_replays_with_new_contents(self, own: dmlvk.Device) -> None:
        reverse, copy = own.compile(reverse_desc()), own.compile(copy_desc(DESC))
        a, b, c = own.tensor(VALUES), own.tensor(DESC), own.tensor(DESC)
        sequence = own.sequence(
            [reverse.bind(input_tensor=a, output_tensor=b), copy.bind(input_tensor=b, output_tensor=c)]
        )
        for number in range(5):
            a.write(VALUES + number)
            sequence.submit()
            np.testing.assert_array_equal(c.numpy(), VALUES[::-1] + number)

    def test_can_be_submitted_again_before_it_is_done(self, own: dmlvk.Device) -> None:
        desc = dmlvk.TensorDesc(dmlvk.DataType.INT32, (1 << 16,))
        reverse, copy = own.compile(reverse_desc(desc)), own.compile(copy_desc(desc))
        values = np.arange(1 << 16, dtype=np.int32)
        a, b = own.tensor(values), own.tensor(desc)
        sequence = own.sequence(
            [reverse.bind(input_tensor=a, output_tensor=b), copy.bind(input_tensor=b, output_tensor=a)]
        )
        for _ in range(9):
            last = sequence.submit()
        del sequence
        last.wait()
        np.testing.assert_array_equal(a.numpy(), values[::-1])

    def test_measures_every_replay(self, device: dmlvk.Device) -> None:
        with open_variant(device, "direct", timestamps=True) as own:
            copy = own.compile(copy_desc(DESC))
            a, b = own.tensor(VALUES), own.tensor(DESC)
            sequence = own.sequence([copy.bind(input_tensor=a, output_tensor=b)] * 3)
            submissions = [sequence.submit() for _ in range(3)]
            times = [submission.dispatch_times for submission in submissions]
            assert all(len(each) == 3 for each in times if each is not None)
            assert times == [submission.dispatch_times for submission in submissions]
            assert [submission.gpu_time for submission in submissions] == [sum(each) for each in times if each]

    @pytest.mark.parametrize("seconds", [0.0, MAXIMUM_SUBMISSION_SECONDS], ids=["short", "long"])
    def test_measures_all_dispatches_together(
        self, device: dmlvk.Device, seconds: float, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Long work lies in several command buffers, with the same two timestamps."""
        with open_variant(device, "direct", timestamps=True) as own:
            copy = own.compile(copy_desc(DESC))
            a, b = own.tensor(VALUES), own.tensor(DESC)
            binding = copy.bind(input_tensor=a, output_tensor=b)
            binding.seconds = ((seconds,),)
            resets, timestamps = (Counter(monkeypatch, f"vkCmd{name}") for name in ("ResetQueryPool", "WriteTimestamp"))
            sequence = Sequence(own.engine, (binding,) * 9, timestamps=True, times_of_each=False)
            assert (resets.count, timestamps.count) == (1, 2)
            for _ in range(2):
                (time,) = sequence.submit().dispatch_times or ()
                assert 0 < time < 60
