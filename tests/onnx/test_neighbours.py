"""The convolution's neighbours on the device: random networks of them have ONNX Runtime's bits, in one part."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import dmlvk
from dmlvk.onnx.byte_functions import BINARY, QUANTIZED, UNARY
from dmlvk.onnx.placement import Row
from dmlvk.onnx.registry import ENTRIES
from tests.onnx.models import Array, Node, elements, model_of, onnx_runtime, require_equal, session_with_onnx_runtime
from tests.onnx.random_networks import both, differences, runs
from tests.reference.onnx_runtime import ONNX_RUNTIME

# `make fuzz` compares thousands.
NETWORKS = 4


def placed(
    device: dmlvk.Device, model: onnx.ModelProto, feeds: dict[str, Array], *, optimize: bool = False
) -> list[Row]:
    """Where a model's nodes ran, once its bits were those of ONNX Runtime."""
    found, expected, rows = ONNX_RUNTIME.call("networks", both, model, feeds, device.name, optimize)
    require_equal(found, expected)
    return list(rows)


@pytest.mark.parametrize("around_floats", [False, True], ids=["QOperator", "QDQ"])
def test_random_networks(device: dmlvk.Device, around_floats: bool) -> None:
    """All of their nodes run on the device, with the bits of ONNX Runtime: plain, or optimized for QDQ."""
    count, wrong, on_host = ONNX_RUNTIME.call("networks", differences, range(NETWORKS), around_floats, device.name)
    assert count > NETWORKS // 2
    assert not wrong
    assert not on_host


def quantized(x: Array) -> tuple[list[Any], dict[str, Array]]:
    """A node that quantizes x to v, and its constants."""
    constants: dict[str, Array] = {"s": np.array(0.02, np.float32), "z": np.array(3, np.int8)}
    return [("QuantizeLinear", ["x", "s", "z"], ["v"], {})], constants


# The parameters and attributes of functions of one value that need any.
PARAMETERS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "BatchNormalization": ([[0.5, 1, 2], [0, -1, 1], [1, 0, -1], [1, 0.1, 3]], {"epsilon": 1e-3}),
    "Clip": ([-0.7, 1.1], {}),
    "Gelu": ([], {"approximate": "tanh"}),
    "HardSigmoid": ([], {"alpha": 0.3}),
    "LeakyRelu": ([], {"alpha": 0.2}),
    "ThresholdedRelu": ([], {"alpha": 0.4}),
}


@pytest.mark.parametrize("operator", sorted(UNARY | BINARY))
def test_each_function_is_a_table(device: dmlvk.Device, operator: str) -> None:
    """Of every byte, and, if it has two operands, of a byte with a number and with another byte."""
    rng = np.random.default_rng(10)
    levels = np.arange(-128, 128, dtype=np.int8)
    feeds = {"x": np.stack([rng.permutation(levels) for _ in range(3)]).reshape(1, 3, 16, 16)}
    parameters, attributes = PARAMETERS.get(operator, ([], {}))
    constants: dict[str, Array] = {"s": np.array(0.02, np.float32), "z": np.array(3, np.int8)}
    constants |= {f"p{k}": np.array(value, np.float32) for k, value in enumerate(parameters)}
    seconds = {"": list(constants)[2:]}
    if operator in BINARY:
        constants |= {"number": np.array(0.7, np.float32), "t": np.array(0.03, np.float32)}
        seconds = {"number": ["number"], "byte": ["e"]}
    for name, reads in seconds.items():
        if name == "byte":
            feeds["w"] = rng.permutation(feeds["x"].ravel()).reshape(feeds["x"].shape)
        nodes: list[Node] = [("DequantizeLinear", ["x", "s", "z"], ["d"], {})]
        nodes += [("DequantizeLinear", ["w", "t", "z"], ["e"], {})] if name == "byte" else []
        nodes += [(operator, ["d", *reads], ["f"], attributes), ("QuantizeLinear", ["f", "s", "z"], ["y"], {})]
        rows = placed(device, model_of(nodes, feeds, {"y": np.int8}, constants, opset=20), feeds, optimize=True)
        places = ["folded", "view", "view"] if operator == "Identity" else ["device", *["folded"] * (len(nodes) - 1)]
        assert sorted(row.where for row in rows) == places


A, B, OUT = ["x", "s", "z"], ["w", "t", "z"], ["t", "z"]
# Nodes that run on the device by their inputs: bytes "x" and "w" of (2, 4, 6, 5), floats "f" and "g", a condition "c".
NODES: dict[str, tuple[list[str], list[dict[str, Any]]]] = {
    "QuantizeLinear": (["f", "s", "z"], [{}]),
    "DequantizeLinear": (A, [{}]),
    "MaxPool": (
        ["x"],
        [
            {"kernel_shape": [2, 3], "strides": [2, 2], "ceil_mode": 1},
            {"kernel_shape": [2, 2], "dilations": [3, 2]},
            {"kernel_shape": [3, 3], "auto_pad": "SAME_LOWER", "strides": [2, 1]},
        ],
    ),
    "ReduceMax": (["x"], [{"axes": [1, 3]}, {"keepdims": 0}]),
    "ReduceMin": (["x"], [{"axes": [2], "keepdims": 0}]),
    "Where": (["c", "x", "w"], [{}]),
    "Pad": (["x", "pads", "z"], [{}, {"mode": "reflect"}, {"mode": "edge"}]),
    "Resize": (
        ["x", "", "factors"],
        [
            {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
            {"mode": "nearest", "coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_ceil"},
        ],
    ),
    "Add": (["f", "g"], [{}]),
    "Sub": (["f", "s"], [{}]),
    "Sum": (["f", "g"], [{}]),
    "Relu": (["f"], [{}]),
    "com.microsoft.QLinearAdd": ([*A, *B, *OUT], [{}]),
    "com.microsoft.QLinearMul": ([*A, *B, *OUT], [{}]),
    "com.microsoft.QLinearSigmoid": ([*A, *OUT], [{}]),
    "com.microsoft.QLinearLeakyRelu": ([*A, *OUT], [{"alpha": 0.2}]),
    "com.microsoft.QLinearConcat": ([*OUT, *A, *B], [{"axis": 1}, {"axis": -1}]),
    "com.microsoft.QLinearWhere": (["c", *A, *B, *OUT], [{}]),
    "com.microsoft.QLinearAveragePool": (
        [*A, *OUT],
        [
            {"kernel_shape": [2, 3], "strides": [2, 2], "ceil_mode": 1},
            {"kernel_shape": [3, 3], "pads": [1, 2, 0, 1], "count_include_pad": 1},
            {"kernel_shape": [2, 2], "channels_last": 1},
        ],
    ),
    "com.microsoft.QLinearSoftmax": (
        [*A, *OUT],
        [{"opset": 13}, {"opset": 17, "axis": 1}, {"opset": 12}, {"opset": 11, "axis": 2}, {"opset": 9, "axis": 0}],
    ),
    "com.microsoft.QLinearGlobalAveragePool": ([*A, *OUT], [{"channels_last": 0}, {"channels_last": 1}]),
}


FLOATS = ("Add", "DequantizeLinear", "Relu", "Sub", "Sum")


def test_the_table_of_nodes_has_each_operator_of_the_device() -> None:
    """Convolutions, products, movement, layer normalizations and means of floats have files of their own."""
    modules = ("convolution", "movement", "normalization", "patterns", "views")
    elsewhere = {operator for (_, operator), entry in ENTRIES.items() if entry.plan.__module__.endswith(modules)}
    operators = {operator for domain, operator in ENTRIES if domain != "dmlvk"} | QUANTIZED
    assert {name.rpartition(".")[2] for name in NODES} == operators - (elsewhere - {"Pad"})


@pytest.mark.half_by_day
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("name", NODES)
def test_each_node(device: dmlvk.Device, name: str, dtype: Any) -> None:
    """Alone, on the device, with each of its attributes."""
    rng, (reads, every) = np.random.default_rng(11), NODES[name]
    sizes = (2, 4, 6, 5)
    given = {"x": elements(rng, dtype, sizes), "w": elements(rng, dtype, sizes), "f": elements(rng, np.float32, sizes)}
    given["g"] = elements(rng, np.float32, sizes)
    constants: dict[str, Array] = {"s": np.array(0.02, np.float32), "t": np.array(0.03, np.float32)}
    constants |= {"z": np.array(7, dtype), "c": elements(rng, np.bool_, (4, 1, 5))}
    constants |= {"pads": np.array([0, 1, 2, 0, 0, 0, 1, 3]), "factors": np.array([1, 1, 2, 3], np.float32)}
    feeds = {each: array for each, array in given.items() if each in reads}
    for attributes in every:
        model = model_of(
            [(name, reads, ["y"], attributes)], feeds, {"y": np.float32 if name in FLOATS else dtype}, constants
        )
        (row,) = placed(device, model, feeds)
        assert row.where == "device", (attributes, row)


def test_what_is_padded_is_written_after_the_padding(device: dmlvk.Device) -> None:
    """A copy into a part of other memory is written there at once, but not where other elements are written first."""
    x = elements(np.random.default_rng(12), np.float32, (2, 3, 4, 5))
    nodes, constants = quantized(x)
    constants["pads"] = np.array([0, 1, 2, 0, 0, 0, 1, 3])
    nodes += [("Pad", ["v", "pads", "z"], ["p"], {}), ("DequantizeLinear", ["p", "s", "z"], ["y"], {})]
    rows = placed(device, model_of(nodes, {"x": x}, {"y": np.float32}, constants), {"x": x})
    assert {row.where for row in rows} == {"device"}


@pytest.mark.parametrize("operator", ["Elu", "Softplus"])
def test_a_function_that_depends_on_the_place_stays_on_the_host(device: dmlvk.Device, operator: str) -> None:
    x = elements(np.random.default_rng(1), np.float32, (3, 50))
    nodes, constants = quantized(x)
    nodes += [
        ("DequantizeLinear", ["v", "s", "z"], ["f"], {}),
        (operator, ["f"], ["g"], {}),
        ("QuantizeLinear", ["g", "s", "z"], ["w"], {}),
    ]
    model = model_of(nodes, {"x": x}, {"w": np.int8}, constants)
    rows = placed(device, model, {"x": x}, optimize=True)
    assert {row.op_type: row.where for row in rows}[operator] == "host"


def test_a_silu_is_one_table(device: dmlvk.Device) -> None:
    """QLinearMul of a value and its own sigmoid is a function of one byte."""
    x = elements(np.random.default_rng(2), np.float32, (2, 5, 7))
    nodes, constants = quantized(x)
    constants |= {"t": np.array(0.004, np.float32), "u": np.array(-128, np.int8)}
    nodes += [
        ("com.microsoft.QLinearSigmoid", ["v", "s", "z", "t", "u"], ["w"], {}),
        ("com.microsoft.QLinearMul", ["v", "s", "z", "w", "t", "u", "s", "z"], ["y"], {}),
    ]
    model = model_of(nodes, {"x": x}, {"y": np.int8}, constants)
    rows = placed(device, model, {"x": x})
    assert [row.where for row in rows] == ["device", "folded", "device"]
    assert rows[1].reason.startswith("into the table of")


@pytest.mark.parametrize("operator", ["Mul", "QLinearMul", "QLinearAdd"])
def test_a_number_that_adds_a_dimension(device: dmlvk.Device, operator: str) -> None:
    """A table's output has its source's dimensions, so a constant of more of them is no parameter of one."""
    x = elements(np.random.default_rng(16), np.float32, (3, 5))
    nodes, constants = quantized(x)
    constants |= {"number": np.full((1, 1, 1), 1.5, np.float32), "level": np.full((1, 1, 1), 9, np.int8)}
    if operator == "Mul":
        nodes += [("DequantizeLinear", ["v", "s", "z"], ["f"], {}), ("Mul", ["number", "f"], ["g"], {})]
        nodes.append(("QuantizeLinear", ["g", "s", "z"], ["y"], {}))
    else:
        nodes.append((f"com.microsoft.{operator}", ["v", "s", "z", "level", "s", "z", "s", "z"], ["y"], {}))
    placed(device, model_of(nodes, {"x": x}, {"y": np.int8}, constants), {"x": x})


@pytest.mark.parametrize(
    ("operands", "where"),
    [
        (["anchors", "f"], "device"),
        (["f", "anchors"], "device"),
        (["x", "g"], "device"),
        (["anchors", "sum"], "device"),
        (["f", "x"], "host"),  # which may be NaN, with a sign
        (["f", "endless"], "host"),
    ],
    ids=str,
)
def test_differences_of_floats(device: dmlvk.Device, operands: list[str], where: str) -> None:
    """As in the boxes of a detector: anchors less what a convolution gives."""
    generator = np.random.default_rng(4)
    x = elements(generator, np.float32, (2, 4, 6))
    nodes, constants = quantized(x)
    constants |= {"anchors": elements(generator, np.float32, (1, 4, 6)), "endless": np.array(np.inf, np.float32)}
    nodes += [
        ("com.microsoft.QLinearSigmoid", ["v", "s", "z", "s", "z"], ["u"], {}),
        ("DequantizeLinear", ["u", "s", "z"], ["f"], {}),
        ("Transpose", ["u"], ["turned"], {"perm": [0, 2, 1]}),
        ("Transpose", ["turned"], ["back"], {"perm": [0, 2, 1]}),
        ("DequantizeLinear", ["back", "s", "z"], ["g"], {}),
        ("Sub", ["anchors", "g"], ["sum"], {}),
        ("Sub", operands, ["y"], {}),
    ]
    rows = placed(device, model_of(nodes, {"x": x}, {"y": np.float32, "sum": np.float32}, constants), {"x": x})
    assert rows[-1].where == where


def test_a_sum_with_a_number_of_any_scale_is_a_table(device: dmlvk.Device) -> None:
    """Such as the smallest number that a normalization adds before it divides."""
    x = elements(np.random.default_rng(17), np.float32, (3, 5))
    nodes, constants = quantized(x)
    constants |= {"level": np.array(101, np.int8), "tiny": np.array(1e-12, np.float32)}
    nodes.append(("com.microsoft.QLinearAdd", ["level", "tiny", "z", "v", "s", "z", "s", "z"], ["y"], {}))
    rows = placed(device, model_of(nodes, {"x": x}, {"y": np.int8}, constants), {"x": x})
    assert [row.where for row in rows] == ["device", "device"]


def test_a_table_of_one_element_stays_on_the_host(device: dmlvk.Device) -> None:
    x = elements(np.random.default_rng(3), np.float32, (1,))
    nodes, constants = quantized(x)
    constants |= {"t": np.array(0.004, np.float32), "u": np.array(-128, np.int8)}
    nodes.append(("com.microsoft.QLinearSigmoid", ["v", "s", "z", "t", "u"], ["y"], {}))
    rows = placed(device, model_of(nodes, {"x": x}, {"y": np.int8}, constants), {"x": x})
    assert rows[1].where == "host" and "a tensor has one element" in rows[1].reason


def test_an_operand_that_is_repeated_comes_second(device: dmlvk.Device) -> None:
    """The operands' order changes one sum in three hundred of two bytes, whichever of them the model names first."""
    every = np.arange(-128, 128, dtype=np.int8)
    feeds = {"x": every.reshape(256, 1), "w": every}
    constants: dict[str, Array] = {"a": np.array(0.38, np.float32), "b": np.array(0.33, np.float32)}
    constants |= {"c": np.array(0.34, np.float32), "p": np.array(86, np.int8), "z": np.array(3, np.int8)}
    column, row = ["x", "a", "p"], ["w", "b", "z"]
    nodes: list[Any] = [
        ("com.microsoft.QLinearAdd", [*first, *second, "c", "z"], [name], {})
        for name, first, second in (("y", column, row), ("v", row, column))
    ]
    rows = placed(device, model_of(nodes, feeds, {"y": np.int8, "v": np.int8}, constants), feeds)
    assert [row.where for row in rows] == ["device", "device"]


def test_parameters_may_be_dequantized_constants(device: dmlvk.Device) -> None:
    """A quantizer puts DequantizeLinear before the parameters of a BatchNormalization, a slope, a factor or a power."""
    rng = np.random.default_rng(5)
    x = elements(rng, np.float32, (2, 6, 5, 3))
    nodes, constants = quantized(x)
    constants |= {f"p{k}": elements(rng, np.int8, (6,)) for k in range(3)} | {
        "slope": elements(rng, np.int8, (6, 1, 1))
    }
    constants |= {"variance": np.abs(elements(rng, np.int8, (6,)) // 2) + np.int8(3)}
    constants |= {"factor": np.array(90, np.int8), "power": np.array(100, np.int8)}
    names = ["p0", "p1", "p2", "variance", "slope", "factor", "power"]
    nodes += [("DequantizeLinear", [name, "s", "z" if name[0] != "v" else ""], [f"{name}_f"], {}) for name in names]
    value = "v"
    for operator, parameters in (
        ("BatchNormalization", names[:4]), ("PRelu", ["slope"]), ("Mul", ["factor"]), ("Abs", []), ("Pow", ["power"])
    ):  # fmt: skip
        nodes.append(("DequantizeLinear", [value, "s", "z"], [f"{operator}_x"], {}))
        nodes.append((operator, [f"{operator}_x", *(f"{name}_f" for name in parameters)], [f"{operator}_y"], {}))
        value = f"{operator}_q"
        nodes.append(("QuantizeLinear", [f"{operator}_y", "s", "z"], [value], {}))
    model = model_of(nodes, {"x": x}, {value: np.int8}, constants)
    rows = placed(device, model, {"x": x}, optimize=True)
    assert [row.op_type for row in rows if row.where == "device"] == ["QuantizeLinear", "QuantizeLinear"]
    assert not [row for row in rows if row.where == "host"]


def test_what_a_table_takes_in_stays_for_other_readers(device: dmlvk.Device) -> None:
    """A node of the host reads floats that a longer table computes for itself, from a value before them."""
    x = elements(np.random.default_rng(6), np.float32, (2, 3, 4))
    nodes, constants = quantized(x)
    nodes += [
        ("DequantizeLinear", ["v", "s", "z"], ["f"], {}),
        ("Tanh", ["f"], ["g"], {}),
        ("QuantizeLinear", ["g", "s", "z"], ["w"], {}),
        ("DequantizeLinear", ["w", "s", "z"], ["h"], {}),
        ("CumSum", ["h", "axis"], ["sum"], {}),
        ("HardSigmoid", ["h"], ["i"], {}),
        ("QuantizeLinear", ["i", "s", "z"], ["y"], {}),
    ]
    constants["axis"] = np.array(1)
    model = model_of(nodes, {"x": x}, {"sum": np.float32, "y": np.int8}, constants)
    rows = placed(device, model, {"x": x}, optimize=True)
    assert [row.op_type for row in rows if row.where == "host"] == ["DequantizeLinear", "CumSum"]


def test_floats_of_a_chain_may_have_other_readers(device: dmlvk.Device) -> None:
    """Where ONNX Runtime does not optimize, each reader's table computes them anew."""
    rng = np.random.default_rng(7)
    x = elements(rng, np.float32, (2, 3, 4))
    nodes, constants = quantized(x)
    constants |= {"slope": elements(rng, np.float32, (3, 1)), "t": np.array(0.05, np.float32)}
    nodes += [
        ("com.microsoft.QLinearAdd", ["v", "s", "z", "v", "s", "z", "t", "z"], ["a"], {}),
        ("DequantizeLinear", ["a", "t", "z"], ["f"], {}),
        ("PRelu", ["f", "slope"], ["g"], {}),
        ("QuantizeLinear", ["g", "s", "z"], ["y"], {}),
        ("Tanh", ["g"], ["h"], {}),
        ("QuantizeLinear", ["h", "s", "z"], ["w"], {}),
    ]
    model = model_of(nodes, {"x": x}, {"y": np.int8, "w": np.int8}, constants)
    rows = placed(device, model, {"x": x})
    assert not [row for row in rows if row.where == "host"]


def test_bytes_are_moved_in_place_of_floats(device: dmlvk.Device) -> None:
    """A function of floats, movement and then QuantizeLinear: the function becomes a table, whatever moves its values.

    Sum is how older exporters write an addition.
    """
    rng = np.random.default_rng(8)
    x = elements(rng, np.float32, (2, 6, 4, 3))
    nodes, constants = quantized(x)
    constants |= {name: elements(rng, np.float32, (6,)) ** 2 + np.float32(0.1) for name in ("a", "b", "c", "d")}
    constants |= {"t": np.array(0.05, np.float32), "sizes": np.array([1, 1, 2, 2], np.float32), "n": np.array([4, -1])}
    nodes += [
        ("com.microsoft.QLinearAdd", ["v", "s", "z", "v", "s", "z", "t", "z"], ["q"], {}),
        ("DequantizeLinear", ["q", "t", "z"], ["f"], {}),
        ("DequantizeLinear", ["v", "s", "z"], ["g"], {}),
        ("Sum", ["f", "g"], ["sum"], {}),
        ("Resize", ["sum", "", "sizes"], ["wide"], {"coordinate_transformation_mode": "asymmetric"}),
        ("Transpose", ["wide"], ["turned"], {"perm": [0, 2, 3, 1]}),
        ("QuantizeLinear", ["turned", "t", "z"], ["y"], {}),
        ("BatchNormalization", ["f", "a", "b", "c", "d"], ["normal"], {}),
        ("Reshape", ["normal", "n"], ["flat"], {}),
        ("Reshape", ["g", "n"], ["other"], {}),
        ("Concat", ["flat", "other"], ["both"], {"axis": 1}),
        ("QuantizeLinear", ["both", "t", "z"], ["w"], {}),
    ]
    model = model_of(nodes, {"x": x}, {"y": np.int8, "w": np.int8}, constants)
    rows = placed(device, model, {"x": x})
    assert not [row for row in rows if row.where == "host"]


@pytest.mark.parametrize("operator", ["BatchNormalization", "Log"])
def test_the_maximum_of_a_function_of_bytes(device: dmlvk.Device, operator: str) -> None:
    """Quantized before the maximum is found; but not where the function is no number for some byte."""
    rng = np.random.default_rng(12)
    x = elements(rng, np.float32, (2, 3, 6, 5))
    nodes, constants = quantized(x)
    constants |= {name: elements(rng, np.float32, (3,)) for name in "abcd"}
    constants["a"][0], constants["d"] = -1.5, constants["d"] ** 2 + np.float32(0.1)
    nodes += [
        ("com.microsoft.QLinearAdd", ["v", "s", "z", "v", "s", "z", "s", "z"], ["w"], {}),
        ("DequantizeLinear", ["w", "s", "z"], ["f"], {}),
        (operator, ["f", *"abcd"] if operator == "BatchNormalization" else ["f"], ["g"], {}),
        ("MaxPool", ["g"], ["h"], {"kernel_shape": [2, 3], "pads": [1, 1, 0, 1]}),
        ("QuantizeLinear", ["h", "s", "z"], ["y"], {}),
    ]
    rows = placed(device, model_of(nodes, {"x": x}, {"y": np.int8}, constants), {"x": x})
    on_host = [row.op_type for row in rows if row.where == "host"]
    assert on_host == ([] if operator == "BatchNormalization" else ["Log", "MaxPool"])


@pytest.mark.parametrize("number", [0.0, -0.0, 0.33, 1e30, np.nan])
def test_a_number_around_dequantized_bytes(device: dmlvk.Device, number: float) -> None:
    """Bytes are moved where a byte stands for the number's bits, or where they are quantized again; else floats."""
    x = elements(np.random.default_rng(13), np.float32, (2, 6, 5))
    nodes, constants = quantized(x)
    constants |= {
        "pads": np.array([0, 1, 0, 0, 2, 3]),
        "n": np.array(number, np.float32),
        "t": np.array(0.03, np.float32),
    }
    nodes += [
        ("DequantizeLinear", ["v", "s", "z"], ["f"], {}),
        ("Pad", ["f", "pads", "n"], ["padded"], {}),
        ("QuantizeLinear", ["padded", "t", "z"], ["y"], {}),
    ]
    model = model_of(nodes, {"x": x}, {"y": np.int8, "padded": np.float32}, constants)
    for optimize in (False, True):
        rows = placed(device, model, {"x": x}, optimize=optimize)
        assert not [row for row in rows if row.where == "host"]


@pytest.mark.parametrize("second", ["tensor", "number"])
@pytest.mark.parametrize("operator", ["com.microsoft.QLinearWhere", "Where"])
def test_a_choice_between_bytes(device: dmlvk.Device, operator: str, second: str) -> None:
    """By a condition that a run gives; of floats between conversions, or of bytes."""
    rng = np.random.default_rng(14)
    x, condition = elements(rng, np.float32, (2, 6, 5)), elements(rng, np.bool_, (6, 1))
    nodes, constants = quantized(x)
    constants |= {"t": np.array(0.03, np.float32), "u": np.array(-7, np.int8), "number": np.array(-9, np.int8)}
    nodes.append(("Transpose", ["v"], ["turned"], {"perm": [0, 1, 2]}))
    other = ["turned" if second == "tensor" else "number", "t", "u"]
    if operator == "Where":
        nodes += [("DequantizeLinear", each, [f"f{k}"], {}) for k, each in enumerate((other, ["v", "s", "z"]))]
        nodes += [("Where", ["c", "f0", "f1"], ["g"], {}), ("QuantizeLinear", ["g", "s", "u"], ["y"], {})]
    else:
        nodes.append((operator, ["c", *other, "v", "s", "z", "s", "u"], ["y"], {}))
    model = model_of(nodes, {"x": x, "c": condition}, {"y": np.int8}, constants)
    for optimize in (False, True) if operator == "Where" else (False,):
        rows = placed(device, model, {"x": x, "c": condition}, optimize=optimize)
        assert not [row for row in rows if row.where == "host"]


def test_two_values_that_are_quantized_early_on_the_host(device: dmlvk.Device) -> None:
    """Each has a conversion of its own, and ONNX Runtime refuses two nodes of one name."""
    feeds = {name: elements(np.random.default_rng(18), np.int8, (2, 3)) for name in ("x", "w")}
    constants: dict[str, Array] = {name: np.array(0.01 * k, np.float32) for k, name in enumerate("abc", 1)}
    constants["z"] = np.array(5, np.int8)
    nodes: list[Any] = [
        ("DequantizeLinear", ["x", "a", "z"], ["f"], {}),
        ("DequantizeLinear", ["w", "b", "z"], ["g"], {}),
        ("Concat", ["f", "g"], ["both"], {"axis": 0}),
        ("QuantizeLinear", ["both", "c", "z"], ["y"], {}),
    ]
    model = model_of(nodes, feeds, {"y": np.int8}, constants)
    found, rows = session_with_onnx_runtime(device.name, model, feeds, placement="fastest")
    require_equal(found, onnx_runtime(model, feeds))
    assert "device" not in {where for _, _, where in rows}


def test_a_table_whose_source_becomes_constant(device: dmlvk.Device) -> None:
    """A node on the host reads floats that the table's own nodes compute, and some of them follow from sizes alone."""
    x = elements(np.random.default_rng(15), np.float32, (2, 6, 5))
    nodes, constants = quantized(x)
    nodes += [
        ("com.microsoft.QLinearAdd", ["v", "s", "z", "v", "s", "z", "s", "z"], ["w"], {}),
        ("Shape", ["w"], ["sizes"], {}),
        ("ConstantOfShape", ["sizes"], ["zeros"], {}),
        ("QuantizeLinear", ["zeros", "s", "z"], ["grid"], {}),
        ("DequantizeLinear", ["grid", "s", "z"], ["f"], {}),
        ("Neg", ["f"], ["g"], {}),
        ("DequantizeLinear", ["w", "s", "z"], ["h"], {}),
        ("Mul", ["g", "h"], ["i"], {}),
        ("QuantizeLinear", ["i", "s", "z"], ["y"], {}),
        ("CumSum", ["i", "axis"], ["sum"], {}),
        ("Expand", ["h", "sizes"], ["u"], {}),
    ]
    constants["axis"] = np.array(1)
    given = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", "h", "w"])
    model = model_of(nodes, {"x": given}, {"y": np.int8, "sum": np.float32, "u": np.float32}, constants)
    rows = placed(device, model, {"x": x})
    assert [row.op_type for row in rows if row.where == "host"] == ["Mul", "CumSum"]


@pytest.mark.parametrize("channels", [1, 3])
def test_a_batch_normalization_before_a_product_is_a_table(device: dmlvk.Device, channels: int) -> None:
    """Of one channel, its parameters have one element; a table of pairs would have no dimension of channels for it."""
    rng = np.random.default_rng(9)
    x = elements(rng, np.float32, (2, channels, 4, 3))
    nodes, constants = quantized(x)
    constants |= {name: elements(rng, np.float32, (channels,)) ** 2 + np.float32(0.1) for name in ("a", "b", "c", "d")}
    nodes += [
        ("DequantizeLinear", ["v", "s", "z"], ["f"], {}),
        ("BatchNormalization", ["f", "a", "b", "c", "d"], ["normal"], {}),
        ("QuantizeLinear", ["normal", "s", "z"], ["q"], {}),
        ("MaxPool", ["v"], ["largest"], {"kernel_shape": [1, 3]}),
        ("DequantizeLinear", ["q", "s", "z"], ["g"], {}),
        ("DequantizeLinear", ["largest", "s", "z"], ["h"], {}),
        ("Mul", ["g", "h"], ["product"], {}),
        ("QuantizeLinear", ["product", "s", "z"], ["y"], {}),
    ]
    model = model_of(nodes, {"x": x}, {"y": np.int8}, constants)
    rows = placed(device, model, {"x": x}, optimize=True)
    assert not [row for row in rows if row.where == "host"]


@pytest.mark.parametrize("use", ["output", "node"])
@pytest.mark.parametrize("between", ["bytes", "floats"])
def test_a_table_hides_no_value_that_somebody_else_reads(device: dmlvk.Device, between: str, use: str) -> None:
    x = elements(np.random.default_rng(5), np.float32, (2, 5, 7))
    nodes, constants = quantized(x)
    constants |= {"t": np.array(0.004, np.float32), "u": np.array(-128, np.int8)}
    if between == "bytes":
        nodes += [
            ("com.microsoft.QLinearSigmoid", ["v", "s", "z", "t", "u"], ["w"], {}),
            ("com.microsoft.QLinearMul", ["v", "s", "z", "w", "t", "u", "s", "z"], ["y"], {}),
        ]
    else:
        nodes += [
            ("DequantizeLinear", ["v", "s", "z"], ["f"], {}),
            ("Sigmoid", ["f"], ["w"], {}),
            ("QuantizeLinear", ["w", "t", "u"], ["y"], {}),
        ]
    outputs: dict[str, Any] = {"y": np.int8}
    if use == "node":
        nodes.append(("Transpose", ["w"], ["seen"], {"perm": [2, 1, 0]}))
    outputs["w" if use == "output" else "seen"] = np.int8 if between == "bytes" else np.float32
    placed(device, model_of(nodes, {"x": x}, outputs, constants), {"x": x}, optimize=True)


# Nodes of inputs "x" and "w", whose first scale "s" has no meaning, or leads to products beyond what is exact.
SCALED = {
    "QLinearAdd": ["x", "s", "z", "w", "t", "z", "t", "z"],
    "QLinearConcat": ["t", "z", "x", "s", "z", "w", "t", "z"],
    "QLinearWhere": ["c", "x", "s", "z", "w", "t", "z", "t", "z"],
    "QLinearAveragePool": ["x", "s", "z", "t", "z"],
}


@pytest.mark.parametrize("scale", [0.0, np.inf, np.nan, -0.5, 3e38])
@pytest.mark.parametrize("operator", SCALED)
def test_scales_without_a_meaning_stay_on_the_host(device: dmlvk.Device, operator: str, scale: float) -> None:
    rng = np.random.default_rng(3)
    inputs = [name for name in SCALED[operator] if name in "xw"]
    feeds = {name: elements(rng, np.int8, (1, 2, 3, 9)) for name in inputs}
    constants: dict[str, Array] = {"s": np.array(scale, np.float32), "z": np.array(3, np.int8)}
    constants |= {"t": np.array(0.5, np.float32), "c": elements(rng, np.bool_, (3, 9))}
    attributes = {"QLinearConcat": {"axis": 1}, "QLinearAveragePool": {"kernel_shape": [2, 2]}}.get(operator, {})
    nodes: list[Any] = [(f"com.microsoft.{operator}", SCALED[operator], ["y"], attributes)]
    model = model_of(nodes, feeds, {"y": np.int8}, constants)
    (row,) = placed(device, model, feeds)
    assert row.where == "host"
    assert ("is far from the output's" if scale == 3e38 else "is not a positive number") in row.reason


# A node of bytes, or floats between conversions, whose scale "s" is that of an input or of the output.
ANY_SCALE: dict[str, list[Node]] = {
    "quantize": [("QuantizeLinear", ["f", "s", "z"], ["y"], {})],
    "dequantize": [("DequantizeLinear", ["x", "s", "z"], ["y"], {})],
    "a product": [("com.microsoft.QLinearMul", ["x", "s", "z", "x", "t", "z", "t", "z"], ["y"], {})],
    "a product's own": [("com.microsoft.QLinearMul", ["x", "t", "z", "x", "t", "z", "s", "z"], ["y"], {})],
    "a sum's own": [("com.microsoft.QLinearAdd", ["x", "t", "z", "x", "t", "z", "s", "z"], ["y"], {})],
    "a slope": [("com.microsoft.QLinearLeakyRelu", ["x", "s", "z", "t", "z"], ["y"], {"alpha": 0.1})],
    "a sigmoid's own": [("com.microsoft.QLinearSigmoid", ["x", "t", "z", "s", "z"], ["y"], {})],
    "a function": [("Relu", ["d"], ["h"], {})],
    "two operands": [("DequantizeLinear", ["x", "t", "z"], ["e"], {}), ("Add", ["d", "e"], ["h"], {})],
    "a window": [("MaxPool", ["d"], ["h"], {"kernel_shape": [2, 2]})],
    "a mean": [("ReduceMean", ["d"], ["h"], {"axes": [2, 3]})],
}


@pytest.mark.parametrize("is_constant", [True, False])
@pytest.mark.parametrize("name", ANY_SCALE)
def test_any_scale_has_the_bits_of_onnx_runtime(device: dmlvk.Device, name: str, is_constant: bool) -> None:
    """Without a meaning, negative, past the range of a product, denormal; as a constant, and of the run."""
    rng, nodes = np.random.default_rng(9), ANY_SCALE[name]
    if nodes[-1][2] == ["h"]:
        nodes = [
            ("DequantizeLinear", ["x", "s", "z"], ["d"], {}),
            *nodes,
            ("QuantizeLinear", ["h", "t", "z"], ["y"], {}),
        ]
    reads = {each for node in nodes for each in node[1]}
    every = {"x": elements(rng, np.int8, (1, 2, 4, 5)), "f": elements(rng, np.float32, (1, 2, 4, 5))}
    for scale in (0.0, np.inf, np.nan, -0.5, 3e38, 1e-45, 1e-30):
        constants: dict[str, Array] = {"s": np.array(scale, np.float32), "z": np.array(3, np.int8)}
        constants["t"] = np.array(0.5, np.float32)
        feeds = {each: array for each, array in every.items() if each in reads}
        if not is_constant:
            feeds["s"] = constants.pop("s")
        model = model_of(nodes, feeds, {"y": np.float32 if name == "dequantize" else np.int8}, constants)
        placed(device, model, feeds, optimize=len(nodes) > 1)


@pytest.mark.parametrize("attributes", [{"kernel_shape": [5, 2]}, {"kernel_shape": [3, 3], "dilations": [2, 1]}])
def test_a_window_larger_than_its_padded_input(device: dmlvk.Device, attributes: dict[str, Any]) -> None:
    """ONNX Runtime gives an output without elements."""
    x = elements(np.random.default_rng(4), np.int8, (1, 2, 3, 9))
    model = model_of([("MaxPool", ["x"], ["y"], {**attributes, "pads": [1, 0, 0, 0]})], {"x": x}, {"y": np.int8})
    (row,) = placed(device, model, {"x": x})
    assert row.where == "host"
    assert "smaller than" in row.reason


def test_zero_points_that_only_a_run_knows(device: dmlvk.Device) -> None:
    """A QuantizeLinear does not undo the DequantizeLinear before it where their zero points are two inputs."""
    rng = np.random.default_rng(4)
    feeds = {"x": elements(rng, np.int8, (2, 9)), "p": np.array(3, np.int8), "q": np.array(-5, np.int8)}
    nodes: list[Any] = [
        ("DequantizeLinear", ["x", "s", "p"], ["f"], {}),
        ("QuantizeLinear", ["f", "s", "q"], ["y"], {}),
    ]
    model = model_of(nodes, feeds, {"y": np.int8}, {"s": np.array(0.02, np.float32)})
    placed(device, model, feeds)


def test_a_step_that_fails_on_the_host_leaves_the_next_run_right(device: dmlvk.Device) -> None:
    """Between two parts of the device, the host refuses an index."""
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    nodes, constants = quantized(x)
    nodes += [
        ("GatherElements", ["v", "i"], ["w"], {"axis": 1}),
        ("DequantizeLinear", ["w", "s", "z"], ["y"], {}),
    ]
    inputs: dict[str, Any] = {"x": x, "i": np.zeros((4, 2), np.int64)}
    model = model_of(nodes, inputs, {"y": np.float32}, constants)
    good = {"x": x, "i": np.array([[0, 5], [1, 4], [2, 3], [-1, 0]])}
    bad = {"x": x, "i": np.full((4, 2), 77)}
    refused, found = ONNX_RUNTIME.call("networks", runs, model, [bad, good], device.name)
    assert "ONNX Runtime cannot run the node 'node_1' (GatherElements)" in refused
    require_equal(found, onnx_runtime(model, good))
