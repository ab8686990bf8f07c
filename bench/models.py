"""What a session costs beside ONNX Runtime's own session of the same file, on all of the machine's processors.

    python -m bench.models [FILE.onnx[=1x3x224x224[,...]] ...] [--device NAME] [--placement fastest]

Behind a file stand the sizes of its inputs, where the model leaves them open; they are 1 by default. Without files, the
models are small ones in floats and some that are quantized dynamically, which run as a whole on the host: the smaller
a model, the more a session's own part weighs.

Each session runs by itself for some time, from arrays to arrays, as in an application: ONNX Runtime's is opened when
the other one is done, since its threads spin for a while after each run. The figures are medians. The first runs, in
which a GPU's clock rises, do not count. Ends with status 1 if a session takes more than 5% longer than ONNX Runtime's,
or an output is wrong.
"""

from __future__ import annotations

import math
import statistics
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import click
import numpy as np
import onnx
from onnx import helper, numpy_helper

from dmlvk.benchmark.model.peers import comparison
from dmlvk.onnx import InferenceSession
from dmlvk.onnx.random_feeds import random_feed
from dmlvk.onnx.session import FUSED

# The most that a session may take beside ONNX Runtime's.
MARK = 1.05
# The share of a session's time in which runs do not count.
WARM_UP = 0.4


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


def timed(session: Any, feeds: dict[str, Any], seconds: float) -> list[float]:
    """The seconds of each run, without those at the beginning."""
    found: list[float] = []
    start = before = perf_counter()
    while not found or before - start < seconds:
        session.run(None, feeds)
        now = perf_counter()
        if now - start > WARM_UP * seconds:
            found.append(now - before)
        before = now
    return found


def feeds_of(session: InferenceSession, sizes: str) -> dict[str, Any]:
    """Random inputs of the sizes that are written behind a file."""
    generator = np.random.default_rng(0)
    given = [[int(size) for size in each.split("x")] for each in sizes.split(",")] if sizes else []
    feeds = {}
    for number, each in enumerate(session.get_inputs()):
        known = [size if isinstance(size, int) else 1 for size in each.shape]
        feeds[each.name] = random_feed(generator, each, given[number] if number < len(given) else known)
    return feeds


def result(session: InferenceSession, model: str | bytes, feeds: dict[str, Any], found: list[Any]) -> str:
    """How the outputs differ from ONNX Runtime's: "equal", "different" in what a fusion may change, or "wrong"."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    plain = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run(None, feeds)
    optimized = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feeds)
    is_fused = any(row.reason == FUSED for row in session.placement)
    results = {comparison(*each, is_fused)["result"] for each in zip(found, plain, optimized, strict=True)}
    return next((each for each in ("wrong", "different", "not compared") if each in results), "equal")


@click.command()
@click.argument("files", nargs=-1)
@click.option("--device", help="Part of a device's name; else the best.")
@click.option("--placement", type=click.Choice(["fastest", "device"]), help="As in InferenceSession.")
@click.option("--seconds", default=0.5, show_default=True, help="Of each session's runs.")
@click.option("--places", is_flag=True, help="Also what runs on the host of models that are slower.")
def main(
    files: tuple[str, ...],
    device: str | None,
    placement: Literal["fastest", "device"] | None,
    seconds: float,
    places: bool,
) -> None:
    """Compare sessions with ONNX Runtime's."""
    import onnxruntime

    warnings.simplefilter("ignore")  # that the host is faster than a CPU driver
    print(f"medians of {seconds} s, in ms")
    row = "{:5}  {:>10}  {:>9}  {:>12}  {:>8}  {:>13}  {:9}  {}".format
    print(row("parts", "MB on bus", "first run", "ONNX Runtime", "dmlvk", "times as fast", "result", "model"))
    given: list[tuple[str, str | bytes, str]] = [
        (Path(name).name, name, sizes) for name, _, sizes in (each.partition("=") for each in files)
    ]
    ratios, is_bad = [], False
    own_models: list[tuple[str, str | bytes, str]] = [(name, model, "") for name, model in models()]
    for name, model, sizes in given or own_models:
        own = InferenceSession(model, device=device, placement=placement)
        feeds = feeds_of(own, sizes)
        start = perf_counter()
        found = own.run(None, feeds)
        first = perf_counter() - start
        own.run(None, feeds)  # a divided session measures the host alone
        ours = timed(own, feeds, seconds)
        theirs = timed(onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]), feeds, seconds)
        their, our = statistics.median(theirs), statistics.median(ours)
        ratios.append(their / our)
        verdict = result(own, model, feeds, found)
        is_bad |= our > MARK * their or verdict == "wrong"
        traffic = own.traffic
        moved = f"{(traffic.bytes_to_device + traffic.bytes_from_device) / 1e6:.2f}"
        figures = (f"{first * 1e3:.1f}", f"{their * 1e3:.3f}", f"{our * 1e3:.3f}", f"{their / our:.2f}")
        print(row(traffic.parts, moved, *figures, verdict, name), flush=True)
        if places and our > their:
            operators = Counter(each.op_type for each in own.placement if each.where == "host")
            print("       host:", ", ".join(f"{count} {each}" for each, count in operators.most_common()))
    print(f"geometric mean: {math.exp(statistics.fmean(map(math.log, ratios))):.2f} times as fast")
    sys.exit(int(is_bad))


if __name__ == "__main__":
    main()
