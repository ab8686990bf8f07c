"""What a session costs whose model runs as a whole on the host, beside ONNX Runtime's own session of the same file.

    python -m bench.host_models [FILE.onnx ...] [--device NAME] [--rounds 200]

Without files, the models are small ones in floats and some that are quantized dynamically: the smaller a model, the
more a session's own part weighs. Both sessions take turns in one process, a round of calls each, and the figures are
the least of all rounds: whatever else the machine does only adds. The outputs of both are compared.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import click
import numpy as np
import onnx
from onnx import helper, numpy_helper
from rich.console import Console
from rich.table import Table

from dmlvk.onnx import InferenceSession
from dmlvk.onnx.random_feeds import random_feed

# The most that a session may take beside ONNX Runtime's.
MARK = 1.05
# A round is about so long, so that a change of the machine's load falls on few rounds.
ROUND_SECONDS = 1e-3


def model_of(
    nodes: list[onnx.NodeProto], sizes: tuple[int, ...], outputs: list[str], constants: dict[str, Any]
) -> bytes:
    """A model of one float input x."""
    graph = helper.make_graph(
        nodes,
        "on the host",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, sizes)],
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def quantized_dynamically(rows: int, width: int, layers: int) -> bytes:
    """Products of bytes whose inputs are quantized at each run."""
    generator = np.random.default_rng(0)
    nodes: list[onnx.NodeProto] = []
    constants: dict[str, Any] = {}
    x = "x"
    for k in range(layers):
        constants[f"weights{k}"] = generator.integers(-127, 128, (width, width)).astype(np.int8)
        constants[f"scale{k}"] = np.float32(1 / (64 * width**0.5))
        quantized = [f"{name}{k}" for name in ("bytes", "their_scale", "their_zero")]
        product = [quantized[0], f"weights{k}", quantized[2]]
        nodes += [
            helper.make_node("DynamicQuantizeLinear", [x], quantized),
            helper.make_node("MatMulInteger", product, [f"sums{k}"]),
            helper.make_node("Cast", [f"sums{k}"], [f"floats{k}"], to=onnx.TensorProto.FLOAT),
            helper.make_node("Mul", [quantized[1], f"scale{k}"], [f"both_scales{k}"]),
            helper.make_node("Mul", [f"floats{k}", f"both_scales{k}"], [f"scaled{k}"]),
            helper.make_node("Relu", [f"scaled{k}"], [f"layer{k}"]),
        ]
        x = f"layer{k}"
    return model_of(nodes, (rows, width), [x], constants)


def models() -> Iterator[tuple[str, bytes]]:
    """Names and models."""
    generator = np.random.default_rng(1)
    square = generator.standard_normal((16, 16)).astype(np.float32)
    product = helper.make_node("MatMul", ["x", "w"], ["m"])
    softmax = helper.make_node("Softmax", ["m"], ["y"])
    yield "one addition", model_of([helper.make_node("Add", ["x", "x"], ["y"])], (1, 16), ["y"], {})
    yield "a product of 16 x 16 and Softmax", model_of([product, softmax], (1, 16), ["y"], {"w": square})
    yield "the same with two outputs", model_of([product, softmax], (1, 16), ["y", "m"], {"w": square})
    for rows, width, layers in ((1, 64, 2), (8, 256, 4), (32, 512, 6)):
        name = f"{layers} layers of {width} x {width}, quantized dynamically, {rows} rows"
        yield name, quantized_dynamically(rows, width, layers)


def least_seconds(sessions: list[Any], feeds: dict[str, Any], rounds: int) -> list[float]:
    """The least seconds of a call of each session."""
    start = perf_counter()
    sessions[0].run(None, feeds)
    calls = max(1, int(ROUND_SECONDS / (perf_counter() - start)))
    least = [float("inf")] * len(sessions)
    for _ in range(rounds):
        for number, session in enumerate(sessions):
            start = perf_counter()
            for _ in range(calls):
                session.run(None, feeds)
            least[number] = min(least[number], (perf_counter() - start) / calls)
    return least


@click.command()
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--device", help="Part of a device's name; else the best.")
@click.option("--rounds", default=200, show_default=True, type=click.IntRange(min=1))
def main(files: tuple[Path, ...], device: str | None, rounds: int) -> None:
    """Compare sessions, and end with 1 if one takes more than 5% beyond ONNX Runtime's."""
    import onnxruntime

    warnings.simplefilter("ignore")  # that the host is faster than a CPU driver
    table = Table("model", "ONNX Runtime, us", "dmlvk, us", "ratio", title=f"the least of {rounds} rounds, in turns")
    is_slower = False
    for name, model in [(str(path), path.read_bytes()) for path in files] or models():
        own = InferenceSession(model, device=device)
        generator = np.random.default_rng(0)
        inputs = own.get_inputs()
        sizes = {each.name: [size if isinstance(size, int) else 1 for size in each.shape] for each in inputs}
        feeds = {each.name: random_feed(generator, each, sizes[each.name]) for each in inputs}
        plain = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        for found, expected in zip(own.run(None, feeds), plain.run(None, feeds), strict=True):
            np.testing.assert_array_equal(found, expected, name)
        on_device = [row.name for row in own.placement if row.where in ("device", "view")]
        if on_device:
            raise click.ClickException(f"{name}: {len(on_device)} nodes run on the device, {on_device[0]!r} first")
        theirs, ours = least_seconds([plain, own], feeds, rounds)
        is_slower |= ours > MARK * theirs
        table.add_row(name, f"{theirs * 1e6:.2f}", f"{ours * 1e6:.2f}", f"{ours / theirs:.3f}")
    Console().print(table)
    sys.exit(int(is_slower))


if __name__ == "__main__":
    main()
