"""Checks of a session against the host's library: each node on the same inputs, or each value of a whole run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlvk._common import bits
from dmlvk.onnx.errors import ModelError
from dmlvk.onnx.graph import Graph, Node
from dmlvk.onnx.host import HostPart, kind_of
from dmlvk.onnx.session import InferenceSession

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Finding:
    """The result for a node or a value.

    Attributes:
        name (str): The node's or the value's name.
        is_equal (bool or None): Whether all outputs have the same bits; None if the host's library cannot run the node.
        text (str): The first element that differs, or the reason why there is no answer.
    """

    name: str
    is_equal: bool | None
    text: str = ""


def check(session: InferenceSession, feeds: Mapping[str, Any]) -> list[Finding]:
    """Run a model with all values kept, and each of the device's nodes once more on the host.

    Args:
        session (InferenceSession): Of the model to check.
        feeds (mapping of str to array_like): As for `InferenceSession.run`.

    Returns:
        list of Finding: One for each node on the device that is no view, in the order of the graph.

    Raises:
        ModelError: As `InferenceSession.run` does.
    """
    graph, values, nodes = session.traced(feeds)
    return [_finding(graph, node, values) for node in nodes]


def _finding(graph: Graph, node: Node, values: Mapping[str, Any]) -> Finding:
    inputs = sorted(name for name in node.reads if not graph.is_constant(name))
    given = {name: values[name] for name in inputs}
    try:
        kinds = {name: kind_of(value, graph.types.get(name)) for name, value in given.items()}
        expected = HostPart(graph, [node], inputs, node.writes, kinds).run(given)
    except ModelError as error:
        return Finding(node.name, None, f"not checked: {error}")
    for name, right in zip(node.writes, expected, strict=True):
        text = first_difference(name, values[name], right)
        if text:
            return Finding(node.name, False, text)
    return Finding(node.name, True)


def check_values(session: InferenceSession, feeds: Mapping[str, Any]) -> list[Finding]:
    """Run a model with all values kept, and once more as a whole on the host, without any optimization if it can.

    Where `check` gives each node the device's own inputs, here a difference goes on to all values behind it.

    Args:
        session (InferenceSession): Of the model to check.
        feeds (mapping of str to array_like): As for `InferenceSession.run`.

    Returns:
        list of Finding: One for each tensor that a node of the model writes and that the session has, in the order of
            the model. Fused convolutions have no values inside them; constants are none of the session's.

    Raises:
        ModelError: As `InferenceSession.run` does, or the host's library cannot run the model.
    """
    _, values, _ = session.traced(feeds)
    whole = Graph(session.model)
    given = {name: values[name] for name in whole.inputs}
    kinds = {name: kind_of(value, whole.types.get(name)) for name, value in given.items()}
    written = [name for node in whole.nodes for name in node.writes if isinstance(values.get(name), np.ndarray)]
    try:
        part = HostPart(whole, whole.nodes, list(given), written, kinds, optimize=False)
    except ModelError:  # ONNX Runtime has no kernel for some nodes that its optimizer removes
        part = HostPart(whole, whole.nodes, list(given), written, kinds)
    expected = part.run(given)
    differences = [first_difference(name, values[name], right) for name, right in zip(written, expected, strict=True)]
    return [Finding(name, not text, text) for name, text in zip(written, differences, strict=True)]


def first_difference(name: str, found: Array, expected: Array) -> str:
    """The first element of an output whose bits differ; "" if none does."""
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return f"{name} is {found.dtype.name} {found.shape}; expected {expected.dtype.name} {expected.shape}"
    if found.dtype.kind == "O":  # text
        places = np.argwhere(found != expected)
        different = (tuple(map(int, places[0])), len(places)) if len(places) else None
    else:
        different = bits.first_difference(found, expected)
    if different is None:
        return ""
    place, count = different
    others = f"; {count} of {found.size} elements differ"
    return f"{name}{list(place)} is {found[place]}, expected {expected[place]}{others}"
