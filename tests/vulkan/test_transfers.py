"""Transfers of many pieces: a failure or an interrupt in the middle of one leaves the ring whole."""

from __future__ import annotations

import faulthandler
from collections.abc import Iterator

import numpy as np
import pytest

import dmlvk
from dmlvk.vulkan import staging_ring
from dmlvk.vulkan.library import vk
from tests.vulkan.variants import open_variant

PIECE = 1 << 14
PIECES = 40  # three times as many as the ring holds
VALUES = np.random.default_rng(1).integers(0, 256, PIECE * PIECES - 100, np.uint8)


@pytest.fixture(autouse=True)
def _small_ring(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(staging_ring, "RING_SIZE", 12 * PIECE)
    monkeypatch.setattr("dmlvk.vulkan.transfers.PIECE_SIZE", PIECE)
    faulthandler.dump_traceback_later(300, exit=True)  # a lost piece would be waited for forever
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.mark.parametrize("variant", ["staged", "segmented-staged", "staged-copy-queue"])
def test_many_pieces_arrive(device: dmlvk.Device, variant: str) -> None:
    with open_variant(device, variant) as own:
        tensor = own.tensor(VALUES)
        np.testing.assert_array_equal(tensor.numpy(), VALUES)
        tensor.write(~VALUES)
        np.testing.assert_array_equal(tensor.numpy(), ~VALUES)


@pytest.mark.parametrize("variant", ["staged", "staged-copy-queue"])
@pytest.mark.parametrize("failure", ["out of memory", "interrupt"])
def test_one_of_many_pieces_failing(
    device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch, variant: str, failure: str
) -> None:
    submit = vk.vkQueueSubmit
    left = 0

    def failing(*arguments: object) -> int:
        nonlocal left
        left -= 1
        if left:
            return submit(*arguments)
        if failure == "interrupt":
            raise KeyboardInterrupt
        return -2

    with open_variant(device, variant) as own:
        tensor = own.tensor(VALUES)
        for number in (1, 2, 7, PIECES - 1):
            for use in (lambda: tensor.write(VALUES), tensor.numpy):
                left = number
                with monkeypatch.context() as patch:
                    patch.setattr(vk, "vkQueueSubmit", failing)
                    with pytest.raises(KeyboardInterrupt if failure == "interrupt" else dmlvk.DeviceError):
                        use()
            # This needs the whole ring.
            tensor.write(VALUES + np.uint8(number))
            np.testing.assert_array_equal(tensor.numpy(), VALUES + np.uint8(number))
