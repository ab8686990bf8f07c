"""The process that cases run in, so that a driver which hangs or crashes takes one case with it and not the run.

It reads JSON lines from its standard input and writes JSON lines to what was its standard output; what drivers and
libraries print goes to standard error instead. It ends at once when its parent does.
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
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from typing import Any, BinaryIO

import numpy as np

import dmlvk
from dmlvk.conformance.names import OUR_CASES, CaseFinder, case_source
from dmlvk.conformance.results import Environment, Result, Status
from dmlvk.conformance.running.execution import Devices, execute
from dmlvk.errors import DeviceError
from dmlvk.runtime.device_info import driver_version_text

VERSION = re.compile(r"\d+(?:\.\d+)+")


@dataclass(frozen=True)
class Configuration:
    """What a worker is told first.

    Attributes
    ----------
    device : str, optional
        As `dmlvk.Device` takes it.
    cases : str
        "module:function" that lists the cases.
    path : str, optional
        The kernel path that cases take which leave it to the planner.
    repeat : int
        Times that a case is dispatched.
    """

    device: str | None = None
    cases: str = OUR_CASES
    path: str | None = None
    repeat: int = 3


def environment(devices: Devices) -> Environment:
    """Where this process runs."""
    profile = devices.profile
    driver = next((info.driver for info in dmlvk.devices() if info.profile == profile), profile.driver_name)
    return Environment(
        device=profile.name,
        driver=driver,
        vulkan=".".join(map(str, profile.api_version)),
        # Mesa has its version in the text, and 1 as lavapipe's number.
        driver_version=next(iter(VERSION.findall(profile.driver_info)), driver_version_text(profile)),
        record=profile.to_record(),
        features=tuple(sorted(devices.features)),
        package=package_version(),
        python=platform.python_version(),
        numpy=np.__version__,
        system=platform.platform(),
        kernels=kernel_hashes(),
    )


@cache
def package_version() -> str:
    """The version of dmlvk; of a checkout that is not installed, "checkout"."""
    try:
        return version("dmlvk")
    except PackageNotFoundError:
        return "checkout"


def kernel_hashes() -> dict[str, str]:
    """SHA-256 of each kernel's SPIR-V, from the manifest."""
    manifest = json.loads(files("dmlvk").joinpath("spirv", "manifest.json").read_text(encoding="utf-8"))
    return {name: entry["spirv_sha256"] for name, entry in manifest["kernels"].items()}


class Channel:
    """The worker's end of the pipes."""

    def __init__(self) -> None:
        # Descriptor 1 becomes standard error, whoever prints to it; the pipe keeps a number of its own.
        self._output: BinaryIO = os.fdopen(os.dup(1), "wb", 0)
        os.dup2(2, 1)
        self._incoming: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        # Unbuffered: a buffer's lock, held while it waits for a line, would stop the interpreter from ending.
        with open(0, "rb", buffering=0, closefd=False) as lines:
            for line in lines:
                self._incoming.put(json.loads(line))
        os._exit(0)  # the parent is gone, and perhaps the main thread hangs in a driver

    def receive(self) -> dict[str, Any]:
        """Wait for the next message."""
        return self._incoming.get()

    def send(self, **message: Any) -> None:
        """Send a message."""
        self._output.write(json.dumps(message, default=list).encode() + b"\n")


def main() -> None:
    """Serve until told to quit."""
    faulthandler.enable()
    channel = Channel()
    configuration = Configuration(**channel.receive()["configure"])
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
            result = execute(forced, devices, profile, configuration.repeat)
        except LookupError as error:
            result = Result(name, profile, Status.FAIL, "exception:LookupError", str(error))
        channel.send(result=replace(result, message=result.message[:10_000]).to_json())
        if result.status is Status.DEVICE_LOST:
            os._exit(0)  # closing what is lost may hang; another worker starts afresh
    devices.close()


if __name__ == "__main__":
    main()
