"""A cluster as the client sees it: the plugin that its workers get, their devices, and why a worker has none."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from distributed import Client, Future, Worker, WorkerPlugin

from dmlvk.dask.claims import ALL, BEST
from dmlvk.dask.errors import ClusterError, ClusterWarning
from dmlvk.dask.holding import NAME, device_resource, driver_resource, identity, place_resource
from dmlvk.errors import shown
from dmlvk.runtime.device_info import DeviceInfo

# The names of a device and of its driver.
DeviceAndDriver: TypeAlias = tuple[str, str]


def worker_plugin(settings: dict[str, Any]) -> WorkerPlugin:
    """A plugin that takes a device of the worker's host.

    settings: "version" and "kernels" of the client, "devices" as `claims.wanted` takes them, and the "cluster".
    """

    class DevicePlugin(WorkerPlugin):  # type: ignore[misc]
        # A class inside a function travels as code, so a worker without dmlvk can load it and say what it lacks.
        idempotent = True

        def __init__(self, settings: dict[str, Any]) -> None:
            self.settings = settings
            self.reason = ""
            self.holding: Any = None

        async def setup(self, worker: Worker) -> None:
            try:
                from dmlvk.dask.holding import Holding

                self.holding = Holding(worker, self.settings)
                await self.holding.begin()
            except ImportError as error:
                self.reason = f"dmlvk.dask cannot be imported there: {error}"
            except Exception as error:
                self.reason = f"{type(error).__name__}: {error}"

        async def teardown(self, worker: Worker) -> None:
            if self.holding is not None:
                await self.holding.end()

        def report(self) -> dict[str, Any]:
            if self.reason or self.holding is None:
                return {**self.settings, "reason": self.reason or "it is starting"}
            found: dict[str, Any] = self.holding.report()
            return found

    return DevicePlugin(settings)


# Seconds to wait for a scheduler's answer.
CONNECT_SECONDS = 10.0
# Seconds to wait for a worker with a device, if there is none yet or none any more.
PATIENCE = 60.0


@dataclass(frozen=True)
class ClusterWorker:
    """A worker of a cluster.

    Attributes:
        address (str): Dask's address of it.
        device, driver (str): Of the device that it has; empty if it has none.
        type (str): "DISCRETE_GPU", "CPU", ...; empty without a device.
        index (int): The device's position in `dmlvk.devices()` there; -1 without a device.
        place (str): Identifies the device in the cluster. If the worker dies, its successor has the same device.
        reason (str): Why it has no device; empty if it has one.
    """

    address: str
    device: str = ""
    driver: str = ""
    type: str = ""
    index: int = -1
    place: str = ""
    reason: str = ""

    @property
    def kind(self) -> tuple[str, str]:
        """Device and driver: workers of one kind are expected to give the same results, and the same speed."""
        return self.device, self.driver

    def __str__(self) -> str:
        return f"{self.device} ({self.driver}; worker {self.address})" if self.device else f"worker {self.address}"


def connect(address: str) -> Client:
    """A client of the scheduler at an address.

    Args:
        address (str): As the scheduler prints it: "tcp://10.0.0.1:8786".

    Raises:
        ClusterError: No scheduler answers there.
    """
    try:
        return Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:  # a TimeoutError is an OSError
        text = " ".join(str(error).split()) or type(error).__name__
        raise ClusterError(
            f"no Dask scheduler answers at {address}: {text}; `dask scheduler` starts one and prints its address, and "
            "`dask worker ADDRESS` starts workers"
        ) from error


def prepare(client: Client, devices: str | Sequence[int | str | DeviceInfo] | None = None) -> list[ClusterWorker]:
    """Give each worker of a cluster a device of its host. Workers that come later get one too.

    A device belongs to one worker. If a host has more workers than devices, those that are left over have no device:
    they take no work for devices, and take the place of a worker that dies. Each worker with a device has the Dask
    resources "dmlvk", "dmlvk.device=NAME", "dmlvk.driver=DRIVER" and "dmlvk.place=PLACE" once, for work that asks for
    them. If a worker runs in a process of its own, under a nanny, its device is the default device of that process.

    Args:
        client (distributed.Client): Of the cluster whose workers have the devices.
        devices ("best", "all", or sequence of int, str or DeviceInfo, optional): The devices of each host to use.
            "best": each device of the best kind, all discrete GPUs, or else all integrated ones, ..., or else all CPU
            drivers. "all": each device. A sequence has selectors, as `Device` takes them. By default $DMLVK_DEVICE of
            the worker, else "best"; or what an earlier call has chosen.

    Returns:
        list of ClusterWorker: All workers, in the order of their addresses.

    Raises:
        ClusterError: The scheduler does not answer or has no dmlvk, or another version of dmlvk has prepared the
            cluster.

    Warns:
        ClusterWarning: A worker cannot take part: it has no Vulkan device, no dmlvk, or another version of it.
    """
    if not isinstance(client, Client) or client.asynchronous:
        kind = "an asynchronous Client" if isinstance(client, Client) else type(client).__name__
        raise TypeError(f"client is a synchronous distributed.Client, not {kind}")
    if isinstance(devices, str) and devices not in (ALL, BEST):
        raise ValueError(
            f"devices = {devices!r}: must be {BEST!r}, {ALL!r} or a list of selectors, such as [{devices!r}]"
        )
    listed = devices if devices is None or isinstance(devices, str) else list(devices)
    _require_scheduler(client)
    settings = {**identity(), "devices": listed, "cluster": _asked(client, client.scheduler_info, n_workers=-1)["id"]}
    _asked(client, client.register_plugin, worker_plugin(settings), NAME)
    workers, others = _reports(client)
    if others and listed is not None and any(other["devices"] != listed for other in others):
        _asked(client, client.unregister_worker_plugin, NAME)
        _asked(client, client.register_plugin, worker_plugin(settings), NAME)
        workers, others = _reports(client)
    for other in others:
        if (other["version"], other["kernels"]) != (settings["version"], settings["kernels"]):
            raise ClusterError(
                f"the cluster is prepared for dmlvk {other['version']}, and this is dmlvk {settings['version']}, or it "
                "has other kernels: install one version everywhere, and restart the workers"
            )
    for worker in workers:
        if worker.reason and not _is_spare(worker):
            warnings.warn(f"worker {worker.address} is left out: {worker.reason}", ClusterWarning, stacklevel=3)
    return workers


def prepared(client: Client) -> list[ClusterWorker]:
    """As `prepare`; waits for a first worker with a device, and returns only workers that have one.

    Raises ClusterError: no worker has a device, with each worker's reason; or there is no worker.
    """
    end = time.monotonic() + PATIENCE
    while True:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            workers = prepare(client)
        able = [worker for worker in workers if worker.device]
        if able or (workers and not any(_is_spare(worker) for worker in workers)) or time.monotonic() > end:
            break
        time.sleep(0.2)
    for warning in caught:
        warnings.warn(warning.message, stacklevel=3)
    if able:
        return able
    if not workers:
        raise ClusterError(
            f"the cluster at {_address(client)} has no worker, even after {PATIENCE:g} s; `dask worker ADDRESS` starts "
            "one"
        )
    reasons = "; ".join(f"{worker.address}: {worker.reason}" for worker in workers)
    raise ClusterError(f"no worker of the cluster at {_address(client)} has a device: {reasons}")


def workers_by_device(client: Client, selector: str | None) -> dict[DeviceAndDriver, list[ClusterWorker]]:
    """The workers of each distinct device of a cluster.

    selector: part of the devices' names; None for all.
    Raises ClusterError: no worker has a device, or none has one of that name.
    """
    found: dict[DeviceAndDriver, list[ClusterWorker]] = {}
    workers = prepared(client)
    for worker in workers:
        if selector is None or selector.casefold() in worker.device.casefold():
            found.setdefault(worker.kind, []).append(worker)
    if not found:
        names = ", ".join(dict.fromkeys(worker.device for worker in workers))
        raise ClusterError(f"no device of the cluster has {selector!r} in its name; there are {names}")
    return found


def resources_of(kind: DeviceAndDriver) -> dict[str, int]:
    """What a task asks for that one worker with such a device runs alone."""
    device, driver = kind
    return {NAME: 1, device_resource(device): 1, driver_resource(driver): 1}


def has_ended(future: Future) -> bool:
    """Whether a task that was waited for has ended.

    If its worker dies with the result in its memory, the task is done again: its future is lost for the time being.
    """
    return future.status not in ("pending", "lost")


def places(client: Client) -> set[str]:
    """The resources of devices that some worker has at the moment."""
    prefix = place_resource("")
    workers = _asked(client, client.scheduler_info, n_workers=-1)["workers"].values()
    return {
        name for worker in workers for name, count in worker["resources"].items() if count and name.startswith(prefix)
    }


def _require_scheduler(client: Client) -> None:
    """The scheduler reads the tasks, so it needs dmlvk too, though no device."""

    def look() -> str:
        # Travels as code: a scheduler without dmlvk can run it.
        try:
            import dmlvk.dask
        except ImportError as error:
            return str(error) or "it is not installed"
        return "" if dmlvk.dask else "it is not installed"

    reason = _asked(client, client.run_on_scheduler, look)
    if reason:
        raise ClusterError(
            f"the Dask scheduler at {_address(client)} cannot import dmlvk.dask, which it needs to read the tasks: "
            f"{reason}; install the same dmlvk there"
        )


def _is_spare(worker: ClusterWorker) -> bool:
    """Whether a worker has no device because it is not its turn."""
    return worker.reason.startswith("each device of its host") or worker.reason == "it is starting"


def _reports(client: Client) -> tuple[list[ClusterWorker], list[dict[str, Any]]]:
    def report(dask_worker: Any) -> Any:
        # Travels as code: a worker without dmlvk can run it.
        plugin = dask_worker.plugins.get("dmlvk")
        return None if plugin is None else plugin.report()

    found = _asked(client, client.run, report, on_error="return")
    workers, others = [], []
    for address, answer in sorted(found.items()):
        if isinstance(answer, dict):
            others.append(answer)
            facts = {name: answer[name] for name in ("device", "driver", "type", "index", "place") if name in answer}
            workers.append(ClusterWorker(address, **facts, reason=answer["reason"]))
        elif answer is None:
            workers.append(ClusterWorker(address, reason="it is starting"))
        elif not isinstance(answer, OSError):  # a worker that has just gone
            workers.append(ClusterWorker(address, reason=f"it does not answer: {shown(answer)}"))
    return workers, others


def _asked(client: Client, ask: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """A question to the scheduler; a ClusterError if it does not answer."""
    if client.status != "running":
        raise ClusterError(f"the client is {client.status}: connect to a scheduler first")
    try:
        return ask(*arguments, **options)
    except (OSError, RuntimeError) as error:  # a closed client raises a RuntimeError
        text = " ".join(str(error).split()) or type(error).__name__
        raise ClusterError(f"the Dask scheduler at {_address(client)} does not answer: {text}") from error


def _address(client: Client) -> str:
    scheduler = client.scheduler
    return str(scheduler.address) if scheduler is not None else "a closed client"
