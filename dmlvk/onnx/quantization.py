"""Fusion of dequantize, convolve or multiply matrices, quantize to one operator, as ONNX Runtime does it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import onnx
from onnx import helper

from dmlvk.onnx.byte_functions import DOMAIN, NORMALIZATION, RESIZE, FloatFinder
from dmlvk.onnx.graph import MICROSOFT, ROWS_OF_ONE_AXIS, Graph, Node

QUANTIZED_TYPES = (2, 3)  # uint8 and int8, as TensorProto numbers them
FLOAT, INT32 = 1, 6
# How often ONNX Runtime goes over a model when it optimizes.
MOST_STEPS = 10
# The version from which a conversion may have a scale for each index along an axis.
SCALES_ALONG_AN_AXIS = 13
# The bias' scale is the product of the others, which a quantizer may have rounded.
SCALE_TOLERANCE = 1e-5
# A bias of floats counts less than this in units of its scale: ONNX Runtime makes int32 of it.
MOST_STEPS_OF_A_BIAS = 2**31
KEPT_ATTRIBUTES = ("alpha", "auto_pad", "dilations", "group", "kernel_shape", "pads", "strides", "transA", "transB")


def fuse(graph: Graph) -> tuple[dict[int, str], dict[int, int]]:
    """Put QLinearConv, QLinearMatMul or QGemm in the place of each product of dequantized inputs that is quantized.

    Returns why nodes are no longer in the graph, by number; and the number of its quantized operator, by that of
        each product that is replaced.
    """
    reasons: dict[int, str] = {}
    replaced: dict[int, int] = {}
    if graph.versions.get("", 0) < 10:
        return reasons, replaced
    # Found once: a fusion changes neither who wrote another product's inputs nor who reads its output.
    producers, users = graph.producers(), graph.users()
    made_at: dict[int, Node] = {}
    for node in graph.nodes:
        if node.op_type in PRODUCTS and not node.domain:
            fused = _fused(graph, node, producers, users)
            if fused is not None:
                made, absorbed = fused
                replaced[node.index] = made.index
                reasons |= {other.index: f"into {made.op_type} {made.name!r}" for other in absorbed}
                made_at[absorbed[-1].index] = made
    gone = (reasons.keys() | replaced.keys()) - made_at.keys()
    graph.nodes = [made_at.get(node.index, node) for node in graph.nodes if node.index not in gone]
    return reasons, replaced


def as_written_by_one(graph: Graph, *, by_values: bool = False) -> None:
    """Let conversions be as ONNX Runtime's own quantizer writes them, whichever quantizer wrote the model.

    Those of com.microsoft become ONNX's. Weights that are transposed behind their DequantizeLinear are transposed
    before it. One QuantizeLinear stands for all with the same input, scale and zero point: as in ONNX Runtime, which
    merges them when it optimizes, scales are compared by their values and zero points by their names.

    by_values: whether zero points are compared by their values, too.
    """
    producers = graph.producers()
    first: dict[tuple[object, ...], str] = {}
    for place, given in enumerate(graph.nodes):
        node = given
        if node.domain == MICROSOFT and _is_known_to_onnx(node, graph):
            proto = onnx.NodeProto()
            proto.CopyFrom(node.proto)
            proto.domain = ""
            scale = graph.constant(node.input(1))
            if scale is not None and scale.size == 1:
                del proto.attribute[:]  # an axis means nothing then, and old versions of ONNX have none
            node = replace(graph.new_node(proto), index=node.index)
        elif node.op_type == "Transpose" and not node.domain:
            node = _transposed_weights(node, producers.get(node.input(0)), graph)
        if node.op_type == "QuantizeLinear" and len(node.outputs) == 1:
            scale = graph.constant(node.input(1))
            step = node.input(1) if scale is None or scale.size != 1 else (scale.dtype, scale.shape, scale.item())
            point = graph.constant(node.input(2)) if by_values else None
            zero = node.input(2) if point is None or point.size != 1 else (point.dtype, point.item())
            key = node.domain, node.input(0), step, zero, str(sorted(node.attributes.items()))
            same = first.setdefault(key, node.outputs[0])
            if same != node.outputs[0]:
                copy = helper.make_node("Identity", [same], list(node.outputs), name=node.proto.name)
                node = replace(graph.new_node(copy), index=node.index)
        if node is not given:
            graph.nodes[place] = node
            producers |= dict.fromkeys(node.writes, node)


def merge_conversions(graph: Graph) -> dict[int, str]:
    """Put one quantization in the place of several, one behind the other, as ONNX Runtime does when it optimizes.

    QuantizeLinear, DequantizeLinear with one scale and zero point, and the same two with others: it leaves the first
    node and the last, with the scale and zero point of the range that the two have in common. It goes over the model
    again until nothing changes, and a pair that it has just merged waits for the next time.

    Returns why nodes are no longer in the graph, by number.
    """
    reasons: dict[int, str] = {}
    for step in range(MOST_STEPS):
        found = _merge_each_once(graph, passes_movement=step > 0)
        if not found:
            break
        reasons |= found
    return reasons


def _merge_each_once(graph: Graph, passes_movement: bool) -> dict[int, str]:
    """Merge pairs of conversions with the pairs behind them, each at most once.

    passes_movement: whether ONNX Runtime has let conversions pass movement before, with scales that now change.
    """
    producers, users = graph.producers(), graph.users()
    now: dict[int, list[Node]] = {}
    reasons: dict[int, str] = {}

    def next_of(node: Node) -> Node | None:
        """The only node that reads what a node writes."""
        following = users.get(node.outputs[0], ())
        return following[0] if len(following) == 1 and node.outputs[0] not in graph.outputs else None

    def converted(pair: Sequence[Node], source: str, result: str) -> list[Node]:
        """Conversions as two others are, to bytes and back."""
        names = source, graph.new_value("bytes", _element(pair[0], graph), source), result
        protos = [onnx.NodeProto(), onnx.NodeProto()]
        for proto, node, given, made in zip(protos, pair, names[:2], names[1:], strict=True):
            proto.CopyFrom(node.proto)
            proto.name, proto.input[0], proto.output[0] = "", given, made
        return [graph.new_node(proto) for proto in protos]

    def keep_before(pair: Sequence[Node]) -> None:
        """Convert before the movement that a pair has passed."""
        behind, last = producers.get(pair[0].input(0)), pair[0]
        first: Node | None = None
        while behind is not None and _is_passed(behind) and next_of(behind) is last:
            first, last = first if behind.op_type == "Identity" else behind, behind
            behind = producers.get(last.input(0))
        if first is None or (behind is not None and behind.op_type == "DequantizeLinear"):
            return
        if len(users[first.input(0)]) > 1 or first.input(0) in graph.outputs or graph.is_constant(first.input(0)):
            return
        value = graph.new_value("floats", FLOAT, first.input(0))
        proto = onnx.NodeProto()
        proto.CopyFrom(first.proto)
        proto.input[0] = value
        now[first.index] = [*converted(pair, first.input(0), value), replace(graph.new_node(proto), index=first.index)]

    def keep_behind(pair: Sequence[Node]) -> None:
        """Convert behind the movement that a pair has passed."""
        mover: Node | None = None
        last = next_of(pair[1])
        while last is not None and _is_passed(last):
            mover = last if mover is None and last.op_type != "Identity" else mover
            last = next_of(last)
        # A QuantizeLinear behind all of it has passed it before.
        if mover is None or (last is not None and last.op_type == "QuantizeLinear"):
            return
        proto = onnx.NodeProto()
        proto.CopyFrom(mover.proto)
        proto.output[0] = graph.new_value("floats", FLOAT, mover.outputs[0])
        made = replace(graph.new_node(proto), index=mover.index)
        now[mover.index] = [made, *converted(pair, made.outputs[0], mover.outputs[0])]

    for inner in graph.nodes:
        if inner.op_type != "DequantizeLinear" or inner.domain or inner.index in now:
            continue
        between = [inner]
        second = next_of(inner)
        while second is not None and second.op_type == "Identity":
            between.append(second)
            second = next_of(second)
        first, last = producers.get(inner.input(0)), None if second is None else next_of(second)
        if first is None or second is None or last is None or next_of(first) is not inner:
            continue
        if [node.op_type for node in (first, second, last)] != ["QuantizeLinear", "QuantizeLinear", "DequantizeLinear"]:
            continue
        merged = _merged(_pair(first, inner, graph), _pair(second, last, graph))
        if merged is None:
            continue
        if passes_movement:
            keep_before((first, inner))
            keep_behind((second, last))
        names = [graph.new_name("scale"), graph.new_name("zero_point")]
        for name, value in zip(names, merged, strict=True):
            graph.set_constant(name, value)
        for node, source in ((first, first.input(0)), (last, first.outputs[0])):
            proto = onnx.NodeProto()
            proto.CopyFrom(node.proto)
            proto.input[:] = [source, *names]
            now[node.index] = [replace(graph.new_node(proto), index=node.index)]
        reasons |= {node.index: f"into {first.name!r}, which has the range of both" for node in (*between, second)}
    graph.nodes = [each for node in graph.nodes if node.index not in reasons for each in now.get(node.index, [node])]
    return reasons


def _is_passed(mover: Node) -> bool:
    """Whether ONNX Runtime lets conversions pass a node."""
    is_known = mover.op_type in PASSED_BY_CONVERSIONS and not mover.domain and len(mover.writes) == 1
    return is_known and mover.version >= SINCE.get(mover.op_type, 1)


def _pair(quantizer: Node, dequantizer: Node, graph: Graph) -> tuple[np.ndarray, np.ndarray] | None:
    """The scale and the zero point of bytes that two conversions have; None if they have no constant ones in common."""
    found = [[graph.constant(name) for name in node.inputs[1:3]] for node in (quantizer, dequantizer)]
    values = [value for pair in found for value in pair if value is not None and value.size == 1]
    if len(values) != 4 or any(value != other for value, other in zip(values[:2], values[2:], strict=True)):
        return None
    scale, zero_point = values[:2]
    return (scale, zero_point) if scale.dtype == np.float32 and zero_point.dtype in (np.uint8, np.int8) else None


def _merged(
    first: tuple[np.ndarray, np.ndarray] | None, second: tuple[np.ndarray, np.ndarray] | None
) -> tuple[np.ndarray, np.ndarray] | None:
    """Scale and zero point of the range that two have in common, in ONNX Runtime's arithmetic of floats."""
    if first is None or second is None or first[1].dtype != second[1].dtype:
        return None
    if first == second:
        return first
    kind = first[1].dtype
    limits = np.iinfo(kind)
    ends = [
        [np.float32(end - int(zero)) * scale.reshape(()) for end in (limits.min, limits.max)]
        for scale, zero in (first, second)
    ]
    low, high = max(ends[0][0], ends[1][0]), min(ends[0][1], ends[1][1])
    scale = np.float32(high - low) / np.float32(limits.max - limits.min)
    with np.errstate(divide="ignore", invalid="ignore"):  # of ranges that have 0 alone in common
        zero = np.float32(limits.min) - low / scale
        # To the nearest integer, ties away from zero.
        nearest = np.asarray(np.trunc(zero + np.copysign(np.float32(0.5), zero)), kind)
    return np.asarray(scale, np.float32), nearest


def _is_known_to_onnx(node: Node, graph: Graph) -> bool:
    """Whether a conversion of com.microsoft is also one of ONNX in the model's version."""
    if node.op_type not in ("QuantizeLinear", "DequantizeLinear"):
        return False
    scale = graph.constant(node.input(1))
    typed = node.input(2) or node.input(0 if node.op_type == "DequantizeLinear" else 2)
    if scale is None or scale.dtype != np.float32 or graph.element_type(typed) not in (*QUANTIZED_TYPES, INT32):
        return False
    return graph.versions.get("", 0) >= (SCALES_ALONG_AN_AXIS if scale.size > 1 else 10)


def _transposed_weights(node: Node, source: Node | None, graph: Graph) -> Node:
    """A Transpose of dequantized weights as a DequantizeLinear of transposed ones; other nodes as they are."""
    if source is None or not _is_dequantizer(source, graph):
        return node
    weights, scale = graph.constant(source.input(0)), graph.constant(source.input(1))
    order = node.attributes.get("perm")
    if weights is None or scale is None or order is None or sorted(order) != list(range(weights.ndim)):
        return node
    name = graph.new_name("weights")
    graph.set_constant(name, np.ascontiguousarray(weights.transpose(order)))
    axis = source.attributes.get("axis", 1)
    attributes = {"axis": list(order).index(axis % weights.ndim)} if scale.ndim == 1 and scale.size > 1 else {}
    inputs = [name, *source.inputs[1:]]
    proto = helper.make_node("DequantizeLinear", inputs, list(node.outputs), name=node.proto.name, **attributes)
    return replace(graph.new_node(proto), index=node.index)


# Operators that move elements, or choose among them: they give the same for the bytes as for the floats that the bytes
# stand for. Which of their inputs have these elements.
MOVING: Mapping[str, slice] = {
    "Concat": slice(None),
    "Where": slice(1, 3),
    **dict.fromkeys(("DepthToSpace", "Expand", "Flatten", "Gather", "Identity", "MaxPool", "Pad", "Reshape"), slice(1)),
    **dict.fromkeys(("GlobalMaxPool", "ReduceMax", "ReduceMin"), slice(1)),
    **dict.fromkeys(("Resize", "Slice", "SpaceToDepth", "Split", "Squeeze", "Transpose", "Unsqueeze"), slice(1)),
}
# Those that choose the greatest element or the least, which need not be the one of such a byte where there are NaN.
CHOOSING = {"GlobalMaxPool", "MaxPool", "ReduceMax", "ReduceMin"}
# Those before which ONNX Runtime 1.32 puts a QuantizeLinear when it optimizes, and behind which a DequantizeLinear. It
# has no Identity then.
PASSED_BY_CONVERSIONS = {"Identity", "MaxPool", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"}
# The operators that take 8 bits only from a version on.
SINCE = {
    "MaxPool": 12,
    "GlobalMaxPool": 12,
    "ReduceMax": 12,
    "ReduceMin": 12,
    "Pad": 11,
    "Resize": 10,
    "DepthToSpace": 13,
}

# The version in which ONNX has the first LayerNormalization.
SINCE_NORMALIZATION = 17
# The version from which a Resize has the modes that it has today.
SINCE_RESIZE = 11
# The version from which a ReduceMax has its axes as an input.
AXES_ARE_AN_INPUT = 18
LEAST_RANK_OF_A_POOL = 3


def _data(node: Node) -> range:
    """The positions of the inputs whose elements a node moves."""
    return range(len(node.inputs))[MOVING[node.op_type]]


def move_bytes(graph: Graph, *, as_optimized: bool = False) -> None:
    """Let movement come before DequantizeLinear, so that bytes are moved and not floats.

    A DequantizeLinear with one positive scale is a function of each element that keeps their order. Where ONNX Runtime
    optimizes, it moves few operators so, and replaces a node only if it reads a DequantizeLinear then: those of others
    do not come next to such nodes.

    as_optimized: whether only what ONNX Runtime moves is moved, so that what reads it can be replaced.
    """
    producers, users = graph.producers(), graph.users()
    read_by_groups = _read_by_groups(graph) if graph.host_optimizes else set[str]()
    nodes: list[Node] = []
    moved: set[int] = set()  # by number, what only this function puts behind movement
    for node in graph.nodes:
        is_wanted = not as_optimized or node.op_type in PASSED_BY_CONVERSIONS
        sources = _moved_sources(node, producers, graph) if is_wanted else None
        is_passed = node.op_type in PASSED_BY_CONVERSIONS and all(
            source is None or source.index not in moved for source in sources or ()
        )
        is_kept = not is_passed and not read_by_groups.isdisjoint(node.writes) and not _is_joined(node, users, graph)
        sources = None if is_kept else sources
        if sources is None:
            same = _same_bytes(node, producers, graph)
            if same is not None:
                copy = helper.make_node("Identity", [same], list(node.outputs), name=node.proto.name)
                node = replace(graph.new_node(copy), index=node.index)
            nodes.append(node)
            producers |= dict.fromkeys(node.writes, node)
            continue
        first = next(source for source in sources if source is not None)
        element = graph.element_type(first.input(0))
        outputs = [graph.new_value("bytes", element, name) if name else "" for name in node.outputs]
        proto = _of_bytes(node, graph)
        for k, source in zip(_data(node), sources, strict=True):
            given = source.input(0) if source is not None else _constant_bytes(node.input(k), first, producers, graph)
            proto.input[k] = given
        if _has_fill(node):
            _set_fill(proto, _constant_bytes(node.input(2), first, producers, graph))
        del proto.output[:]
        proto.output.extend(outputs)
        made = replace(graph.new_node(proto), index=node.index)
        nodes.append(made)
        producers |= dict.fromkeys(made.writes, made)
        for given, name in zip(outputs, node.outputs, strict=True):
            if name:
                dequantized = helper.make_node("DequantizeLinear", [given, *first.inputs[1:]], [name])
                behind = graph.new_node(dequantized)
                nodes.append(behind)
                moved.update(() if is_passed else (behind.index,))
                producers[name] = behind
    graph.nodes = nodes


def _read_by_groups(graph: Graph) -> set[str]:
    """The values that nodes read, also by way of movement, which ONNX Runtime may replace with their conversions."""
    users = graph.users()
    found: set[str] = set()
    for node in reversed(graph.nodes):
        if node.domain:
            continue
        # A layer normalization it never replaces.
        if node.op_type in PRODUCTS or (node.op_type in GROUPS and node.op_type != "LayerNormalization"):
            following = {each.op_type for name in node.writes for each in users.get(name, ())}
            # Without a QuantizeLinear it replaces a MatMul alone.
            if node.op_type == "MatMul" or not following.isdisjoint(("QuantizeLinear", "Relu", "Clip")):
                found |= node.reads
        elif node.op_type in MOVING and not found.isdisjoint(node.writes):
            found.update(node.input(k) for k in _data(node))
    return found


def _is_joined(mover: Node, users: Mapping[str, Sequence[Node]], graph: Graph) -> bool:
    """Whether a node pads planes with zeros, and a Conv alone reads them: ONNX Runtime makes that padding its part."""
    if not _has_fill(mover) or mover.input(3):
        return False
    pads = graph.constant(mover.input(1))
    fill = graph.constant(mover.input(2)) if mover.input(2) else np.zeros(())
    if pads is None or fill is None or fill.size != 1 or fill.item() != 0:
        return False
    is_of_planes = pads.size % 2 == 0 and pads.min(initial=0) >= 0 and not pads.reshape(2, -1)[:, :2].any()
    return is_of_planes and [user.op_type for user in users.get(mover.outputs[0], ())] == ["Conv"]


def quantize_as_optimized(graph: Graph) -> None:
    """Let QuantizeLinear come before movement where ONNX Runtime puts one when it optimizes.

    It then replaces what is before the movement together with that QuantizeLinear.
    """
    producers, users, has_quantized = graph.producers(), graph.users(), has_quantized_operators(graph)

    def comes_first(mover: Node) -> bool:
        name = mover.input(0)
        source = producers.get(name)
        if source is None or source.op_type == "DequantizeLinear" or mover.op_type not in PASSED_BY_CONVERSIONS:
            return False
        # Whether ONNX Runtime will optimize is not known of a model that has such operators, and NaN would show it.
        is_certain = not (has_quantized and mover.op_type in CHOOSING)
        return is_certain and len(users.get(name, ())) == 1 and name not in graph.outputs

    _quantize_before(graph, comes_first)


def quantize_early(graph: Graph) -> None:
    """Let QuantizeLinear come before movement, so that bytes are moved and what is before it may become a table.

    A QuantizeLinear with one scale is a function of each element. Where ONNX Runtime optimizes, the order of nodes says
    which of them it replaces, and stays as it is, but for conversions and functions that it does not replace: these
    have the same bits in any case. Elsewhere, those that meet before movement and are alike become one, which may come
    before more of it.
    """
    while True:
        producers, floats = graph.producers(), FloatFinder(graph)
        if not _quantize_before(graph, partial(_comes_first, graph, producers, floats)) or graph.host_optimizes:
            break
        as_written_by_one(graph, by_values=True)


def _comes_first(graph: Graph, producers: Mapping[str, Node], floats: FloatFinder, mover: Node) -> bool:
    """Whether a QuantizeLinear has the same bits before a mover."""
    given = [name for k in _data(mover) if _floats(name := mover.input(k), producers, graph) is None]
    is_apart = _is_between_conversions(mover, producers, graph) or (
        mover.op_type not in CHOOSING and all(map(floats.is_apart, given))
    )
    is_sorted = mover.op_type not in CHOOSING or floats.is_number(mover.input(0))
    return (is_apart or not graph.host_optimizes) and is_sorted


def _quantize_before(graph: Graph, comes_first: Callable[[Node], bool]) -> bool:
    """Put each QuantizeLinear before the movement whose result nodes like it alone read, if it comes first there.

    Returns whether there was any.
    """
    is_changed = False
    producers, users = graph.producers(), graph.users()
    nodes = {node.index: node for node in graph.nodes}
    places = {node.index: (place, 1) for place, node in enumerate(graph.nodes)}
    for last in reversed(graph.nodes):
        pending = [last]
        while pending:
            quantizer = pending.pop()
            mover = producers.get(quantizer.input(0))
            is_gone = nodes[quantizer.index] is not quantizer
            if quantizer.op_type != "QuantizeLinear" or is_gone or mover is None:
                continue
            if not _is_quantized_alone(mover, producers, users, graph) or not comes_first(mover):
                continue
            proto = _of_bytes(mover, graph)
            made: list[Node] = []
            for k in _data(mover):
                source = mover.input(k)
                if _floats(source, producers, graph) is not None:
                    proto.input[k] = _constant_bytes(source, quantizer, producers, graph)
                    continue
                each = onnx.NodeProto()
                each.CopyFrom(quantizer.proto)
                if made:
                    each.name = ""  # ONNX Runtime refuses two nodes of one name
                each.input[0], each.output[0] = source, graph.new_value("bytes", _element(quantizer, graph), source)
                proto.input[k] = each.output[0]
                made.append(graph.new_node(each))
            if _has_fill(mover):
                _set_fill(proto, _constant_bytes(mover.input(2), quantizer, producers, graph))
            proto.output[0] = quantizer.outputs[0]
            made[0] = replace(made[0], index=quantizer.index)
            is_changed = True
            left = users[mover.outputs[0]] = [each for each in users[mover.outputs[0]] if each is not quantizer]
            for each in made:
                readers = users[each.input(0)]
                users[each.input(0)] = [*(other for other in readers if other is not mover or left), each]
            nodes |= {each.index: each for each in made}
            moved = graph.new_node(proto)
            if nodes[mover.index] is mover:
                moved = replace(moved, index=mover.index)
            else:  # it has moved bytes for another one
                moved.proto.name = ""
            nodes[moved.index] = moved
            places |= {moved.index: (places[mover.index][0], 1)} | {
                each.index: (places[mover.index][0], 0) for each in made
            }
            pending += [*made, *left]
    graph.nodes = [nodes[index] for index in sorted(nodes, key=places.__getitem__)]
    return is_changed


def _of_bytes(node: Node, graph: Graph) -> onnx.NodeProto:
    """A node that moves elements as one that moves bytes: a GlobalMaxPool of those is a ReduceMax.

    A Pad has no fill yet.
    """
    proto = onnx.NodeProto()
    proto.CopyFrom(node.proto)
    if node.op_type == "GlobalMaxPool":
        axes = np.arange(2, graph.rank(node.input(0)) or 2)
        proto.op_type = "ReduceMax"
        if node.version < AXES_ARE_AN_INPUT:
            proto.attribute.append(helper.make_attribute("axes", axes.tolist()))
        else:
            proto.input.append(graph.new_name("axes"))
            graph.set_constant(proto.input[1], axes)
    if node.op_type == "Pad" and node.input(2) and not _has_fill(node):
        proto.input[2] = ""  # a float that no element becomes
    return proto


def _element(node: Node, graph: Graph) -> int:
    return graph.element_type(node.outputs[0])


def _is_quantized_alone(
    mover: Node, producers: Mapping[str, Node], users: Mapping[str, Sequence[Node]], graph: Graph
) -> bool:
    """Whether a node moves elements, and nobody but QuantizeLinear nodes with one scale reads them there.

    Where ONNX Runtime optimizes, there is one.
    """
    if mover.domain or mover.op_type not in MOVING or len(mover.writes) != 1 or mover.outputs[0] in graph.outputs:
        return False
    if mover.op_type == "GlobalMaxPool" and (graph.rank(mover.input(0)) or 0) < LEAST_RANK_OF_A_POOL:
        return False
    if mover.version < SINCE.get(mover.op_type, 1) or (mover.op_type == "Resize" and not _is_nearest(mover)):
        return False
    constants = [name for k in _data(mover) if _floats(name := mover.input(k), producers, graph) is not None]
    if len(constants) == len(_data(mover)):
        return False
    constants += [mover.input(2)] if _has_fill(mover) else []
    readers = users.get(mover.outputs[0], ())
    return (len(readers) == 1 or not graph.host_optimizes) and all(
        _has_bytes(reader, graph)
        and not (mover.op_type in CHOOSING and not _is_positive(reader, graph))
        and all(_bytes_of(name, reader, producers, graph) is not None for name in constants)
        for reader in readers
    )


def _has_bytes(quantizer: Node, graph: Graph) -> bool:
    """Whether a node is a QuantizeLinear to 8 bits with one scale."""
    if quantizer.op_type != "QuantizeLinear" or quantizer.domain or not _has_one_scale(quantizer, graph):
        return False
    return _element(quantizer, graph) in QUANTIZED_TYPES


def _is_between_conversions(mover: Node, producers: Mapping[str, Node], graph: Graph) -> bool:
    """Whether what a node moves are constants and what DequantizeLinear nodes with one scale give."""
    names = [mover.input(k) for k in _data(mover)]
    sources = [producers.get(name) for name in names if _floats(name, producers, graph) is None]
    return all(
        source is not None and _is_dequantizer(source, graph) and _has_one_scale(source, graph) for source in sources
    )


def _is_nearest(node: Node) -> bool:
    """Whether a Resize copies elements without interpolating."""
    is_cropping = node.attributes.get("coordinate_transformation_mode") == b"tf_crop_and_resize"
    return node.attributes.get("mode", b"nearest") == b"nearest" and not is_cropping


def _has_constant_floats(node: Node, producers: Mapping[str, Node], graph: Graph) -> bool:
    """Whether scale and bias of a LayerNormalization are known."""
    known = [_floats(name, producers, graph) for name in node.inputs[1:] if name]
    is_known = bool(known) and all(found is not None and found.dtype == np.float32 for found in known)
    return is_known and node.version >= SINCE_NORMALIZATION and node.writes[0] == node.outputs[0]


def _dequantizers_of(node: Node, producers: Mapping[str, Node], graph: Graph) -> list[Node]:
    """What dequantizes a node's inputs: the first one, and constants."""
    found = {producer.index: producer for name in node.inputs if (producer := producers.get(name)) is not None}
    return [each for each in found.values() if _is_dequantizer(each, graph)]


def _float_constant(name: str, producers: Mapping[str, Node], graph: Graph) -> str:
    """The name of the floats that a constant is or that are dequantized; "" for an input that is absent."""
    found = _floats(name, producers, graph) if name and not graph.is_constant(name) else None
    if found is None:
        return name
    made = graph.new_name("floats")
    graph.set_constant(made, found)
    return made


def _is_linear(node: Node, _: Mapping[str, Node], __: Graph) -> bool:
    """Whether the device may have a Resize that interpolates."""
    return node.attributes.get("mode") == b"linear" and node.version >= SINCE_RESIZE


def _same_bytes(node: Node, producers: Mapping[str, Node], graph: Graph) -> str | None:
    """The value that a QuantizeLinear gives back, since it undoes the DequantizeLinear before it; else None."""
    source = producers.get(node.input(0))
    if node.op_type != "QuantizeLinear" or node.domain or source is None or not _is_dequantizer(source, graph):
        return None
    if not all(_has_one_scale(each, graph) and graph.constant(each.input(0)) is None for each in (source, node)):
        return None
    scales = [np.asarray(graph.constant(each.input(1))).item() for each in (source, node)]
    points = [graph.constant(each.input(2)) for each in (source, node)]
    zeros = [0 if point is None else int(point.reshape(())) for point in points]
    kinds = [graph.element_type(source.input(0)), graph.element_type(node.outputs[0])]
    # A byte comes back from any scale that neither overflows nor loses bits.
    is_same = scales[0] == scales[1] and zeros[0] == zeros[1] and kinds[0] == kinds[1] in QUANTIZED_TYPES
    return source.input(0) if is_same and 1e-30 < scales[0] < 1e30 else None


def _moved_sources(node: Node, producers: Mapping[str, Node], graph: Graph) -> list[Node | None] | None:
    """The DequantizeLinear nodes before a node that moves elements, if they all stand for the same floats.

    In the place of a constant is None: its bytes stand for the same bits.
    """
    if node.domain or node.op_type not in MOVING or not node.writes or node.version < SINCE.get(node.op_type, 1):
        return None
    if node.op_type == "MaxPool" and len(node.writes) > 1:
        return None
    if node.op_type == "GlobalMaxPool" and (graph.rank(node.input(0)) or 0) < LEAST_RANK_OF_A_POOL:
        return None
    if node.op_type == "Resize" and not _is_nearest(node):
        return None
    names = [node.input(k) for k in _data(node)]
    sources = [producers.get(name) for name in names]
    found = [source for source in sources if source is not None and _is_dequantizer(source, graph)]
    constants = [name for name in names if name and name not in producers]
    if not found or len(found) + len(constants) != len(names):
        return None
    parameters = [(source.inputs[1:], graph.element_type(source.input(0))) for source in found]
    if any(given != parameters[0] for given in parameters) or parameters[0][1] not in QUANTIZED_TYPES:
        return None
    if not _has_one_scale(found[0], graph) or not _is_positive(found[0], graph):
        return None
    constants += [node.input(2)] if _has_fill(node) else []
    return sources if all(_bytes_of(name, found[0], producers, graph) is not None for name in constants) else None


def _is_positive(conversion: Node, graph: Graph) -> bool:
    """Whether the scale of a conversion is a positive number."""
    scale = graph.constant(conversion.input(1))
    return scale is not None and bool(np.isfinite(scale).all() and (scale > 0).all())


def _has_fill(node: Node) -> bool:
    """Whether a node puts an element of its own beside those that it moves."""
    return node.op_type == "Pad" and node.attributes.get("mode", b"constant") == b"constant"


def _floats(name: str, producers: Mapping[str, Node], graph: Graph) -> np.ndarray | None:
    """A constant, or the floats of a dequantized one; None for other values. Without a name it is 0, as in a Pad."""
    producer = producers.get(name)
    if producer is None or not _is_dequantizer(producer, graph) or not _has_one_scale(producer, graph):
        return graph.constant(name) if name else np.zeros((), np.float32)
    levels, scale, point = (graph.constant(producer.input(k)) if producer.input(k) else None for k in range(3))
    if levels is None or scale is None or levels.dtype not in (np.uint8, np.int8, np.int32):
        return None
    zero = np.float32(0 if point is None else point.reshape(()))
    return np.asarray((levels.astype(np.float32) - zero) * scale.reshape(()), np.float32)


def _bytes_of(name: str, conversion: Node, producers: Mapping[str, Node], graph: Graph) -> np.ndarray | None:
    """The bytes that a conversion makes of a constant, or that stand for its bits behind one; None if none do."""
    floats = _floats(name, producers, graph)
    scale, point = graph.constant(conversion.input(1)), graph.constant(conversion.input(2))
    is_quantizer = conversion.op_type == "QuantizeLinear"
    element = _element(conversion, graph) if is_quantizer else graph.element_type(conversion.input(0))
    if floats is None or floats.dtype != np.float32 or np.isnan(floats).any() or element not in QUANTIZED_TYPES:
        return None
    if scale is None or not _is_positive(conversion, graph):
        return None
    step, zero = scale.reshape(()), np.float32(0 if point is None else point.reshape(()))
    limits = np.iinfo(helper.tensor_dtype_to_np_dtype(element))
    with np.errstate(over="ignore"):
        levels = np.clip(np.rint(floats / step) + zero, limits.min, limits.max)
        back = np.asarray((levels - zero) * step, np.float32)
    return levels.astype(limits.dtype) if is_quantizer or back.tobytes() == floats.tobytes() else None


def _constant_bytes(name: str, conversion: Node, producers: Mapping[str, Node], graph: Graph) -> str:
    """The name of the bytes of a constant."""
    found = _bytes_of(name, conversion, producers, graph)
    assert found is not None, "the caller has looked"
    made = graph.new_name("bytes")
    graph.set_constant(made, found)
    return made


def _set_fill(proto: onnx.NodeProto, name: str) -> None:
    """Give a Pad the element that it puts around its input."""
    proto.input.extend([""] * (3 - len(proto.input)))
    proto.input[2] = name


def fuse_groups(graph: Graph, is_replaced: bool) -> tuple[dict[int, str], dict[int, int]]:
    """Put quantized operators in the places of groups.

    They are those of com.microsoft where ONNX Runtime replaces these groups when it optimizes, and those of dmlvk for a
    linear Resize and a LayerNormalization, which have the bits of their floats.

    is_replaced: whether ONNX Runtime replaces any.
    Returns why nodes are no longer in the graph, by number; and the number of its quantized operator, by that of
        each node that is replaced.
    """
    producers, users = graph.producers(), graph.users()
    reasons: dict[int, str] = {}
    replaced: dict[int, int] = {}
    made_at: dict[int, Node] = {}
    for node in graph.nodes:
        ends = users.get(node.writes[0], []) if len(node.writes) == 1 else []
        if node.domain or node.op_type not in GROUPS or not ends or node.writes[0] in graph.outputs:
            continue
        is_own = node.op_type in OWN
        if not (OWN[node.op_type](node, producers, graph) if is_own else is_replaced and len(ends) == 1):
            continue
        before = [producers.get(name) for name in (node.inputs[:1] if is_own else node.inputs) if name]
        quantized = [each for each in before if each is not None and _is_dequantizer(each, graph)]
        if any(end.op_type != "QuantizeLinear" or end.domain for end in ends) or len(quantized) != len(before):
            continue
        if not all(_has_one_scale(each, graph) for each in (*quantized, *ends)):
            continue
        parameters = [_parameters(each, graph) for each in (*quantized, *ends)]
        kinds = {graph.element_type(each.input(0)) for each in quantized}
        kinds |= {graph.element_type(end.outputs[0]) for end in ends}
        if None in parameters or len(kinds) != 1:
            continue
        operands = [(each.input(0), *(found or ())) for each, found in zip(quantized, parameters, strict=False)]
        for end, result in zip(ends, parameters[len(quantized) :], strict=True):
            proto = GROUPS[node.op_type](node, operands, result or (), end)
            if node.op_type == "LayerNormalization":
                proto.input.extend(_float_constant(name, producers, graph) for name in node.inputs[1:])
            made = graph.new_node(proto)
            if is_own:
                made = replace(made, originals=(*_dequantizers_of(node, producers, graph), node, end))
            made_at[end.index] = made
            replaced[node.index] = made.index
            reasons[end.index] = f"into {proto.op_type} {made.name!r}"
    gone = (reasons.keys() | replaced.keys()) - made_at.keys()
    graph.nodes = [made_at.get(node.index, node) for node in graph.nodes if node.index not in gone]
    return reasons, replaced


Names = tuple[str, ...]


def _pool(node: Node, operands: Sequence[Names], result: Names, end: Node) -> onnx.NodeProto:
    attributes = {name: value for name, value in node.attributes.items() if name in POOL_ATTRIBUTES}
    inputs = [*operands[0], *result]
    return helper.make_node(
        f"QLinear{node.op_type}", inputs, list(end.outputs), name=node.name, domain=MICROSOFT, **attributes
    )


def _sum(node: Node, operands: Sequence[Names], result: Names, end: Node) -> onnx.NodeProto:
    inputs = [name for operand in (*operands, result) for name in operand]
    return helper.make_node("QLinearAdd", inputs, list(end.outputs), name=node.name, domain=MICROSOFT)


def _softmax(node: Node, operands: Sequence[Names], result: Names, end: Node) -> onnx.NodeProto:
    inputs, default = [*operands[0], *result], 1 if node.version < ROWS_OF_ONE_AXIS else -1
    attributes = {"opset": node.version, "axis": node.attributes.get("axis", default)}
    return helper.make_node("QLinearSoftmax", inputs, list(end.outputs), name=node.name, domain=MICROSOFT, **attributes)


def _resize(node: Node, operands: Sequence[Names], result: Names, end: Node) -> onnx.NodeProto:
    inputs = [*operands[0], *result, node.input(2), node.input(3)]
    return helper.make_node(RESIZE, inputs, list(end.outputs), name=node.name, domain=DOMAIN, **node.attributes)


def _normalization(node: Node, operands: Sequence[Names], result: Names, end: Node) -> onnx.NodeProto:
    inputs = [*operands[0], *result]
    return helper.make_node(NORMALIZATION, inputs, list(end.outputs), name=node.name, domain=DOMAIN, **node.attributes)


POOL_ATTRIBUTES = ("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")
# Other groups of elements are tables (`dmlvk.onnx.byte_functions`).
GROUPS = {
    "Add": _sum,
    "AveragePool": _pool,
    "GlobalAveragePool": _pool,
    "LayerNormalization": _normalization,
    "Resize": _resize,
    "Softmax": _softmax,
}
# Those that ONNX Runtime leaves in floats, and which of them the device may have.
OWN: Mapping[str, Callable[[Node, Mapping[str, Node], Graph], bool]] = {
    "LayerNormalization": _has_constant_floats,
    "Resize": _is_linear,
}


def has_quantized_operators(graph: Graph) -> bool:
    """Whether a quantizer has put operators of bytes into a model, rather than nodes that quantize around floats.

    ConvInteger and MatMulInteger are not among them: what follows them is in floats, which the host may optimize.
    """
    return any(node.op_type.startswith("QLinear") or node.op_type == "QGemm" for node in graph.nodes)


def _fused(
    graph: Graph, product: Node, producers: Mapping[str, Node], users: Mapping[str, Sequence[Node]]
) -> tuple[Node, list[Node]] | None:
    """The quantized operator of a product, and the nodes after it that this replaces; None where bits would differ."""
    before = [producers.get(name) for name in product.inputs if name]
    floats = graph.constant(product.inputs[2]) if len(before) == len(product.inputs) > 2 and before[2] is None else None
    quantized = [node for node in before if node is not None and _is_dequantizer(node, graph)]
    if len(quantized) + (floats is not None) != len(before):
        return None
    absorbed: list[Node] = []
    end = product
    while True:
        following = users.get(end.outputs[0], [])
        if len(following) != 1 or end.outputs[0] in graph.outputs:
            return None
        end = following[0]
        absorbed.append(end)
        if end.op_type not in ("Relu", "Clip") or end.domain:
            break
    if end.op_type != "QuantizeLinear" or end.domain or end.inputs[0] not in (product.outputs[0], *_outputs(absorbed)):
        return None
    source, filters = quantized[:2]
    parameters = [_parameters(node, graph) for node in (source, filters, end)]
    if any(found is None for found in parameters):
        return None
    if not all(_clamps_nothing(node, end, graph) for node in absorbed[:-1]):
        return None
    axis = _axis_of_weights(product, graph)
    if not _has_one_scale(filters, graph) if axis is None else not _is_per_filter(filters, axis, graph):
        return None
    if _stays_in_floats(product) or not _has_one_scale(source, graph) or not _has_one_scale(end, graph):
        return None
    names = source.inputs[0], filters.inputs[0], end.outputs[0]
    if tuple(graph.element_type(zero) for _, zero in filter(None, parameters)) not in FUSED_TYPES:
        return None
    bias: str | None = ""
    if floats is not None:
        bias = _quantized_bias(floats, source, filters, graph)
        if bias is None:
            return None
    elif len(quantized) == 3:
        if not _is_bias_of(quantized[2], source, filters, graph):
            return None
        bias = quantized[2].inputs[0]
    given, weights, result = ((name, *(found or ())) for name, found in zip(names, parameters, strict=True))
    attributes = {name: value for name, value in product.attributes.items() if name in KEPT_ATTRIBUTES}
    domain, operator = PRODUCTS[product.op_type]
    if product.op_type == "Gemm":
        inputs = [*given, *weights, bias, *result[1:]]
    else:
        inputs = [*given, *weights, *result[1:], *([bias] if bias else [])]
    proto = helper.make_node(operator, inputs, [end.outputs[0]], name=product.name, domain=domain, **attributes)
    return graph.new_node(proto), absorbed


# The element types of both operands and of the output, as TensorProto numbers them. ONNX Runtime leaves others in
# floats; signed ones too, unless "session.qdqisint8allowed" is 1: by default that depends on the processor, here it is.
UINT8, INT8 = QUANTIZED_TYPES
FUSED_TYPES = ((UINT8, UINT8, UINT8), (UINT8, INT8, UINT8), (INT8, INT8, INT8))
# What is fused, and the operators that it becomes.
PRODUCTS = {"Conv": ("", "QLinearConv"), "MatMul": ("", "QLinearMatMul"), "Gemm": (MICROSOFT, "QGemm")}


def _stays_in_floats(product: Node) -> bool:
    """Whether a Gemm is none that a quantized one stands for."""
    factors = product.attributes.get("alpha", 1.0), product.attributes.get("beta", 1.0)
    has_factors = bool(product.input(2)) and factors != (1.0, 1.0)
    return product.op_type == "Gemm" and (bool(product.attributes.get("transA", 0)) or has_factors)


def _axis_of_weights(product: Node, graph: Graph) -> int | None:
    """The dimension along which a product's weights may have a scale each; None for several matrices."""
    if product.op_type == "Conv":
        return 0
    if product.op_type == "MatMul":
        return 1 if graph.rank(product.input(1)) == 2 else None
    return 0 if product.attributes.get("transB", 0) else 1


def _outputs(nodes: list[Node]) -> list[str]:
    return [name for node in nodes for name in node.outputs]


def _is_dequantizer(node: Node, graph: Graph) -> bool:
    return node.op_type == "DequantizeLinear" and not node.domain and not node.attributes.get("block_size", 0)


def _parameters(node: Node, graph: Graph) -> tuple[str, str] | None:
    """The names of a constant scale and zero point of an 8-bit tensor; None if they are not such."""
    is_output = node.op_type == "QuantizeLinear"
    scale, zero_point = node.input(1), node.input(2)
    scales = graph.constant(scale)
    if scales is None or node.attributes.get("output_dtype", 0) not in (0, *QUANTIZED_TYPES):
        return None
    if zero_point:
        point = graph.constant(zero_point)
        if point is None or point.dtype not in (np.uint8, np.int8):
            return None
        return scale, zero_point
    element = (node.attributes.get("output_dtype", 0) or 2) if is_output else graph.element_type(node.inputs[0])
    if element not in QUANTIZED_TYPES:
        return None
    name = graph.new_name("zero_point")
    graph.set_constant(name, np.zeros(scales.shape, helper.tensor_dtype_to_np_dtype(element)))
    return scale, name


def _has_one_scale(node: Node, graph: Graph) -> bool:
    """Whether scale and zero point are constants of one element."""
    scale, point = graph.constant(node.input(1)), graph.constant(node.input(2))
    has_one_point = not node.input(2) or (point is not None and point.size == 1)
    return scale is not None and scale.size == 1 and has_one_point and scale.dtype == np.float32


def _is_per_filter(node: Node, axis: int, graph: Graph) -> bool:
    """Whether weights have one scale, or one for each output channel."""
    scale = graph.constant(node.input(1))
    assert scale is not None, "_parameters has found it"
    if scale.dtype != np.float32 or scale.size == 1:
        return bool(scale.dtype == np.float32)
    rank = graph.rank(node.input(0)) or 0
    return scale.ndim == 1 and node.attributes.get("axis", 1) in (axis, axis - rank)


def _is_bias_of(bias: Node, source: Node, filters: Node, graph: Graph) -> bool:
    """Whether a bias counts in units of the input's scale times the filter's."""
    scale, point = graph.constant(bias.input(1)), graph.constant(bias.input(2))
    if scale is None or graph.element_type(bias.inputs[0]) != INT32 or (point is not None and point.any()):
        return False
    product = np.asarray(graph.constant(source.input(1))).reshape(-1) * np.asarray(graph.constant(filters.input(1)))
    if scale.size not in (1, product.size):
        return False
    return bool(np.allclose(scale.reshape(-1), product.reshape(-1), rtol=SCALE_TOLERANCE, atol=0))


def _quantized_bias(floats: np.ndarray, source: Node, filters: Node, graph: Graph) -> str | None:
    """The name of a bias of floats in units of the input's scale times the filter's; None where they do not fit.

    ONNX Runtime quantizes such a bias when it optimizes. It is what exporters that quantize no bias leave.
    """
    scales = [np.asarray(graph.constant(node.input(1))).reshape(-1) for node in (source, filters)]
    with np.errstate(all="ignore"):
        unit = scales[0] * scales[1]
        steps = np.rint(floats / unit) if unit.size in (1, floats.size) else np.full(1, np.nan)
    if floats.dtype != np.float32 or floats.ndim != 1 or not (np.abs(steps) < MOST_STEPS_OF_A_BIAS).all():
        return None
    name = graph.new_name("bias")
    graph.set_constant(name, steps.astype(np.int32))
    return name


def _clamps_nothing(node: Node, quantizer: Node, graph: Graph) -> bool:
    """Whether quantizing clamps at least as much as a Relu or Clip before it."""
    scale, point = graph.constant(quantizer.input(1)), graph.constant(quantizer.input(2))
    if scale is None or scale.size != 1 or (point is not None and point.size != 1):
        return False
    limits = np.iinfo(np.uint8 if point is None else point.dtype)
    zero = 0 if point is None else int(point.reshape(()))
    low, high = ((limit - zero) * float(scale.reshape(())) for limit in (limits.min, limits.max))
    least, most = _range(node, graph)
    return least is not None and most is not None and least <= low and high <= most


def _range(node: Node, graph: Graph) -> tuple[float | None, float | None]:
    """The range of a Relu or Clip; None where it is not constant."""
    if node.op_type == "Relu":
        return 0.0, np.inf
    found: list[float | None] = []
    for position, name, absent in ((1, "min", -np.inf), (2, "max", np.inf)):
        if node.version < 11:
            found.append(float(node.attributes.get(name, absent)))
        elif node.input(position):
            limit = graph.constant(node.input(position))
            found.append(None if limit is None else float(limit.reshape(())))
        else:
            found.append(absent)
    return found[0], found[1]
