"""What quantization costs a model: how far its values are from those in floats, and how long a run takes."""

from __future__ import annotations

import math
import os
import statistics
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import onnx

from dmlvk._common.arguments import named_arguments
from dmlvk.onnx.acceptance import new_session
from dmlvk.onnx.arguments import input_checks
from dmlvk.onnx.graph import Graph
from dmlvk.onnx.model_file import load
from dmlvk.onnx.placement import Row
from dmlvk.onnx.quantizer import checked_samples, prepare, read_own
from dmlvk.onnx.session import InferenceSession
from dmlvk.runtime.shared_devices import DeviceName

# Each layer is compared on this many inputs: all of its values are brought to the host.
LAYER_INPUTS = 4
# A time is the median of at most this many runs, or of as many as fit into the seconds.
ROUNDS, SECONDS = 20, 2.0
# The ratio of 8 bits to their rounding, where all values are as frequent.
OF_EIGHT_BITS = 50.0
# What ONNX Runtime's quantizer calls the integers of a value.
SUFFIXES = ("_quantized", "_QuantizeLinear_Output")


@dataclass(frozen=True)
class OutputLoss:
    """An output of the quantized model beside that of the model in floats.

    Attributes:
        name (str):
        decibels (float): The signal to noise ratio over all inputs: 10 log10 of the sum of squares of the floats over
            the sum of squares of the differences. Infinite if no element differs. 20 and more is close; below 10 little
            is left.
        agreement (float or None): For an output {N, classes}: the share of rows whose greatest element is the same.
            None for other outputs.
        rows (int): The number of these rows.
    """

    name: str
    decibels: float
    agreement: float | None = None
    rows: int = 0


@dataclass(frozen=True)
class LayerLoss:
    """A node of the model in floats whose output is integers in the quantized model.

    Attributes:
        name, op_type (str):
        decibels (float): The signal to noise ratio of its output, as of `OutputLoss`.
        lost (float): By how many decibels that is below the ratio of its worst input, or below 50 dB, which is what 8
            bits give, if its inputs are better: bytes of a picture may have no noise.
    """

    name: str
    op_type: str
    decibels: float
    lost: float


@dataclass(frozen=True)
class QuantizationReport:
    """What `quantization_report` found.

    Attributes:
        outputs (list of OutputLoss):
        layers (list of LayerLoss): Those that lose most first.
        placement (list of Row): Where each node of the quantized model runs.
        seconds (float): The median of a run of the quantized model by dmlvk, from host to host, with the first of the
            inputs.
        float_seconds (float): The same of the model in floats, by ONNX Runtime on the CPU.
        inputs (int): How many inputs were compared.
    """

    outputs: list[OutputLoss]
    layers: list[LayerLoss]
    placement: list[Row]
    seconds: float
    float_seconds: float
    inputs: int


class _Ratio:
    """Sums of squares: of a signal, and of the noise on it."""

    def __init__(self) -> None:
        self.signal = self.noise = 0.0

    def add(self, floats: Any, found: Any) -> None:
        wide = np.asarray(floats, np.float64)
        self.signal += float(np.sum(wide * wide))
        self.noise += float(np.sum((wide - np.asarray(found, np.float64)) ** 2))

    @property
    def decibels(self) -> float:
        if not self.noise:
            return math.inf
        return 10 * math.log10(self.signal / self.noise) if self.signal else -math.inf


@named_arguments
def quantization_report(
    model: str | os.PathLike[str] | bytes | onnx.ModelProto,
    quantized: str | os.PathLike[str] | bytes | onnx.ModelProto,
    data: Iterable[Any],
    *,
    device: DeviceName = None,
    progress: Callable[[str], object] | None = None,
) -> QuantizationReport:
    """Compare a quantized model with the model in floats of which `quantize` made it.

    Args:
        model (path, bytes or ModelProto): The model in floats, which ONNX Runtime runs on the CPU.
        quantized (path, bytes or ModelProto): The quantized model, which runs on the device.
        data (iterable): Inputs as for `quantize`, best others than those of the calibration.
        device (Device, DeviceInfo, str or int, optional): Where the quantized model runs; the best device by default.
        progress (callable, optional): Called with the name of each step as it begins: each input of `data`, the layers,
            the times.

    Returns:
        QuantizationReport

    Raises:
        ModelError: A model or an input cannot be run.

    >>> report = dmlvk.onnx.quantization_report("model.onnx", quantized, samples)
    >>> [f"{output.name}: {output.decibels:.1f} dB" for output in report.outputs]
    ['probabilities: 31.4 dB']
    """
    step = progress or (lambda name: None)
    session = InferenceSession(quantized, device=device)
    loaded = load(model)
    graph, place = Graph(loaded), loaded.place
    with tempfile.TemporaryDirectory(prefix="dmlvk-report-") as folder:
        prepared = read_own(prepare(loaded, Path(folder)))
    names = list(graph.outputs)
    whole = _Floats(prepared, names)
    ratios = {name: _Ratio() for name in names}
    agreed: dict[str, list[bool]] = {name: [] for name in names}
    samples: list[dict[str, Any]] = []
    inputs = 0
    for feeds in checked_samples(graph, input_checks(graph, place), data, place, step):
        inputs += 1
        if len(samples) < LAYER_INPUTS:
            samples.append(feeds)
        for name, right, found in zip(names, whole.run(feeds), session.run(names, feeds), strict=True):
            if not isinstance(right, np.ndarray) or right.dtype.kind != "f" or right.shape != found.shape:
                continue
            ratios[name].add(right, found)
            if right.ndim == 2 and right.shape[1] > 1:
                agreed[name].extend(right.argmax(axis=1) == found.argmax(axis=1))
    step("the layers")
    layers = _layers(prepared, session, samples)
    step("the times")
    return QuantizationReport(
        [
            OutputLoss(name, ratio.decibels, float(np.mean(agreed[name])) if agreed[name] else None, len(agreed[name]))
            for name, ratio in ratios.items()
        ],
        layers,
        session.placement,
        _median(lambda: session.run(names, samples[0])),
        _median(lambda: whole.run(samples[0])),
        inputs,
    )


class _Floats:
    """The model in floats on ONNX Runtime's CPU, with values of it as outputs."""

    def __init__(self, model: onnx.ModelProto, names: Sequence[str]) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        self._session = new_session(onnxruntime, _with_outputs(model, names).SerializeToString(), options)
        self._names = list(names)

    def run(self, feeds: Mapping[str, Any]) -> list[Any]:
        return list(self._session.run(self._names, dict(feeds)))


def _with_outputs(model: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    made = onnx.ModelProto()
    made.CopyFrom(model)
    known = {output.name for output in made.graph.output}
    made.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in known)
    return made


def _layers(prepared: onnx.ModelProto, session: InferenceSession, samples: Sequence[dict[str, Any]]) -> list[LayerLoss]:
    """The nodes whose outputs are integers with a scale, those that lose most first."""
    constants = Graph(session.model)
    nodes = [node for node in prepared.graph.node if node.output]
    written = {name for node in nodes for name in node.output}
    wanted = [
        name
        for name in (*(value.name for value in prepared.graph.input), *sorted(written))
        if constants.constant(f"{name}_scale") is not None
    ]
    # The quantizer makes one of a node and its activation, and keeps the name of one of their outputs: the integers
    # are those after the activation.
    after, kept = {}, {}
    for node in nodes:
        if node.op_type in ("Relu", "Clip"):
            before, behind = node.input[0], node.output[0]
            scaled = [constants.constant(f"{name}_scale") is not None for name in (before, behind)]
            if scaled == [True, False]:
                after[before] = behind
            elif scaled == [False, True]:
                kept[before] = behind
    source = {name: after.get(name, name) for name in wanted}
    needed = sorted({name for name in source.values() if name in written})
    ratios = {name: _Ratio() for name in wanted}
    whole = _Floats(prepared, needed)
    for feeds in samples:
        found_floats = dict(zip(needed, whole.run(feeds), strict=True)) | feeds
        right = {name: found_floats[source[name]] for name in wanted}
        _, values, _ = session.traced(feeds)
        for name in wanted:
            integers = next((values[name + suffix] for suffix in SUFFIXES if name + suffix in values), None)
            if integers is None or integers.shape != right[name].shape:
                continue
            zero_point = constants.constant(f"{name}_zero_point")
            shifted = integers.astype(np.float64) - (0 if zero_point is None else float(zero_point.item()))
            scale = constants.constant(f"{name}_scale")
            assert scale is not None
            ratios[name].add(right[name], shifted * float(scale.item()))
    decibels = {name: ratio.decibels for name, ratio in ratios.items() if ratio.signal}
    decibels |= {after[name]: value for name, value in decibels.items() if name in after}
    decibels |= {before: decibels[behind] for before, behind in kept.items() if behind in decibels}
    activations = {*after.values(), *kept.values()}
    found = []
    for node in nodes:
        name = node.output[0]
        if name in decibels and name not in activations:
            known = [decibels[each] for each in node.input if each in decibels]
            lost = min(*known, OF_EIGHT_BITS) - decibels[name] if known else 0.0
            found.append(LayerLoss(node.name or name, node.op_type, decibels[name], lost))
    return sorted(found, key=lambda layer: -layer.lost)


def _median(run: Callable[[], object]) -> float:
    """The median time of a run, after one that warms up."""
    run()
    seconds: list[float] = []
    while not seconds or (len(seconds) < ROUNDS and sum(seconds) < SECONDS):
        start = perf_counter()
        run()
        seconds.append(perf_counter() - start)
    return statistics.median(seconds)
