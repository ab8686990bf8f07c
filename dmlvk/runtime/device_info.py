"""Descriptions of devices, as `dmlvk.devices()` returns them."""

from __future__ import annotations

from dataclasses import dataclass

from dmlvk._printable import printable
from dmlvk.device_profile import DeviceProfile, DeviceType
from dmlvk.errors import DeviceError
from dmlvk.runtime.engine import Engine
from dmlvk.vulkan.physical_device import PhysicalDevice, choose, has_usable_device, physical_devices
from dmlvk.vulkan.physical_device import rejected_devices as rejected_physical_devices

# PCI vendor numbers, and Khronos's vendor numbers for drivers without a PCI device.
VENDORS = {
    0x1002: "AMD", 0x1010: "Imagination Technologies", 0x106B: "Apple", 0x10DE: "NVIDIA", 0x13B5: "Arm",
    0x1414: "Microsoft", 0x14E4: "Broadcom", 0x144D: "Samsung", 0x1AE0: "Google", 0x19E5: "Huawei", 0x5143: "Qualcomm",
    0x8086: "Intel",
    0x10001: "Vivante", 0x10002: "VeriSilicon", 0x10003: "Kazan", 0x10004: "Codeplay", 0x10005: "Mesa",
    0x10006: "PoCL", 0x10007: "Mobileye",
}  # fmt: skip


TYPE_NAMES = {
    DeviceType.OTHER: "other",
    DeviceType.INTEGRATED_GPU: "integrated GPU",
    DeviceType.DISCRETE_GPU: "discrete GPU",
    DeviceType.VIRTUAL_GPU: "virtual GPU",
    DeviceType.CPU: "CPU",
}


@dataclass(frozen=True, repr=False)
class DeviceInfo:
    """A Vulkan device that dmlvk can use.

    Attributes:
        index (int): The position in `devices()`: `Device(info.index)` opens it, and so does `Device(info)`.
        name (str): The driver's name for the device; `Device` accepts a part of it.
        type (DeviceType):
        vendor (str):
        driver (str): The driver's name and version.
        memory_size (int): Bytes of the largest device-local heap.
        accelerated (tuple of str): Hardware that makes kernels faster: "int8 dot product", "int8 matrices 16x16x32",
            ...
        profile (DeviceProfile): Everything that was read from the device.
    """

    index: int
    name: str
    type: DeviceType
    vendor: str
    driver: str
    memory_size: int
    accelerated: tuple[str, ...]
    profile: DeviceProfile

    def __str__(self) -> str:
        """One line: index, name, type, driver, memory, and what is accelerated."""
        facts = (TYPE_NAMES[self.type], self.driver, binary_size(self.memory_size), *self.accelerated)
        return printable(f"{self.index}: {self.name}, {', '.join(facts)}")

    def __repr__(self) -> str:
        return f"<dmlvk.DeviceInfo {self}>"

    @property
    def here(self) -> int:
        """The described device's index in this process, which may see other devices than the process that described it.

        Raises:
            DeviceError: It is not here; the message lists the devices.
        """
        found = [index for index, device in enumerate(physical_devices()) if device.profile == self.profile]
        if not found:
            listing = "".join(f"\n  {info}" for info in devices())
            raise DeviceError(f"the device {self} is not here (any more, or with this driver); there are:{listing}")
        return self.index if self.index in found else found[0]


class DeviceList(list[DeviceInfo]):
    """A list of devices that prints one line a device."""

    def __str__(self) -> str:
        return "\n".join(str(info) for info in self) or "no Vulkan device that dmlvk can use"

    def __repr__(self) -> str:
        return f"[{f',{chr(10)} '.join(repr(info) for info in self)}]"


def chosen(selector: DeviceInfo | int | str | None = None) -> PhysicalDevice:
    """The device that a selector names: as `choose` takes it, or a description that `devices()` has given.

    Raises DeviceError: there is no device, or none matches; the message lists the devices.
    Raises TypeError: the selector has another type.
    """
    return choose(selector.here if isinstance(selector, DeviceInfo) else selector)


@dataclass(frozen=True)
class RejectedDevice:
    """A Vulkan device that dmlvk does not use, and the reason."""

    name: str
    reason: str


def devices() -> list[DeviceInfo]:
    """The Vulkan devices that dmlvk can use, best first: discrete, integrated, virtual, CPU.

    `print` writes them one a line.

    Raises:
        DeviceError: There is no Vulkan loader or no driver; the message says what to install.
    """
    return DeviceList(device_info(index, device) for index, device in enumerate(physical_devices()))


def best_devices() -> list[DeviceInfo]:
    """The devices of the best one's type, so that a CPU driver does not slow a GPU; all CPU drivers if there is no GPU.

    A GPU under two drivers counts once: of GPUs of one model, only those of the first driver are taken.

    Raises DeviceError: there is no device; the message says what to install.
    """
    found = devices()
    if not found:
        choose()  # says what is missing
    best = [info for info in found if info.type is found[0].type]
    drivers: dict[tuple[int, int], int] = {}
    for info in best:
        drivers.setdefault((info.profile.vendor_id, info.profile.device_id), info.profile.driver_id)
    return [
        info
        for info in best
        if info.type is DeviceType.CPU
        or drivers[info.profile.vendor_id, info.profile.device_id] == info.profile.driver_id
    ]


def is_available() -> bool:
    """Whether there is a device that dmlvk can use.

    False without a Vulkan loader, a driver, or a device that can compute. `Device()` says then what to install.
    $DMLVK_DEVICE does not count. Nothing stays open: a process may ask and fork afterwards.
    """
    try:
        return has_usable_device()
    except DeviceError:
        return False


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


def binary_size(size: int) -> str:
    """Bytes in the largest unit that does not exceed them: "139.8 GiB"."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.4g} {name}"
    return f"{size} bytes"


def numbered(physical: PhysicalDevice) -> str:
    """A device's name and index, which tells devices of one name apart."""
    index = _index(physical)
    return physical.profile.name if index is None else f"{physical.profile.name} (index {index} of dmlvk.devices())"


def another_device(theirs: Engine, ours: Engine) -> str:
    """The part of a message that says to which Device an object belongs, and to which it does not."""
    other = theirs.device
    if theirs.name != ours.name:
        return f"another Device ({other}), not of {ours.device}"
    first, second = (_index(engine.vulkan.context.physical) for engine in (theirs, ours))
    if first is None or second is None:
        return f"another Device of the same name ({other}): one of the two was opened before the process forked"
    if first != second:
        return f"another Device of the same name (index {first} of dmlvk.devices(), {other}), not of index {second}"
    return f"another Device object ({other}) that was opened on the same device: each has memory of its own"


def index_of(engine: Engine) -> int | None:
    """A device's position in `devices()`; None if a parent process opened it before it forked."""
    return _index(engine.vulkan.context.physical)


def _index(physical: PhysicalDevice) -> int | None:
    """A device's position in `devices()`; None for one that a parent process opened before it forked."""
    handles = [device.handle for device in physical_devices()]
    return handles.index(physical.handle) if physical.handle in handles else None
