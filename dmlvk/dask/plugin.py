"""The plugin that each worker of a cluster gets, those that come later included."""

from __future__ import annotations

from typing import Any

from distributed import Worker, WorkerPlugin


def worker_plugin(settings: dict[str, Any]) -> WorkerPlugin:
    """A plugin that takes a device of the worker's host.

    Parameters
    ----------
    settings : dict
        "version" and "kernels" of the client, "devices" as `claims.wanted` takes them, and the "cluster".
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
