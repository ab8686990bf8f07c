"""What a network waits for the driver's compiler: all its layers from nothing, by number of cores, and from the cache.

    python -m bench.compilers [--device NAME] [--network resnet50] [--layout nhwc] [--cores 1 --cores 4 ...]

Each row is a process of its own. The drivers' own caches are off; dmlvk's cache is an empty folder, and for "cached"
the folder that the row before has left. A process that may use so many cores compiles in as many threads.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from time import perf_counter

import click
from rich.console import Console
from rich.table import Table

import dmlvk
from dmlvk.benchmark.networks import NETWORKS, Dimensions
from dmlvk.benchmark.networks.work import constants_of, desc_of

# Of NVIDIA's driver, and of Mesa's.
CACHES_OFF = {"__GL_SHADER_DISK_CACHE": "0", "MESA_SHADER_CACHE_DISABLE": "true"}


def child(name: str | None, network: str, layout: str, cores: int) -> None:
    """Compile all layers of a network for one image, and print what that took."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    layers = list(NETWORKS[network](Dimensions()).counts)
    with dmlvk.Device(name) as device:
        start = perf_counter()
        operators = device.compile_all(desc_of(layer, 1, layout) for layer in layers)
        compiled = perf_counter() - start
        pipelines = device.vulkan.pipelines.count
        start = perf_counter()
        for number, (layer, operator) in enumerate(zip(layers, operators, strict=True)):
            operator.initialize(**constants_of(layer, number))
            desc = operator.desc
            operator(input_tensor=device.tensor(desc.input_tensor), output_tensor=device.tensor(desc.output_tensor))
        device.wait()
        called = perf_counter() - start
    print(json.dumps([len(layers), pipelines, compiled, called]))


@click.command(help=__doc__)
@click.option("--device", "name", help="Part of a device's name.")
@click.option("--network", type=click.Choice(list(NETWORKS)), default="resnet50", show_default=True)
@click.option("--layout", type=click.Choice(["nhwc", "nchw"]), default="nhwc", show_default=True)
@click.option("--cores", type=click.IntRange(1), multiple=True, default=(1, os.cpu_count() or 1), show_default=True)
@click.option("--child", "is_child", is_flag=True, hidden=True)
def main(name: str | None, network: str, layout: str, cores: tuple[int, ...], is_child: bool) -> None:
    if is_child:
        child(name, network, layout, cores[0])
        return
    table = Table("cores", "cache", "layers", "pipelines", "compiled, ms", "initialized and called once, ms")
    for count in cores:
        with tempfile.TemporaryDirectory() as folder:
            for cache in ("empty", "cached"):
                command = [sys.executable, "-m", "bench.compilers", "--child", "--network", network]
                command += ["--layout", layout, "--cores", str(count), *(["--device", name] if name else [])]
                environment = {**os.environ, **CACHES_OFF, "DMLVK_CACHE_DIR": folder}
                done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
                layers, pipelines, compiled, called = json.loads(done.stdout.splitlines()[-1])
                row = (str(count), cache, str(layers), str(pipelines))
                table.add_row(*row, f"{1e3 * compiled:,.0f}", f"{1e3 * called:,.0f}")
    Console(width=100).print(table)
    print(network, layout, "on", dmlvk.devices()[0].name if name is None else name)


if __name__ == "__main__":
    main()
