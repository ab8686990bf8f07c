"""ONNX's inference of types and sizes, for any model: at some nodes it ends the process, or takes hours.

Found by asking it about every operator of every version with inputs that are absent, of unknown type, or of huge sizes.
"""

from __future__ import annotations

import onnx
from onnx import helper, shape_inference

from dmlvk.onnx.errors import ModelError
from dmlvk.onnx.normal_form import nested

# The inference of these operators reads the type of an input that may have none. Each is inferred as a Cast, which
# gives the same sizes, to this type; 0 stands for the type that the node names.
READ_UNKNOWN_TYPES = {"EyeLike": 0, "RegexFullMatch": onnx.TensorProto.BOOL}
# Their inference reads the type of their first input, also where it is absent.
READ_ABSENT_INPUTS = {*READ_UNKNOWN_TYPES, "DictVectorizer", "LabelEncoder", "TreeEnsemble"}
# Operators from which sizes are computed. The inference follows the elements of such values in any model, and makes a
# list of them for each tensor of one dimension, however long.
SIZE_OPERATORS = ("Shape", "Size")
LONGEST_LIST = 1 << 16


def require_harmless(node: onnx.NodeProto, place: str) -> None:
    """Refuse a node at which the inference ends the process, ONNX Runtime's as well.

    Raises ModelError: its number of outputs is not the one that it says, or an input is absent that it must have.
    """
    field = f"{place}: the node {node.name!r} ({node.op_type})"
    given = (attribute for attribute in node.attribute if attribute.name == "num_outputs")
    stated = next((attribute.i for attribute in given if not attribute.ref_attr_name), None)
    if node.op_type == "Split" and stated is not None and stated != len(node.output):
        rule = f"it must be the number of its outputs, {len(node.output)}"
        raise ModelError(f"{field} has num_outputs {stated}; {rule}")
    if node.op_type in READ_ABSENT_INPUTS and (not node.input or not node.input[0]):
        raise ModelError(f"{field} has no first input")


def inferred(model: onnx.ModelProto) -> onnx.GraphProto:
    """A model's graph with the types and sizes of its values, as far as they are found.

    Raises Exception: ONNX's inference raises several.
    """
    if any(node.op_type in READ_UNKNOWN_TYPES for node in nested(model.graph.node)):
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        model = copy
        for node in nested(model.graph.node):
            _make_cast(node)
    found = shape_inference.infer_shapes(model).graph
    if any(node.op_type in SIZE_OPERATORS for node in nested(model.graph.node)) and not _has_long_lists(found):
        found = shape_inference.infer_shapes(model, data_prop=True).graph
    return found


def _make_cast(node: onnx.NodeProto) -> None:
    if node.op_type not in READ_UNKNOWN_TYPES or node.domain or not node.input:
        return
    given = next((attribute.i for attribute in node.attribute if attribute.name == "dtype"), 0)
    element = READ_UNKNOWN_TYPES[node.op_type] or given
    del node.attribute[:]
    del node.input[1:]
    node.op_type = "Cast" if element else "Identity"
    if element:
        node.attribute.append(helper.make_attribute("to", element))


def _has_long_lists(graph: onnx.GraphProto) -> bool:
    kinds = (value.type.tensor_type for value in (*graph.input, *graph.value_info, *graph.output))
    return any(len(kind.shape.dim) == 1 and kind.shape.dim[0].dim_value > LONGEST_LIST for kind in kinds)
