"""A convolution and the addition of its output are one dispatch, where that changes no bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import dmlvk
from dmlvk.onnx.foreseen import foreseen
from dmlvk.onnx.graph import Graph
from dmlvk.onnx.model_file import load
from dmlvk.operators import QuantizedLinearConvolutionAddDesc
from tests.onnx.models import Array, convolution, convolution_parameters, elements, model_of
from tests.onnx.test_neighbours import placed

Parts = tuple[list[Any], dict[str, Array], dict[str, Array]]


def parts(order: str = "first", scale: float = 1.0, filters: int = 6) -> Parts:
    """The nodes, inputs and constants of y = convolution(x), z = y + r or r + y."""
    generator = np.random.default_rng(5)
    constants = convolution_parameters(generator, (filters, 4, 3, 3), per_channel=True)
    constants |= {"y_scale_2": np.float32(scale) * constants["y_scale"], "r_scale": np.array(0.03, np.float32)}
    constants |= {"r_zero": np.array(120, np.uint8), "z_scale": np.array(0.05, np.float32)}
    feeds = {"x": elements(generator, np.uint8, (2, 4, 5, 7)), "r": elements(generator, np.uint8, (2, filters, 5, 7))}
    operands = [["y", "y_scale_2", "y_zero"], ["r", "r_scale", "r_zero"]]
    first, second = operands if order == "first" else operands[::-1]
    addition: Any = ("com.microsoft.QLinearAdd", [*first, *second, "z_scale", "r_zero"], ["z"], {})
    return [convolution(constants, pads=[1, 1, 1, 1]), addition], feeds, constants


def sums(model: onnx.ModelProto, feeds: dict[str, Array]) -> list[Any]:
    """The convolutions of a model's run on a device whose last step is a sum."""
    graph = Graph(load(model.SerializeToString()))
    kinds = {name: (array.shape, array.dtype) for name, array in feeds.items()}
    kinds |= {"y": (feeds["r"].shape, feeds["r"].dtype), "z": (feeds["r"].shape, feeds["r"].dtype)}
    descs, refused = foreseen(graph, {}, kinds, True)
    assert not refused
    return [desc for desc in descs if isinstance(desc, QuantizedLinearConvolutionAddDesc)]


@pytest.mark.parametrize("order", ["first", "second"])
def test_a_sum_is_the_last_step(device: dmlvk.Device, order: str) -> None:
    nodes, feeds, constants = parts(order)
    model = model_of(nodes, feeds, {"z": np.uint8}, constants)
    (desc,) = sums(model, feeds)
    assert desc.addend_comes_first == (order == "second")
    placed(device, model, feeds)


def test_of_two_convolutions_the_later_one_adds(device: dmlvk.Device) -> None:
    nodes, feeds, constants = parts()
    other = [convolution(constants, "x", "r_of_x", pads=[1, 1, 1, 1])]
    kind, read, written, attributes = nodes[1]
    addition = (kind, ["y", *read[1:3], "r_of_x", "y_scale", "y_zero", *read[6:]], written, attributes)
    model = model_of([nodes[0], *other, addition], {"x": feeds["x"]}, {"z": np.uint8}, constants)
    (desc,) = sums(model, feeds)
    assert desc.addend_comes_first
    placed(device, model, {"x": feeds["x"]})


def apart(kind: str) -> tuple[onnx.ModelProto, dict[str, Array]]:
    nodes, feeds, constants = parts(scale=0.75 if kind == "another scale" else 1.0)
    outputs: dict[str, Any] = {"z": np.uint8}
    if kind == "read twice":
        nodes.append(("Flatten", ["y"], ["v"], {}))
        outputs["v"] = np.uint8
    if kind == "an output":
        outputs["y"] = np.uint8
    if kind == "added to itself":
        operator, read, written, attributes = nodes[1]
        nodes[1] = (operator, [*read[:3], *read[:3], *read[6:]], written, attributes)
    return model_of(nodes, feeds, outputs, constants), feeds


@pytest.mark.parametrize("kind", ["another scale", "read twice", "an output", "added to itself"])
def test_sums_that_stay_apart(device: dmlvk.Device, kind: str) -> None:
    """The convolution's output is read as it is, or the sum takes it for something else."""
    model, feeds = apart(kind)
    assert not sums(model, feeds)
    placed(device, model, feeds)
