"""The first result of a fresh process, and where its time goes."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from itertools import pairwise
from time import perf_counter

PROGRAM = """
import json, sys
from time import perf_counter
times = []
def lap(name):
    times.append((name, perf_counter()))
lap("start")
import numpy as np
lap("import numpy")
import dmlvk
lap("import dmlvk, without numpy")
dmlvk.devices()
lap("Vulkan loader, instance, devices")
device = dmlvk.Device(sys.argv[1])
lap("open the device, read the pipeline cache")
values = np.arange(64, dtype=np.int32)
desc = dmlvk.Slice1Desc(input_tensor=dmlvk.TensorDesc(dmlvk.DataType.INT32, (64,)),
    output_tensor=dmlvk.TensorDesc(dmlvk.DataType.INT32, (64,)),
    input_window_offsets=[0], input_window_sizes=[64], input_window_strides=[-1])
operator = device.compile(desc)
lap("plan, pipeline")
source, target = device.tensor(values), device.tensor(desc.output_tensor)
lap("tensors")
operator(input_tensor=source, output_tensor=target)
result = target.numpy()
lap("first call, result read")
assert (result == values[::-1]).all()
device.close()
lap("close the device")
print(json.dumps(times))
"""


def startup(device: str, rounds: int = 7) -> dict[str, float]:
    """Median seconds of each step of a process that computes one result; pipeline cache and file cache are warm."""
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        # Python's own compiled files are there as well, as in any installation.
        environment = {**os.environ, "DMLVK_CACHE_DIR": folder, "PYTHONPYCACHEPREFIX": folder}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for number in range(rounds + 1):
            start = perf_counter()
            command = [sys.executable, "-c", PROGRAM, device]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            whole = perf_counter() - start
            times = json.loads(done.stdout)
            steps = {name: after - before for (_, before), (name, after) in pairwise(times)}
            steps["to the first result, after the interpreter's start"] = times[-2][1] - times[0][1]
            steps["the process whole"] = whole
            if number:  # the first process fills the cache
                for name, seconds in steps.items():
                    found.setdefault(name, []).append(seconds)
            else:
                found["plan, pipeline, with an empty cache"] = [steps["plan, pipeline"]]
    return {name: statistics.median(each) for name, each in found.items()}
