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


@click.command(help=__doc__)
@click.option("--device", "name", default="NVIDIA", show_default=True)
def main(name: str) -> None:
    with dmlvk.Device(name) as device:
        for shape in ((64, 64), (1024, 4096), (8192, 8192)):
            rank = len(shape)
            desc = dmlvk.TensorDesc("int32", shape)
            turn = device.compile(
                dmlvk.Slice1Desc(
                    input_tensor=desc,
                    output_tensor=desc,
                    input_window_offsets=(0,) * rank,
                    input_window_sizes=shape,
                    input_window_strides=(1, -1),
                )
            )
            source, result = device.tensor(desc), device.tensor(desc)
            seen, back = torch.from_dlpack(source), torch.from_dlpack(result)
            state = torch.randint(0, 1000, shape, dtype=torch.int32, device="cuda")

            def shared(number: int) -> None:
                torch.add(state, number, out=seen)
                turn(input_tensor=source, output_tensor=result)
                torch.mul(back, 3, out=state)

            def by_torch(number: int) -> None:
                torch.add(state, number, out=seen)
                torch.flip(seen, (1,))
                torch.mul(back, 3, out=state)

            def waited(number: int) -> None:
                torch.add(state, number, out=seen)
                torch.cuda.synchronize()
                turn(input_tensor=source, output_tensor=result).wait()
                torch.mul(back, 3, out=state)

            def alone(number: int) -> None:
                turn(input_tensor=source, output_tensor=result)

            print(
                f"{shape}: shared {microseconds(shared):.1f} us a round, each step waited for {microseconds(waited, 200):.1f}, torch alone {microseconds(by_torch):.1f}, dmlvk's call alone on shared memory {microseconds(alone):.1f}"
            )
        print("copy of a CUDA tensor to the device:")
        for size in (1 << 10, 1 << 20, 1 << 28):
            cuda = torch.randint(0, 100, (size // 4,), dtype=torch.int32, device="cuda")
            times = microseconds(lambda _: device.tensor(cuda).free(), 50)
            print(f"  {size} bytes: {times:.0f} us")
        print(device.name, device.profile.driver_info, torch.__version__)


if __name__ == "__main__":
    main()
