"""LayerNormalization between DequantizeLinear and QuantizeLinear has ONNX Runtime's bits on the device."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import dmlvk
from dmlvk.conformance.cases.byte_layer_normalization import parameters_of
from dmlvk.operators import ByteLayerNormalizationDesc
from tests.onnx.models import HAS_THESE_NORMALIZATIONS, Array, model_of
from tests.onnx.test_neighbours import placed
from tests.onnx.test_softmax import of_one_width

has_these_bits = pytest.mark.skipif(not HAS_THESE_NORMALIZATIONS, reason="an older ONNX Runtime rounds otherwise")


def normalized(
    x: Array,
    *,
    scale: float = 0.05,
    zero: int = 7,
    out: tuple[float, int] = (0.03, -4),
    parameters: str = "floats",
    length: int = 0,
    **attributes: Any,
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A model of one normalization. Its parameters are floats, dequantized, a scale without a bias, or an input."""
    rng = np.random.default_rng(x.size)
    low = 0 if x.dtype == np.int8 else 128
    axis = attributes.get("axis", -1)
    shape = x.shape[axis:]
    constants: dict[str, Array] = {"s": np.array(scale, np.float32), "z": np.array(zero + low, x.dtype)}
    constants |= {"t": np.array(out[0], np.float32), "u": np.array(out[1] + low, x.dtype)}
    nodes: list[Any] = [("DequantizeLinear", ["x", "s", "z"], ["f"], {})]
    feeds = {"x": x}
    reads = ["g", "b"]
    if parameters == "dequantized":
        constants |= {"p": rng.integers(-128, 128, shape).astype(np.int8), "ps": np.array(0.013, np.float32)}
        constants |= {"q": rng.integers(-90000, 90000, shape).astype(np.int32), "qs": np.array(0.00001, np.float32)}
        constants |= {"pz": np.array(0, np.int8), "qz": np.array(0, np.int32)}
        nodes += [
            ("DequantizeLinear", ["p", "ps", "pz"], ["g"], {}),
            ("DequantizeLinear", ["q", "qs", "qz"], ["b"], {}),
        ]
    else:
        constants["g"] = rng.normal(1, 0.3, length or shape).astype(np.float32)
        constants["b"] = rng.normal(0, 0.5, length or shape).astype(np.float32)
        if parameters == "infinite":
            constants["g"].reshape(-1)[3] = np.inf
        if parameters == "input":
            feeds["g"] = constants.pop("g")
        reads = ["g"] if parameters == "scale" else reads
    nodes.append(("LayerNormalization", ["f", *reads], ["h"], attributes))
    nodes.append(("QuantizeLinear", ["h", "t", "u"], ["y"], {}))
    return model_of(nodes, feeds, {"y": x.dtype}, constants), feeds


def place(rows: Any) -> Any:
    return next(row for row in rows if row.op_type == "LayerNormalization")


@has_these_bits
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("parameters", ["floats", "dequantized", "scale"])
def test_any_normalization_has_the_bits_of_onnx_runtime(device: dmlvk.Device, parameters: str, dtype: Any) -> None:
    """Of all ranks and axes, with all kinds of scales and zero points, optimized or not."""
    rng = np.random.default_rng(len(parameters))
    for k in range(12):
        rank = int(rng.integers(1, 5))
        shape = [*map(int, rng.integers(1, 6, rank - 1)), int(rng.choice([8, 16, 40, 192, 768]))]
        x = of_one_width(rng, dtype, shape)
        axis = int(rng.integers(rank)) if k % 3 == 0 else rank - 1
        model = normalized(
            x,
            scale=float(2 ** rng.uniform(*rng.choice([(-8, -2), (-20, 20)]))),
            zero=int(rng.integers(-128, 128)),
            out=(float(2 ** rng.uniform(*rng.choice([(-8, -4), (-20, 20)]))), int(rng.integers(-128, 128))),
            parameters=parameters,
            axis=axis - (rank if rng.random() < 0.5 else 0),
            epsilon=float(rng.choice([1e-5, 1e-12, 0.1])),
        )
        row = place(placed(device, *model, optimize=bool(k % 2)))
        assert row.where == "device", row


@has_these_bits
@pytest.mark.parametrize("length", [8, 48, 768, 3072])
def test_the_last_bits_before_the_scale_are_those_of_onnx_runtime(device: dmlvk.Device, length: int) -> None:
    """A difference in the last bit would be a step of the output or two."""
    rng = np.random.default_rng(length)
    for dtype in (np.uint8, np.int8):
        x = of_one_width(rng, dtype, (6, length))
        scale, step = (float(np.float32(2 ** rng.uniform(-8, -2))) for _ in range(2))
        model, feeds = normalized(x, scale=scale, zero=3, out=(step, 1))
        low = 0 if dtype is np.int8 else 128
        desc = ByteLayerNormalizationDesc(
            input_tensor=dmlvk.TensorDesc.of(x),
            scale_tensor=dmlvk.TensorDesc("float32", (length,)),
            bias_tensor=dmlvk.TensorDesc("float32", (length,)),
            epsilon=1e-5,
            input_scale=scale,
            input_zero_point=3 + low,
            output_scale=step,
            output_zero_point=1 + low,
        )
        for initializer in model.graph.initializer:
            if initializer.name in ("g", "b"):
                field = {"g": "scale_tensor", "b": "bias_tensor"}[initializer.name]
                found = parameters_of("last_bits", desc, x, rng)[field]
                initializer.CopyFrom(onnx.numpy_helper.from_array(found, initializer.name))
        assert place(placed(device, model, feeds, optimize=True)).where == "device"


@has_these_bits
@pytest.mark.parametrize("perm", [(0, 2, 3, 1), (1, 0, 3, 2), (3, 1, 2, 0)], ids=str)
def test_rows_in_any_order_of_memory(device: dmlvk.Device, perm: tuple[int, ...]) -> None:
    """Of what a transpose has left."""
    x = of_one_width(np.random.default_rng(3), np.uint8, (8, 16, 8, 16))
    for axis in (-1, -2):
        model, feeds = normalized(x, axis=axis)
        model.graph.node[0].input[0] = "w"
        model.graph.node.insert(0, onnx.helper.make_node("Transpose", ["x"], ["w"], perm=perm))
        shape = [x.shape[k] for k in perm][axis:]
        for initializer in model.graph.initializer:
            if initializer.name in ("g", "b"):
                del initializer.dims[:]
                initializer.dims.extend(shape)
        if np.prod(shape) == np.prod(x.shape[axis:]):
            assert place(placed(device, model, feeds, optimize=True)).where == "device"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"shape": (5, 12)}, "12 elements"),
        ({"scale": 2.0**-21}, "its input scale is"),
        ({"out": (2.0**21, 0)}, "its output scale is"),
        ({"epsilon": 0.0}, "its epsilon is 0"),
        ({"parameters": "infinite"}, "not finite"),
        ({"parameters": "input"}, "with a constant scale and bias"),
        ({"length": 1}, "another shape"),
    ],
    ids=["length", "small", "large", "epsilon", "infinite", "input", "broadcast"],
)
def test_others_stay_on_the_host(device: dmlvk.Device, options: dict[str, Any], reason: str) -> None:
    """With ONNX Runtime's bits, and a reason."""
    x = of_one_width(np.random.default_rng(4), np.uint8, options.pop("shape", (5, 16)))
    row = place(placed(device, *normalized(x, **options), optimize=True))
    assert row.where == "host"
    assert reason in row.reason


def test_floats_that_others_read_stay_on_the_host(device: dmlvk.Device) -> None:
    x = of_one_width(np.random.default_rng(5), np.uint8, (5, 16))
    model, feeds = normalized(x)
    model.graph.output.append(onnx.helper.make_tensor_value_info("h", TensorProto.FLOAT, None))
    row = place(placed(device, model, feeds, optimize=True))
    assert row.where == "host"
    assert "between a DequantizeLinear and a QuantizeLinear" in row.reason


def test_a_dequantized_scale_goes_to_the_host_with_its_node(device: dmlvk.Device) -> None:
    x = of_one_width(np.random.default_rng(6), np.uint8, (5, 12))
    row = place(placed(device, *normalized(x, parameters="dequantized"), optimize=True))
    assert row.where == "host", row


@has_these_bits
@pytest.mark.parametrize("mover", ["Concat", "Transpose"])
def test_movement_before_a_normalization(device: dmlvk.Device, mover: str) -> None:
    """Bytes are moved, and normalized on the device, also where ONNX Runtime moves floats."""
    x = of_one_width(np.random.default_rng(15), np.uint8, (3, 8, 16))
    model, feeds = normalized(x)
    moving = onnx.helper.make_node(mover, ["f", "f"] if mover == "Concat" else ["f"], ["m"])
    if mover == "Concat":
        moving.attribute.append(onnx.helper.make_attribute("axis", 0))
    else:
        moving.attribute.append(onnx.helper.make_attribute("perm", [1, 0, 2]))
    model.graph.node.insert(1, moving)
    model.graph.node[2].input[0] = "m"
    rows = placed(device, model, feeds)
    assert place(rows).where == "device", rows


@has_these_bits
def test_several_readers_of_a_normalization(device: dmlvk.Device) -> None:
    """Each QuantizeLinear has a normalization of its own, also behind movement, in the QOperator format."""
    x = of_one_width(np.random.default_rng(16), np.uint8, (4, 6, 16))
    constants: dict[str, Array] = {"four": np.array([2, 2, 6, 16], np.int64)}
    constants |= {"s": np.array(0.05, np.float32), "z": np.array(130, np.uint8), "p": np.array(0.01, np.float32)}
    constants |= {"t": np.array(0.03, np.float32), "u": np.array(120, np.uint8), "v": np.array(0.02, np.float32)}
    constants |= {"same_t": constants["t"], "same_u": constants["u"]}
    for name, mean in (("g", 1), ("b", 0)):
        constants[name] = np.random.default_rng(mean).normal(mean, 0.3, 16).astype(np.float32)
    nodes: list[Any] = [
        ("DequantizeLinear", ["x", "s", "z"], ["f"], {}),
        ("LayerNormalization", ["f", "g", "b"], ["h"], {}),
        ("QuantizeLinear", ["h", "t", "u"], ["y0"], {}),
        ("Reshape", ["h", "four"], ["r"], {}),
        ("QuantizeLinear", ["r", "same_t", "same_u"], ["y1"], {}),
        ("Concat", ["r", "r"], ["twice"], {"axis": 1}),
        ("QuantizeLinear", ["twice", "v", "u"], ["y2"], {}),
        ("com.microsoft.QLinearSigmoid", ["y0", "t", "u", "p", "z"], ["y3"], {}),
    ]
    model = model_of(nodes, {"x": x}, {f"y{k}": np.uint8 for k in range(4)}, constants, opset=18)
    rows = placed(device, model, {"x": x})
    assert all(row.where != "host" for row in rows), rows
    assert place(rows).where == "device"
