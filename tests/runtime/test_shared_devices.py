"""The device of a one-liner: given, named, of its tensors, or the default; what is opened for a name is kept."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dmlvk
from dmlvk.runtime import device_info, shared_devices
from dmlvk.runtime.shared_devices import named_device
from tests.vulkan.variants import open_variant

INDICES = np.array([[1], [2]], np.int32)


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[Any, dmlvk.Device]]:
    """Nothing is kept before a test; what it opens is closed after it."""
    devices: dict[Any, dmlvk.Device] = {}
    monkeypatch.setattr(shared_devices, "_kept", devices)
    yield devices
    for device in devices.values():
        device.close()


def index_of(device: dmlvk.Device) -> int:
    return next(info.index for info in dmlvk.devices() if info.name == device.name)


def one_hot(indices: Any = INDICES, values: Any = (0, 7), device: Any = None) -> Any:
    return dmlvk.one_hot(indices, values, output_length=3, axis=1, device=device)


def test_a_name_and_an_index_run_on_that_device(device: dmlvk.Device, kept: dict[Any, dmlvk.Device]) -> None:
    names: tuple[Any, ...] = (device.name, device.name[2:8].upper(), index_of(device), np.int64(index_of(device)))
    for name in names:
        assert one_hot(device=name).tolist() == [[0, 7, 0], [0, 0, 7]]
        assert named_device(name).name == device.name
    assert len({id(opened) for opened in kept.values()}) == 1, "it is opened once, however it is named"


def test_the_default_device_and_a_named_one_are_one_where_they_are_the_same(
    device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DMLVK_DEVICE", device.name)
    default = named_device(None)
    assert default.name == device.name
    assert named_device(device.name) is default is named_device(index_of(device))
    assert named_device(device) is device, "a Device is itself"
    others = [info.index for info in dmlvk.devices() if info.name != device.name]
    for other in others:
        assert named_device(other) is not default


def test_a_description_of_a_device_names_it_wherever_a_device_is_named(
    device: dmlvk.Device, kept: dict[Any, dmlvk.Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    info = pickle.loads(pickle.dumps(dmlvk.devices()[index_of(device)]))
    with dmlvk.Device(info) as opened:
        assert opened.name == device.name
    assert one_hot(device=info).tolist() == [[0, 7, 0], [0, 0, 7]]
    assert named_device(info) is named_device(info.index)
    tensor = device.tensor(INDICES)
    assert one_hot(tensor, device=info).device is device
    # Described elsewhere, where there were other devices before it.
    assert named_device(replace(info, index=99)) is named_device(info.index)
    gone = replace(info, profile=replace(info.profile, driver_info="another release"))
    for call in (dmlvk.Device, named_device):
        with pytest.raises(dmlvk.DeviceError, match=r"(?s)is not here.*there are:\n  0: "):
            call(gone)


def test_threads_open_a_device_once(device: dmlvk.Device) -> None:
    found: list[dmlvk.Device] = []
    threads = [threading.Thread(target=lambda: found.append(named_device(device.name))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and len({id(each) for each in found}) == 1


def test_a_kept_device_that_was_closed_is_opened_anew(device: dmlvk.Device) -> None:
    first = named_device(device.name)
    first.close()
    second = named_device(device.name)
    assert second is not first and not second.is_closed
    assert one_hot(device=device.name).shape == (2, 3)


def test_a_name_that_matches_nothing_teaches_and_is_not_kept(kept: dict[Any, dmlvk.Device]) -> None:
    with pytest.raises(dmlvk.DeviceError, match=r"'no such device' matches no device; .*one of these:\n  0: "):
        one_hot(device="no such device")
    assert not kept


def test_tensors_say_on_which_device_a_call_runs(device: dmlvk.Device, kept: dict[Any, dmlvk.Device]) -> None:
    tensor = device.tensor(INDICES)
    for named in (None, device, device.name, index_of(device)):
        output = one_hot(tensor, device=named)
        assert output.device is device
        assert output.numpy().tolist() == [[0, 7, 0], [0, 0, 7]]
    assert not kept, "no other Device is opened for the name of the tensors' own device"


def test_tensors_of_one_call_share_a_device(device: dmlvk.Device) -> None:
    tensor = device.tensor(INDICES)
    with dmlvk.Device(device.name) as other:
        same = r"indices_tensor is a tensor of another Device object .* opened on the same device.* share one device"
        with pytest.raises(dmlvk.BindingError, match=same):
            one_hot(tensor, device=other)
        with pytest.raises(dmlvk.BindingError, match="values_tensor is a tensor of another Device object"):
            one_hot(tensor, other.tensor(np.ones((1, 2))))


def test_a_name_of_another_device_than_the_tensors_is_refused(device: dmlvk.Device) -> None:
    tensor, own = device.tensor(INDICES), index_of(device)
    for info in dmlvk.devices():
        if info.index != own:
            with pytest.raises(dmlvk.BindingError) as caught:
                one_hot(tensor, device=info.index)
            for text in (
                f"(index {own} of dmlvk.devices())",
                f"device={info.index} names {info.name}",
                "leave device out",
            ):
                assert text in str(caught.value)


def test_tensors_of_a_closed_device_say_so(device: dmlvk.Device) -> None:
    with open_variant(device, "direct") as own:
        tensor = own.tensor(INDICES)
    for named in (None, device.name, own):
        with pytest.raises(dmlvk.DeviceError, match="closed"):
            one_hot(tensor, device=named)


def test_two_devices_of_one_name_are_told_apart(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """By their index: as on a machine with two graphics cards of one model."""

    def twin(handle: str) -> Any:
        physical = SimpleNamespace(handle=handle, profile=device.profile)
        vulkan = SimpleNamespace(context=SimpleNamespace(physical=physical))
        return SimpleNamespace(name=device.name, device=device, vulkan=vulkan)

    first, second, inherited = twin("first"), twin("second"), twin("of the parent")
    physical = [each.vulkan.context.physical for each in (first, second)]
    monkeypatch.setattr(device_info, "physical_devices", lambda: physical)
    text = device_info.another_device(second, first)
    assert "index 1 of dmlvk.devices()" in text and "not of index 0" in text
    assert "opened on the same device" in device_info.another_device(first, first)
    assert "before the process forked" in device_info.another_device(inherited, first)
    assert device_info.numbered(physical[1]) == f"{device.name} (index 1 of dmlvk.devices())"
