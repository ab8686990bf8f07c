"""SLICE1 on dimensions in any order, beside torch's copy of the same view on the same GPU, and beside a plain copy.

    python -m bench.permutations [--device NVIDIA] [--count 100] [--seed 1] [--seconds 300] [--mebibytes 64]
        [--every-path] [--json FILE]

Named cases come first: those that were slow once, and rows of 8 bytes. Then come random ones: two to eight dimensions
of any order, of which one is as long as it takes; some with a step or a margin. Every result is compared bit by bit.
Times are medians, taken on the device, of rounds that take turns on several sets of tensors, so that no cache holds
them. With --every-path, each kernel path is measured beside its estimate: the planner has to take the fastest.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.progress import track
from rich.table import Table

import dmlvk
from dmlvk import DataType, Slice1Desc, TensorDesc
from dmlvk._common.bits import equal_bits
from dmlvk.benchmark.peers import torch as peer
from dmlvk.benchmark.timing import WARM_UP_SECONDS, rotation, time_bindings
from dmlvk.benchmark.work import work_of
from dmlvk.planning.slice1 import COPY_PATHS, nest_of
from dmlvk.tensor_desc import packed_strides

TYPES = (DataType.UINT8, DataType.INT16, DataType.INT32, DataType.INT64)
SIZES = (2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 25, 32, 33, 49, 64, 100, 128)
MOST_RANK = 8
ROUNDS = 15
# The device has just run the case before, and got slower while the host made this case's data.
SHORT_WARM_UP_SECONDS = 0.3
POISON = b"\xa5"
WORST = 12


@dataclass(frozen=True)
class Case:
    """A packed tensor, a window of it, and the order of its dimensions in the output.

    Attributes:
        data_type (DataType):
        sizes (tuple of int): Of the tensor, as it lies in memory.
        order (tuple of int): The tensor's dimensions in the output, from the outermost.
        margins, steps (tuple of int): For each dimension of the tensor: elements before the window and after it, and
            the window's stride.
    """

    data_type: DataType
    sizes: tuple[int, ...]
    order: tuple[int, ...]
    margins: tuple[int, ...]
    steps: tuple[int, ...]

    @classmethod
    def of(
        cls, data_type: DataType, sizes: Sequence[int], order: Sequence[int], margin: int = 0, step: int = 1
    ) -> Case:
        """A case whose innermost dimension alone has a margin or a step."""
        others = (0,) * (len(sizes) - 1)
        return cls(data_type, tuple(sizes), tuple(order), (*others, margin), (*(1 for _ in others), step))

    @property
    def name(self) -> str:
        windows = [
            f", dimension {k} from {margin} in steps of {step}"
            for k, (margin, step) in enumerate(zip(self.margins, self.steps, strict=True))
            if (margin, step) != (0, 1)
        ]
        return f"{self.data_type.name} {list(self.sizes)} by {self.order}{''.join(windows)}"

    @property
    def slices(self) -> tuple[slice, ...]:
        """The window, in the output's order of the dimensions."""
        return tuple(slice(self.margins[k], self.sizes[k] - self.margins[k], self.steps[k]) for k in self.order)

    @property
    def desc(self) -> Slice1Desc:
        strides = packed_strides(self.sizes)
        return Slice1Desc(
            input_tensor=TensorDesc(
                self.data_type, [self.sizes[k] for k in self.order], [strides[k] for k in self.order]
            ),
            input_window_offsets=[self.margins[k] for k in self.order],
            input_window_sizes=[self.sizes[k] - 2 * self.margins[k] for k in self.order],
            input_window_strides=[self.steps[k] for k in self.order],
        )


def named_cases(size: int) -> Iterator[Case]:
    """Those that were slow, in 64 MiB; and rows of 8 bytes, in about `size` bytes."""
    yield Case.of(DataType.INT64, (2, 55924, 5, 3, 5), (4, 1, 3, 0, 2))
    yield Case.of(DataType.INT16, (16, 49, 32, 1337), (2, 1, 3, 0))
    yield Case.of(DataType.UINT8, (5, 32, 26214, 16), (3, 0, 1, 2))
    for data_type in TYPES:
        row = 8 // data_type.size_in_bytes
        yield Case.of(data_type, (size // (8 + 2 * data_type.size_in_bytes), row + 2), (0, 1), 1)
        yield Case.of(data_type, (1024, size // 8 // 1024, row), (1, 0, 2))
    yield Case.of(DataType.UINT8, (size // (224 * 224 * 3), 224, 224, 3), (0, 3, 1, 2))
    yield Case.of(DataType.UINT8, (size // (224 * 224 * 3), 3, 224, 224), (0, 2, 3, 1))


def random_cases(seed: int, size: int) -> Iterator[Case]:
    """An endless row of cases of about `size` bytes. The same seed gives the same row."""
    drawn = random.Random(seed)
    while True:
        data_type, rank = drawn.choice(TYPES), drawn.randint(2, MOST_RANK)
        sizes = [drawn.choice(SIZES) for _ in range(rank)]
        long = drawn.randrange(rank)
        sizes[long] = size // data_type.size_in_bytes // (math.prod(sizes) // sizes[long])
        order = drawn.sample(range(rank), rank)
        margins, steps = [0] * rank, [1] * rank
        if drawn.random() < 0.2:
            steps[drawn.randrange(rank)] = drawn.choice((2, 3))
        elif drawn.random() < 0.2:
            margins[long] = 1
        if sizes[long] > 2 and order != sorted(order):
            yield Case(data_type, tuple(sizes), tuple(order), tuple(margins), tuple(steps))


def elements(case: Case) -> npt.NDArray[Any]:
    """Random bits as the tensor's elements in memory."""
    count = math.prod(case.sizes) * case.data_type.size_in_bytes
    data = np.random.default_rng(1).integers(0, 1 << 64, -(-count // 8), np.uint64).view(np.uint8)[:count]
    return data.view(case.data_type.numpy_dtype).reshape(case.sizes)


@dataclass(frozen=True)
class Found:
    """What was measured of a case; seconds. `paths` has, by path, the estimate and the time; `torch` may be absent."""

    case: str
    path: str
    bytes_moved: int
    copy: float
    predicted: float
    seconds: float
    torch: float | None
    is_right: bool
    paths: dict[str, tuple[float, float]]

    @property
    def of_torch(self) -> float:
        """The speed as a share of torch's; infinite without torch."""
        return math.inf if self.torch is None else self.torch / self.seconds

    @property
    def of_copy(self) -> float:
        """The speed as a share of a copy's that moves as many bytes."""
        return self.copy / self.seconds


class Sets:
    """Sets of tensors that take turns, with the same input."""

    def __init__(self, device: dmlvk.Device, desc: Slice1Desc, data: npt.NDArray[Any], count: int) -> None:
        self._device, self._desc = device, desc
        self._inputs = [device.tensor(desc.input_tensor) for _ in range(count)]
        self._outputs = [device.tensor(desc.output_tensor) for _ in range(count)]
        for tensor in self._inputs:
            tensor.write_bytes(data.tobytes().ljust(desc.input_tensor.total_size_in_bytes, b"\0"))

    def measure(self, path: str | None, expected: npt.NDArray[Any]) -> tuple[str, set[str], float, bool]:
        """The path and its kernels, the median of its seconds, and whether all results are right."""
        for output in self._outputs:
            output.write_bytes(POISON * output.desc.total_size_in_bytes)
        operator = self._device.compile(self._desc, path=path, wait=True)
        tensors = zip(self._inputs, self._outputs, strict=True)
        bindings = [operator.bind(input_tensor=source, output_tensor=output) for source, output in tensors]
        times = time_bindings(self._device, bindings, ROUNDS, SHORT_WARM_UP_SECONDS).times
        is_right = all(equal_bits(output.numpy(), expected) for output in self._outputs)
        return operator.plan.path, {each.kernel for each in operator.plan.dispatches}, times.median, is_right


def time_torch(case: Case, data: npt.NDArray[Any], count: int) -> float:
    """The median of torch's seconds for a packed copy of the permuted window."""
    sources = [copy.permute(case.order)[case.slices] for copy in peer.copies(data, count)]
    results: list[Any] = [None] * count

    def step(number: int) -> None:
        results[number % count] = sources[number % count].contiguous()

    return peer.time_on_cuda(step, ROUNDS, SHORT_WARM_UP_SECONDS).median


def measured(device: dmlvk.Device, case: Case, copy_rate: float, with_torch: bool, every_path: bool) -> Found:
    """Measure one case."""
    desc, data = case.desc, elements(case)
    expected = np.ascontiguousarray(data.transpose(case.order)[case.slices])
    moved = work_of(desc).bytes_moved
    count = rotation(moved, device.profile.device_type)
    sets = Sets(device, desc, data, count)
    path, _, seconds, is_right = sets.measure(None, expected)
    estimates = {each.name: each.seconds(nest_of(desc), device.profile) for each in COPY_PATHS}
    paths = {}
    for name in estimates if every_path else ():
        _, kernels, taken, right = sets.measure(name, expected)
        # A path leaves what does not suit it to blocks.
        if all(kernel.startswith(f"slice1/{name}") for kernel in kernels):
            paths[name] = estimates[name], taken
        is_right = is_right and right
    torch = time_torch(case, data, count) if with_torch else None
    return Found(case.name, path, moved, moved / copy_rate, estimates[path], seconds, torch, is_right, paths)


def measure_copy(device: dmlvk.Device, size: int) -> float:
    """Bytes a second that SLICE1 reads and writes in a plain copy. The device warms up for it."""
    case = Case.of(DataType.UINT8, (size,), (0,))
    sets = Sets(device, case.desc, elements(case), rotation(2 * size, device.profile.device_type))
    begin = time.perf_counter()
    while True:
        *_, seconds, _ = sets.measure(None, elements(case))
        if time.perf_counter() - begin > WARM_UP_SECONDS:
            return 2 * size / seconds


def table_of(title: str, rows: Sequence[Found]) -> Table:
    table = Table("case", "path", "predicted us", "us", "of a copy", "torch us", "of torch", title=title)
    for row in rows:
        torch = "-" if row.torch is None else f"{row.torch * 1e6:.1f}"
        share = "-" if row.torch is None else f"{row.of_torch:.2f}"
        wrong = "" if row.is_right else " WRONG"
        times = f"{row.predicted * 1e6:.1f}", f"{row.seconds * 1e6:.1f}{wrong}"
        table.add_row(row.case, row.path, *times, f"{row.of_copy:.0%}", torch, share)
    return table


def table_of_paths(rows: Sequence[Found]) -> Table:
    """The estimates and the times of all paths, where the planner has not taken the fastest."""
    heads = (f"{path.name}: predicted, us" for path in COPY_PATHS)
    table = Table("case", "taken", *heads, title="Faster by another path")
    for row in rows:
        fastest = min(row.paths, key=lambda name: row.paths[name][1], default=row.path)
        if fastest != row.path:
            cells = [row.paths.get(path.name) for path in COPY_PATHS]
            texts = ("-" if cell is None else f"{cell[0] * 1e6:.1f}, {cell[1] * 1e6:.1f}" for cell in cells)
            table.add_row(row.case, row.path, *texts)
    return table


@click.command(help=__doc__)
@click.option("--device", "selector", help="Index or part of a name.")
@click.option("--count", default=100, show_default=True, type=click.IntRange(0), help="Random cases.")
@click.option("--seed", default=1, show_default=True)
@click.option("--seconds", default=300.0, show_default=True, help="Begin no case after so many.")
@click.option("--mebibytes", default=64, show_default=True, type=click.IntRange(1), help="Of the input, about.")
@click.option("--every-path", is_flag=True, help="Measure each kernel path beside its estimate.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Also write the figures here.")
def main(
    selector: str | None,
    count: int,
    seed: int,
    seconds: float,
    mebibytes: int,
    every_path: bool,
    json_path: Path | None,
) -> None:
    begin = time.monotonic()
    console = Console()
    if not console.is_terminal:
        console = Console(width=170)
    size = mebibytes << 20
    drawn = random_cases(seed, size)
    cases = [*named_cases(size), *(next(drawn) for _ in range(count))]
    absence = peer.cuda_absence()
    rows: list[Found] = []
    with dmlvk.Device(selector, timestamps=True) as device:
        # Two GPUs of different makers may be in one machine: torch's times are for an NVIDIA GPU alone.
        if absence is None and "NVIDIA" not in device.name:
            absence = f"{device.name} is no device of torch's"
        copy_rate = measure_copy(device, size)
        for case in track(cases, console=Console(stderr=True)):
            if time.monotonic() - begin > seconds:
                break
            rows.append(measured(device, case, copy_rate, absence is None, every_path))
            if json_path is not None:
                record = {"device": device.name, "driver": device.profile.driver_info, "copy": copy_rate, "seed": seed}
                record["cases"] = [asdict(row) for row in rows]
                json_path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        name = f"{device.name}, {device.profile.driver_info}"
    console.print(table_of(f"{name}: a copy moves {copy_rate / 1e9:,.0f} GB/s", rows))
    if every_path:
        console.print(table_of_paths(rows))
    console.print(table_of("The slowest beside a copy", sorted(rows, key=lambda row: row.of_copy)[:WORST]))
    if absence is None:
        console.print(table_of("The slowest beside torch", sorted(rows, key=lambda row: row.of_torch)[:WORST]))
        slow = sum(row.of_torch < 0.8 for row in rows)
        console.print(f"{slow} of {len(rows)} cases have less than 0.8 of torch's speed")
    else:
        console.print(f"without torch: {absence}")
    if not all(row.is_right for row in rows):
        raise SystemExit("wrong bits")


if __name__ == "__main__":
    main()
