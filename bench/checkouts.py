"""Two checkouts of this project on one device: is anything slower than it was?

    git worktree add ../before v0.1
    python -m bench.checkouts ../before . [--device NAME] [--case "SLICE1*"] [--rounds 15] [--json FILE]
        [--markdown FILE]

Each checkout runs in a process of its own. For each case the two processes take turns, call by call, so that other
work on the machine affects both. The figures are processor time, summed over all threads of a process: on a CPU driver
that is the time of the kernel. Times are the minimum of the rounds; ratios are the median of the ratios of neighbouring
calls. The results of the two are compared byte for byte.

The cases "host: ..." are what calls cost the thread that makes them, with next to no work for the device. A turn is the
least processor time of several hundred calls.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

import dmlvk
from dmlvk import DataType, DiagonalMatrix1Desc, OneHotDesc, QuantizedLinearConvolutionDesc, Slice1Desc, TensorDesc

# A turn is one call. On Windows processor time goes in steps of 16 ms, so a turn has enough calls to take several.
TURN_SECONDS = 0.1 if sys.platform == "win32" else 0.0

INT32_MIN = -(1 << 31)
HOST = "host: "
HOST_STEPS = (
    "a call", "a call and the wait for it", "submit of one binding", "submit of a sequence", "submit of 100 bindings",
    "submit of 100 bindings, recorded", "submit of a chain, recorded", "compile of a known descriptor", "bind",
    "tensor",
)  # fmt: skip
COLUMNS = ("case", "before", "after", "after / before", "results")
# Neighbouring calls on a machine with other work differ by less.
NOISE = 1.1
# The range of random data: some indices of one-hots are out of range.
RANGES = {
    DataType.UINT8: (0, 256),
    DataType.INT8: (-128, 128),
    DataType.INT32: (-99, 300),
    DataType.FLOAT32: (0, 1000),
}

# Images, input channels, height, width, output channels, filter size, stride, groups.
CONVOLUTIONS = {
    "64 channels, 56x56": (1, 64, 56, 56, 64, 3, 1, 1),
    "256 to 64 channels, 56x56, 1x1": (1, 256, 56, 56, 64, 1, 1, 1),
    "3 to 64 channels, 112x112, 7x7": (1, 3, 112, 112, 64, 7, 2, 1),
    "512 channels, 7x7": (1, 512, 7, 7, 512, 3, 1, 1),
    "128 channels in 32 groups, 28x28": (1, 128, 28, 28, 128, 3, 1, 32),
    "144 channels depthwise, 56x56": (1, 144, 56, 56, 144, 3, 1, 144),
}


def slices(data_type: DataType) -> Iterator[tuple[str, Slice1Desc]]:
    """Windows, steps and layouts of a tensor of 1 MiB."""
    height, width = 1024, 1024 // data_type.size_in_bytes
    whole, flat = TensorDesc(data_type, [height, width]), [0, 0]

    def desc(
        output: list[int], offsets: list[int], window: list[int], steps: list[int], source: TensorDesc
    ) -> Slice1Desc:
        return Slice1Desc(
            input_tensor=source,
            output_tensor=TensorDesc(data_type, output),
            input_window_offsets=offsets,
            input_window_sizes=window,
            input_window_strides=steps,
        )

    sizes = [height, width]
    window = [height - 2, width - 8]
    yield "copy", desc(sizes, flat, sizes, [1, 1], whole)
    yield "window", desc(window, [1, 3], window, [1, 1], whole)
    yield "step 2, rows", desc([height // 2, width], flat, sizes, [2, 1], whole)
    yield "step 2, innermost", desc([height, width // 2], flat, sizes, [1, 2], whole)
    yield "step 3, innermost", desc([height, -(-width // 3)], flat, sizes, [1, 3], whole)
    yield "reversed innermost", desc(sizes, flat, sizes, [1, -1], whole)
    yield "transposed", desc(sizes[::-1], flat, sizes[::-1], [1, 1], TensorDesc(data_type, sizes[::-1], [1, width]))
    narrow = [height * width // 64, 9]
    yield "rows of 9", desc(narrow, [0, 1], narrow, [1, 1], TensorDesc(data_type, [narrow[0], 11]))
    pixels = [height // 4, width // 4, 3]
    yield "mirrored pixels of 3 channels", desc(pixels, [0, 0, 0], pixels, [1, -1, 1], TensorDesc(data_type, pixels))
    steps = TensorDesc(data_type, [narrow[0], 25])
    yield "rows of 9, step 3, innermost", desc(narrow, flat, [narrow[0], 25], [1, 3], steps)


def diagonals(data_type: DataType) -> Iterator[tuple[str, DiagonalMatrix1Desc]]:
    """Bands of one matrix, or of many small ones."""
    matrix, batch = TensorDesc(data_type, [1024, 1024]), TensorDesc(data_type, [4096, 9, 9])
    for name, begin, end, source, output in [
        ("upper triangle", INT32_MIN, 0, matrix, matrix),
        ("all but a band", 3, -3, matrix, matrix),
        ("identity", 0, 1, None, matrix),
        ("upper triangles of 9x9", INT32_MIN, 0, batch, batch),
    ]:
        yield (
            name,
            DiagonalMatrix1Desc(
                input_tensor=source,
                output_tensor=output,
                value=7,
                diagonal_fill_begin=begin,
                diagonal_fill_end=end,
            ),
        )


def one_hots(data_type: DataType) -> Iterator[tuple[str, OneHotDesc]]:
    """Some thousand indices in 256 classes, and shapes whose rows do not begin and end with blocks."""
    for name, axis, indices, output in [
        ("last axis", 1, [4096, 1], [4096, 256]),
        ("last axis of 255", 1, [4096, 1], [4096, 255]),
        ("first axis", 0, [1, 4096], [256, 4096]),
        ("first axis, 4095 indices", 0, [1, 4095], [256, 4095]),
        ("middle axis, rows of 9", 1, [455, 1, 9], [455, 256, 9]),
    ]:
        yield (
            name,
            OneHotDesc(
                indices_tensor=TensorDesc(DataType.INT32, indices),
                values_tensor=TensorDesc(data_type, [*(1 for _ in output[1:]), 2]),
                output_tensor=TensorDesc(data_type, output),
                axis=axis,
            ),
        )


def convolution(shape: tuple[int, ...], channels_last: bool) -> QuantizedLinearConvolutionDesc:
    """UINT8 activations and outputs, INT8 filters, a scale for each channel, a bias."""
    images, inputs, height, width, outputs, size, stride, groups = shape
    padding = (size - 1) // 2
    out_height, out_width = ((extent + 2 * padding - size) // stride + 1 for extent in (height, width))

    def activations(channels: int, rows: int, columns: int) -> TensorDesc:
        strides = [rows * columns * channels, 1, columns * channels, channels] if channels_last else None
        return TensorDesc(DataType.UINT8, [images, channels, rows, columns], strides)

    one, per_channel = [1, 1, 1, 1], [1, outputs, 1, 1]
    return QuantizedLinearConvolutionDesc(
        input_tensor=activations(inputs, height, width),
        input_scale_tensor=TensorDesc(DataType.FLOAT32, one),
        input_zero_point_tensor=TensorDesc(DataType.UINT8, one),
        filter_tensor=TensorDesc(DataType.INT8, [outputs, inputs // groups, size, size]),
        filter_scale_tensor=TensorDesc(DataType.FLOAT32, per_channel),
        filter_zero_point_tensor=TensorDesc(DataType.INT8, one),
        bias_tensor=TensorDesc(DataType.INT32, per_channel),
        output_scale_tensor=TensorDesc(DataType.FLOAT32, one),
        output_zero_point_tensor=TensorDesc(DataType.UINT8, one),
        output_tensor=activations(outputs, out_height, out_width),
        strides=[stride, stride],
        dilations=[1, 1],
        start_padding=[padding, padding],
        end_padding=[padding, padding],
        group_count=groups,
    )


def cases() -> dict[str, Any]:
    """Descriptors by name, and names of `Host.steps` without one."""
    found: dict[str, Any] = {}
    for data_type in (DataType.UINT8, DataType.FLOAT32):
        for operator, make in (("SLICE1", slices), ("DIAGONAL_MATRIX1", diagonals), ("ONE_HOT", one_hots)):
            found |= {f"{operator} {name}, {data_type.name}": desc for name, desc in make(data_type)}
    for name, shape in CONVOLUTIONS.items():
        for layout in ("NHWC", "NCHW"):
            found[f"QUANTIZED_LINEAR_CONVOLUTION {name}, {layout}"] = convolution(shape, layout == "NHWC")
    return found | {f"{HOST}{name}": None for name in HOST_STEPS}


class Host:
    """Calls with next to no work for the device, by name: what they cost the thread that makes them."""

    def __init__(self, device: dmlvk.Device) -> None:
        self.device = device
        values = np.arange(64, dtype=np.int32)
        tensor = TensorDesc(DataType.INT32, values.shape)
        # An even number of these leaves a row as it was.
        window: dict[str, Any] = {"input_window_offsets": [0], "input_window_sizes": [64]}
        reverse = Slice1Desc(input_tensor=tensor, output_tensor=tensor, input_window_strides=[-1], **window)
        operator = device.compile(reverse)
        pairs = [(device.tensor(values + n), device.tensor(tensor)) for n in range(100)]
        apart = [operator.bind(input_tensor=a, output_tensor=b) for a, b in pairs]
        a, b = pairs[0]
        chain = [apart[0], operator.bind(input_tensor=b, output_tensor=a)] * 50
        sequence = device.sequence(chain)
        # Each list differs from all the others, and there are more than a device remembers.
        apart_anew = itertools.cycle([apart[n:] + apart[:n] for n in range(1, 100)])
        mixed = [(chain[n:] + apart[100 - n :], apart[:n] + chain[n:]) for n in range(2, 100, 2)]
        chain_anew = itertools.cycle([each for both in mixed for each in both])
        steps: list[tuple[int, Callable[[], object]]] = [
            (100, lambda: operator(input_tensor=a, output_tensor=b)),
            (20, lambda: operator(input_tensor=a, output_tensor=b).wait()),
            (100, lambda: device.submit(apart[:1])),
            (10, sequence.submit),
            (1, lambda: device.submit(apart)),
            (1, lambda: device.submit(next(apart_anew))),
            (1, lambda: device.submit(next(chain_anew))),
            (100, lambda: device.compile(reverse)),
            (20, lambda: operator.bind(input_tensor=a, output_tensor=b)),
            (100, lambda: device.tensor(tensor)),
        ]
        self.steps = dict(zip(HOST_STEPS, steps, strict=True))

    def least(self, name: str) -> float:
        """The least seconds of the calling thread for one call."""
        calls, step = self.steps[name]
        seconds = []
        for _ in range(12 if calls > 1 else 40):
            begin, done = time.thread_time(), 0
            while not done or time.thread_time() - begin < TURN_SECONDS:
                for _ in range(calls):
                    step()
                done += calls
            seconds.append((time.thread_time() - begin) / done)
            self.device.wait()
        return min(seconds)


def content(field: str, tensor: TensorDesc, generator: np.random.Generator) -> np.ndarray:
    """Random data that is valid for a field; scales use the whole range of the output."""
    numpy_type = tensor.data_type.name.lower()
    if "scale" in field:
        return np.full(tensor.sizes, 0.3 if field == "output_scale_tensor" else 0.01, numpy_type)
    return generator.integers(*RANGES[tensor.data_type], tensor.sizes).astype(numpy_type)


def work(device_name: str | None) -> None:
    """The process of one checkout: answer each line of input, "prepare" or "run" and a case, with digest or seconds."""
    descriptors = cases()
    bindings: list[Any] = []
    with dmlvk.Device(device_name) as device:
        print(device.name, flush=True)
        host = None
        for line in sys.stdin:
            verb, name = line.rstrip("\n").split(" ", 1)
            if descriptors[name] is None:
                host = host or Host(device)
                print("no result" if verb == "prepare" else host.least(name.removeprefix(HOST)), flush=True)
                continue
            if verb == "run":
                calls, begin = 0, time.process_time()
                while not calls or time.process_time() - begin < TURN_SECONDS:
                    device.submit(bindings).wait()
                    calls += 1
                print((time.process_time() - begin) / calls, flush=True)
                continue
            desc = descriptors[name]
            generator = np.random.default_rng(len(name))
            tensors = {field: device.tensor(tensor) for field, tensor in desc.tensors.items()}
            for field, tensor in tensors.items():
                if field not in desc.output_fields:
                    tensor.write(content(field, desc.tensors[field], generator))
            bindings = [device.compile(desc).bind(**tensors)]
            device.submit(bindings).wait()
            print(hashlib.sha256(tensors["output_tensor"].numpy().tobytes()).hexdigest(), flush=True)


class Checkout:
    """A process with the dmlvk of a checkout. It is a context manager."""

    def __init__(self, folder: Path, device_name: str | None) -> None:
        if not (folder / "dmlvk" / "__init__.py").is_file():
            raise click.ClickException(f"{folder} is no checkout of this project: it has no dmlvk/__init__.py")
        command = [sys.executable, str(Path(__file__).resolve()), "--work"]
        command += [] if device_name is None else ["--device", device_name]
        # Without the background no turn is a general kernel's, which answers while the right one is being compiled.
        environment = {**os.environ, "PYTHONPATH": str(folder.resolve()), "DMLVK_BACKGROUND": "0"}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=folder
        )
        self.device = self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise click.ClickException(f"a checkout ended with status {self._process.wait()}; its error stands above")
        return line.rstrip("\n")

    def ask(self, verb: str, name: str) -> str:
        """The answer to "prepare" or "run"."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{verb} {name}\n")
        self._process.stdin.flush()
        return self._answer()

    def __enter__(self) -> Checkout:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()  # ends its input, and so the process


def rows_of(figures: Sequence[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    """The cells of each case."""
    for figure in figures:
        times = [f"{ms:.2f}" if (ms := figure[side] * 1e3) >= 1 else f"{ms:.3g}" for side in ("before", "after")]
        yield figure["case"], *times, f"{figure['ratio']:.2f}", "equal" if figure["equal"] else "DIFFERENT"


def page(figures: Sequence[dict[str, Any]], title: str) -> Iterator[str]:
    """The lines of a comment on a pull request: what is slower or different first, then all cases."""
    yield "### Speed on a CPU driver, before and after"
    yield ""
    slower = [figure["case"] for figure in figures if figure["ratio"] > NOISE]
    different = [figure["case"] for figure in figures if not figure["equal"]]
    yield f"Slower by more than {NOISE - 1:.0%}: {', '.join(slower) or 'nothing'}. "
    yield f"Other results: {', '.join(different) or 'none'}."
    yield ""
    yield f"<details><summary>{title}</summary>"
    yield ""
    yield f"| {' | '.join(COLUMNS)} |"
    yield f"|{'---|' * len(COLUMNS)}"
    for row in rows_of(figures):
        yield f"| {' | '.join(row)} |"
    yield ""
    yield "</details>"


@click.command()
@click.argument("before", type=click.Path(path_type=Path, exists=True, file_okay=False), required=False)
@click.argument("after", type=click.Path(path_type=Path, exists=True, file_okay=False), required=False)
@click.option("--device", help="Part of a device's name; else the best.")
@click.option("--case", "pattern", default="*", show_default=True, help="Which cases, with *, ? and [].")
@click.option("--rounds", default=15, show_default=True, type=click.IntRange(min=1))
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write the figures here.")
@click.option("--markdown", "markdown_path", type=click.Path(path_type=Path), help="Write the table here, as Markdown.")
@click.option("--work", "is_worker", is_flag=True, hidden=True)
def main(
    before: Path | None,
    after: Path | None,
    device: str | None,
    pattern: str,
    rounds: int,
    json_path: Path | None,
    markdown_path: Path | None,
    is_worker: bool,
) -> None:
    """Compare the checkouts BEFORE and AFTER, call by call."""
    if is_worker:
        try:
            work(device)
        except dmlvk.DeviceError as error:
            raise click.ClickException(str(error)) from error
        return
    if before is None or after is None:
        raise click.UsageError("name two checkouts, as in: python -m bench.checkouts ../before .")
    names = [name for name in cases() if fnmatch(name, pattern)]
    if not names:
        raise click.UsageError(f"no case is called {pattern!r}; there are {', '.join(cases())}")
    figures: list[dict[str, Any]] = []
    with Checkout(before, device) as old, Checkout(after, device) as new:
        for name in track(names, "cases", console=Console(stderr=True)):
            digests = [checkout.ask("prepare", name) for checkout in (old, new)]
            seconds = [[float(checkout.ask("run", name)) for checkout in (old, new)] for _ in range(rounds)]
            least = [min(times) for times in zip(*seconds, strict=True)]
            ratio = statistics.median(later / earlier for earlier, later in seconds)
            equal = digests[0] == digests[1]
            figures.append({"case": name, "before": least[0], "after": least[1], "ratio": ratio, "equal": equal})
    title = f"{old.device}, processor milliseconds, the least of {rounds} calls"
    table = Table(title=title)
    for column in COLUMNS:
        table.add_column(column, justify="left" if column in ("case", "results") else "right")
    for row in rows_of(figures):
        table.add_row(*row)
    Console().print(table)
    if markdown_path is not None:
        markdown_path.write_text("\n".join(page(figures, title)) + "\n", encoding="utf-8")
    if json_path is not None:
        json_path.write_text(json.dumps({"device": old.device, "cases": figures}, indent=1) + "\n", encoding="utf-8")
    if not all(figure["equal"] for figure in figures):
        raise click.exceptions.Exit(1)


if __name__ == "__main__":
    main()
