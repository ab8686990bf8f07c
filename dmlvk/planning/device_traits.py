"""Choices that are faster on some classes of devices, and a tile's room: plans that depend on the device's maker.

A driver's bug is no trait: those are in `dmlvk.quirks`. Every trait is a pure function of a DeviceProfile. No trait
decides whether a result is right, except `can_run_float_kernel`.
"""

from __future__ import annotations

from dmlvk import quirks
from dmlvk.device_profile import DeviceProfile, DeviceType, DriverId, VendorId

# The property of a device whose float32 products are rounded to nearest even. Last steps in float32 rely on it.
ROUNDING = "shaderRoundingModeRTEFloat32"

# The property of a device on which such a dot product is an instruction.
_DOT_PRODUCT = "integerDotProduct4x8BitPacked{}Accelerated"

# A tile on matrix units takes at most this many bytes of shared memory on any device: larger ones were never measured.
LARGEST_TILE_MEMORY = 48 << 10

# The vendors of GPUs on which an invocation has 255 registers of 32 bits before it spills any. GPUs of other vendors
# have about 128, or fewer. The compilers for CPUs know how many there are, and what to do without.
MANY_REGISTERS = frozenset((VendorId.AMD, VendorId.NVIDIA))
CPU_DRIVERS = frozenset(((VendorId.MESA, DriverId.MESA_LLVMPIPE), (VendorId.GOOGLE, DriverId.GOOGLE_SWIFTSHADER)))

# Vectors of the next block's input that an invocation of the halo kernel fetches ahead into its registers. Three make
# RADV spill registers on RDNA 3.
FETCHES_AHEAD = 2
FETCHES_AHEAD_WITH_255_REGISTERS = 6


def has_few_registers(profile: DeviceProfile) -> bool:
    """Whether an invocation has too few registers for 32 sums and the operands of as many products."""
    is_cpu = (profile.vendor_id, profile.driver_id) in CPU_DRIVERS
    return not is_cpu and profile.vendor_id not in MANY_REGISTERS


def has_255_registers(profile: DeviceProfile) -> bool:
    """Whether an invocation may have 255 registers before it spills any, as on NVIDIA's GPUs."""
    return profile.vendor_id == VendorId.NVIDIA


def keeps_large_tiles_in_registers(profile: DeviceProfile) -> bool:
    """Whether an invocation keeps 128 sums in registers, the operands of as many products, and what it fetches ahead.

    NVIDIA's own driver does, and NVK of Mesa 26.2 needs local memory for it.
    """
    return has_255_registers(profile) and profile.driver_id != DriverId.MESA_NVK


def packs_registers_with_filter_zero_points(profile: DeviceProfile) -> bool:
    """Whether tiles of 64 sums an invocation take fewer registers with the code for filter zero points than without.

    A multiprocessor of NVIDIA has room for three workgroups of 128 invocations with 168 registers each. Without the
    branches that count an input's sums, the compiler of 580.159.04 moves more loads ahead, into 175 to 184 registers.
    """
    return profile.driver_id == DriverId.NVIDIA_PROPRIETARY


def keeps_four_rows_in_registers(profile: DeviceProfile) -> bool:
    """Whether an array of words, of four rows that are fetched together, stays in registers.

    NVK of Mesa 26.2 puts such an array into local memory if it has three rows or more.
    """
    return profile.driver_id != DriverId.MESA_NVK


def fetches_ahead(profile: DeviceProfile) -> int:
    """The most vectors of the input that wait in an invocation's registers for their turn."""
    return FETCHES_AHEAD_WITH_255_REGISTERS if has_255_registers(profile) else FETCHES_AHEAD


def emulates_dot_products(profile: DeviceProfile) -> bool:
    """Whether packed dot products are several instructions each, as on the older GPUs of most vendors.

    Mesa's driver for Adreno says so of some GPUs for which it compiles to an instruction, the 830 among them.
    """
    return profile.vendor_id != VendorId.QUALCOMM and not any(
        _DOT_PRODUCT.format(signs) in profile.properties for signs in ("Signed", "MixedSignedness")
    )


def multiplies_mixed_signs_alone(profile: DeviceProfile) -> bool:
    """Whether packed dot products of signed by unsigned bytes are an instruction, and those of signed bytes are not."""
    accelerated = _DOT_PRODUCT.format
    return accelerated("MixedSignedness") in profile.properties and accelerated("Signed") not in profile.properties


def can_run_float_kernel(profile: DeviceProfile) -> bool:
    """Whether the float kernel may be chosen: it is made for lavapipe and needs 8 lanes, for its shuffles."""
    is_lavapipe = profile.driver_id == DriverId.MESA_LLVMPIPE
    return is_lavapipe and profile.min_subgroup_size >= 8 and "shaderInt64" in profile.features


def is_faster_with_depthwise(profile: DeviceProfile) -> bool:
    """Whether the depthwise kernel is faster than the direct one.

    Among the CPU drivers, lavapipe is 2 to 6 times faster with it. SwiftShader takes 0.8 to 1.5 times as long.
    """
    return profile.device_type is not DeviceType.CPU or profile.driver_id == DriverId.MESA_LLVMPIPE


def tile_memory(profile: DeviceProfile) -> int:
    """Bytes of shared memory that a tile on matrix units may take."""
    size = min(profile.limits.max_compute_shared_memory_size, LARGEST_TILE_MEMORY)
    quirk = quirks.NVIDIA_SHARED_MEMORY_LOSES_THE_DEVICE
    if quirk.limit is not None and quirk.applies_to(profile):
        size = min(size, quirk.limit)
    return size


def loop_iterations(profile: DeviceProfile) -> int | None:
    """The most iterations of all loops of an invocation together; None for no limit."""
    quirk = quirks.LAVAPIPE_ENDS_LONG_LOOPS
    return quirk.limit if quirk.applies_to(profile) else None
