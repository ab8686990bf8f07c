"""What a worker holds: a device of its host, and the models that it has been sent."""

from __future__ import annotations

import asyncio
import ctypes
import hashlib
import os
import sys
import threading
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from distributed import Reschedule, Status, Worker, get_worker
from distributed.utils_comm import retry_operation
from tornado.ioloop import PeriodicCallback

from dmlvk._common import files
from dmlvk.dask.batches import LOADS_AHEAD
from dmlvk.dask.claims import Claim, claim, wanted
from dmlvk.dask.errors import ClusterError
from dmlvk.errors import DeviceError, DeviceLostError
from dmlvk.runtime.device import Device
from dmlvk.runtime.shared_devices import forget, named_device
from dmlvk.version import __version__

if TYPE_CHECKING:
    from dmlvk.dask.models import OpenedModel, PortableModel

# The name of the plugin, and of the resource that each worker with a device has once.
NAME = "dmlvk"
# The most models that a worker keeps, and how long it keeps each after its last batch.
MODELS_KEPT = 8
IDLE_SECONDS = 600.0
# The seconds after which a worker without a device looks again whether one is free.
CLAIM_MILLISECONDS = 2000
# Until the scheduler knows that a worker has lost its device, it may send the same task there again.
RESCHEDULE_SECONDS = 0.1
# Parameters of `mallopt`, from malloc.h.
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
# The largest values to which glibc itself adapts when a program frees large arrays.
LARGEST_KEPT = 32 << 20
MOST_KEPT = 2 * LARGEST_KEPT


def identity() -> dict[str, str]:
    """The version of dmlvk and its kernels here. All workers that take part have those of the client."""
    manifest = files.packaged_bytes("dmlvk", "spirv/manifest.json")
    return {"version": __version__, "kernels": hashlib.sha256(manifest).hexdigest()}


def device_resource(name: str) -> str:
    """The Dask resource that each worker has once whose device has this name."""
    return f"{NAME}.device={name}"


def driver_resource(driver: str) -> str:
    """The Dask resource that each worker has once whose device has this driver."""
    return f"{NAME}.driver={driver}"


def place_resource(place: str) -> str:
    """The Dask resource of one device of one host; after the worker's end, its successor has it."""
    return f"{NAME}.place={place}"


class Holding:
    """A worker's device and models. Made by the plugin.

    settings: from `plugin.worker_plugin`.
    reason: why the worker has no device; empty if it has one.
    loaders: threads on which tasks load batches. They end when nobody refers to them: a task may still run after `end`.
    """

    def __init__(self, worker: Worker, settings: dict[str, Any]) -> None:
        self.reason = ""
        self._worker = worker
        self._settings = settings
        self._is_fit = False
        self._is_trying = False
        # Whether the scheduler knows of the device. If it could not be told, it is told later.
        self._is_announced = False
        self._claim: Claim | None = None
        self._models: OrderedDict[str, _Kept] = OrderedDict()
        self._lock = threading.Lock()
        self._callback = PeriodicCallback(self._look_again, CLAIM_MILLISECONDS)
        self._default = os.environ.get("DMLVK_DEVICE")
        self.loaders = ThreadPoolExecutor(LOADS_AHEAD, "dmlvk.dask")

    async def begin(self) -> None:
        """Take a device of the host, if this worker can and one is free."""
        if self._worker.nanny:  # the process is the worker's own
            _keep_freed_memory()
        await asyncio.to_thread(self._examine)
        self._callback.start()
        await self._try()

    async def end(self) -> None:
        """Give everything back."""
        self._callback.stop()
        held, self._claim = self._claim, None
        self._models.clear()
        if held is None:
            return
        if self._worker.nanny:
            self._restore_default()
        if self._worker.status in (Status.running, Status.paused):
            with suppress(OSError):
                await self._announce(dict.fromkeys(self._resources(held), 0.0))
        held.release()

    def report(self) -> dict[str, Any]:
        """Plain data for a client: which device, or why none."""
        held = self._claim
        found = {**self._settings, "reason": self.reason, "device": "", "driver": "", "place": "", "index": -1}
        if held is not None:
            info = held.info
            found |= {"device": info.name, "driver": info.driver, "place": self._place(held), "index": info.index}
            found |= {"type": info.type.name}
        return found

    @property
    def index(self) -> int:
        """The device's position in `dmlvk.devices()`; -1 without one."""
        held = self._claim
        return -1 if held is None else held.info.index

    @property
    def label(self) -> str:
        """The device for people: its name, driver and worker."""
        held = self._claim
        kind = "no device" if held is None else held.info.name
        driver = "" if held is None else f"{held.info.driver}; "
        return f"{kind} ({driver}worker {self._worker.address})"

    def device(self) -> Device:
        """The worker's device, opened at the first use.

        Raises ClusterError: the worker has none.
        """
        index = self.index
        if index < 0:
            raise ClusterError(f"worker {self._worker.address} has no device: {self.reason or 'it is closing'}")
        return named_device(index)

    def has(self, digest: str) -> bool:
        """Whether a model is here."""
        return digest in self._models

    def store(self, model: PortableModel) -> None:
        """Keep a model, unless it is here. It is opened by its first batch."""
        with self._lock:
            if model.digest not in self._models:
                self._models[model.digest] = _Kept(model)
            while len(self._models) > MODELS_KEPT:
                self._models.popitem(last=False)

    def run(self, digest: str, batch: Any, output_names: Any) -> Any:
        """Run a batch on a model. If the device is lost, it is opened again and the batch runs once more.

        Raises LookupError: the model is not here.
        """
        device = self.device()
        with self._lock:
            kept = self._models[digest]
            self._models.move_to_end(digest)
        kept.used = time.monotonic()
        try:
            return kept.opened_on(device).run(batch, output_names)
        except DeviceError as error:
            # Who else runs on a lost device is told by another exception that it is not open any more.
            if not isinstance(error, DeviceLostError) and _is_open(device):
                raise
            forget(device)
            return kept.opened_on(self.device()).run(batch, output_names)

    def _examine(self) -> None:
        """Whether this worker can take part at all."""
        mine, theirs = identity(), self._settings
        if mine["version"] != theirs["version"]:
            self.reason = f"it has dmlvk {mine['version']}, the client has {theirs['version']}"
        elif mine["kernels"] != theirs["kernels"]:
            self.reason = f"its dmlvk {mine['version']} has other kernels than the client's"
        else:
            self._is_fit = True

    def _take(self) -> Claim | None:
        try:
            infos = wanted(self._settings["devices"])
            held = claim(infos, self._settings["cluster"])
        except (DeviceError, OSError) as error:
            self.reason = " ".join(str(error).split())
            return None
        names = ", ".join(info.name for info in infos)
        self.reason = "" if held is not None else f"each device of its host has a worker already ({names})"
        return held

    async def _try(self) -> None:
        if not self._is_fit or self._is_trying or self._is_announced:
            return
        self._is_trying = True
        try:
            await self._take_and_announce()
        finally:
            self._is_trying = False

    async def _take_and_announce(self) -> None:
        held = self._claim or await asyncio.to_thread(self._take)
        if held is None:
            return
        if self._worker.status not in (Status.running, Status.paused):
            held.release()
            return
        self._claim = held
        if self._worker.nanny:  # whatever runs in the worker's own process takes this device by default
            os.environ["DMLVK_DEVICE"] = str(held.info.index)
        await self._announce(self._resources(held))
        self._is_announced = True
        # The scheduler looks for work for new resources only when a worker begins to run.
        if self._worker.status is Status.running:
            self._worker.status = Status.paused
            self._worker.status = Status.running

    async def _announce(self, resources: dict[str, float]) -> None:
        """Tell the scheduler what this worker has of each resource from now on.

        `Worker.set_resources` would take resources away from the worker too. Then tasks that already wait there for
        their turn would wait for ever, because Dask moves no such task. So the worker itself keeps every resource
        that it ever had: those tasks begin, find no device, and run elsewhere.
        """
        counts = self._worker.state
        for name in resources:
            if name not in counts.total_resources:
                counts.total_resources[name] = counts.available_resources[name] = 1.0
        await retry_operation(
            self._worker.scheduler.set_resources, resources=resources, worker=self._worker.contact_address
        )

    async def _look_again(self) -> None:
        latest = time.monotonic() - IDLE_SECONDS
        with self._lock:
            for digest in [digest for digest, kept in self._models.items() if kept.used < latest]:
                del self._models[digest]
        await self._try()

    def _restore_default(self) -> None:
        if self._default is None:
            os.environ.pop("DMLVK_DEVICE", None)
        else:
            os.environ["DMLVK_DEVICE"] = self._default

    def _place(self, held: Claim) -> str:
        return f"{self._worker.ip}/{held.name}"

    def _resources(self, held: Claim) -> dict[str, float]:
        info = held.info
        names = (NAME, device_resource(info.name), driver_resource(info.driver), place_resource(self._place(held)))
        return dict.fromkeys(names, 1)


def _is_open(device: Device) -> bool:
    try:
        device.require_open()
    except DeviceError:
        return False
    return True


class _Kept:
    """A model of a worker."""

    def __init__(self, model: PortableModel) -> None:
        self.used = time.monotonic()
        self._model = model
        self._lock = threading.Lock()
        self._opened: tuple[Device, OpenedModel] | None = None

    def opened_on(self, device: Device) -> OpenedModel:
        with self._lock:
            if self._opened is None or self._opened[0] is not device:
                self._opened = device, self._model.open(device)
            return self._opened[1]


def held_here() -> Holding:
    """What the worker of this task holds.

    Raises ClusterError: this is no task of a worker that `prepare` has prepared.
    """
    try:
        worker = get_worker()
    except ValueError:
        raise ClusterError("this is no task of a Dask worker; dmlvk.Device() opens a device of this process") from None
    plugin = worker.plugins.get(NAME)
    held: Holding | None = getattr(plugin, "holding", None)
    if held is None:
        raise ClusterError(f"worker {worker.address} is not prepared: call dmlvk.dask.prepare(client) first")
    return held


def held_by_task() -> Holding:
    """As `held_here`, for the tasks of dmlvk itself. If the worker has a device no more, the task runs elsewhere.

    Raises distributed.Reschedule: the worker is closing, or somebody prepared the cluster for other devices.
    """
    try:
        held = held_here()
    except ClusterError:
        held = None
    if held is None or held.index < 0:
        time.sleep(RESCHEDULE_SECONDS)
        raise Reschedule
    return held


def device() -> Device:
    """The device of the worker on which this task runs.

    For functions that are submitted with ``resources={"dmlvk": 1}``. It is open, shared by the worker's tasks, and may
    be used from several threads.

    Raises:
        ClusterError: This is no task of a worker that has a device.
    """
    return held_here().device()


def _keep_freed_memory() -> None:
    """Let arrays of up to 32 MiB use the memory of arrays that were freed. On Linux with glibc; else nothing happens.

    glibc itself does so, until Dask's nanny sets MALLOC_TRIM_THRESHOLD_. Then each array that a worker loads
    gets memory that the system has yet to clear: on a host with two H200s, maps were 1.2 times slower
    (docs/decisions/several_gpus.md).
    """
    if not sys.platform.startswith("linux"):
        return
    # int mallopt(int param, int value); musl has none.
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt.argtypes, mallopt.restype = (ctypes.c_int, ctypes.c_int), ctypes.c_int
        mallopt(M_MMAP_THRESHOLD, LARGEST_KEPT)
        mallopt(M_TRIM_THRESHOLD, MOST_KEPT)
