"""QLinearSoftmax, and a Softmax that ONNX Runtime makes one of, have ONNX Runtime's bits on the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest

import dmlvk
from dmlvk.onnx.neighbours import LONGEST_ROW
from tests.onnx.models import Array, model_of
from tests.onnx.test_neighbours import placed

STEP_OF_SHARES = 1 / 256


def softmax(
    x: Array,
    *,
    scale: float = 0.07,
    step: float = STEP_OF_SHARES,
    zero: int | None = None,
    around_floats: bool = False,
    opset: int = 17,
    **attributes: Any,
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A model of one softmax of bytes, as an operator of bytes or of floats between conversions."""
    zero = int(np.iinfo(x.dtype).min) if zero is None else zero
    constants: dict[str, Array] = {"s": np.array(scale, np.float32), "t": np.array(step, np.float32)}
    constants |= {"z": np.array(zero, x.dtype)}
    nodes: list[Any]
    if around_floats:
        nodes = [("DequantizeLinear", ["x", "s", "z"], ["f"], {}), ("Softmax", ["f"], ["g"], attributes)]
        nodes.append(("QuantizeLinear", ["g", "t", "z"], ["y"], {}))
    else:
        attributes["opset"] = opset
        nodes = [("com.microsoft.QLinearSoftmax", ["x", "s", "z", "t", "z"], ["y"], attributes)]
    return model_of(nodes, {"x": x}, {"y": x.dtype}, constants, opset=opset), {"x": x}


def of_one_width(rng: np.random.Generator, dtype: Any, shape: Sequence[int]) -> Array:
    """Random bytes that are near each other, or any."""
    limits, width = np.iinfo(dtype), int(rng.choice([3, 30, 256]))
    low = int(rng.integers(limits.min, limits.max - width + 2))
    return rng.integers(low, low + width, tuple(shape)).astype(dtype)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("seed", range(6))
def test_any_softmax_has_the_bits_of_onnx_runtime(device: dmlvk.Device, seed: int, dtype: Any) -> None:
    """Of all ranks and axes, old and new, with all kinds of scales and zero points."""
    rng = np.random.default_rng(seed)
    for rank in range(1, 5):
        shape = list(map(int, rng.integers(1, 4, rank)))
        axis = int(rng.integers(rank))
        shape[axis] = int(rng.choice([1, 2, 10, 257, 1000]))
        x = of_one_width(rng, dtype, shape)
        model = softmax(
            x,
            scale=float(2 ** rng.uniform(*rng.choice([(-12, 1), (-120, 120)]))),
            step=float(rng.choice([STEP_OF_SHARES, 1 / 255, 1 / 127, 1e-4, 0.3])),
            zero=None if rng.random() < 0.5 else int(rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1)),
            axis=axis - (rank if rng.random() < 0.5 else 0),
            opset=int(rng.choice([11, 12, 13, 17])),
        )
        rows = placed(device, *model)
        assert [row.where for row in rows] == ["device"], rows


def test_where_a_share_is_between_two_steps(device: dmlvk.Device) -> None:
    """Steps so fine that the last bits of terms, sums and quotients decide: one share is next to a half of a step."""
    rng, rows = np.random.default_rng(8), 0
    for length in (2, 10, 999, 5000):
        scale = float(np.float32(2 ** rng.uniform(-6, -2)))
        x = rng.integers(0, 256, (1, length), np.uint8)
        x[0, :2] = 255, 255 - round(8 / scale) if scale > 8 / 255 else 0
        shares = np.exp((x[0] - 255.0) * scale)
        share = shares[1] / shares.sum()
        for odd in rng.integers(20, 200, 4):
            step = np.float32(share / (odd + 0.5))
            for near in step + np.arange(-2, 3) * np.spacing(step):
                if 1 / near >= 1 << 24:
                    continue
                rows += 1
                assert placed(device, *softmax(x, scale=scale, step=float(near), zero=0))[0].where == "device"
    assert rows > 40


@pytest.mark.parametrize("opset", [11, 12, 13])
@pytest.mark.parametrize("attributes", [{}, {"axis": 1}, {"axis": -1}], ids=str)
def test_a_softmax_between_conversions_is_one(device: dmlvk.Device, opset: int, attributes: dict[str, Any]) -> None:
    """ONNX Runtime replaces the three nodes by a QLinearSoftmax where it optimizes."""
    x = of_one_width(np.random.default_rng(opset), np.int8, (2, 5, 7))
    model, feeds = softmax(x, around_floats=True, opset=opset, **attributes)
    assert [row.where for row in placed(device, model, feeds, optimize=True)] == ["folded", "device", "folded"]


@pytest.mark.parametrize("channels_last", [False, True])
def test_rows_in_any_order_of_memory(device: dmlvk.Device, channels_last: bool) -> None:
    """Along each axis of what a transpose has left."""
    x = of_one_width(np.random.default_rng(3), np.uint8, (2, 5, 7, 3))
    for axis in range(4):
        model, feeds = softmax(x, axis=axis)
        model.graph.node[0].input[0] = "w"
        perm = (0, 3, 1, 2) if channels_last else (3, 1, 0, 2)
        model.graph.node.insert(0, onnx.helper.make_node("Transpose", ["x"], ["w"], perm=perm))
        assert {row.where for row in placed(device, model, feeds)} == {"device"}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"step": 2.0}, "in steps of 2"),
        ({"step": 2.0**-25}, "in steps of"),
    ],
    ids=["coarse", "fine"],
)
def test_other_steps_stay_on_the_host(device: dmlvk.Device, fields: dict[str, Any], reason: str) -> None:
    x = of_one_width(np.random.default_rng(4), np.uint8, (3, 9))
    (row,) = placed(device, *softmax(x, **fields))
    assert row.where == "host"
    assert reason in row.reason


def test_a_long_row_stays_on_the_host(device: dmlvk.Device) -> None:
    """The host's logarithm of its length may be rounded in another way."""
    x = of_one_width(np.random.default_rng(5), np.uint8, (1, LONGEST_ROW + 1))
    assert [row.where for row in placed(device, *softmax(x[:, 1:]))] == ["device"]
    assert [row.where for row in placed(device, *softmax(x))] == ["host"]
