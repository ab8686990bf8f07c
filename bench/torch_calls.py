"""Calls of dmlvk.torch on CPU tensors, beside the one-liners on the same elements as NumPy arrays.

    python -m bench.torch_calls [--device NAME] [--rounds N]

Each call waits for its result. The kinds of call take turns, and each figure is a median. The results are checked, and
the elements are random. "Compiled" is `torch.compile` without a code generator. Needs torch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import click
import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import dmlvk
import dmlvk.torch
from bench.dispatch import side_by_side

CALLS = 5


class Case(NamedTuple):
    """One operator, as functions with the same arguments for arrays and for tensors."""

    one_liner: Callable[..., Any]
    function: Callable[..., Any]
    arrays: dict[str, Any]
    fields: dict[str, Any]


def random_bytes(*sizes: int, dtype: str = "uint8") -> Any:
    count = int(np.prod(sizes)) * np.dtype(dtype).itemsize
    return np.random.default_rng(7).integers(0, 256, count, np.uint8).view(dtype).reshape(sizes)


def mirror(*sizes: int) -> Case:
    """Columns in the other order."""
    fields: dict[str, Any] = {
        "input_window_offsets": (0,) * len(sizes),
        "input_window_sizes": sizes,
        "input_window_strides": (1,) * (len(sizes) - 1) + (-1,),
    }
    return Case(dmlvk.slice1, dmlvk.torch.slice1, {"input": random_bytes(*sizes, dtype="int32")}, fields)


def convolution(channels: int, size: int, is_channels_last: bool = False) -> Case:
    """A 3 x 3 convolution of one image, with a scale and a bias for each channel."""
    arrays = {
        "input": random_bytes(1, channels, size, size),
        "filter": random_bytes(channels, channels, 3, 3, dtype="int8"),
        "filter_scale": np.linspace(0.001, 0.002, channels, dtype=np.float32),
        "bias": random_bytes(channels, dtype="int32") >> 16,
    }
    if is_channels_last:
        arrays["input"] = random_bytes(1, size, size, channels).transpose(0, 3, 1, 2)
    fields: dict[str, Any] = {"input_scale": 0.02, "output_scale": 1.5, "input_zero_point": 128}
    fields |= {"start_padding": (1, 1), "end_padding": (1, 1)}
    return Case(dmlvk.quantized_linear_convolution, dmlvk.torch.quantized_linear_convolution, arrays, fields)


def cases() -> dict[str, Case]:
    labels = {"indices": random_bytes(1000, 1, dtype="int32") % 100, "values": np.array([0.25, 2.5], np.float32)}
    return {
        "slice1, 64 x 64 int32": mirror(64, 64),
        "slice1, 2048 x 2048 int32": mirror(2048, 2048),
        "diagonal_matrix1, 256 x 256 float32": Case(
            dmlvk.diagonal_matrix1,
            dmlvk.torch.diagonal_matrix1,
            {"input": np.random.default_rng(1).standard_normal((256, 256), np.float32)},
            {"value": 0.0, "diagonal_fill_begin": 1, "diagonal_fill_end": 2**31 - 1},
        ),
        "one_hot, 1000 of 100 float32": Case(
            dmlvk.one_hot, dmlvk.torch.one_hot, labels, {"output_length": 100, "axis": 1}
        ),
        "convolution, 16 channels of 14 x 14": convolution(16, 14),
        "convolution, 64 channels of 56 x 56": convolution(64, 56),
        "the same, channels last": convolution(64, 56, is_channels_last=True),
    }


@click.command(help=__doc__)
@click.option("--device", "name", help="Part of a device's name.")
@click.option("--rounds", default=60, show_default=True)
def main(name: str | None, rounds: int) -> None:
    table = Table("call", "one-liner us", "dmlvk.torch us", "ratio", "compiled us", "ratio")
    with dmlvk.Device(name) as device:
        for label, (one_liner, function, arrays, fields) in cases().items():
            tensors = {field: torch.from_numpy(array) for field, array in arrays.items()}
            compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
            steps: dict[str, Callable[[], Any]] = {
                "one-liner": partial(one_liner, **arrays, **fields, device=device),
                "torch": partial(function, **tensors, **fields, device=device),
                "compiled": partial(compiled, **tensors, **fields, device=device),
            }
            expected, *found = (step() for step in steps.values())
            if not all(np.array_equal(expected, each.numpy()) for each in found):
                raise SystemExit(f"{label}: wrong bits")
            seconds = side_by_side(steps, CALLS, rounds, lambda: None)
            base = seconds["one-liner"]
            row = [f"{base * 1e6:.0f}"]
            for step in ("torch", "compiled"):
                row += [f"{seconds[step] * 1e6:.0f}", f"{seconds[step] / base:.2f}"]
            table.add_row(label, *row)
        Console(width=120).print(table)
        print(device.name, device.profile.driver_info, f"torch {torch.__version__}")


if __name__ == "__main__":
    main()
