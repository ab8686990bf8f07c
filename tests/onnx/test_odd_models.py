"""Models that are odd in one way: they run with ONNX Runtime's bits, or both refuse them, at the same time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dmlvk
from dmlvk.onnx import InferenceSession, ModelError
from tests.conftest import DEVICE_NAMES
from tests.fuzz.odd_models import OddModel
from tests.fuzz.odd_outcomes import compared

X = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
ONE = X[:1]
node = helper.make_node
NAN, INFINITY = np.float32(np.nan), np.float32(np.inf)


def tensor(name: str, array: Any) -> onnx.TensorProto:
    array = np.asarray(array)
    if array.dtype.kind == "U":
        return helper.make_tensor(name, TensorProto.STRING, array.shape, [text.encode() for text in array.reshape(-1)])
    return numpy_helper.from_array(array, name)


def model(
    nodes: Sequence[onnx.NodeProto],
    constants: Sequence[onnx.TensorProto] = (),
    *,
    x: np.ndarray = X,
    outputs: Sequence[str] = ("y",),
    imports: Sequence[tuple[str, int]] = (("", 17),),
    functions: Sequence[onnx.FunctionProto] = (),
    version: int = 9,
) -> onnx.ModelProto:
    element = helper.np_dtype_to_tensor_dtype(x.dtype)
    inputs = [helper.make_tensor_value_info("x", element, x.shape)]
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(list(nodes), "odd", inputs, results, list(constants))
    made = [helper.make_opsetid(domain, number) for domain, number in imports]
    return helper.make_model(graph, opset_imports=made, ir_version=version, functions=list(functions))


def two(**options: Any) -> onnx.ModelProto:
    """A node of the device and one of the host."""
    return model([node("Transpose", ["x"], ["t"]), node("Relu", ["t"], ["y"])], **options)


def changed(change: Callable[[onnx.ModelProto], None], made: onnx.ModelProto | None = None) -> onnx.ModelProto:
    made = two() if made is None else made
    change(made)
    return made


def with_domain(name: str) -> Callable[[onnx.ModelProto], None]:
    def change(made: onnx.ModelProto) -> None:
        for each in (*made.graph.node, *made.opset_import):
            each.domain = name

    return change


def turned(made: onnx.ModelProto) -> None:
    nodes = list(made.graph.node)[::-1]
    del made.graph.node[:]
    made.graph.node.extend(nodes)


def added(field: str, *values: Any) -> Callable[[onnx.ModelProto], None]:
    return lambda made: getattr(made.graph, field).extend(values)


def sparse(values: Any, indices: Any, sizes: Sequence[int], name: str = "s") -> onnx.SparseTensorProto:
    return helper.make_sparse_tensor(tensor(name, values), tensor("at" if name else "", indices), sizes)


def of_sparse(made: onnx.SparseTensorProto, is_constant: bool) -> onnx.ModelProto:
    nodes = [node("Transpose", ["s"], ["y"])]
    if is_constant:
        made.values.name = ""
        return model([node("Constant", [], ["s"], sparse_value=made), *nodes])
    return changed(added("sparse_initializer", made), model(nodes))


FIVES = np.array([5, 6], np.float32)
SPARSE = {
    "rows": sparse(FIVES, [[0, 1], [1, 2]], [2, 3]),
    "places": sparse(FIVES, [1, 5], [2, 3]),
    "unsorted": sparse(FIVES, [5, 1], [2, 3]),
    "a place twice": sparse(FIVES, [1, 1], [2, 3]),
    "outside": sparse(FIVES, [1, 6], [2, 3]),
    "negative": sparse(FIVES, [-1, 1], [2, 3]),
    "none": sparse(FIVES[:0], np.zeros(0, np.int64), [2, 3]),
    "int8 places": sparse(FIVES, np.array([1, 5], np.int8), [2, 3]),
    "too few places": sparse(FIVES, [1], [2, 3]),
}


def function(name: str, nodes: Sequence[onnx.NodeProto], version: int = 17, **options: Any) -> onnx.FunctionProto:
    inputs = options.get("inputs", ["a"])
    imports = [helper.make_opsetid("", version), helper.make_opsetid("f", 1)]
    return helper.make_function("f", name, inputs, ["b"], list(nodes), imports, options.get("attributes", []))


def referring(attributes: Sequence[str], default: Sequence[int] | None = None) -> onnx.FunctionProto:
    body = node("Transpose", ["a"], ["b"])
    body.attribute.add(name="perm", ref_attr_name="p", type=onnx.AttributeProto.INTS)
    made = function("F", [body], attributes=attributes)
    if default is not None:
        made.attribute_proto.append(helper.make_attribute("p", default))
    return made


def calling(*functions: onnx.FunctionProto, version: int = 17, **attributes: Any) -> onnx.ModelProto:
    nodes = [node("F", ["x"], ["t"], domain="f", **attributes), node("Relu", ["t"], ["y"])]
    return model(nodes, imports=[("", version), ("f", 1)], functions=functions)


def passing(*nodes: onnx.NodeProto) -> onnx.ModelProto:
    """A function gets the branch of its If as an attribute. It has a value of its own, named as one of the caller's."""
    branch = helper.make_graph(list(nodes), "passed", [], [onnx.ValueInfoProto(name="p")])
    chosen = node("If", ["k"], ["b"])
    for name in ("then_branch", "else_branch"):
        chosen.attribute.add(name=name, ref_attr_name="g", type=onnx.AttributeProto.GRAPH)
    body = [node("Neg", ["a"], ["inside"]), chosen]
    called = function("F", body, inputs=["a", "k"], attributes=["g"])
    call = node("F", ["x", "c"], ["t"], domain="f", g=branch)
    return model(
        [node("Relu", ["x"], ["inside"]), call, node("Add", ["t", "inside"], ["y"])],
        [tensor("c", np.array(True))],
        imports=LOCAL,
        functions=[called, function("G", [node("Abs", ["a"], ["b"])])],
    )


def in_branches(*nodes: onnx.NodeProto, **options: Any) -> onnx.ModelProto:
    branches = [helper.make_graph(list(nodes), "", [], [onnx.ValueInfoProto(name="p")]) for _ in range(2)]
    for k, branch in enumerate(branches):
        branch.name = f"branch {k}"
    return model(
        [node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1])],
        [tensor("c", np.array(True))],
        **options,
    )


NAMELESS = sparse(FIVES, [1, 5], [2, 3], "")
TRANSPOSE = node("Transpose", ["a"], ["b"])
NAMED_RELU = helper.make_function("", "Relu", ["a"], ["b"], [TRANSPOSE], [helper.make_opsetid("", 17)])
SPLITTING = function("F", [node("Split", ["a"], ["b"])], 18, attributes=["n"])
SPLITTING.node[0].attribute.add(name="num_outputs", ref_attr_name="n", type=onnx.AttributeProto.INT)
BRANCHING = [
    node("Constant", [], ["c"], value=tensor("", np.array(True))),
    node(
        "If",
        ["c"],
        ["b"],
        then_branch=helper.make_graph([node("Relu", ["outside"], ["p"])], "t", [], [onnx.ValueInfoProto(name="p")]),
        else_branch=helper.make_graph([node("Abs", ["outside"], ["p"])], "e", [], [onnx.ValueInfoProto(name="p")]),
    ),
]
LOCAL = [("", 17), ("f", 1)]
THREE = [tensor("c", np.arange(3, dtype=np.float32)), tensor("c", np.ones(3, np.float32))]
ADD = [node("Add", ["x", "c"], ["y"])]
LARGE = [tensor("c", np.full((40, 1, 3), k, np.float32)) for k in range(3)]
GIVEN = helper.make_tensor_value_info

STRUCTURE: dict[str, onnx.ModelProto] = {
    **{f"format {version}": two(version=version) for version in (0, 1, 2, 3, 4, 99)},
    **{f"operators of {version}": two(imports=[("", version)]) for version in (0, 7, 13, 99)},
    "no name": changed(lambda made: made.graph.ClearField("name")),
    "no imports": two(imports=[]),
    "another import alone": two(imports=[("com.microsoft", 1)]),
    "the last import counts": two(imports=[("", 99), ("ai.onnx", 17)]),
    **{
        f"Softmax of the last of two imports, {versions}": model(
            [node("Softmax", ["x"], ["y"], axis=0)], imports=[*zip(("", "ai.onnx"), versions, strict=True)]
        )
        for versions in ((11, 13), (13, 11))
    },
    "an import that is too new, last": two(imports=[("ai.onnx", 17), ("", 99)]),
    "ai.onnx": changed(with_domain("ai.onnx")),
    "com.microsoft without an import": model([node("Gelu", ["x"], ["y"], domain="com.microsoft")]),
    "com.microsoft of version 2": model(
        [node("Gelu", ["x"], ["y"], domain="com.microsoft")], imports=[("", 17), ("com.microsoft", 2)]
    ),
    "unsorted": changed(turned),
    "a cycle": model([node("Add", ["x", "y"], ["t"]), node("Relu", ["t"], ["y"])]),
    "a constant twice": model(ADD, THREE),
    "a large constant twice": model(ADD, LARGE[:2]),
    "a large constant three times": model(ADD, LARGE),
    "a constant of no name": model(ADD, [*THREE[:1], tensor("", 1)]),
    "a constant nobody reads": model(ADD, [*THREE[:1], tensor("d", 1)]),
    "a constant that is an input of another type": changed(
        added("input", GIVEN("c", TensorProto.INT64, [3])), model(ADD, THREE[:1])
    ),
    "a constant that is an input of other sizes": changed(
        added("input", GIVEN("c", TensorProto.FLOAT, [9])), model(ADD, THREE[:1])
    ),
    "a constant that is no input, in format 3": model(ADD, THREE[:1], version=3),
    "two calls of one name beside a large constant": model(
        [
            node("Add", ["x", "c"], ["t"]),
            node("F", ["t"], ["u"], domain="f", name="n"),
            node("F", ["u"], ["y"], domain="f", name="n"),
        ],
        [tensor("c", np.ones((100, 2, 3), np.float32))],
        imports=LOCAL,
        functions=[function("F", [node("Transpose", ["a"], ["b"])])],
    ),
    "a sparse constant as the output of a branch": in_branches(node("Constant", [], ["p"], sparse_value=NAMELESS)),
    "beside one that is an input": changed(
        added("input", GIVEN("c", TensorProto.FLOAT, [3])), model(ADD, [THREE[0], tensor("unused", X)], version=3)
    ),
    "no nodes": model([], outputs=["x"]),
    "nodes of one name": model([node("Relu", ["x"], ["t"], name="n"), node("Abs", ["t"], ["y"], name="n")]),
    "an input and an output of one name": model([node("Relu", ["x"], ["x"])], outputs=["x"]),
    "a value that two nodes write": model([node("Relu", ["x"], ["y"]), node("Abs", ["x"], ["y"])]),
    "an output twice": two(outputs=["y", "y"]),
    "an input that is an output": two(outputs=["y", "x"]),
    "an absent first input": model([node("Transpose", [""], ["y"])]),
    "no inputs": model([node("Transpose", [], ["y"])]),
    "an absent input of Concat": model([node("Concat", ["x", ""], ["y"], axis=0)]),
    "absent optional inputs": model([node("Clip", ["x", "", ""], ["y"])]),
    "one absent input too many": model([node("Transpose", ["x", ""], ["y"])]),
    "an operator that is not there": model([node("Absolutely", ["x"], ["y"])]),
    "a domain that is not there": model([node("Relu", ["x"], ["y"], domain="g")], imports=[("", 17), ("g", 1)]),
    "a Constant of any domain": model([node("Constant", ["x"], ["c"], value_ints=[1, 2], domain="g")], outputs=["c"]),
    "an attribute twice": changed(
        lambda made: made.graph.node[0].attribute.extend([helper.make_attribute("perm", [1, 0])] * 2)
    ),
    **{f"a sparse initializer, {name}": of_sparse(made, False) for name, made in SPARSE.items()},
    **{f"a sparse constant, {name}": of_sparse(made, True) for name, made in SPARSE.items()},
    "a function of another version": calling(function("F", [TRANSPOSE], 13)),
    "a function takes the model's version": calling(function("F", [node("Softmax", ["a"], ["b"])], 11)),
    "a function whose attributes the model's version lacks": calling(
        function("F", [node("Squeeze", ["a"], ["b"], axes=[0])], 11)
    ),
    "functions in functions": calling(
        function("F", [node("G", ["a"], ["b"], domain="f")]), function("G", [TRANSPOSE], 13)
    ),
    "a function that calls itself": calling(function("F", [node("F", ["a"], ["b"], domain="f")])),
    "an attribute passed on": calling(referring(["p"]), p=[0, 1]),
    "an attribute passed on that is absent": calling(referring(["p"])),
    "an attribute passed on with a default": calling(referring([], [0, 1])),
    "a graph passed on that reads a value of the function": passing(node("Exp", ["inside"], ["p"])),
    "a graph passed on that reads an input of the function": passing(node("Exp", ["a"], ["p"])),
    "a graph passed on that reads a value of the caller": passing(node("Exp", ["x"], ["p"])),
    "a graph passed on that has names of the function": passing(
        node("Exp", ["x"], ["b"]), node("Transpose", ["b"], ["p"], perm=[0, 1])
    ),
    "a graph passed on that calls a function": passing(
        node("G", ["inside"], ["q"], domain="f"), node("Exp", ["q"], ["p"])
    ),
    "a function with too many inputs": model(
        [node("F", ["x", "x"], ["y"], domain="f")], imports=LOCAL, functions=[function("F", [TRANSPOSE])]
    ),
    "a function with too few inputs": model(
        [node("F", [], ["y"], domain="f")], imports=LOCAL, functions=[function("F", [TRANSPOSE])]
    ),
    "names of the caller in a function": model(
        [node("F", ["x"], ["b"], domain="f"), node("F", ["b"], ["y"], domain="f")],
        imports=LOCAL,
        functions=[function("F", [node("Relu", ["a"], ["x"]), node("Transpose", ["x"], ["b"])])],
    ),
    "an absent input of a function": model(
        [node("F", ["x", "", "c"], ["y"], domain="f")],
        [tensor("c", np.float32(0.1))],
        imports=LOCAL,
        functions=[function("F", [node("Clip", ["a", "l", "h"], ["b"])], inputs=["a", "l", "h"])],
    ),
    "a function that is not in order": calling(
        function("F", [node("Relu", ["c"], ["b"]), node("Transpose", ["a"], ["c"])])
    ),
    "a function nobody calls, of an operator that is not there": changed(
        lambda made: made.functions.append(function("F", [node("Absolutely", ["a"], ["b"])])), two(imports=LOCAL)
    ),
    "a function that two domains share": calling(function("F", [TRANSPOSE]), function("F", [TRANSPOSE])),
    "a function named as an operator": changed(
        lambda made: made.functions.append(NAMED_RELU)
    ),
    "an attribute passed on to Split": model(
        [node("F", ["x"], ["y"], domain="f", n=1)],
        imports=[("", 18), ("f", 1)],
        functions=[SPLITTING],
    ),
    "a branch in a function that reads a value of the caller": changed(
        lambda made: made.graph.node.insert(0, node("Relu", ["x"], ["outside"])),
        model([node("F", ["x"], ["y"], domain="f")], imports=LOCAL, functions=[function("F", BRANCHING)]),
    ),
    "absent axes that have a place": model([node("Squeeze", ["x", ""], ["y"])], x=ONE),
    "a function in a branch": in_branches(
        node("F", ["x"], ["p"], domain="f"), imports=LOCAL, functions=[function("F", [TRANSPOSE], 13)]
    ),
    "a branch that is not in order": in_branches(node("Relu", ["q"], ["p"]), node("Transpose", ["x"], ["q"])),
    "a Split whose num_outputs is another": model(
        [node("Split", ["x"], ["y", "z"], num_outputs=3)], imports=[("", 18)]
    ),
}  # fmt: skip


def parameters(
    op_type: str, *values: Any, x: np.ndarray = X, version: int = 17, outputs: Sequence[str] = ("y",), **attributes: Any
) -> onnx.ModelProto:
    names = ["" if value is None else f"p{k}" for k, value in enumerate(values)]
    constants = [tensor(name, value) for name, value in zip(names, values, strict=True) if name]
    nodes = [node(op_type, ["x", *names], list(outputs), **attributes)]
    return model(nodes, constants, x=x, outputs=outputs, imports=[("", version)])


def empty_attribute(op_type: str, name: str, version: int, x: np.ndarray = ONE) -> onnx.ModelProto:
    made = model([node(op_type, ["x"], ["y"])], x=x, imports=[("", version)])
    made.graph.node[0].attribute.add(name=name, type=onnx.AttributeProto.INTS)
    return made


def f32(values: Any) -> np.ndarray:
    return np.array(values, np.float32)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


INDICES = ints(0, 1, 2)
OFF_ON = np.array([0, 1], np.float32)
CHANNELS = np.arange(16, dtype=np.float32).reshape(1, 4, 2, 2)
ROWS = np.arange(12, dtype=np.float32).reshape(6, 2)

REDUCTIONS: tuple[tuple[str, int, dict[str, Any]], ...] = (
    ("Sum", 13, {}), ("Sum", 13, {"noop_with_empty_axes": 1}), ("Max", 18, {}), ("Mean", 18, {}),
)  # fmt: skip
PARAMETERS: dict[str, onnx.ModelProto] = {
    **{
        f"Squeeze {name}": parameters("Squeeze", axes, x=ONE)
        for name, axes in {
            "[]": ints(), "[[]]": np.zeros((0, 0), np.int64), "[[0]]": ints(0).reshape(1, 1), "0": np.int64(0),
            "int32": np.array([0], np.int32), "[0, 0]": ints(0, 0), "[1]": ints(1), "[9]": ints(9),
        }.items()
    },
    "Squeeze-11 []": empty_attribute("Squeeze", "axes", 11),
    "Unsqueeze []": parameters("Unsqueeze", ints()),
    "Unsqueeze 0": parameters("Unsqueeze", np.int64(0)),
    "Unsqueeze [[0]]": parameters("Unsqueeze", ints(0).reshape(1, 1)),
    "Unsqueeze [0, 0]": parameters("Unsqueeze", ints(0, 0)),
    "Unsqueeze of nothing": parameters("Unsqueeze"),
    "Unsqueeze-11 []": empty_attribute("Unsqueeze", "axes", 11),
    "Unsqueeze-11 of nothing": parameters("Unsqueeze", version=11),
    **{
        f"Reduce{kind}-{version} [] {options}": parameters(f"Reduce{kind}", ints(), version=version, **options)
        for kind, version, options in REDUCTIONS
    },
    "ReduceSum-11 []": empty_attribute("ReduceSum", "axes", 11, X),
    **{
        f"Slice {name}": parameters("Slice", *values)
        for name, values in {
            "(0.5, 1.9)": (f32([0.5]), f32([1.9])), "NaN": (np.array([NAN]), np.array([NAN])),
            "text": (["a"], ["b"]), "[]": (ints(), ints()), "axes []": (ints(0), ints(1), ints()),
            "0": (np.int64(0), np.int64(1)), "[[0]]": (ints(0).reshape(1, 1), ints(1).reshape(1, 1)),
            "two types": (np.array([0], np.int32), ints(1)), "int8": (np.array([0], np.int8), np.array([1], np.int8)),
            "step 0": (ints(0), ints(1), ints(0), ints(0)), "one start too many": (ints(0, 0), ints(1)),
            "an axis twice": (ints(0, 0), ints(1, 1), ints(0, 0)), "no starts": (None, ints(1)),
        }.items()
    },
    "Slice-9 axes []": empty_attribute("Slice", "axes", 9),
    "Slice-9 text": parameters("Slice", version=9, starts=["a"], ends=["b"]),
    **{
        f"Reshape {name}": parameters("Reshape", shape)
        for name, shape in {
            "[1.7, 3.2]": f32([1.7, 3.2]), "NaN": np.array([NAN, 6]), "infinity": np.array([INFINITY, 6]),
            "text": ["3", "2"], "int32": np.array([3, 2], np.int32), "[]": ints(), "6": np.int64(6),
            "[[3, 2]]": ints(3, 2).reshape(1, 2), "[-1, -1]": ints(-1, -1), "[-2, -3]": ints(-2, -3), "absent": None,
        }.items()
    },
    "Reshape-1 without a shape": parameters("Reshape", version=1),
    "Reshape-1 6": parameters("Reshape", version=1, shape=6),
    **{
        f"Expand {name}": parameters("Expand", shape, x=ONE)
        for name, shape in {
            "[2.5, 3]": f32([2.5, 3]), "NaN": np.array([NAN, 3]), "text": ["2", "3"], "[]": ints(),
            "3": np.int64(3), "[[2, 3]]": ints(2, 3).reshape(1, 2), "[0, 3]": ints(0, 3), "[-1, 3]": ints(-1, 3),
        }.items()
    },
    **{
        f"Trilu {name}": parameters("Trilu", k)
        for name, k in {
            "[]": ints(), "[1, 2]": ints(1, 2), "[1]": ints(1), "[[1]]": ints(1).reshape(1, 1), "NaN": NAN,
            "text": ["1"], "1.0": np.float32(1), "int32": np.int32(1), "2^62": np.int64(1 << 62),
        }.items()
    },
    "Trilu with k as text": parameters("Trilu", k="1"),
    "Trilu upper 1.0": parameters("Trilu", upper=1.0),
    "Trilu upper 2": parameters("Trilu", upper=2),
    **{f"EyeLike {dtype}": parameters("EyeLike", dtype=dtype) for dtype in (0, 99, -1, 8, 16, 11, 1.5, "f")},
    "EyeLike k 2^62": parameters("EyeLike", k=1 << 62),
    **{
        f"OneHot {name}": parameters("OneHot", depth, OFF_ON, x=INDICES)
        for name, depth in {
            "NaN": NAN, "infinity": INFINITY, "-infinity": -INFINITY, "3.7": np.float32(3.7), "-1.0": np.float32(-1),
            "[]": ints(), "[3]": ints(3), "[[3]]": ints(3).reshape(1, 1), "[3, 3]": ints(3, 3), "text": "3",
            "1e30": np.float32(1e30), "0": np.int64(0), "-3": np.int64(-3),
        }.items()
    },
    "OneHot with three values": parameters("OneHot", np.int64(3), f32([0, 1, 2]), x=INDICES),
    "OneHot with axis 1.0": parameters("OneHot", np.int64(3), OFF_ON, x=INDICES, axis=1.0),
    **{
        f"DepthToSpace {mode!r}": parameters("DepthToSpace", x=CHANNELS, blocksize=2, mode=mode)
        for mode in ("crd", "", "CRD", 1)
    },
    **{f"DepthToSpace by {n}": parameters("DepthToSpace", x=CHANNELS, blocksize=n) for n in (0, -2, 3, 2.0, "2")},
    "DepthToSpace by nothing": parameters("DepthToSpace", x=CHANNELS),
    **{
        f"Split {name}": parameters("Split", parts, x=ROWS, outputs=("y", "z"))
        for name, parts in {
            "[0, 6]": ints(0, 6), "[-1, 7]": ints(-1, 7), "[1, 2]": ints(1, 2), "[]": ints(),
            "[2.0, 4.0]": f32([2, 4]), "[[2, 4]]": ints(2, 4).reshape(1, 2),
        }.items()
    },
    "Split-18 of nothing": parameters("Split", x=ROWS, version=18, outputs=("y", "z")),
    "Split-18 in 5": parameters("Split", x=ROWS, version=18, outputs=tuple("yzuvw"), num_outputs=5),
    "Concat with nothing of another rank": model(
        [
            node("SplitToSequence", ["x", "one"], ["rows"], keepdims=0),
            node("ConcatFromSequence", ["rows"], ["t"], axis=0),
            node("Concat", ["t", "nothing"], ["y"], axis=0),
        ],
        [tensor("one", np.int64(1)), tensor("nothing", np.empty((0, 4), np.float32))],
    ),
    "Concat of two types": parameters("Concat", X.astype(np.float64), axis=0),
    "Concat without an axis": parameters("Concat", X),
    "Concat along 1.0": parameters("Concat", X, axis=1.0),
    **{f"Transpose {perm}": parameters("Transpose", perm=perm) for perm in ([0], [0, 0], [1, 2], [1.0, 0.0], 1)},
    "Transpose []": empty_attribute("Transpose", "perm", 17, X),
    "Flatten 1.0": parameters("Flatten", axis=1.0),
    "Flatten 3": parameters("Flatten", axis=3),
}  # fmt: skip

FAULTLESS = {**STRUCTURE, **PARAMETERS}
# Models that ONNX Runtime runs: so that the comparison is not one of refusals alone.
MUST_RUN = {
    "format 0", "no name", "another import alone", "ai.onnx", "com.microsoft without an import", "unsorted",
    "a large constant twice", "a constant that is no input, in format 3", "no nodes",
    "a sparse initializer, unsorted", "a sparse constant, int8 places", "a function of another version",
    "functions in functions", "an attribute passed on with a default", "a function in a branch", "Squeeze []",
    "Squeeze-11 []", "Unsqueeze 0", "OneHot 3.7", "Slice []", "Trilu [1]",
    "Concat with nothing of another rank",
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTLESS)
def test_as_onnx_runtime(name: str) -> None:
    """On one device: what a model means does not depend on it."""
    found = compared(
        DEVICE_NAMES[0], OddModel(FAULTLESS[name].SerializeToString(), {"x": feed_of(FAULTLESS[name])}, [])
    )
    assert found.fault is None, found.fault
    assert found.happened == "run" or name not in MUST_RUN


def _optional_input() -> OddModel:
    """An optional that is an output too: as such it says no type."""
    made = model([node("OptionalGetElement", ["o"], ["e"]), node("Transpose", ["e"], ["y"])], outputs=("y", "o"))
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, X.shape))
    made.graph.input.append(helper.make_value_info("o", kind))
    return OddModel(made.SerializeToString(), {"x": X, "o": X}, [])


def _no_turns() -> OddModel:
    """A Loop of no turns: the rank of its result is what the input says, not what value_info says of the input."""
    body = helper.make_graph(
        [node("Identity", ["goes_on"], ["still"]), node("Identity", ["x"], ["inside"])],
        "body",
        [helper.make_tensor_value_info("turn", 7, []), helper.make_tensor_value_info("goes_on", 9, [])],
        [helper.make_tensor_value_info("still", 9, []), onnx.ValueInfoProto(name="inside")],
    )
    made = model([node("Loop", ["turns", ""], ["y"], body=body)], [tensor("turns", np.int64(0))])
    made.graph.input[0].type.tensor_type.ClearField("shape")
    made.graph.value_info.append(helper.make_tensor_value_info("x", TensorProto.UINT8, [5, 3]))
    return OddModel(made.SerializeToString(), {"x": X}, [])


def _scan_of_sizes_that_the_model_says() -> OddModel:
    """Inference does not find the rank of what the Scan reads; the model says it."""
    element, result = onnx.ValueInfoProto(name="element"), onnx.ValueInfoProto(name="inside")
    body = helper.make_graph([node("Transpose", ["element"], ["inside"])], "body", [element], [result])
    made = model(
        [
            node("Unsqueeze", ["x", "axes"], ["u"]),
            node("Concat", ["u", "u"], ["c"], axis=0),
            node("Scan", ["c"], ["y"], body=body, num_scan_inputs=1),
        ]
    )
    made.graph.input.append(helper.make_tensor_value_info("axes", TensorProto.INT64, [1]))
    made.graph.value_info.append(helper.make_tensor_value_info("u", TensorProto.FLOAT, [None] * 3))
    return OddModel(made.SerializeToString(), {"x": X, "axes": np.array([0])}, [])


def _index_without_dimensions() -> OddModel:
    made = model(
        [node("OneHot", ["x", "depth", "values"], ["y"])], [tensor("depth", np.int64(3)), tensor("values", X[0, :2])]
    )
    made.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.INT64, None))
    return OddModel(made.SerializeToString(), {"x": np.int64(1).reshape(())}, [])


def _in_a_file(*tensors: onnx.TensorProto, **entries: str) -> OddModel:
    """A sum with the last constant of the name "c"; constants without data lie in a file."""
    made = model([node("Add", ["x", "c"], ["s"]), node("Transpose", ["s"], ["y"])], tensors)
    for each in made.graph.initializer:
        if not each.raw_data:
            each.data_location = TensorProto.EXTERNAL
            for key, text in {"location": "data", "length": str(X.nbytes), **entries}.items():
                each.external_data.add(key=key, value=text)
    return OddModel(made.SerializeToString(), {"x": X}, [], {"data": (2 * X).tobytes()})


EXTERNAL = onnx.TensorProto(name="c", data_type=TensorProto.FLOAT, dims=X.shape)
UNUSED = onnx.TensorProto(name="", data_type=TensorProto.FLOAT, dims=X.shape)
ODD = {
    "an optional input": _optional_input(),
    "a loop of no turns": _no_turns(),
    "a scan of sizes that the model says": _scan_of_sizes_that_the_model_says(),
    "an index without dimensions": _index_without_dimensions(),
    "a file": _in_a_file(EXTERNAL),
    "length 0": _in_a_file(EXTERNAL, length="0"),
    "an unknown key": _in_a_file(EXTERNAL, basepath="."),
    "no checksum": _in_a_file(EXTERNAL, checksum=""),
    "a file, and then not": _in_a_file(EXTERNAL, tensor("c", X)),
    "a file after all": _in_a_file(tensor("c", X), EXTERNAL),
    "an absent file, and then none": _in_a_file(EXTERNAL, tensor("c", X), location="absent"),
    "a file that nobody needs": _in_a_file(tensor("c", X), UNUSED, location="absent"),
    "a file without a name": _in_a_file(tensor("c", X), UNUSED),
}
REFUSED = {"an index without dimensions", "an unknown key", "no checksum", "an absent file, and then none"}


@pytest.mark.parametrize("name", ODD)
def test_inputs_and_files_as_onnx_runtime_has_them(name: str) -> None:
    found = compared(DEVICE_NAMES[0], ODD[name])
    assert found.fault is None, found.fault
    assert (found.happened == "run") == (name not in REFUSED)


def test_memory_that_onnx_runtime_takes_for_other_sizes() -> None:
    """It refuses the run, since its inference takes axes [] for none, and its Squeeze for all."""
    squeeze = node("Squeeze", ["x"], ["p"])
    squeeze.attribute.add(name="axes", type=onnx.AttributeProto.INTS)
    made = in_branches(squeeze, x=ONE, imports=[("", 11)])
    found = compared(DEVICE_NAMES[0], OddModel(made.SerializeToString(), {"x": ONE}, []))
    assert found == ("refused its own plan", None)


def feed_of(made: onnx.ModelProto) -> np.ndarray:
    kind = made.graph.input[0].type.tensor_type
    sizes = tuple(dim.dim_value for dim in kind.shape.dim)
    return next(x for x in (X, ONE, INDICES, CHANNELS, ROWS) if x.shape == sizes)


def test_an_initializer_of_the_old_format_is_a_constant(device: dmlvk.Device) -> None:
    made = changed(added("input", GIVEN("c", TensorProto.FLOAT, [3])), model(ADD, THREE[:1], version=3))
    session = InferenceSession(made, device)
    assert [value.name for value in session.get_inputs()] == ["x"]
    assert not session.get_overridable_initializers()
    with pytest.raises(ModelError, match="'c' is a constant of the model"):
        session.run(None, {"x": X, "c": np.ones(3, np.float32)})


def test_a_sparse_initializer_that_is_an_input_can_be_replaced(device: dmlvk.Device) -> None:
    made = of_sparse(sparse(FIVES, [1, 5], [2, 3]), False)
    made.graph.input.append(GIVEN("s", TensorProto.FLOAT, [2, 3]))
    session = InferenceSession(made, device)
    (y,) = session.run(None, {"x": X})
    np.testing.assert_array_equal(y, f32([[0, 0], [5, 0], [0, 6]]))
    (y,) = session.run(None, {"x": X, "s": X})
    np.testing.assert_array_equal(y, X.T)


def test_a_sparse_tensor_that_would_fill_the_memory(device: dmlvk.Device) -> None:
    with pytest.raises(
        ModelError, match=r"the sparse tensor 's' has the sizes \[4194304, 1048576\]; it may have at most"
    ):
        InferenceSession(of_sparse(sparse(FIVES, [1, 5], [1 << 22, 1 << 20]), False), device)


HARMFUL = {
    "Split": (model([node("Split", ["x"], ["y", "z", "u"], num_outputs=2)], imports=[("", 18)]), "has num_outputs 2"),
    **{
        op_type: (model([node(op_type, [""], ["y"], domain=domain)], imports=[("", 20), ("ai.onnx.ml", version)]), rule)
        for op_type, domain, version, rule in (
            ("EyeLike", "", 1, "has no first input"),
            ("RegexFullMatch", "", 1, "has no first input"),
            ("DictVectorizer", "ai.onnx.ml", 1, "has no first input"),
            ("LabelEncoder", "ai.onnx.ml", 1, "has no first input"),
            ("TreeEnsemble", "ai.onnx.ml", 5, "has no first input"),
        )
    },
}


@pytest.mark.parametrize("name", HARMFUL)
def test_a_model_whose_inference_would_end_the_process(device: dmlvk.Device, name: str) -> None:
    """Both ONNX's and ONNX Runtime's read behind an array, or what is not there."""
    made, rule = HARMFUL[name]
    with pytest.raises(ModelError, match=rule):
        InferenceSession(made, device)


def test_a_type_that_inference_does_not_know(device: dmlvk.Device) -> None:
    """ONNX's inference ends the process at an EyeLike behind an operator of another library."""
    nodes = [node("Gelu", ["x"], ["t"], domain="com.microsoft"), node("EyeLike", ["t"], ["y"], dtype=TensorProto.INT64)]
    made = model(nodes, imports=[("", 17), ("com.microsoft", 1)])
    assert InferenceSession(made, device).get_outputs()[0].type == "tensor(int64)"
    found = compared(device.name, OddModel(made.SerializeToString(), {"x": X}, []))
    assert found == ("run", None)


def test_a_size_that_inference_would_write_down_one_by_one(device: dmlvk.Device) -> None:
    nodes = [node("Reshape", ["x", "s"], ["t"]), node("Shape", ["t"], ["n"]), node("Identity", ["t"], ["y"])]
    made = model(nodes, [tensor("s", ints(1 << 50))], outputs=["y", "n"])
    session = InferenceSession(made, device)
    with pytest.raises(ModelError, match="Reshape"):
        session.run(None, {"x": X})


def test_an_output_of_split_that_nobody_names(device: dmlvk.Device) -> None:
    """On the host, ONNX Runtime would end the process."""
    made = model([node("Split", ["x"], ["", "y"], axis=0)], imports=[("", 13)])
    (y,) = InferenceSession(made, device).run(None, {"x": X})
    np.testing.assert_array_equal(y, X[1:])
    assert all(InferenceSession(made, device).model.proto.graph.node[0].output)
