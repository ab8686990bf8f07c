"""Makes a model of 8-bit integers of one in floats, by ONNX Runtime's quantizer."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import onnx
from onnx import version_converter

from dmlvk._common import files
from dmlvk._common.arguments import named_arguments
from dmlvk.onnx.arguments import as_feeds, checked_feeds, input_checks
from dmlvk.onnx.errors import ModelError
from dmlvk.onnx.graph import Graph
from dmlvk.onnx.model_file import LoadedModel, load

if TYPE_CHECKING:
    from dmlvk.onnx.arguments import InputCheck

# A scale for each channel needs DequantizeLinear's attribute axis.
LEAST_OPSET = 13
# What the device runs as integers. A Softmax keeps its floats: a byte has shares in steps of 1/256. A layer
# normalization and the like would lose accuracy.
QUANTIZED_OPERATORS = (
    *("Add", "AveragePool", "Clip", "Concat", "Conv", "Flatten", "Gemm", "GlobalAveragePool", "LeakyRelu", "MatMul"),
    *("MaxPool", "Mul", "Pad", "Relu", "Reshape", "Resize", "Sigmoid", "Slice", "Split", "Squeeze", "Transpose"),
    "Unsqueeze",
)
# Floats that QLinearConv and the like cannot stand for.
OTHER_FLOATS = {onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16}
# Without one of these there is nothing whose weights could be integers.
PRODUCTS = {"Conv", "Gemm", "MatMul"}
OF_QUANTIZED_MODELS = {"ConvInteger", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "QuantizeLinear"}
FORMATS = ("QOperator", "QDQ")
CALIBRATIONS = {"minmax": "MinMax", "entropy": "Entropy", "percentile": "Percentile"}
# The largest message of protobuf.
MOST_BYTES = 2**31 - 1


@named_arguments
def quantize(
    model: str | os.PathLike[str] | bytes | onnx.ModelProto,
    data: Iterable[Any],
    *,
    format: Literal["QOperator", "QDQ"] = "QOperator",
    weight_bits: Literal[7, 8] = 8,
    per_channel: bool = True,
    calibration: Literal["minmax", "entropy", "percentile"] = "minmax",
    progress: Callable[[str], object] | None = None,
) -> onnx.ModelProto:
    """Make a model of 8-bit integers, whose convolutions run on a device, of a model in floats.

    Args:
        model (path, bytes or ModelProto): A model in floats with at least one Conv, Gemm or MatMul.
        data (iterable): Inputs as the model meets them in use, which show the range of each value: feeds as for
            `InferenceSession.run`, or arrays, if the model has one input. A hundred are usually enough. It is read
            once, from its beginning to its end.
        format ({"QOperator", "QDQ"}): "QOperator" writes QLinearConv and the like, which have the same bits everywhere.
            "QDQ" leaves the operators in floats, between DequantizeLinear and QuantizeLinear; a session fuses them.
        weight_bits ({7, 8}): 8 is more accurate, and exact in dmlvk. 7 makes ONNX Runtime give the same bits on x86
            processors without VNNI, where its sums of two products saturate at 16 bits.
        per_channel (bool): Whether weights have a scale for each output channel, which is more accurate and costs
            nothing on a device.
        calibration ({"minmax", "entropy", "percentile"}): How the range of a value follows from the data: its least and
            greatest element, or a narrower range that cuts off rare ones.
        progress (callable, optional): Called with the name of each step as it begins: the preparation, each input of
            `data`, and the quantizer.

    Returns:
        onnx.ModelProto: For `InferenceSession`, or `onnx.save`.

    Raises:
        ModelError: The model cannot be read, is quantized already, or has nothing to quantize; `data` has no inputs, or
            one that does not fit or is not finite; ONNX Runtime is not installed, or refuses the model.
        ValueError: `format`, `weight_bits` or `calibration` has another value.

    The steps: conversion to opset 13, if it is older; ONNX Runtime's basic optimization, which puts batch
    normalizations into convolutions and makes constants of what is constant; inference of sizes; calibration on
    `data`; `onnxruntime.quantization.quantize_static`, with uint8 values and int8 weights. Softmax and operators that
    no device runs keep their floats. `quantization_report` says what the result is worth.

    >>> quantized = dmlvk.onnx.quantize("model.onnx", [{"input": picture} for picture in pictures])
    >>> session = dmlvk.onnx.InferenceSession(quantized)
    """
    for name, value, known in (
        ("format", format, FORMATS),
        ("weight_bits", weight_bits, (7, 8)),
        ("calibration", calibration, CALIBRATIONS),
    ):
        if value not in known:
            raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(map(repr, known))}")
    step = progress or (lambda name: None)
    try:
        from onnxruntime import quantization
    except ImportError as error:
        raise ModelError("quantization needs the package onnxruntime: pip install 'dmlvk[onnx]'") from error
    loaded = load(model)
    graph = Graph(loaded)
    place, checks = loaded.place, input_checks(graph, loaded.place)
    step("preparation")
    with tempfile.TemporaryDirectory(prefix="dmlvk-quantize-") as folder, _quiet(place):
        _check_types(loaded, format)
        prepared = prepare(loaded, Path(folder))

        class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
            def __init__(self) -> None:
                self.feeds = checked_samples(graph, checks, data, place, step)

            def get_next(self) -> dict[str, Any] | None:
                return next(self.feeds, None)

        target = Path(folder, "quantized.onnx")
        reader = Reader()
        quantization.quantize_static(
            prepared,
            target,
            reader,
            quant_format=quantization.QuantFormat[format],
            op_types_to_quantize=list(QUANTIZED_OPERATORS),
            per_channel=per_channel,
            reduce_range=weight_bits == 7,
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
            calibrate_method=quantization.CalibrationMethod[CALIBRATIONS[calibration]],
        )
        return read_own(target)


def prepare(model: LoadedModel, folder: Path) -> Path:
    """Write the model to a folder, in the form that the quantizer needs, and return its path.

    Raises ModelError: the model is quantized already, has nothing to quantize, or is larger than a message of protobuf.
    """
    from onnxruntime.quantization.quant_utils import add_pre_process_metadata

    proto, place = _whole(model), model.place
    operators = {node.op_type for node in proto.graph.node}
    quantized = sorted(name for name in operators if name in OF_QUANTIZED_MODELS or name.startswith("QLinear"))
    if quantized:
        raise ModelError(f"{place} is quantized already: it has {', '.join(quantized)}")
    if not operators & PRODUCTS:
        wanted = ", ".join(sorted(PRODUCTS))
        raise ModelError(f"{place} has nothing to quantize: none of {wanted} is among its operators")
    opset = next((each.version for each in proto.opset_import if each.domain in ("", "ai.onnx")), LEAST_OPSET)
    if opset < LEAST_OPSET:
        proto = version_converter.convert_version(proto, LEAST_OPSET)
    prepared = _optimized(proto, folder, ["ConstantSharing"])  # it renames constants
    if any(_adds_a_value(node, prepared) for node in prepared.graph.node):
        # Of a product and a sum of two values it made a Gemm that the quantizer leaves in floats.
        prepared = _optimized(proto, folder, ["ConstantSharing", "MatMulAddFusion"])
    prepared = onnx.shape_inference.infer_shapes(prepared)
    add_pre_process_metadata(prepared)
    place_of_prepared = folder / "prepared.onnx"
    files.write_bytes(place_of_prepared, prepared.SerializeToString())
    return place_of_prepared


def _check_types(model: LoadedModel, format: str) -> None:
    """Check that ONNX Runtime's quantizer has the operators of a format for a model's floats."""
    types = {each.data_type for each in model.proto.graph.initializer}
    types |= {value.type.tensor_type.elem_type for value in model.proto.graph.input}
    others = sorted(onnx.TensorProto.DataType.Name(kind) for kind in types & OTHER_FLOATS)
    if others and format == "QOperator":
        advice = "quantize the model in FLOAT32 from which it was made, or take the format QDQ"
        raise ModelError(
            f"{model.place} has values in {' and '.join(others)}, for which there is no QOperator; {advice}"
        )


def _optimized(proto: onnx.ModelProto, folder: Path, disabled: list[str]) -> onnx.ModelProto:
    """A model after ONNX Runtime's basic optimizations, but for those that are disabled."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    optimized = folder / "optimized.onnx"
    options.optimized_model_filepath = str(optimized)
    onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"], disabled_optimizers=disabled
    )
    return read_own(optimized)


def _adds_a_value(node: onnx.NodeProto, model: onnx.ModelProto) -> bool:
    """Whether a node is a Gemm whose third operand is no constant."""
    constants = {each.name for each in model.graph.initializer}
    return node.op_type == "Gemm" and len(node.input) == 3 and node.input[2] not in constants


def read_own(path: Path) -> onnx.ModelProto:
    """A model in a folder of our own, whose weights are all in it."""
    return onnx.load_model_from_string(files.read_bytes(path, MOST_BYTES))


class SampleError(ModelError):
    """An input of the data does not fit the model.

    number: which one, counted from 1.
    """

    def __init__(self, number: int, text: str) -> None:
        super().__init__(f"input {number} of the data: {text}")
        self.number = number


def checked_samples(
    graph: Graph,
    checks: Mapping[str, InputCheck],
    data: Iterable[Any],
    place: str,
    step: Callable[[str], object],
) -> Iterator[dict[str, Any]]:
    """The inputs of `data` as feeds.

    Raises SampleError: one does not fit or is not finite.
    Raises ModelError: there is none.
    """
    number = 0
    for number, sample in enumerate(data, 1):
        step(f"input {number}")
        try:
            feeds = checked_feeds(graph, checks, as_feeds(graph, sample, place), place)
        except ModelError as error:
            raise SampleError(number, str(error)) from error
        for name, array in feeds.items():
            if isinstance(array, np.ndarray) and array.dtype.kind == "f" and not np.isfinite(array).all():
                raise SampleError(number, f"{place}: {name!r} has elements that are not finite")
        yield feeds
    if not number:
        raise ModelError(f"{place}: the data have no inputs; the quantizer needs at least one")
    step("the quantizer")


def _whole(model: LoadedModel) -> onnx.ModelProto:
    """A model with all its weights in it.

    Raises ModelError: it is larger than a message of protobuf.
    """
    if model.nbytes > MOST_BYTES:
        raise ModelError(f"{model.place} has {model.nbytes:,} bytes; the quantizer takes models of at most 2 GiB")
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    beside = model.constants.keys() - model.replaceable
    inputs = [value for value in proto.graph.input if value.name not in beside]
    del proto.graph.input[:]
    proto.graph.input.extend(inputs)
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in model.constants.items())
    return proto


@contextmanager
def _quiet(place: str) -> Iterator[None]:
    """Hide the quantizer's advice to prepare a model, which was done, and make its exceptions ModelErrors."""
    logger = logging.getLogger()
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    except (ModelError, MemoryError, OSError):
        raise
    except Exception as error:  # onnxruntime's own, which have no common class
        text = " ".join(str(error).split()) or type(error).__name__
        raise ModelError(f"{place}: ONNX Runtime's quantizer: {text}") from error
    finally:
        logger.setLevel(level)
