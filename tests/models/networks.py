"""Published networks, quantized by ONNX Runtime and run beside it. All that needs ONNX Runtime runs in its process."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray
Feeds = Mapping[str, Array]

# Quantization for each channel needs DequantizeLinear's attribute axis.
OPSET = 13


@dataclass(frozen=True)
class Findings:
    """What a quantized network gave.

    Attributes
    ----------
    places : list of (str, str)
        Operator and place of each node, as of the last run.
    found, plain, optimized : list of ndarray
        The output for each input: by dmlvk, by ONNX Runtime without optimization, and with it.
    nodes : list of (str, str)
        Each node on the device, and how it differs from ONNX Runtime's on the same inputs: "" if it does not.
    values : list of (str, str)
        Each value of a run, and how it differs from that of ONNX Runtime's run without optimization.
    most_in_one_part : int
        The most convolutions that follow each other on the device without a node of the host between them.
    parts : int
        The stretches of nodes on one side of the last run.
    """

    places: list[tuple[str, str]]
    found: list[Array]
    plain: list[Array]
    optimized: list[Array]
    nodes: list[tuple[str, str]]
    values: list[tuple[str, str]]
    most_in_one_part: int
    parts: int

    @property
    def on_device(self) -> list[str]:
        """The operators of the nodes on the device."""
        return [operator for operator, where in self.places if where == "device"]


def saturates() -> bool:
    """Whether ONNX Runtime adds products of UINT8 and INT8 in 16 bits here, as on x86 processors without VNNI."""
    from onnx import helper, numpy_helper

    constants = {
        "one": np.float32(1),
        "unsigned_zero": np.uint8(0),
        "signed_zero": np.int8(0),
        "w": np.full((16, 64, 1, 1), 127, np.int8),
        "y_scale": np.float32(64 * 255 * 127 / 200),
    }
    names = ["x", "one", "unsigned_zero", "w", "one", "signed_zero", "y_scale", "unsigned_zero"]
    graph = helper.make_graph(
        [helper.make_node("QLinearConv", names, ["y"])],
        "probe",
        [helper.make_tensor_value_info("x", 2, [1, 64, 8, 8])],
        [helper.make_tensor_value_info("y", 2, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    (y,) = _run(model.SerializeToString(), [{"x": np.full((1, 64, 8, 8), 255, np.uint8)}], optimize=False)
    return not (y == 200).all()


def quantize(source: Path, target: Path, format: str, samples: Sequence[Feeds], reduce_range: bool) -> None:
    """Prepare and quantize a model as ONNX Runtime's documentation says.

    Parameters
    ----------
    source, target : Path
    format : str
        "QOperator" or "QDQ".
    samples : sequence of mapping
        Inputs that show the range of each value.
    reduce_range : bool
        Weights of 7 bits.
    """
    import onnx.version_converter
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._feeds = iter(samples)

        def get_next(self) -> Feeds | None:
            return next(self._feeds, None)

    with tempfile.TemporaryDirectory() as folder:
        prepared = Path(folder, "prepared.onnx")
        model = onnx.load(source)
        is_old = model.opset_import[0].version < OPSET
        onnx.save(onnx.version_converter.convert_version(model, OPSET) if is_old else model, prepared)
        quant_pre_process(prepared, prepared, skip_symbolic_shape=True)
        quantize_static(
            prepared,
            target,
            Reader(),
            quant_format=QuantFormat[format],
            per_channel=True,
            reduce_range=reduce_range,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )


def examine(device: str, path: Path, runs: Sequence[Feeds]) -> Findings:
    """Run a model with one output on a device and on ONNX Runtime. The inputs may differ in size."""
    from dmlvk.onnx import InferenceSession
    from dmlvk.onnx.checking import check, check_values
    from dmlvk.onnx.steps import DeviceStep

    session = InferenceSession(path, device)
    for feeds in runs:
        session.run(None, feeds)
    found = [session.run(None, feeds)[0] for feeds in runs]  # as prepared by the first runs
    places = [(row.op_type, row.where) for row in session.placement]
    parts = session.traffic.parts
    nodes = [_pair(finding) for feeds in runs for finding in check(session, feeds)]
    values = [_pair(finding) for feeds in runs for finding in check_values(session, feeds)]
    steps = [] if session._last is None or session._last.last is None else session._last.last.steps
    on_device = [step.nodes for step in steps if isinstance(step, DeviceStep)]
    most = max((sum(node.op_type == "QLinearConv" for node in nodes) for nodes in on_device), default=0)
    session.device.close()
    plain, optimized = (_run(str(path), runs, optimize) for optimize in (False, True))
    return Findings(places, found, plain, optimized, nodes, values, most, parts)


def _pair(finding: Any) -> tuple[str, str]:
    return finding.name, "" if finding.is_equal else finding.text


def _run(model: str | bytes, runs: Sequence[Feeds], optimize: bool) -> list[Array]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if not optimize:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return [session.run(None, dict(feeds))[0] for feeds in runs]
