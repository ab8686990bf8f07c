"""Linear Resize of bytes, and between DequantizeLinear and QuantizeLinear, has ONNX Runtime's bits on the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest

import dmlvk
from dmlvk.onnx.placement import Row
from tests.onnx.models import Array, elements, model_of
from tests.onnx.test_neighbours import placed

MODES = ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners", "half_pixel_symmetric")
# A node that says of a model that a quantizer has put operators of bytes into it.
OF_BYTES: Any = ("com.microsoft.QLinearSigmoid", ["x", "s", "z", "s", "z"], ["v"], {})


def resized(
    x: Array,
    lengths: Sequence[int] | None = None,
    scales: Sequence[float] | None = None,
    *,
    around_floats: bool = False,
    out: tuple[float, int] | None = None,
    scale: float = 0.02,
    zero: int = 3,
    opset: int = 19,
    **attributes: Any,
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A model of one linear Resize to sizes or by scales."""
    constants = {"s": np.array(scale, np.float32), "z": np.array(zero, x.dtype)}
    constants |= {"t": np.array(out[0] if out else scale, np.float32), "u": np.array(out[1] if out else zero, x.dtype)}
    if scales is not None:
        constants["scales"] = np.array(scales, np.float32)
    else:
        constants["sizes"] = np.array(lengths, np.int64)
    reads = ["", "scales"] if scales is not None else ["", "", "sizes"]
    attributes = {"mode": "linear", **attributes}
    if around_floats:
        nodes: list[Any] = [
            ("DequantizeLinear", ["x", "s", "z"], ["f"], {}),
            ("Resize", ["f", *reads], ["g"], attributes),
        ]
        nodes.append(("QuantizeLinear", ["g", "t", "u"], ["y"], {}))
    else:
        nodes = [OF_BYTES, ("Resize", ["v", *reads], ["y"], attributes)]
    return model_of(nodes, {"x": x}, {"y": x.dtype}, constants, opset=opset), {"x": x}


def place(rows: Sequence[Row]) -> str:
    return next(row.where for row in rows if row.op_type == "Resize")


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("around_floats", [False, True], ids=["QOperator", "QDQ"])
def test_any_linear_resize_has_the_bits_of_onnx_runtime(
    device: dmlvk.Device, around_floats: bool, mode: str, dtype: Any
) -> None:
    """Of all sizes, by powers of two and by any scale, with all kinds of scales and zero points."""
    rng = np.random.default_rng(MODES.index(mode))
    for k in range(16):
        shape: list[int] = [int(rng.integers(1, 3)), int(rng.integers(1, 9)), *rng.integers(1, 14, 2).tolist()]
        shape = shape[2:] if k == 3 else shape
        x = elements(rng, dtype, shape)
        planes = len(shape) - 2
        limits = np.iinfo(dtype)
        zeros = rng.integers(limits.min, limits.max + 1, 2)
        scale = float(2 ** rng.uniform(*((-12, 3) if k < 12 else (-39, 39))))
        options: dict[str, Any] = {"coordinate_transformation_mode": mode, "around_floats": around_floats}
        options |= {"scale": scale, "zero": int(zeros[0])}
        if k % 2:
            options["out"] = float(scale * 2 ** (rng.uniform(-1, 1) if k < 12 else rng.uniform(-9, 9))), int(zeros[1])
        if k % 3 == 0:
            given: dict[str, Any] = {"lengths": [*shape[:planes], *map(int, rng.integers(1, 40, 2))]}
        elif k % 3 == 1:
            given = {"scales": [1] * planes + [float(rng.choice([1, 2, 4, 8])) for _ in range(2)]}
        else:
            given = {"scales": [1] * planes + [int(rng.integers(1, 30)) / size for size in shape[planes:]]}
            if any(int(np.float32(a) * np.float32(b)) < 1 for a, b in zip(shape, given["scales"], strict=True)):
                continue
        rows = placed(device, *resized(x, **given, **options), optimize=around_floats)
        assert place(rows) == "device", rows


@pytest.mark.parametrize("around_floats", [False, True], ids=["QOperator", "QDQ"])
@pytest.mark.parametrize("perm", [(0, 3, 1, 2), (3, 1, 0, 2)], ids=str)
def test_any_order_in_memory(device: dmlvk.Device, perm: tuple[int, ...], around_floats: bool) -> None:
    """Of what a transpose has left; each kernel's words are of columns, of channels or of neither."""
    for channels in (3, 8):
        x = elements(np.random.default_rng(7), np.uint8, (2, 5, 6, channels))
        sizes = [x.shape[k] for k in perm]
        model, feeds = resized(x, [*sizes[:2], 11, 16], around_floats=around_floats, zero=120)
        nodes = model.graph.node
        for node in nodes:
            node.input[0] = "w" if node.input[0] == "x" else node.input[0]
        nodes.insert(0, onnx.helper.make_node("Transpose", ["x"], ["w"], perm=perm))
        assert place(placed(device, model, feeds, optimize=around_floats)) == "device"


def test_channels_last(device: dmlvk.Device) -> None:
    """ONNX Runtime interpolates floats in the same way, and bytes by weights of 10 bits."""
    x = elements(np.random.default_rng(3), np.uint8, (2, 5, 6, 8))
    scales = [1, 2.5, 1.5, 1]
    assert place(placed(device, *resized(x, scales=scales, around_floats=True), optimize=True)) == "device"
    assert place(placed(device, *resized(x, scales=scales))) == "host"


def test_the_same_sizes_are_a_copy(device: dmlvk.Device) -> None:
    x = elements(np.random.default_rng(3), np.uint8, (1, 2, 5, 6))
    assert place(placed(device, *resized(x, x.shape))) == "device"
    assert place(placed(device, *resized(x, x.shape, around_floats=True, out=(0.03, 9)), optimize=True)) == "device"
    assert place(placed(device, *resized(x, scales=[1, 1, 1.1, 1.1]))) == "device"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"mode": "cubic"}, "its mode is 'cubic'"),
        ({"antialias": 1}, "antialias"),
        ({"coordinate_transformation_mode": "tf_crop_and_resize"}, "coordinate_transformation_mode"),
        ({"keep_aspect_ratio_policy": "not_larger"}, "aspect ratio"),
        ({"shape": (2, 5, 6), "lengths": (2, 7, 9)}, "along the last two of 2 or 4 dimensions"),
        ({"scale": 2.0**-50, "around_floats": True}, "from 2^-40"),
        ({"out": (-0.01, 0), "around_floats": True}, "not a positive number"),
    ],
    ids=["cubic", "antialias", "crop", "ratio", "rank", "small", "negative"],
)
def test_others_stay_on_the_host(device: dmlvk.Device, options: dict[str, Any], reason: str) -> None:
    """With ONNX Runtime's bits, and a reason."""
    options = dict(options)
    x = elements(np.random.default_rng(4), np.uint8, options.pop("shape", (1, 2, 5, 6)))
    lengths = options.pop("lengths", (1, 2, 7, 9))
    if options.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        model, feeds = resized(x, lengths, **options)
        model.graph.node[1].input[1] = "roi"
        roi = np.array([0, 0, 0, 0, 1, 1, 1, 1], np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(roi, "roi"))
    elif "mode" in options:  # which ONNX Runtime has of floats alone
        model, feeds = resized(x, lengths, around_floats=True, **options)
    else:
        model, feeds = resized(x, lengths, **options)
    rows = placed(device, model, feeds, optimize=any(node.op_type == "QuantizeLinear" for node in model.graph.node))
    (row,) = (row for row in rows if row.op_type == "Resize")
    assert row.where == "host"
    assert reason in row.reason


def test_floats_that_others_read_stay_on_the_host(device: dmlvk.Device) -> None:
    x = elements(np.random.default_rng(5), np.uint8, (1, 2, 5, 6))
    model, feeds = resized(x, (1, 2, 7, 9), around_floats=True)
    model.graph.output.append(onnx.helper.make_tensor_value_info("g", onnx.TensorProto.FLOAT, None))
    (row,) = (row for row in placed(device, model, feeds, optimize=True) if row.op_type == "Resize")
    assert row.where == "host"
    assert "between a DequantizeLinear and a QuantizeLinear" in row.reason


def test_bytes_whose_channels_onnx_runtime_may_give_the_last_place_stay_on_the_host(device: dmlvk.Device) -> None:
    """In a model around floats it optimizes all nodes, and then those of bytes beside a convolution."""
    x = elements(np.random.default_rng(6), np.uint8, (1, 2, 5, 6))
    constants: dict[str, Any] = {"s": np.float32(0.02), "z": np.uint8(3), "w": np.ones((2, 2, 1, 1), np.int8)}
    constants |= {"y": np.int8(0), "scales": np.array([1, 1, 1.6, 1.5], np.float32)}
    nodes: list[Any] = [
        ("Resize", ["x", "", "scales"], ["b"], {"mode": "linear"}),
        ("DequantizeLinear", ["b", "s", "z"], ["f"], {}),
        ("DequantizeLinear", ["w", "s", "y"], ["g"], {}),
        ("Conv", ["f", "g"], ["h"], {}),
        ("QuantizeLinear", ["h", "s", "z"], ["q"], {}),
    ]
    model = model_of(nodes, {"x": x}, {"q": np.uint8}, {k: np.asarray(v) for k, v in constants.items()})
    rows = placed(device, model, {"x": x}, optimize=True)
    assert place(rows) == "host"
    assert "the channels last" in rows[0].reason
