"""What everything below a Device needs of it: the Vulkan device, the profile that plans are made for, and settings.

Tensors, operators, bindings and sequences hold an Engine, and none of them holds a Device: that is the face, which
holds the Engine and the operators that it has compiled. So no circle of references keeps a device that its users have
dropped. The Engine closes the Vulkan device when the last of them goes; work in flight does not hold it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol, TypeAlias
from weakref import ref

from dmlvk import planning
from dmlvk.device_profile import DeviceProfile
from dmlvk.operators import OperatorDesc
from dmlvk.planning.plan import Plan
from dmlvk.runtime.tuned_paths import TunedPaths
from dmlvk.vulkan.command_buffers import Batch
from dmlvk.vulkan.device import VulkanDevice
from dmlvk.vulkan.interrupts.monitor import Monitor
from dmlvk.vulkan.physical_device import PhysicalDevice

# A recorded list, and weak references to its bindings: whichever of them goes first has the list forgotten.
RememberedList: TypeAlias = "tuple[Batch, list[ref[Any]]]"


class Trust(Protocol):
    """Says which kernel paths of an engine may be taken: see `dmlvk.runtime.self_test.SelfTest`."""

    @property
    def is_entered(self) -> bool: ...
    @property
    def has_begun(self) -> bool: ...
    def allows(self, engine: Engine, plan: Plan) -> bool: ...
    def is_asked_elsewhere(self, engine: Engine, plan: Plan) -> bool: ...
    def has_answered(self, engine: Engine, plan: Plan) -> bool: ...
    def has_answered_all(self, engine: Engine) -> bool: ...
    def faults(self, engine: Engine) -> dict[str, str]: ...
    def open_early(self, engine: Engine) -> None: ...
    def close(self) -> None: ...


class Engine:
    """An open Vulkan device, and how operators are planned for it.

    planned: plans are made for this profile of the whole device: it has rates that were measured, for example.
    profile: a profile with tighter limits, which the Vulkan device then keeps.
    force_staging, force_copy_queue: as for `Device`.
    debug_level: $DMLVK_DEBUG.
    profile: plans are made for it.
    timestamps: whether submissions measure their time.
    self_test: which kernel paths may be taken; None: all of them.
    lists: the command buffers of lists that were submitted, by the bindings' numbers.
    tuned_paths: the fastest paths that were measured on this device.
    compiled_later: what is being compiled in the background, because somebody asked whether it is ready.
    """

    def __init__(
        self,
        physical: PhysicalDevice,
        *,
        planned: DeviceProfile | None = None,
        profile: DeviceProfile | None = None,
        force_staging: bool = False,
        force_copy_queue: bool = False,
        debug_level: int = 0,
    ) -> None:
        self.debug_level = debug_level
        self.timestamps = False
        self.self_test: Trust | None = None
        self.lists: OrderedDict[tuple[int, ...], RememberedList] = OrderedDict()
        self.cuda_sharing: Any = None
        self.tuned_paths: TunedPaths | None = None
        self.compiled_later: set[OperatorDesc] = set()
        self._make_device: Callable[[Engine], Any] | None = None
        self._device: Callable[[], Any] = _none
        self._monitor = Monitor()
        self.vulkan = VulkanDevice(
            physical, self, profile=profile, force_staging=force_staging, force_copy_queue=force_copy_queue
        )
        self.profile = self.vulkan.profile if planned is None else planned

    @property
    def name(self) -> str:
        """The driver's name for the device."""
        return self.vulkan.profile.name

    @property
    def is_closed(self) -> bool:
        return self.vulkan.is_closed

    @property
    def device(self) -> Any:
        """The Device that shows the engine to users; another one if they have dropped it."""
        found = self._device()
        return self._monitor.run(self._shown) if found is None else found

    def _shown(self) -> Any:
        found = self._device()
        if found is None:
            assert self._make_device is not None, "an engine that no Device shows gives nothing to users"
            found = self._make_device(self)
            self._device = ref(found)
        return found

    def show(self, device: object, make: Callable[[Engine], Any]) -> None:
        """Note the Device that shows the engine, which it does not keep, and how another one is made."""
        self._device, self._make_device = ref(device), make

    def require_open(self) -> None:
        """Raise a DeviceError when the device is closed or lost."""
        self.vulkan.require_open()

    def distrust(self, path: str) -> None:
        """Plan without a kernel path from now on, because its answer to a known question was wrong."""
        self.profile = replace(self.profile, distrusted_paths=self.profile.distrusted_paths | {path})

    def plan(self, desc: OperatorDesc, path: str | None = None, offsets: Mapping[str, int] | None = None) -> Plan:
        """Plan an operator for this device: see `dmlvk.planning.plan`."""
        return planning.plan(desc, self.profile, path=path, offsets=offsets or {})

    def close(self) -> None:
        """Wait for all work, then release all memory."""
        self._close(self.vulkan.close)
        self.lists.clear()
        self.cuda_sharing = None

    def _close(self, close: Callable[[], None]) -> None:
        try:
            close()
        finally:
            # A device that refuses to close now, or whose closing is interrupted, stays open.
            if self.vulkan.is_closed and self.self_test is not None:
                self.self_test.close()

    def __del__(self) -> None:
        # Every object that belongs to a device keeps its engine alive, so none is in use any more. Work in flight does
        # not keep it: closing waits for that.
        if hasattr(self, "vulkan"):
            self._close(self.vulkan.close_from_finalizer)
            self.lists.clear()  # Each entry refers to the dictionary, to remove itself from it: that circle ends here.


def _none() -> None:
    """In place of a weak reference to a Device, before there is one."""
