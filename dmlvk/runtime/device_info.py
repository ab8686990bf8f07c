"""Descriptions of devices, as `dmlvk.devices()` returns them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dmlvk.device_profile import DeviceProfile, DeviceType
from dmlvk.vulkan.physical_device import PhysicalDevice, physical_devices
from dmlvk.vulkan.physical_device import rejected_devices as rejected_physical_devices

if TYPE_CHECKING:
    from dmlvk.runtime.device import Device

# PCI vendor numbers, and Khronos's vendor numbers for drivers without a PCI device.
VENDORS = {
    0x1002: "AMD", 0x1010: "Imagination Technologies", 0x106B: "Apple", 0x10DE: "NVIDIA", 0x13B5: "Arm",
    0x1414: "Microsoft", 0x14E4: "Broadcom", 0x144D: "Samsung", 0x1AE0: "Google", 0x19E5: "Huawei", 0x5143: "Qualcomm",
    0x8086: "Intel",
    0x10001: "Vivante", 0x10002: "VeriSilicon", 0x10003: "Kazan", 0x10004: "Codeplay", 0x10005: "Mesa",
    0x10006: "PoCL", 0x10007: "Mobileye",
}  # fmt: skip


@dataclass(frozen=True)
class DeviceInfo:
    """A Vulkan device that dmlvk can use.

    Attributes
    ----------
    index : int
        The argument for `Device(index)`.
    name : str
        The driver's name for the device; `Device` accepts a part of it.
    type : DeviceType
    vendor : str
    driver : str
        The driver's name and version.
    memory_size : int
        Bytes of the largest device-local heap.
    accelerated : tuple of str
        Hardware that makes kernels faster: "int8 dot product", "int8 matrices 16x16x32", ...
    profile : DeviceProfile
        Everything that was read from the device.
    """

    index: int
    name: str
    type: DeviceType
    vendor: str
    driver: str
    memory_size: int
    accelerated: tuple[str, ...]
    profile: DeviceProfile


@dataclass(frozen=True)
class RejectedDevice:
    """A Vulkan device that dmlvk does not use, and the reason."""

    name: str
    reason: str


def devices() -> list[DeviceInfo]:
    """The Vulkan devices that dmlvk can use, best first: discrete, integrated, virtual, CPU.

    Raises
    ------
    DeviceError
        There is no Vulkan loader or no driver; the message says what to install.
    """
    return [device_info(index, device) for index, device in enumerate(physical_devices())]


def rejected_devices() -> list[RejectedDevice]:
    """The Vulkan devices that dmlvk does not use, each with the reason."""
    return [RejectedDevice(device.profile.name, device.rejection or "") for device in rejected_physical_devices()]


def device_info(index: int, device: PhysicalDevice) -> DeviceInfo:
    """Describe one device."""
    profile = device.profile
    driver = f"{profile.driver_name} {profile.driver_info}".strip() or "unnamed driver"
    if not profile.driver_info:
        driver += f" {driver_version_text(profile)}"
    return DeviceInfo(
        index=index,
        name=profile.name,
        type=profile.device_type,
        vendor=VENDORS.get(profile.vendor_id, f"vendor 0x{profile.vendor_id:04x}"),
        driver=driver,
        memory_size=device.memory_size,
        accelerated=accelerated(profile),
        profile=profile,
    )


def driver_version_text(profile: DeviceProfile) -> str:
    """The driver's version, in its vendor's own format."""
    return ".".join(str(number) for number in profile.driver_release)


def accelerated(profile: DeviceProfile) -> tuple[str, ...]:
    """The hardware of a device that makes quantized kernels faster."""
    found = []
    packed = "integerDotProduct4x8BitPacked{}Accelerated"
    signs = [
        label
        for label, name in (("s8", "Signed"), ("u8", "Unsigned"), ("mixed", "MixedSignedness"))
        if packed.format(name) in profile.properties
    ]
    if signs and profile.has_integer_dot_product:
        found.append(f"int8 dot product ({', '.join(signs)})")
    shapes = sorted(
        {
            (matrix.m, matrix.n, matrix.k)
            for matrix in profile.cooperative_matrices
            if matrix.a_type in ("sint8", "uint8") and matrix.b_type in ("sint8", "uint8")
        }
    )
    found += [f"int8 matrices {m}x{n}x{k}" for m, n, k in shapes]
    return tuple(found)


def another_device(theirs: Device, ours: Device) -> str:
    """Text for an object that belongs to one Device and not to the other, in which the two can be told apart."""
    if theirs.name != ours.name:
        return f"another Device ({theirs}), not of {ours}"
    handles = [device.handle for device in physical_devices()]
    first, second = (handles.index(device.vulkan.context.physical.handle) for device in (theirs, ours))
    if first != second:
        return f"another Device of the same name (index {first} of dmlvk.devices(), {theirs}), not of index {second}"
    return f"another Device object ({theirs}) that was opened on the same device: each has memory of its own"
