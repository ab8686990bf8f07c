"""Models of ONNX with something odd about them: drawn by number, the same for the same seed.

A chain of nodes, most of them the device's, is drawn with valid parameters. Now and then a parameter or an attribute is
of a wrong kind. Then a few oddities change how the model is written down.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.fuzz.odd_constructs import CONSTRUCTS

Array = np.ndarray
Parameter = tuple[str, Array]
DTYPES = ("float32", "float32", "uint8", "int8", "int32", "int64", "bool", "float64", "float16", "uint16", "object")
TEXTS = ("", "1", "2.5", "-7", "nan", "a text", "\u00e4\u20ac", "a\x1b[2Jb", "line\nline", "x" * 99)
QUANTIZED = ("uint8", "int8")
# How a parameter is given.
WAYS = [
    *["initializer"] * 6,
    *["constant"] * 3,
    *["input"] * 3,
    *("both", "sparse", "sparse constant", "computed", "twice"),
]
CHANGES = [
    *("float", "nan", "inf", "text", "int32", "int8"),
    *("rank 2", "scalar", "none", "twice", "huge", "least", "negative", "zero"),
]
# One in so many parameters or attributes is of a wrong kind.
WRONG = 12


@dataclass(frozen=True)
class OddModel:
    """A model and what to run it with.

    Attributes
    ----------
    model : bytes
    feeds : dict
        An array for each input's name, or a list of them, or None for what is optional.
    words : list of str
        What is odd about it, for people.
    files : dict of str to bytes
        What lies in the model's folder, by name.
    """

    model: bytes
    feeds: dict[str, Any]
    words: list[str]
    files: dict[str, bytes] = field(default_factory=dict)


def odd_model(seed: int, number: int) -> OddModel:
    """The model of a number."""
    return Maker(np.random.default_rng([seed, number])).made()


class Maker:
    def __init__(self, random: np.random.Generator) -> None:
        self.random = random
        self.opset = int(random.choice([7, 9, 10, 11, 12, 13, 14, 16, 17, 18, 19, 21, 22, 23]))
        self.words = [f"opset {self.opset}"]
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.sparse: list[onnx.SparseTensorProto] = []
        self.functions: list[onnx.FunctionProto] = []
        self.kinds: dict[str, tuple[tuple[int, ...], str]] = {}
        self.feeds: dict[str, Any] = {}
        self.files: dict[str, bytes] = {}
        self.count = 0
        self.is_quantized = self.chance(5)
        rank = int(self.pick([0, 1, 2, 2, 3, 3, 4, 4, 4, 5]))
        self.shape: tuple[int, ...] = tuple(int(n) for n in random.integers(1, 6, rank))
        self.dtype = str(self.pick(DTYPES))
        if rank and self.chance(15):
            self.words.append("no elements")
            axis = int(random.integers(0, rank))
            self.shape = (*self.shape[:axis], 0, *self.shape[axis + 1 :])
        if self.is_quantized:
            self.shape = (int(self.pick([1, 2])), int(self.pick([1, 4])), *(int(n) for n in random.integers(3, 8, 2)))
            self.dtype = str(self.pick(QUANTIZED))
        self.current = "x"
        self.kinds["x"] = (self.shape, self.dtype)
        self.feeds["x"] = self.elements(self.shape, self.dtype)
        self.inputs.append(self.value("x", self.dtype, self.any_sizes(self.shape)))

    # what is drawn

    def chance(self, one_in: int) -> bool:
        return not self.random.integers(0, one_in)

    def pick(self, choices: Sequence[Any]) -> Any:
        return choices[int(self.random.integers(0, len(choices)))]

    def elements(self, shape: Sequence[int], dtype: str) -> Array:
        kind = np.dtype(dtype)
        if kind.kind == "O":
            return np.array([self.pick(TEXTS) for _ in range(int(np.prod(shape)))], object).reshape(shape)
        if kind.kind == "b":
            return self.random.integers(0, 2, shape).astype(bool)
        if kind.kind == "f":
            return self.random.standard_normal(shape).astype(kind)
        limits = np.iinfo(kind)
        return self.random.integers(limits.min, limits.max, shape, kind, endpoint=True)

    def name(self, stem: str = "v") -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def value(self, name: str, dtype: str, shape: Sequence[Any] | None) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, _element(dtype), shape)

    def any_sizes(self, shape: Sequence[int]) -> Any:
        return self.pick([list(shape), list(shape), [None] * len(shape), [f"n{k}" for k in range(len(shape))], None])

    # parameters

    def oddly(self, array: Array) -> Array:
        """A parameter, or one of a wrong kind in its place."""
        if not self.chance(WRONG):
            return array
        change = str(self.pick(CHANGES))
        self.words.append(f"a parameter {change}")
        flat = np.asarray(array).reshape(-1)
        if change in ("float", "nan", "inf"):
            made = flat.astype(np.float32) + np.float32({"float": 0.5, "nan": np.nan, "inf": np.inf}[change])
            return made.reshape(np.shape(array))
        if change == "text":
            return np.array([str(n) for n in flat], object).reshape(np.shape(array))
        if change in ("int32", "int8"):
            return np.asarray(array).astype(change)
        if change == "rank 2":
            return flat.reshape(1, -1)
        if change == "scalar":
            return flat[:1].reshape(()) if len(flat) else np.asarray(array)
        if change == "none":
            return flat[:0]
        if change == "twice":
            return np.concatenate([flat, flat])
        number = {"huge": 1 << 40, "least": -(1 << 63), "negative": -1, "zero": 0}[change]
        return np.full_like(np.asarray(array, np.int64), number)

    def parameter(self, array: Any, dtype: str | None = "int64", is_odd: bool = True) -> str:
        """The name of a value that a node reads besides its data, given in one of several ways."""
        array = np.asarray(array, dtype)
        array = self.oddly(array) if is_odd else array
        name = self.name("p")
        tensor = _tensor(name, array)
        way = str(self.pick(WAYS))
        if way.startswith("sparse") and (array.ndim != 1 or array.dtype != np.int64 or not array.size):
            way = "constant"
        if way != "initializer":
            self.words.append(f"{name} {way}")
        if way == "constant":
            self.nodes.append(helper.make_node("Constant", [], [name], value=_tensor("", array)))
        elif way == "input":
            self.inputs.append(helper.make_tensor_value_info(name, tensor.data_type, list(array.shape)))
            self.feeds[name] = array
        elif way.startswith("sparse"):
            places = np.flatnonzero(array)
            values = numpy_helper.from_array(array[places], name if way == "sparse" else "")
            made = helper.make_sparse_tensor(values, numpy_helper.from_array(places, f"{name}_at"), array.shape)
            if way == "sparse":
                self.sparse.append(made)
            else:
                self.nodes.append(helper.make_node("Constant", [], [name], sparse_value=made))
        else:
            self.initializers.append(tensor)
            if way == "both":
                self.inputs.append(helper.make_tensor_value_info(name, tensor.data_type, list(array.shape)))
            elif way == "twice":
                self.initializers.insert(0, _tensor(name, array[::-1] if array.ndim else array))
            elif way == "computed":
                other = self.name("p")
                self.nodes.append(helper.make_node("Identity", [name], [other]))
                return other
        return name

    def add(self, operator: str, parameters: Sequence[str] = (), outputs: int = 1, **attributes: Any) -> list[str]:
        """A node that reads the current value; its first output is the next one."""
        names = [self.name() for _ in range(outputs)]
        if attributes and self.chance(WRONG):
            key = str(self.pick(list(attributes)))
            attributes[key] = self.pick([0, 1.5, "1", -1, 99, [1, 0], [0.5], b"crd", 1 << 40])
            self.words.append(f"{operator}'s {key} is {attributes[key]!r}")
        read = [self.current, *parameters]
        if self.chance(40):
            read.append(str(self.pick(["", self.current])))
            self.words.append("one more input")
        domain, _, op_type = operator.rpartition(".")
        self.nodes.append(helper.make_node(op_type, read, names, name=self.name("n"), domain=domain, **attributes))
        self.current = names[0]
        return names

    def become(self, shape: Sequence[int], dtype: str | None = None) -> None:
        self.shape, self.dtype = tuple(int(n) for n in shape), dtype or self.dtype
        self.kinds[self.current] = (self.shape, self.dtype)

    # nodes

    def slice(self) -> None:
        rank = len(self.shape)
        axes = [int(k) for k in self.random.permutation(rank)[: self.random.integers(1, rank + 1)]]
        starts = [int(self.random.integers(-n, max(n, 1))) for n in (self.shape[k] for k in axes)]
        ends = [int(self.pick([1 << 62, -1, self.shape[k]])) for k in axes]
        steps = [int(self.pick([1, 1, 2, -1, 3])) for _ in axes]
        old = self.opset < 10
        ranges = [range(n) for n in self.shape]
        for axis, start, end, step in zip(axes, starts, ends, [1] * len(axes) if old else steps, strict=True):
            ranges[axis] = range(self.shape[axis])[start:end:step]
        if old:
            self.add("Slice", starts=starts, ends=ends, axes=axes)
        else:
            self.add("Slice", [self.parameter(p) for p in (starts, ends, axes, steps)])
        self.become([len(r) for r in ranges])

    def split(self) -> None:
        axis = int(self.random.integers(0, len(self.shape)))
        length = self.shape[axis]
        first = int(self.random.integers(0, length + 1)) if self.chance(3) else max(1, length // 2)
        parts = [first, length - first]
        if self.opset >= 18 and self.chance(2):
            first = -(-length // 2)
            self.add("Split", outputs=2, axis=axis, num_outputs=2)
        elif self.opset >= 13:
            self.add("Split", [self.parameter(parts)], outputs=2, axis=axis)
        else:
            self.add("Split", outputs=2, axis=axis, split=parts)
        self.become((*self.shape[:axis], first, *self.shape[axis + 1 :]))

    def concat(self) -> None:
        axis = int(self.random.integers(0, len(self.shape)))
        other = list(self.shape)
        other[axis] = int(self.random.integers(0, 4))
        name = self.parameter(self.elements(other, self.dtype), self.dtype, is_odd=False)
        self.add("Concat", [name], axis=int(self.pick([axis, axis - len(other)])))
        self.become((*self.shape[:axis], self.shape[axis] + other[axis], *self.shape[axis + 1 :]))

    def transpose(self) -> None:
        order = [int(k) for k in self.random.permutation(len(self.shape))]
        self.add("Transpose", perm=order)
        self.become([self.shape[k] for k in order])

    def expand(self) -> None:
        wanted = [int(self.random.integers(1, 4)) if n == 1 else int(self.pick([1, n])) for n in self.shape]
        if self.chance(3):
            wanted.insert(0, 2)
        self.add("Expand", [self.parameter(wanted)])
        self.become(np.broadcast_shapes(self.shape, tuple(wanted)))

    def reshape(self) -> None:
        total = int(np.prod(self.shape))
        wanted = self.pick([[total], [-1], [1, -1], [0, -1] if self.shape else [1], [], [-1, 1]])
        if self.opset >= 14 and self.chance(4):
            self.add("Reshape", [self.parameter(wanted)], allowzero=int(self.pick([0, 1])))
        else:
            self.add("Reshape", [self.parameter(wanted)])
        filled = [self.shape[0] if n == 0 and self.shape else n for n in wanted]
        known = int(np.prod([n for n in filled if n != -1]))
        self.become([n if n != -1 else total // max(known, 1) for n in filled])

    def flatten(self) -> None:
        axis = int(self.random.integers(0, len(self.shape) + 1))
        self.add("Flatten", axis=axis)
        self.become((int(np.prod(self.shape[:axis])), int(np.prod(self.shape[axis:]))))

    def _axes(self, operator: str, axes: Sequence[int]) -> None:
        if self.opset >= 13:
            self.add(operator, [self.parameter(list(axes))])
            return
        self.add(operator)
        attribute = self.nodes[-1].attribute.add(name="axes", type=onnx.AttributeProto.INTS)
        attribute.ints.extend(axes)

    def squeeze(self) -> None:
        ones = [k for k, n in enumerate(self.shape) if n == 1]
        axes = ones[: int(self.random.integers(0, len(ones) + 1))]
        if self.chance(4):
            self.add("Squeeze")
        else:
            self._axes("Squeeze", axes)
        gone = axes or ones
        self.become([n for k, n in enumerate(self.shape) if k not in gone])

    def unsqueeze(self) -> None:
        axes = self.pick([[0], [-1], [0, 1], [], [len(self.shape)]])
        self._axes("Unsqueeze", axes)
        self.become(np.expand_dims(np.empty(self.shape, np.int8), tuple(axes)).shape)

    def space(self) -> None:
        if len(self.shape) != 4:
            return self.transpose()
        n, c, h, w = self.shape
        if self.chance(2) and c % 4 == 0 and self.opset >= 11:
            self.add("DepthToSpace", blocksize=2, mode=str(self.pick(["DCR", "CRD"])))
            return self.become((n, c // 4, 2 * h, 2 * w))
        self.add("SpaceToDepth", blocksize=1)
        return self.become((n, c, h, w))

    def one_hot(self) -> None:
        if self.dtype not in ("int32", "int64", "float32") or self.opset < 9 or len(self.shape) > 4:
            return self.identity()
        dtype = str(self.pick(["float32", "int64", "int32"]))
        values = self.parameter(self.elements((2,), dtype), dtype, is_odd=False)
        depth = self.parameter(self.pick([3, [4]]), str(self.pick(["int64", "int64", "float32", "int32"])))
        axis = int(self.pick([-1, 0]))
        self.add("OneHot", [depth, values], axis=axis)
        size = self.initial_depth(depth)
        return self.become((*self.shape, size) if axis else (size, *self.shape), dtype)

    def initial_depth(self, name: str) -> int:
        for tensor in self.initializers:
            if tensor.name == name and tensor.data_type in (1, 6, 7) and tensor.dims in ([], [1]):
                array = numpy_helper.to_array(tensor).reshape(-1)
                return int(array[0]) if np.isfinite(array[0]) and 0 < array[0] < 9 else 3
        return 3

    def trilu(self) -> None:
        if self.opset < 14 or len(self.shape) < 2:
            return self.identity()
        k = [self.parameter(self.pick([-1, 0, [1], 9]))] if self.chance(2) else []
        self.add("Trilu", k, upper=int(self.pick([0, 1])))
        return self.become(self.shape)

    def eye_like(self) -> None:
        if self.opset < 9 or len(self.shape) != 2:
            return self.identity()
        dtype = str(self.pick(["float32", "float64", "int32", "int64", "uint64"]))
        self.add("EyeLike", dtype=_element(dtype), k=int(self.pick([0, 1, -1, 7])))
        return self.become(self.shape, dtype)

    def identity(self) -> None:
        self.add("Identity")
        self.become(self.shape)

    def reduce(self) -> None:
        if self.dtype not in ("float32", "int32", "int64"):
            return self.identity()
        operator = str(self.pick(["ReduceSum", "ReduceMax"]))
        as_input = self.opset >= (13 if operator == "ReduceSum" else 18)
        axes = self.pick([[0] if self.shape else [], [], [-1] if self.shape else []])
        if as_input:
            self.add(operator, [self.parameter(axes)], keepdims=1)
        else:
            self.add(operator, keepdims=1)
            self.nodes[-1].attribute.add(name="axes", type=onnx.AttributeProto.INTS).ints.extend(axes)
        gone = [k % len(self.shape) for k in axes] or list(range(len(self.shape)))
        return self.become([1 if k in gone else n for k, n in enumerate(self.shape)])

    def host(self) -> None:
        """A node that the device does not run."""
        if self.dtype == "float32" and self.chance(4):
            self.add("com.microsoft.Gelu" if self.chance(3) else "Relu")
        elif self.dtype in ("float32", "int32", "int64"):
            self.add("Add", [self.parameter(self.elements((), self.dtype), self.dtype, is_odd=False)])
        else:
            self.add("Cast", to=TensorProto.FLOAT)
            self.dtype = "float32"
        self.become(self.shape)

    def convolution(self) -> None:
        if len(self.shape) != 4 or self.dtype not in QUANTIZED or min(self.shape) < 1 or self.opset < 10:
            return self.identity()
        channels, filters = self.shape[1], int(self.pick([1, 3, 4]))
        taps = int(self.pick([1, 3]))
        # Larger weights saturate in ONNX Runtime on processors without VNNI.
        weights = self.random.integers(-63, 64, (filters, channels, taps, taps)).astype(np.int8)
        given = [
            (np.float32(0.03), "float32"), (self.elements((), self.dtype), self.dtype), (weights, "int8"),
            (np.float32(0.01), "float32"), (np.int8(0), "int8"), (np.float32(0.2), "float32"), (99, self.dtype),
        ]  # fmt: skip
        names = [self.parameter(array, dtype, is_odd=False) for array, dtype in given]
        attributes: dict[str, Any] = {"strides": [int(self.pick([1, 2]))] * 2, "dilations": [1, 1], "group": 1}
        attributes |= self.pick([{}, {"pads": [1, 0, 1, 0]}, {"auto_pad": "SAME_UPPER"}, {"auto_pad": "SAME_LOWER"},
                                 {"auto_pad": "VALID"}, {"auto_pad": "VALID", "pads": [1, 1, 1, 1]}])  # fmt: skip
        self.add("QLinearConv", names, **attributes)
        # The sizes are not followed: what comes behind takes any.
        self.shape = ()
        return None

    def qdq(self) -> None:
        if self.dtype not in QUANTIZED or self.opset < 10:
            return self.identity()
        dtype = self.dtype
        scale, zero = self.parameter(np.float32(0.1), "float32", False), self.parameter(3, dtype, False)
        self.add("DequantizeLinear", [scale, zero])
        self.kinds[self.current] = (self.shape, "float32")
        if self.chance(2):
            self.add("Relu")
            self.kinds[self.current] = (self.shape, "float32")
        self.add("QuantizeLinear", [scale, zero])
        return self.become(self.shape, dtype)

    OPERATORS: tuple[Callable[[Maker], None], ...] = (
        slice, slice, split, concat, transpose, expand, reshape, flatten, squeeze, squeeze, unsqueeze, space, one_hot,
        trilu, eye_like, identity, reduce, host, host, qdq,
    )  # fmt: skip
    OF_ANY_RANK = (expand, reshape, flatten, squeeze, unsqueeze, one_hot, identity, host, qdq)

    # the model

    def made(self) -> OddModel:
        if self.is_quantized:
            self.convolution()
        for _ in range(int(self.random.integers(1, 5))):
            self.pick(self.OPERATORS if self.shape else self.OF_ANY_RANK)(self)
            if int(np.prod(self.shape, dtype=object)) > 5000:
                break
        outputs = [self.described(self.current)]
        for _ in range(2):
            if self.chance(3):
                name = str(self.pick([n for node in self.nodes for n in node.output] or ["x"]))
                if name not in [value.name for value in outputs]:
                    self.words.append(f"{name} is an output too")
                    outputs.append(self.described(name))
        graph = helper.make_graph(self.nodes, "odd", self.inputs, outputs, self.initializers)
        graph.sparse_initializer.extend(self.sparse)
        imports = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=imports, ir_version=int(self.pick([8, 9, 10])))
        for _ in range(int(self.pick([0, 1, 1, 2, 3]))):
            change = self.pick(ODDITIES)
            self.words.append(change.__name__.replace("_", " ").strip())
            change(self, model)
        return OddModel(model.SerializeToString(), self.feeds, self.words, self.files)

    def described(self, name: str) -> onnx.ValueInfoProto:
        kind = self.kinds.get(name)
        if kind is None or self.chance(3):
            return onnx.ValueInfoProto(name=name)
        return self.value(name, kind[1], self.pick([None, kind[0]]) if not self.chance(9) else [7] * len(kind[0]))


def _element(dtype: str) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def _tensor(name: str, array: Array) -> onnx.TensorProto:
    if array.dtype == object:
        return helper.make_tensor(name, TensorProto.STRING, array.shape, [str(s).encode() for s in array.reshape(-1)])
    return numpy_helper.from_array(array, name)


def _unsorted(maker: Maker, model: onnx.ModelProto) -> None:
    nodes = list(model.graph.node)
    order = maker.random.permutation(len(nodes))
    del model.graph.node[:]
    model.graph.node.extend(nodes[k] for k in order)


def _domain_by_its_long_name(maker: Maker, model: onnx.ModelProto) -> None:
    for node in model.graph.node:
        if not node.domain and maker.chance(2):
            node.domain = "ai.onnx"
    if maker.chance(2) and model.opset_import:  # another oddity may have taken them away
        model.opset_import[0].domain = "ai.onnx"


def _imports_are_missing(maker: Maker, model: onnx.ModelProto) -> None:
    if model.opset_import:
        del model.opset_import[int(maker.random.integers(0, len(model.opset_import)))]


def _imports_twice(maker: Maker, model: onnx.ModelProto) -> None:
    version = int(maker.pick([maker.opset, 13, 17, 99, 0]))
    position = int(maker.random.integers(0, 2))
    model.opset_import.insert(position, helper.make_opsetid(str(maker.pick(["", "ai.onnx"])), version))


def _old_format(maker: Maker, model: onnx.ModelProto) -> None:
    model.ir_version = int(maker.pick([0, 1, 2, 3, 3, 4, 99]))


def _no_name(maker: Maker, model: onnx.ModelProto) -> None:
    model.graph.name = ""


def _initializer_twice(maker: Maker, model: onnx.ModelProto) -> None:
    tensors = [tensor for tensor in model.graph.initializer if not tensor.external_data]
    if tensors:
        tensor = maker.pick(tensors)
        other = onnx.TensorProto()
        other.CopyFrom(tensor)
        if other.raw_data and maker.chance(2):
            other.raw_data = bytes(reversed(other.raw_data))
        model.graph.initializer.append(other)


def _unused_initializer(maker: Maker, model: onnx.ModelProto) -> None:
    model.graph.initializer.append(_tensor(str(maker.pick(["unused", ""])), maker.elements((3,), "float32")))


def _stale_sizes(maker: Maker, model: onnx.ModelProto) -> None:
    for name, (shape, dtype) in maker.kinds.items():
        if name != "x" and maker.chance(2):
            sizes = maker.pick([[7] * len(shape), [1, *shape], shape[:-1], shape])
            model.graph.value_info.append(maker.value(name, dtype, sizes))


def _wrong_type(maker: Maker, model: onnx.ModelProto) -> None:
    name = str(maker.pick(list(maker.kinds)))
    model.graph.value_info.append(maker.value(name, str(maker.pick(DTYPES)), maker.kinds[name][0]))


def _names_twice(maker: Maker, model: onnx.ModelProto) -> None:
    for node in model.graph.node:
        node.name = str(maker.pick(["n", "n", "", node.name]))


def _absent_inputs(maker: Maker, model: onnx.ModelProto) -> None:
    node = maker.pick(model.graph.node)
    if node.input and maker.chance(3):
        node.input[int(maker.random.integers(0, len(node.input)))] = ""
    elif node.op_type != "Split":
        node.input.append("")


def _output_is_an_input(maker: Maker, model: onnx.ModelProto) -> None:
    names = [each.name for each in (*model.graph.input, *model.graph.initializer) if each.name]
    if not names:
        return
    taken = [value.name for value in model.graph.output]
    name = str(maker.pick(names))
    if name not in taken or maker.chance(4):
        model.graph.output.append(onnx.ValueInfoProto(name=name))


def _unknown(maker: Maker, model: onnx.ModelProto) -> None:
    node = maker.pick(model.graph.node)
    change = maker.random.integers(0, 3)
    if change == 0:
        node.op_type += "2"
    elif change == 1:
        node.domain = "some.where"
    else:
        node.attribute.append(helper.make_attribute("unheard", 1))


def _initializer_is_given(maker: Maker, model: onnx.ModelProto) -> None:
    """A feed takes the place of an initializer. One without a name can have none."""
    tensors = [tensor for tensor in model.graph.initializer if tensor.name and not tensor.external_data]
    if not tensors:
        return
    tensor = maker.pick(tensors)
    if tensor.name not in [value.name for value in model.graph.input]:
        model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
    array = numpy_helper.to_array(tensor)
    maker.feeds[tensor.name] = array[::-1].copy() if array.ndim and maker.chance(2) else array


def _one_name_for_sizes(maker: Maker, model: onnx.ModelProto) -> None:
    """Sizes that differ have the same name."""
    for value in (*model.graph.input, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if maker.chance(2):
                dim.dim_param = "n"


ODDITIES: tuple[Callable[[Maker, onnx.ModelProto], None], ...] = (
    _unsorted,
    _domain_by_its_long_name,
    _imports_are_missing,
    _imports_twice,
    _old_format,
    _no_name,
    _initializer_twice,
    _unused_initializer,
    _stale_sizes,
    _stale_sizes,
    _wrong_type,
    _names_twice,
    _absent_inputs,
    _output_is_an_input,
    _unknown,
    _initializer_is_given,
    _one_name_for_sizes,
    *CONSTRUCTS,
    *CONSTRUCTS,
)
