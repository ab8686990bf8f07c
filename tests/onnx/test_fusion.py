"""A convolution and the addition of its output are one dispatch, where that changes no bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import dmlvk
from dmlvk import DataType, TensorDesc
from dmlvk.onnx.foreseen import foreseen
from dmlvk.onnx.fusion import composed, fused
from dmlvk.onnx.graph import Graph
from dmlvk.onnx.model_file import load
from dmlvk.onnx.program import Operation
from dmlvk.operators import (
    ByteTableDesc,
    QuantizedLinearConvolutionAddDesc,
    QuantizedLinearConvolutionDesc,
)
from tests.onnx.models import Array, convolution, convolution_parameters, elements, model_of
from tests.onnx.random_networks import dispatched
from tests.onnx.test_neighbours import placed
from tests.reference.onnx_runtime import ONNX_RUNTIME

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


def tables(kind: str) -> tuple[onnx.ModelProto, dict[str, Array], int]:
    """A model with two tables, one after the other, that chains of nodes do not join; and how many a run has.

    The first is m = y * sigmoid(y): together with what follows, it would have three sources on the way, or differ by
    channels beside two.
    """
    (first, _), feeds, constants = parts()
    generator = np.random.default_rng(6)
    constants |= {"channels": elements(generator, np.uint8, (6, 1, 1)), "s_scale": np.array(1 / 256, np.float32)}
    constants |= {"s_zero": np.array(0, np.uint8)}
    y, s, m = (["y", "y_scale", "y_zero"], ["s", "s_scale", "s_zero"], ["m", "z_scale", "r_zero"])
    other = [{"channels": "channels"}.get(kind, "r"), "r_scale", "r_zero"]
    last = [*other, *m] if kind == "second" else [*m, *other]
    nodes: list[Any] = [
        first,
        ("com.microsoft.QLinearSigmoid", [*y, *s[1:]], ["s"], {}),
        ("com.microsoft.QLinearMul", [*y, *s, *m[1:]], ["m"], {}),
        ("com.microsoft.QLinearMul", [*last, "z_scale", "y_zero"], ["z"], {}),
    ]
    outputs: dict[str, Any] = {"z": np.uint8, **({"m": np.uint8} if kind == "an output" else {})}
    if kind == "read twice":
        nodes.append(("com.microsoft.QLinearAdd", [*m, *y, "z_scale", "r_zero"], ["v"], {}))
        outputs["v"] = np.uint8
    if kind == "channels":
        del feeds["r"]
    return model_of(nodes, feeds, outputs, constants), feeds, 2 if kind in ("an output", "read twice") else 1


@pytest.mark.parametrize("kind", ["channels", "first", "second", "an output", "read twice"])
def test_two_tables_are_one(device: dmlvk.Device, kind: str) -> None:
    model, feeds, count = tables(kind)
    placed(device, model, feeds)
    found = ONNX_RUNTIME.call("networks", dispatched, model, feeds, device.name)
    assert sum(name.endswith("TABLE") for name in found) == count


@pytest.mark.parametrize("second", [None, "input_tensor", "second_input_tensor"])
@pytest.mark.parametrize("axes", [(None, None), (1, None), (None, 1), (1, 1), (0, 1)])
def test_a_table_of_a_table(axes: tuple[int | None, int | None], second: str | None) -> None:
    """Of one byte, or of a pair, one byte of which is the first table's; for all, or for each index along an axis."""
    generator, sizes, strides = np.random.default_rng(7), (2, 3, 300), (900, 1, 3)
    kinds = (np.int8, np.uint8)
    given = TensorDesc(DataType.INT8, sizes, strides)

    def table(axis: int | None, kind: Any, length: int, **inputs: TensorDesc) -> tuple[ByteTableDesc, Array]:
        rows = () if axis is None else (sizes[axis],)
        elements_of = elements(generator, kind, (*rows, length))
        desc = TensorDesc(DataType.from_numpy(np.dtype(kind)), elements_of.shape)
        output = TensorDesc(desc.data_type, sizes, strides)
        return ByteTableDesc(table_tensor=desc, axis=axis, output_tensor=output, **inputs), elements_of

    inner, first = table(axes[0], kinds[0], 256, input_tensor=given)
    field = second or "input_tensor"
    others = {} if second is None else {"input_tensor": given, "second_input_tensor": given}
    outer, last = table(axes[1], kinds[1], 1 << (8 if second is None else 16), **{**others, field: inner.output_tensor})
    places = dict.fromkeys(others, (3, 0)) | {field: (1, 0), "output_tensor": (2, 0)}
    operations = [
        Operation(inner, {"input_tensor": (0, 0), "output_tensor": (1, 0)}, {"table_tensor": first}),
        Operation(outer, places, {"table_tensor": last}),
    ]
    values = {storage: elements(generator, np.int8, sizes) for storage in (0, 3)}

    def found(program: list[Operation]) -> Array:
        held = dict(values)
        for each in program:
            read = {name: held[at] for name, (at, _) in each.places.items() if name != "output_tensor"}
            held[each.places["output_tensor"][0]] = dmlvk.reference.run(each.desc, **read, **each.owned)
        return held[2]

    joined = composed(operations, {2})
    possible = axes == (None, None) or (second is None and axes != (0, 1))
    assert len(joined) == (1 if possible else 2)
    np.testing.assert_array_equal(found(joined), found(operations))
    assert len(composed(operations, {1, 2})) == 2, "what is read between stays"


def activated(kind: str) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A convolution and an activation: y, z = f(y)."""
    (first, _), feeds, constants = parts()
    constants |= {"s_scale": np.array(1 / 256, np.float32), "s_zero": np.array(0, np.uint8)}
    y, s, z = ["y", "y_scale", "y_zero"], ["s", "s_scale", "s_zero"], ["z_scale", "r_zero"]
    nodes: list[Any] = [first, ("com.microsoft.QLinearSigmoid", [*y, *s[1:]], ["s"], {})]
    nodes.append(("com.microsoft.QLinearMul", [*y, *s, *z], ["z"], {}))
    if kind == "leaky":
        nodes[1:] = [("com.microsoft.QLinearLeakyRelu", [*y, *z], ["z"], {"alpha": 0.1})]
    outputs: dict[str, Any] = {"z": np.uint8, **({"y": np.uint8} if kind == "an output" else {})}
    if kind == "read twice":
        nodes.append(("Flatten", ["y"], ["v"], {}))
        outputs["v"] = np.uint8
    return model_of(nodes, {"x": feeds["x"]}, outputs, constants), {"x": feeds["x"]}


@pytest.mark.parametrize("kind", ["swish", "leaky", "read twice", "an output"])
def test_an_activation_is_the_last_step(device: dmlvk.Device, kind: str) -> None:
    """Unless the convolution's output is read as it is."""
    model, feeds = activated(kind)
    placed(device, model, feeds)
    found = ONNX_RUNTIME.call("networks", dispatched, model, feeds, device.name)
    assert found.count("QUANTIZED_LINEAR_CONVOLUTION_TABLE") == (kind in ("swish", "leaky"))
    assert found.count("BYTE_TABLE") == (kind not in ("swish", "leaky"))


@pytest.mark.parametrize("activation", ["HardSwish", "LeakyRelu", "HardSigmoid", "Sigmoid"])
def test_an_activation_between_floats(device: dmlvk.Device, activation: str) -> None:
    """As quantizers for DequantizeLinear and QuantizeLinear leave it: HardSwish of MobileNetV3, LeakyRelu of YOLO."""
    (first, _), feeds, constants = parts()
    nodes: list[Any] = [
        first,
        ("DequantizeLinear", ["y", "y_scale", "y_zero"], ["f"], {}),
        (activation, ["f"], ["g"], {}),
        ("QuantizeLinear", ["g", "z_scale", "r_zero"], ["z"], {}),
    ]
    model, given = model_of(nodes, {"x": feeds["x"]}, {"z": np.uint8}, constants), {"x": feeds["x"]}
    placed(device, model, given)
    found = ONNX_RUNTIME.call("networks", dispatched, model, given, device.name)
    assert found.count("QUANTIZED_LINEAR_CONVOLUTION_TABLE") == 1


def test_tables_that_stay_apart() -> None:
    """A convolution's last step has one table of its output's type."""
    assert len(fused(with_table(DataType.UINT8), {2})) == 1
    assert len(fused(with_table(DataType.INT8), {2})) == 2
    assert len(fused(with_table(DataType.UINT8, axis=1), {2})) == 2


def with_table(kind: DataType, axis: int | None = None) -> list[Operation]:
    """A convolution and a table of a type behind it, or a table for each index along an axis."""
    one = TensorDesc(DataType.FLOAT32, (1,))
    image = TensorDesc(DataType.UINT8, (1, 4, 5, 7))
    convolved = QuantizedLinearConvolutionDesc(
        input_tensor=image,
        filter_tensor=TensorDesc(DataType.INT8, (4, 4, 1, 1)),
        **{f"{name}_scale_tensor": one for name in ("input", "filter", "output")},
        strides=(1, 1),
        dilations=(1, 1),
        start_padding=(0, 0),
        end_padding=(0, 0),
        group_count=1,
    )
    sizes = (256,) if axis is None else (image.sizes[axis], 256)
    lookup = ByteTableDesc(input_tensor=image, table_tensor=TensorDesc(kind, sizes), axis=axis)
    return [
        Operation(convolved, {"input_tensor": (0, 0), "output_tensor": (1, 0)}, {}),
        Operation(lookup, {"input_tensor": (1, 0), "output_tensor": (2, 0)}, {"table_tensor": np.zeros(sizes)}),
    ]
