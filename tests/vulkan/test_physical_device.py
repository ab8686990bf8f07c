"""The choice of a device, and its profile."""

from __future__ import annotations

import dataclasses

import pytest

import dmlvk
from dmlvk.device_profile import DeviceProfile, DeviceType
from dmlvk.vulkan import physical_device
from dmlvk.vulkan.physical_device import PhysicalDevice, QueueFamily, choose, physical_devices
from tests.profiles import load

pytestmark = pytest.mark.every_driver


def release_of(profile: DeviceProfile) -> tuple[str, str]:
    """The device's name, and its driver's release: those of lavapipe may have one name, and one version too."""
    return profile.name, ".".join(profile.driver_info.split(".")[:2])


# Records of drivers that run on the CPU.
RECORDS = {
    release_of(recorded): recorded
    for recorded in map(load, ("lavapipe-22.3", "lavapipe-25.0", "lavapipe-26.2", "swiftshader"))
}


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with many devices that are not sorted."""
    real = physical_devices()[0]
    described = [
        ("llvmpipe", DeviceType.CPU, None),
        ("Intel(R) Iris(R) Xe Graphics", DeviceType.INTEGRATED_GPU, None),
        ("Old Card", DeviceType.DISCRETE_GPU, "it offers Vulkan 1.0.3, but dmlvk needs 1.2 or later"),
        ("Virtio-GPU Venus", DeviceType.VIRTUAL_GPU, None),
        ("Something", DeviceType.OTHER, None),
        ("NVIDIA GeForce RTX 3090", DeviceType.DISCRETE_GPU, None),
        ("NVIDIA GeForce RTX 4090", DeviceType.DISCRETE_GPU, None),
    ]
    made = {
        index: dataclasses.replace(
            real,
            handle=index,
            profile=dataclasses.replace(real.profile, name=name, device_type=kind),
            rejection=rejection,
        )
        for index, (name, kind, rejection) in enumerate(described)
    }

    class Instance:
        def physical_devices(self) -> list[int]:
            return list(made)

    monkeypatch.setattr(physical_device, "instance", Instance)
    monkeypatch.setattr(physical_device, "read_physical_device", made.__getitem__)
    monkeypatch.delenv("DMLVK_DEVICE", raising=False)


def name(device: PhysicalDevice) -> str:
    return device.profile.name


@pytest.mark.parametrize("order", [("lavapipe-25.0", "swiftshader"), ("swiftshader", "lavapipe-25.0")])
def test_lavapipe_comes_before_swiftshader_in_either_order(
    order: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = physical_devices()[0]
    made = [dataclasses.replace(real, handle=each, profile=load(each)) for each in (*order, "adreno-618")]
    monkeypatch.setattr(physical_device, "_all_devices", lambda: physical_device.best_first(made))
    monkeypatch.delenv("DMLVK_DEVICE", raising=False)
    assert [device.handle for device in physical_devices()] == ["adreno-618", "lavapipe-25.0", "swiftshader"]


@pytest.mark.usefixtures("machine")
class TestChoice:
    def test_discrete_before_integrated_before_virtual_before_cpu_before_other(self) -> None:
        assert [name(device) for device in physical_devices()] == [
            "NVIDIA GeForce RTX 3090",
            "NVIDIA GeForce RTX 4090",
            "Intel(R) Iris(R) Xe Graphics",
            "Virtio-GPU Venus",
            "llvmpipe",
            "Something",
        ]

    def test_none_is_the_best(self) -> None:
        assert name(choose()) == "NVIDIA GeForce RTX 3090"

    def test_an_index_counts_from_the_best(self) -> None:
        assert name(choose(1)) == "NVIDIA GeForce RTX 4090"
        assert name(choose("4")) == "llvmpipe"

    def test_part_of_a_name_in_any_case(self) -> None:
        assert name(choose("LLVM")) == "llvmpipe"
        assert name(choose("iris")) == "Intel(R) Iris(R) Xe Graphics"

    def test_of_several_with_that_name_the_first(self) -> None:
        assert name(choose("geforce")) == "NVIDIA GeForce RTX 3090"

    def test_the_environment_chooses_when_nobody_else_does(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DMLVK_DEVICE", "rtx 4090")
        assert name(choose()) == "NVIDIA GeForce RTX 4090"
        monkeypatch.setenv("DMLVK_DEVICE", "venus")
        assert name(choose()) == "Virtio-GPU Venus"
        assert name(choose("llvm")) == "llvmpipe"
        monkeypatch.setenv("DMLVK_DEVICE", "")
        assert name(choose()) == "NVIDIA GeForce RTX 3090"

    @pytest.mark.parametrize("selector", [6, -1, "7", "-1", "+9", " 8 ", "4090", "radeon", "old card", "", "  "])
    def test_no_match_lists_the_devices(self, selector: int | str) -> None:
        with pytest.raises(dmlvk.DeviceError) as caught:
            choose(selector)
        assert repr(selector).strip("'") in str(caught.value)
        assert "0: NVIDIA GeForce RTX 3090" in str(caught.value)

    @pytest.mark.parametrize("selector", ["4090", " 4090", "6"])
    def test_digits_are_an_index_and_no_part_of_a_name(self, selector: str, monkeypatch: pytest.MonkeyPatch) -> None:
        rule = r"matches no device: a number is an index, here from 0 to 5; (?s:.*)RTX 4090"
        with pytest.raises(dmlvk.DeviceError, match=rule):
            choose(selector)
        monkeypatch.setenv("DMLVK_DEVICE", selector)
        with pytest.raises(dmlvk.DeviceError, match=rf"\$DMLVK_DEVICE = '{selector.strip()}' {rule}"):
            choose()
        assert name(choose("RTX 4090")) == name(choose(" 1 ")) == "NVIDIA GeForce RTX 4090"

    def test_an_empty_variable_is_none_and_an_empty_selector_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DMLVK_DEVICE", "  ")
        assert name(choose()) == "NVIDIA GeForce RTX 3090"
        with pytest.raises(dmlvk.DeviceError, match="is empty; leave it out for the best device"):
            choose("")

    def test_a_number_is_no_part_of_a_name(self) -> None:
        with pytest.raises(dmlvk.DeviceError):
            choose(3090)

    def test_other_types_are_refused(self) -> None:
        with pytest.raises(TypeError, match="float"):
            choose(1.5)  # type: ignore[arg-type]

    def test_a_rejected_device_says_why(self) -> None:
        (rejected,) = dmlvk.rejected_devices()
        assert rejected.name == "Old Card"
        assert "1.2 or later" in rejected.reason


def test_no_usable_device_says_which_were_left_out(machine: None, monkeypatch: pytest.MonkeyPatch) -> None:
    devices = physical_device.rejected_devices()
    monkeypatch.setattr(physical_device, "_all_devices", lambda: devices)
    with pytest.raises(dmlvk.DeviceError, match=r"(?s)no usable Vulkan device.*Old Card: it offers Vulkan 1\.0\.3"):
        choose()


def test_the_compute_queue_is_one_that_does_not_draw() -> None:
    real = physical_devices()[0]
    families = (QueueFamily(0, 0xF, 16, 64), QueueFamily(1, 0xC, 2, 64), QueueFamily(2, 0xE, 8, 64))
    device = dataclasses.replace(real, queue_families=families)
    assert device.compute_family.index == 2
    assert device.transfer_family is not None
    assert device.transfer_family.index == 1


def test_a_device_reads_as_it_was_recorded(device: dmlvk.Device) -> None:
    recorded = RECORDS.get(release_of(device.profile))
    if recorded is None:
        # Another device or version: only the guarantees of Vulkan 1.2 are checked.
        assert device.profile.api_version >= (1, 2, 0)
        assert device.profile.limits.max_storage_buffer_range >= 1 << 27
        assert "timelineSemaphore" in device.profile.features
        return
    for field in dataclasses.fields(DeviceProfile):
        mine, theirs = getattr(device.profile, field.name), getattr(recorded, field.name)
        if field.name in ("extensions", "properties", "driver_info"):
            continue
        assert mine == theirs, field.name
    # Window-system extensions depend on the loader. The record's properties include enumerants.
    assert recorded.extensions - device.profile.extensions <= {
        extension for extension in recorded.extensions if "swapchain" in extension
    }
    assert device.profile.properties <= recorded.properties


def test_device_info_describes_the_device(device: dmlvk.Device) -> None:
    (info,) = [info for info in dmlvk.devices() if info.name == device.name]
    assert info.profile == device.profile
    # Type and vendor of other devices, which DMLVK_TEST_DEVICES may name, are unknown here.
    known = {"llvmpipe": (DeviceType.CPU, "Mesa"), "SwiftShader": (DeviceType.CPU, "Google")}
    for name, type_and_vendor in known.items():
        if name in info.name:
            assert (info.type, info.vendor) == type_and_vendor
    assert info.vendor
    assert info.memory_size >= 1 << 28
    assert info.driver
