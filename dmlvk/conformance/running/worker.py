"""The process in which cases run, so that a driver that hangs or crashes costs one case and not the whole run.

It reads JSON lines from its standard input and writes JSON lines to its original standard output. The output of drivers
and libraries goes to standard error instead. The process ends at once when its parent ends.
"""

from __future__ import annotations

import faulthandler
import json
import os
import platform
import queue
import re
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

import dmlvk
from dmlvk._common import files
from dmlvk.conformance.names import OUR_CASES, CaseFinder, case_source
from dmlvk.conformance.outputs import keep_output
from dmlvk.conformance.privacy import public_system, without_home
from dmlvk.conformance.results import Environment, Result, Status
from dmlvk.conformance.running.execution import Devices, execute
from dmlvk.errors import DeviceError
from dmlvk.runtime.device_info import driver_version_text

VERSION = re.compile(r"\d+(?:\.\d+)+")


@dataclass(frozen=True)
class WorkerConfiguration:
    """The first message to a worker.

    device: as `dmlvk.Device` accepts it.
    cases: the "module:function" that lists the cases.
    path: the kernel path for cases that leave the choice to the planner.
    repeat: the number of times that a case is dispatched.
    soak: seconds for which each case that passed is replayed, to see the same bits again.
    outputs: the folder in which the output of each case is kept.
    """

    device: str | None = None
    cases: str = OUR_CASES
    path: str | None = None
    repeat: int = 3
    soak: float = 0.0
    outputs: str | None = None


def environment(devices: Devices) -> Environment:
    """The environment in which this process runs."""
    profile = devices.profile
    driver = next((info.driver for info in dmlvk.devices() if info.profile == profile), profile.driver_name)
    return Environment(
        device=profile.name,
        driver=driver,
        vulkan=".".join(map(str, profile.api_version)),
        # Mesa gives its version in the text, and the number 1 for lavapipe.
        driver_version=next(iter(VERSION.findall(profile.driver_info)), driver_version_text(profile)),
        record=profile.to_record(),
        features=tuple(sorted(devices.features)),
        package=dmlvk.__version__,
        python=platform.python_version(),
        numpy=np.__version__,
        system=public_system(),
        kernels=kernel_hashes(),
        distrusted_paths=devices.distrusted_paths,
    )


def kernel_hashes() -> dict[str, str]:
    """SHA-256 of each kernel's SPIR-V, from the manifest."""
    manifest = files.packaged_json("dmlvk", "spirv/manifest.json")
    return {name: entry["spirv_sha256"] for name, entry in manifest["kernels"].items()}


class Channel:
    """The worker's end of the pipes."""

    def __init__(self) -> None:
        # File descriptor 1 becomes standard error for all code that prints to it; the pipe keeps another descriptor.
        self._output: BinaryIO = os.fdopen(os.dup(1), "wb", 0)
        os.dup2(2, 1)
        self._incoming: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        # Unbuffered: a buffer's lock, held during the wait for a line, would keep the interpreter from ending.
        with open(0, "rb", buffering=0, closefd=False) as lines:
            for line in lines:
                self._incoming.put(json.loads(line))
        os._exit(0)  # the parent is gone, and the main thread may hang in a driver

    def receive(self) -> dict[str, Any]:
        """Wait for the next message."""
        return self._incoming.get()

    def send(self, **message: Any) -> None:
        """Send a message."""
        self._output.write(json.dumps(message, default=list).encode() + b"\n")


def main() -> None:
    """Run cases until told to quit."""
    faulthandler.enable()
    channel = Channel()
    configuration = WorkerConfiguration(**channel.receive()["configure"])
    finder = CaseFinder(case_source(configuration.cases))
    try:
        devices = Devices(configuration.device)
    except DeviceError as error:
        channel.send(error=" ".join(str(error).split()))
        return
    channel.send(ready=environment(devices).to_json())
    while True:
        message = channel.receive()
        if "quit" in message:
            break
        profile, name = message["run"]
        channel.send(start=[profile, name])
        try:
            case = finder.find(name)
            forced = replace(case, path=case.path or configuration.path)
            kept: list[npt.NDArray[Any]] = []
            folder = None if configuration.outputs is None else Path(configuration.outputs)
            result = execute(forced, devices, profile, configuration.repeat, kept.append, configuration.soak, folder)
            if kept and result.digest and folder is not None:
                keep_output(folder, result, kept[0])
        except LookupError as error:
            result = Result(name, profile, Status.FAIL, "exception:LookupError", str(error))
        except OSError as error:  # such as a full disk
            channel.send(error=f"the output of {name} cannot be kept: {error}")
            return
        channel.send(result=replace(result, message=without_home(result.message[:10_000])).to_json())
        if result.status is Status.DEVICE_LOST:
            os._exit(0)  # closing a lost device may hang; a new worker starts instead
    devices.close()


if __name__ == "__main__":
    main()
