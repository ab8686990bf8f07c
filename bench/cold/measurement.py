"""Measures how long a network waits for the driver's compiler. Each measurement is a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import dmlvk
from bench.cold import CACHES, EMPTY, ONE_THREAD, WAYS
from bench.cold.process import save
from dmlvk._common import files
from dmlvk.benchmark.cases.quantized_linear_convolution import Layer
from dmlvk.benchmark.networks.measurement import NetworkSettings
from dmlvk.benchmark.networks.network import Network
from dmlvk.benchmark.networks.work import work_of
from dmlvk.benchmark.records import Keep, Progress, Record, circumstances
from dmlvk.vulkan.host_threads import core_count

# The caches of NVIDIA's driver and of Mesa's drivers.
CACHES_OFF = {"__GL_SHADER_DISK_CACHE": "0", "MESA_SHADER_CACHE_DISABLE": "true"}

# A convolution that a process has run before the first result of a layer is asked for. No network has it.
EARLIER = Layer(16, 9, 24, 3)


class ProcessError(Exception):
    """A measuring process ended without a result; the message is its last words."""


def step_count(settings: NetworkSettings) -> int:
    """How often `run` reports its progress."""
    return 1 + len(settings.batches) * len(settings.layouts) * len(CACHES) * len(WAYS)


def run(
    device: dmlvk.Device,
    selector: int | str | None,
    network: Network,
    settings: NetworkSettings,
    progress: Progress = lambda name: None,
    keep: Keep = lambda record: None,
) -> Record:
    """Measure the first calls of a network's convolutions.

    device: where they are measured; only its name and driver are asked here.
    selector: opens the same device in another process.
    settings: its batches and layouts.
    Raises ProcessError: a measuring process ended without a result.
    """
    progress("the layers' data")
    runs: list[Record] = []
    record: Record = {
        "kind": "cold",
        **circumstances(device, 1),
        "network": {"name": network.name, "size": network.size, "layers": len(network.layers)},
        "cores": core_count(),
        "runs": runs,
    }
    layers = [EARLIER, *network.counts]
    with TemporaryDirectory(prefix="dmlvk-cold-") as folder:
        data = Path(folder, "data")
        data.mkdir()
        for number, layer in enumerate(layers):
            save(work_of(layer), data / f"{number}.npz")
        for batch, layout in product(settings.batches, settings.layouts):
            place = Path(folder, f"{batch}-{layout}")
            for cache, way in product(CACHES, WAYS):
                progress(f"batch {batch}, {layout}, {way}, {cache} cache")
                # What a process has kept is in the folder that began empty and was filled with all layers.
                own = place / (way if cache == EMPTY else ONE_THREAD)
                request = {
                    "selector": selector,
                    "layers": [asdict(layer) for layer in layers],
                    "batch": batch,
                    "layout": layout,
                    "way": way,
                }
                found = _in_a_process(request, data, own)
                for layer, row in zip(layers[1:], found.get("layers", ()), strict=False):
                    row.update(name=layer.name, count=network.counts[layer])
                runs.append({"batch": batch, "layout": layout, "cache": cache, "way": way, **found})
                keep(record)
    return record


def _in_a_process(request: Record, data: Path, cache_folder: Path) -> Record:
    request_file, result_file = data / "request.json", data / "result.json"
    files.write_text(request_file, json.dumps(request))
    result_file.unlink(missing_ok=True)
    # A file that records descriptors is the user's own program's.
    environment = {**os.environ, **CACHES_OFF, "DMLVK_CACHE_DIR": str(cache_folder), "DMLVK_RECORD": ""}
    command = [sys.executable, "-m", "bench.cold.process", str(request_file), str(result_file)]
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode or not result_file.exists():
        words = done.stderr.decode(errors="replace").split("\n")
        last = next((line for line in reversed(words) if line.strip()), "it said nothing")
        raise ProcessError(f"the measuring process ended with status {done.returncode}: {last}")
    found: Record = files.read_json(result_file)
    return found
