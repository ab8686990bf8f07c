"""Programs that tests run: workers that cannot take part, and clients that go away."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path

ROOT = Path(__file__).parents[2]


@contextmanager
def worker(
    address: str, variables: Mapping[str, str], preload: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A worker of a cluster, without a nanny; ended at the end of the block.

    Parameters
    ----------
    address : str
        The scheduler's.
    variables : mapping of str to str
        Of its environment.
    preload : Path, optional
        A program that it runs first.
    """
    command = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--no-nanny", "--no-dashboard"]
    command += ["--nthreads", "1", "--death-timeout", "60"]
    command += [] if preload is None else ["--preload", str(preload)]
    environment = {**os.environ, "DMLVK_VALIDATE": "0", "PYTHONPATH": str(ROOT), **variables}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def claim_and_wait(cluster: str) -> None:
    """Claim devices, tell their names, and wait to be killed."""
    from dmlvk.dask.claims import claim, wanted

    held = claim(wanted("best"), cluster)
    print(held.info.name if held is not None else "none", flush=True)
    sys.stdin.read()


def map_for_ever(address: str) -> None:
    """Map without an end, and tell the results."""
    from distributed import Client

    from dmlvk.dask import map as map_batches
    from tests.onnx.test_devices import batches, network

    (x,) = batches(1)
    with Client(address) as client:
        for _ in map_batches(client, network()[0], repeat(x)):
            print("result", flush=True)


if __name__ == "__main__":
    {"claim": claim_and_wait, "map": map_for_ever}[sys.argv[1]](sys.argv[2])
