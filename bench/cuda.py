"""One round of torch -> dmlvk -> torch on memory that both share, beside torch's own operators; needs CUDA and torch.

    python -m bench.cuda [--device NAME]

A round adds a number to a tensor with torch, reverses the rows with SLICE1, and multiplies with torch. Rounds follow
each other without a wait on the host; the time is that of many rounds, waited for once.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import click
import torch
from rich.console import Console
from rich.table import Table

import dmlvk

ROUNDS = 1000


def microseconds(work: Callable[[int], None], rounds: int = ROUNDS) -> float:
    """Time of one of many rounds, the median of five series."""
    times = []
    for _ in range(6):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for number in range(rounds):
            work(number)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / rounds * 1e6)
    return statistics.median(times[1:])


class Rounds:
    """The kinds of rounds on tensors of one shape."""

    def __init__(self, device: dmlvk.Device, shape: tuple[int, int]) -> None:
        desc = dmlvk.TensorDesc("int32", shape)
        self.turn = device.compile(
            dmlvk.Slice1Desc(
                input_tensor=desc,
                output_tensor=desc,
                input_window_offsets=(0, 0),
                input_window_sizes=shape,
                input_window_strides=(1, -1),
            )
        )
        self.source, self.result = device.tensor(desc), device.tensor(desc)
        self.seen, self.back = torch.from_dlpack(self.source), torch.from_dlpack(self.result)
        self.state = torch.randint(0, 1000, shape, dtype=torch.int32, device="cuda")

    def shared(self, number: int) -> None:
        torch.add(self.state, number, out=self.seen)
        self.turn(input_tensor=self.source, output_tensor=self.result)
        torch.mul(self.back, 3, out=self.state)

    def waited(self, number: int) -> None:
        torch.add(self.state, number, out=self.seen)
        torch.cuda.synchronize()
        self.turn(input_tensor=self.source, output_tensor=self.result).wait()
        torch.mul(self.back, 3, out=self.state)

    def of_torch(self, number: int) -> None:
        torch.add(self.state, number, out=self.seen)
        torch.mul(torch.flip(self.seen, (1,)), 3, out=self.state)

    def of_dmlvk(self, number: int) -> None:
        self.turn(input_tensor=self.source, output_tensor=self.result)


@click.command(help=__doc__)
@click.option("--device", "name", default="NVIDIA", show_default=True)
def main(name: str) -> None:
    table = Table("shape", "shared us", "each step waited for us", "torch alone us", "dmlvk's calls alone us")
    copies = Table("bytes", "device.tensor(CUDA tensor) us")
    with dmlvk.Device(name) as device:
        for shape in ((64, 64), (1024, 4096), (8192, 8192)):
            rounds = Rounds(device, shape)
            works = (rounds.shared, rounds.waited, rounds.of_torch, rounds.of_dmlvk)
            table.add_row(str(shape), *(f"{microseconds(work, 300):.1f}" for work in works))
        for size in (1 << 10, 1 << 20, 1 << 28):
            cuda = torch.randint(0, 100, (size // 4,), dtype=torch.int32, device="cuda")

            def copy_and_free(_: int, cuda: torch.Tensor = cuda) -> None:
                device.tensor(cuda).free()

            copies.add_row(str(size), f"{microseconds(copy_and_free, 50):.0f}")
        for each in (table, copies):
            Console(width=120).print(each)
        print(device.name, device.profile.driver_info, torch.__version__)


if __name__ == "__main__":
    main()
