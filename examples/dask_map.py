"""A convolution mapped over batches on a Dask cluster, each worker with a device of its own.

    python -m examples.dask_map                                 # a cluster of two processes on this host
    python -m examples.dask_map --scheduler tcp://10.0.0.1:8786 # one that is there

Without an address the cluster is a LocalCluster, with a worker for each of this host's devices, at most two: it works
with CPU drivers too. The batches come from a generator, which is read only as far as batches are in flight. The
filter, the scales and the bias are the same for all batches and travel once. A share of the batches (--check) runs on
two devices, whose results have to have the same bits. Each result is compared with the reference in NumPy. Needs the
extra `dask`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import click
import numpy as np

import dmlvk
from dmlvk.command_line.terminal import clear_errors

IMAGES, CHANNELS, FILTERS, SIDE = 4, 8, 16, 20
MOST_WORKERS = 2


def convolution() -> tuple[dmlvk.QuantizedLinearConvolutionDesc, dict[str, np.ndarray]]:
    """A layer on a batch of images, and the tensors that all batches share."""
    random = np.random.default_rng(1)
    constants: dict[str, np.ndarray] = {
        "input_scale_tensor": np.full((1, 1, 1, 1), 0.02, np.float32),
        "input_zero_point_tensor": np.full((1, 1, 1, 1), 121, np.uint8),
        "filter_tensor": random.integers(-127, 128, (FILTERS, CHANNELS, 3, 3)).astype(np.int8),
        "filter_scale_tensor": random.uniform(0.005, 0.02, (1, FILTERS, 1, 1)).astype(np.float32),
        "bias_tensor": random.integers(-5000, 5000, (1, FILTERS, 1, 1)).astype(np.int32),
        "output_scale_tensor": np.full((1, 1, 1, 1), 0.2, np.float32),
        "output_zero_point_tensor": np.full((1, 1, 1, 1), 120, np.uint8),
    }
    desc = dmlvk.QuantizedLinearConvolutionDesc(
        input_tensor=dmlvk.TensorDesc("uint8", (IMAGES, CHANNELS, SIDE, SIDE)),
        **{field: dmlvk.TensorDesc.of(array) for field, array in constants.items()},
        strides=[1, 1],
        dilations=[1, 1],
        start_padding=[1, 1],
        end_padding=[1, 1],
        group_count=1,
    )
    return desc, constants


def batches(count: int) -> Iterator[np.ndarray]:
    """Random images."""
    random = np.random.default_rng(2)
    for _ in range(count):
        yield random.integers(0, 256, (IMAGES, CHANNELS, SIDE, SIDE)).astype(np.uint8)


@click.command()
@click.option("--scheduler", metavar="ADDRESS", help="Of a cluster, as tcp://host:8786; else one is made on this host.")
@click.option("--batches", "count", type=click.IntRange(1), default=12, show_default=True)
@click.option("--check", type=click.FloatRange(0, 1), default=0.25, show_default=True, help="Share run on two devices.")
@clear_errors
def main(scheduler: str | None, count: int, check: float) -> None:
    """Map a convolution over batches on a cluster. Ends with status 1 if a result is not the reference's."""
    try:
        from distributed import Client, LocalCluster

        import dmlvk.dask
    except ImportError as error:
        raise click.ClickException("this example needs Dask: pip install 'dmlvk[dask]'") from error
    desc, constants = convolution()
    with ExitStack() as stack:
        if scheduler is None:
            workers = min(MOST_WORKERS, len(dmlvk.devices()))
            cluster = LocalCluster(
                n_workers=workers, threads_per_worker=2, dashboard_address="127.0.0.1:0", silence_logs=50
            )
            scheduler = stack.enter_context(cluster).scheduler_address
        client = stack.enter_context(Client(scheduler, set_as_default=False))
        devices = [worker for worker in dmlvk.dask.prepare(client) if worker.device]
        for worker in devices:
            click.echo(f"{worker.address}: {worker.device}")
        wrong = []
        results = dmlvk.dask.map(
            client, desc, batches(count), constants=constants, check=check if len(devices) > 1 else 0.0
        )
        for number, (batch, result) in enumerate(zip(batches(count), results, strict=True)):
            if not np.array_equal(result, dmlvk.reference.run(desc, input_tensor=batch, **constants)):
                wrong.append(number)
    if wrong:
        raise click.ClickException(f"differs from the NumPy reference: batch {', '.join(map(str, wrong))}")
    click.echo(f"{count} of {count} batches equal the NumPy reference bit for bit")


if __name__ == "__main__":
    main()
