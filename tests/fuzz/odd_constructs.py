"""Oddities that move a part of an odd model into something larger: functions, bodies, sequences, optionals, files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from tests.fuzz.odd_models import Maker

Oddity = Callable[["Maker", onnx.ModelProto], None]
DATA_FILE = "data"
# What may be wrong about a tensor in a file: an entry, and its value. Nothing is, most of the time.
ENTRIES = [
    *[("", "")] * 12,
    *(("length", "1000000"), ("length", "1"), ("length", "abc"), ("length", "-1"), ("length", "")),
    *(("offset", "1000000"), ("offset", "-1"), ("offset", "1"), ("offset", "99999999999999999999")),
    *(("location", "absent"), ("location", ""), ("location", "."), ("location", "../data"), ("location", "a/../data")),
    *(("location", "./data"), ("checksum", "77"), ("basepath", "/tmp"), ("unheard", "1")),
]


def _constant(maker: Maker, graph: onnx.GraphProto, array: Any) -> str:
    name = maker.name("c")
    graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    return name


def _typed(maker: Maker, name: str, kind: tuple[Sequence[int], str]) -> onnx.ValueInfoProto:
    """A value of a body or of the graph, whose type is told or not."""
    return (
        maker.value(name, kind[1], maker.pick([kind[0], None])) if maker.chance(2) else onnx.ValueInfoProto(name=name)
    )


def _last(graph: onnx.GraphProto) -> tuple[onnx.NodeProto, onnx.ValueInfoProto] | None:
    """A copy of the last node and the output that it gives; the node is taken out of the graph."""
    last = onnx.NodeProto()
    last.CopyFrom(graph.node[-1])
    given = [value for value in graph.output if value.name in last.output]
    if len(last.output) != 1 or not given:
        return None
    del graph.node[-1]
    given[0].ClearField("type")
    return last, given[0]


def branches(maker: Maker, model: onnx.ModelProto) -> None:
    """The last node moves into both branches of an If."""
    taken = _last(model.graph)
    if taken is None:
        return
    last, given = taken
    made = []
    for k in range(2):
        inside = onnx.NodeProto()
        inside.CopyFrom(last)
        inside.output[0] = inside.name = f"branch_{k}"
        made.append(helper.make_graph([inside], f"b{k}", [], [onnx.ValueInfoProto(name=f"branch_{k}")]))
    condition = _constant(maker, model.graph, maker.chance(2))
    model.graph.node.append(helper.make_node("If", [condition], [given.name], then_branch=made[0], else_branch=made[1]))


def loop(maker: Maker, model: onnx.ModelProto) -> None:
    """The last node moves into the body of a Loop, which stacks its outputs."""
    taken = _last(model.graph)
    if taken is None:
        return
    last, given = taken
    # A name inside may be that of a value outside.
    last.output[0] = str(maker.pick(["inside", "x2", given.name]))
    values = [helper.make_tensor_value_info("turn", TensorProto.INT64, [])]
    values.append(helper.make_tensor_value_info("goes_on", TensorProto.BOOL, []))
    results = [helper.make_tensor_value_info("still", TensorProto.BOOL, []), onnx.ValueInfoProto(name=last.output[0])]
    body = helper.make_graph([helper.make_node("Identity", ["goes_on"], ["still"]), last], "body", values, results)
    turns = _constant(maker, model.graph, int(maker.random.integers(0, 4)))
    model.graph.node.append(helper.make_node("Loop", [turns, ""], [given.name], body=body))


def scan(maker: Maker, model: onnx.ModelProto) -> None:
    """The last node moves into the body of a Scan over copies of what it reads."""
    graph = model.graph
    data = next((name for name in graph.node[-1].input if name in maker.kinds), None)
    taken = _last(graph) if data is not None else None
    if data is None or taken is None:
        return
    last, given = taken
    shape, dtype = maker.kinds[data]
    one, stacked = maker.name("s"), maker.name("s")
    if maker.opset >= 13:
        graph.node.append(helper.make_node("Unsqueeze", [data, _constant(maker, graph, [0])], [one]))
    else:
        graph.node.append(helper.make_node("Unsqueeze", [data], [one], axes=[0]))
    graph.node.append(helper.make_node("Concat", [one] * int(maker.pick([1, 2, 3])), [stacked], axis=0))
    element = str(maker.pick(["element", "x2", data]))
    for k, name in enumerate(last.input):
        if name == data:
            last.input[k] = element
    nodes, values, results, states = [last], [_typed(maker, element, (shape, dtype))], [], []
    results.append(onnx.ValueInfoProto(name=last.output[0]))
    outputs = [given.name]
    if maker.chance(2):
        states.append(_constant(maker, graph, np.float32(maker.random.integers(0, 9))))
        nodes.append(helper.make_node("Add", ["state", "state"], ["next"]))
        values.insert(0, helper.make_tensor_value_info("state", TensorProto.FLOAT, []))
        results.insert(0, helper.make_tensor_value_info("next", TensorProto.FLOAT, []))
        outputs.insert(0, maker.name("s"))
        if maker.chance(2):
            graph.output.append(onnx.ValueInfoProto(name=outputs[0]))
    attributes: dict[str, Any] = {"num_scan_inputs": int(maker.pick([1, 1, 1, 1, 1, 1, 1, 2, 0]))}
    attributes |= maker.pick([{}, {"scan_input_directions": [1]}, {"scan_output_directions": [1]},
                              {"scan_input_axes": [0]}, {"scan_output_axes": [-1]}, {"scan_output_axes": [1]},
                              {"scan_input_axes": [9]}, {"scan_input_directions": [1, 1]}])  # fmt: skip
    body = helper.make_graph(nodes, "body", values, results)
    graph.node.append(helper.make_node("Scan", [*states, stacked], outputs, body=body, **attributes))


def _through(maker: Maker, model: onnx.ModelProto, make: Callable[[str], tuple[list[onnx.NodeProto], str]]) -> None:
    """A node reads one of its values by way of other nodes."""
    graph = model.graph
    places = [(n, k) for n, node in enumerate(graph.node) for k, name in enumerate(node.input) if name in maker.kinds]
    if not places:
        return
    n, k = maker.pick(places)
    nodes, last = make(graph.node[n].input[k])
    graph.node[n].input[k] = last
    kept = list(graph.node)
    del graph.node[:]
    graph.node.extend([*kept[:n], *nodes, *kept[n:]])


def sequences(maker: Maker, model: onnx.ModelProto) -> None:
    """A value goes into a sequence and comes out of it."""
    graph = model.graph
    if maker.opset < 11 and not maker.chance(9):
        return

    def make(name: str) -> tuple[list[onnx.NodeProto], str]:
        (shape, dtype), sequence, out = maker.kinds[name], maker.name("s"), maker.name("s")
        element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        at = int(maker.pick([0, 0, 0, -1, 1, 5]))
        place = _constant(maker, graph, np.array(at, maker.pick(["int64", "int64", "int32"])))
        way = str(maker.pick(["construct", "insert", "erase", "split", "map", "input", "if"]))
        maker.words.append(way)
        construct = helper.make_node("SequenceConstruct", [name] * int(maker.pick([1, 2])), [sequence])
        nodes = [construct]
        if way == "insert":
            empty = maker.name("s")
            nodes = [helper.make_node("SequenceEmpty", [], [empty], **maker.pick([{"dtype": element}] * 3 + [{}]))]
            nodes.append(helper.make_node("SequenceInsert", [empty, name, *maker.pick([[], [place]])], [sequence]))
        elif way == "erase":
            longer = maker.name("s")
            nodes = [helper.make_node("SequenceConstruct", [name] * 3, [longer])]
            nodes.append(helper.make_node("SequenceErase", [longer, *maker.pick([[], [place]])], [sequence]))
        elif way == "split":
            axis = int(maker.pick([0, 0, -1, 1]))
            attributes = maker.pick([{}, {"keepdims": 0}, {"keepdims": 1}])
            lengths = maker.pick([None, 1, 2, [1], [shape[0] if shape else 1]])
            given = [] if lengths is None else [_constant(maker, graph, np.array(lengths, np.int64))]
            nodes = [helper.make_node("SplitToSequence", [name, *given], [sequence], axis=axis, **attributes)]
            joined = {"axis": axis} | maker.pick([{}, {"new_axis": 0}, {"new_axis": 1}])
            if maker.chance(3):
                graph.output.append(onnx.ValueInfoProto(name=sequence))
            return [*nodes, helper.make_node("ConcatFromSequence", [sequence], [out], **joined)], out
        elif way == "map":
            before = maker.name("s")
            inside, result = _typed(maker, "one", (shape, dtype)), onnx.ValueInfoProto(name="other")
            body = helper.make_graph([helper.make_node("Identity", ["one"], ["other"])], "body", [inside], [result])
            nodes = [helper.make_node("SequenceConstruct", [name, name], [before])]
            nodes.append(helper.make_node("SequenceMap", [before], [sequence], body=body))
        elif way == "input":
            kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(element, maker.pick([shape, None])))
            graph.input.append(helper.make_value_info(sequence, kind))
            maker.feeds[sequence] = [maker.elements(shape, dtype) for _ in range(int(maker.pick([0, 1, 2, 2])))]
            nodes = []
        elif way == "if":
            made = []
            for branch in "tf":
                node = helper.make_node("SequenceConstruct", [name, name], [f"of_{branch}"])
                made.append(helper.make_graph([node], branch, [], [onnx.ValueInfoProto(name=f"of_{branch}")]))
            condition = _constant(maker, graph, maker.chance(2))
            nodes = [helper.make_node("If", [condition], [sequence], then_branch=made[0], else_branch=made[1])]
        if maker.chance(3):
            graph.output.append(onnx.ValueInfoProto(name=sequence))
        if maker.chance(4):
            length = maker.name("s")
            nodes.append(helper.make_node("SequenceLength", [sequence], [length]))
            graph.output.append(onnx.ValueInfoProto(name=length))
        return [*nodes, helper.make_node("SequenceAt", [sequence, place], [out])], out

    _through(maker, model, make)


def optionals(maker: Maker, model: onnx.ModelProto) -> None:
    """A value goes into an optional and comes out of it, or is not there."""
    graph = model.graph
    if maker.opset < 15 and not maker.chance(9):
        return

    def make(name: str) -> tuple[list[onnx.NodeProto], str]:
        (shape, dtype), optional, out = maker.kinds[name], maker.name("o"), maker.name("o")
        kind = helper.make_tensor_type_proto(
            helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), maker.pick([shape, None])
        )
        nodes = [helper.make_node("Optional", [name], [optional])]
        if maker.chance(3):
            graph.input.append(helper.make_value_info(optional, helper.make_optional_type_proto(kind)))
            maker.feeds[optional] = maker.pick([None, maker.elements(shape, dtype)])
            nodes = []
        if maker.chance(3):
            graph.output.append(onnx.ValueInfoProto(name=optional))
        if maker.chance(2):
            there, asked = maker.name("o"), optional
            if maker.chance(3):
                asked = maker.name("o")
                nodes.append(helper.make_node("Optional", [], [asked], type=kind))
                if maker.chance(3):
                    graph.output.append(onnx.ValueInfoProto(name=asked))
            nodes.append(helper.make_node("OptionalHasElement", [asked], [there]))
            graph.output.append(onnx.ValueInfoProto(name=there))
        return [*nodes, helper.make_node("OptionalGetElement", [optional], [out])], out

    _through(maker, model, make)


def absent_outputs(maker: Maker, model: onnx.ModelProto) -> None:
    """An output that nobody reads has no name; or a node has one more, or none."""
    graph = model.graph
    read = {name for node in graph.node for name in node.input} | {value.name for value in graph.output}
    for node in graph.node:
        for k, name in enumerate(node.output):
            if name not in read and maker.chance(2):
                node.output[k] = ""
    if maker.chance(4):
        maker.pick(graph.node).output.append(str(maker.pick(["", "more"])))


def external_data(maker: Maker, model: onnx.ModelProto) -> None:
    """Tensors lie in a file beside the model, some of them not quite."""
    tensors = list(model.graph.initializer)
    if maker.chance(4):
        tensors += [a.t for node in model.graph.node for a in node.attribute if a.type == onnx.AttributeProto.TENSOR]
    content = bytearray(maker.files.get(DATA_FILE, b""))
    for tensor in tensors:
        if tensor.data_type == TensorProto.STRING or not tensor.raw_data or not maker.chance(2):
            continue
        entries = {"location": DATA_FILE, "offset": str(len(content)), "length": str(len(tensor.raw_data))}
        if maker.chance(6) and not content:
            del entries["offset"]
        content += tensor.raw_data
        changed, value = maker.pick(ENTRIES)
        # ONNX Runtime does not read what does not count; dmlvk does.
        if changed and [each.name for each in tensors].count(tensor.name) == 1:
            entries[changed] = value
            maker.words.append(f"{changed} {value!r}")
        if maker.chance(9):
            tensor.raw_data = tensor.raw_data[:1]
            maker.words.append("raw data too")
        else:
            tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, text in entries.items():
            tensor.external_data.add(key=key, value=text)
        content += bytes(int(maker.pick([0, 0, 3, 64])))
    maker.files[DATA_FILE] = bytes(content)


def functions(maker: Maker, model: onnx.ModelProto) -> None:
    """Some nodes become calls of local functions, which call others: with attributes passed on, of other versions."""
    for node in model.graph.node:
        if node.op_type == "Constant" or node.domain or not maker.chance(2):
            continue
        for _ in range(int(maker.pick([1, 1, 2, 3]))):
            _become_call(maker, model, node)
    if model.functions:
        model.opset_import.append(helper.make_opsetid("local", 1))
        if maker.chance(9):
            model.functions.append(model.functions[0])
            maker.words.append("a function twice")
        if maker.chance(6):
            kept = list(model.functions)[::-1]
            del model.functions[:]
            model.functions.extend(kept)


def _become_call(maker: Maker, model: onnx.ModelProto, node: onnx.NodeProto) -> None:
    """Put a node into a function of its own, and call that."""
    version = int(maker.pick([maker.opset, maker.opset, 13, 17, 9]))
    body = onnx.NodeProto()
    body.CopyFrom(node)
    # The names inside are those of values outside, of other meaning. An input without a name stays one.
    formals = [f"v{k + 1}" for k in range(len(node.input))]
    results = [f"p{k + 1}" for k in range(len(node.output))]
    read = [formal if name else "" for formal, name in zip(formals, node.input, strict=True)]
    del body.input[:], body.output[:]
    body.input.extend(read)
    body.output.extend(results)
    passed = []
    if maker.chance(2):
        for attribute in body.attribute:
            kept, kind = attribute.name, attribute.type
            attribute.Clear()
            attribute.name, attribute.type, attribute.ref_attr_name = kept, kind, f"of_{kept}"
            passed.append(kept)
    nodes = [body]
    if results and maker.chance(3):
        # The results go through a body that knows the function's names: subgraphs in functions refer to attributes too.
        inner = body.output[0] = maker.name("i")
        branch = helper.make_node("Identity", [inner], ["taken"])
        made = [helper.make_graph([branch], "b", [], [onnx.ValueInfoProto(name="taken")]) for _ in range(2)]
        value = helper.make_tensor("", TensorProto.BOOL, [], [maker.chance(2)])
        nodes.append(helper.make_node("Constant", [], ["yes"], value=value))
        nodes.append(helper.make_node("If", ["yes"], [results[0]], then_branch=made[0], else_branch=made[1]))
    title = maker.name("F")
    imports = [helper.make_opsetid("", version), helper.make_opsetid("local", 1)]
    if maker.chance(12):
        del imports[0]
    function = helper.make_function("local", title, formals, results, nodes, imports, [])
    if maker.chance(6):
        function.overload = "other"
    given = [a for a in node.attribute if a.name in passed]
    for attribute in given:
        if maker.chance(3) and not attribute.ref_attr_name:
            default = function.attribute_proto.add()
            default.CopyFrom(attribute)
            default.name = f"of_{attribute.name}"
        else:
            function.attribute.append(f"of_{attribute.name}")
    model.functions.append(function)
    call = helper.make_node(title, list(node.input), list(node.output), name=node.name, domain="local")
    if function.overload and not maker.chance(6):
        call.overload = function.overload
    for attribute in given:
        if maker.chance(8):
            continue
        other = call.attribute.add()
        other.CopyFrom(attribute)
        other.name = f"of_{attribute.name}"
    node.CopyFrom(call)


CONSTRUCTS: tuple[Oddity, ...] = (
    functions,
    functions,
    branches,
    loop,
    scan,
    sequences,
    optionals,
    absent_outputs,
    external_data,
)
