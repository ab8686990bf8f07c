"""Whether ONNX Runtime would load a model: asked when the model is loaded, so that its errors come then."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from dmlvk.onnx.errors import ModelError
from dmlvk.onnx.inference import require_harmless
from dmlvk.onnx.normal_form import nested

Array = npt.NDArray[Any]
# Larger constants are inputs of the model that ONNX Runtime is asked about, so that none is copied: only smaller ones
# decide about sizes.
LARGEST_KEPT = 1024
# No message of Protocol Buffers is larger. A larger model is not checked: its run reports what is wrong.
LARGEST_ASKED = 1 << 30
# ONNX Runtime implements some operators for some types alone. The device may run the others.
LACKING = "NOT_IMPLEMENTED"
UNKNOWN = "is not a registered function/op"


class Outline(NamedTuple):
    """A copy of a model as it was given, with inputs in the place of its large constants.

    inputs: the inputs that the model has itself.
    """

    model: onnx.ModelProto
    inputs: frozenset[str]

    @staticmethod
    def of(model: onnx.ModelProto, constants: Mapping[str, Array]) -> Outline:
        """The outline of a model, some of whose initializers are kept beside it."""
        inputs = frozenset(value.name for value in model.graph.input if value.name not in constants)
        return Outline(_without_large_constants(model, constants), inputs)

    def lacks(self, name: str) -> bool:
        """Whether an input is in the place of a constant."""
        return name not in self.inputs

    def completed(self, model: onnx.ModelProto, constants: Mapping[str, Array]) -> onnx.ModelProto:
        """The model as it was given, with its constants. They are taken from its normal form."""
        whole = onnx.ModelProto()
        whole.CopyFrom(self.model)
        del whole.graph.input[:]
        known = {tensor.name for tensor in self.model.graph.initializer}
        tensors = {tensor.name: tensor for tensor in model.graph.initializer}
        for node in model.graph.node:
            value = _large_constant(node)
            if value is not None:
                tensors[node.output[0]] = value
        for value in self.model.graph.input:
            name = value.name
            if name in constants:
                whole.graph.initializer.append(numpy_helper.from_array(constants[name], name))
            elif name in tensors and name not in known:
                whole.graph.initializer.add().CopyFrom(tensors[name])
                whole.graph.initializer[-1].name = name
            if not self.lacks(name):
                whole.graph.input.append(value)
        return whole


def require_accepted(outline: Outline, model: onnx.ModelProto, constants: Mapping[str, Array], place: str) -> None:
    """Refuse a model that ONNX Runtime refuses when it is loaded.

    Without the package onnxruntime, only what would end the process is looked for.

    outline: of the model as it was given.
    model: its normal form.
    constants: initializers that are kept beside it.
    place: the model's name for messages.
    Raises ModelError: with ONNX Runtime's words.
    """
    for nodes in (model.graph.node, *(function.node for function in model.functions)):
        for node in nested(nodes):
            require_harmless(node, place)
    try:
        import onnxruntime
    except ImportError:
        return
    error = _refusal(onnxruntime, outline.model)
    if error is None or LACKING in error:
        return
    if any(outline.lacks(value.name) for value in outline.model.graph.input):
        # An operator may want a constant where the outline has an input.
        if model.ByteSize() + sum(array.nbytes for array in constants.values()) > LARGEST_ASKED:
            return
        error = _refusal(onnxruntime, outline.completed(model, constants))
    if error is not None and LACKING not in error:
        rule = "; operators of libraries that SessionOptions register do not run here" if UNKNOWN in error else ""
        raise ModelError(f"{place}: ONNX Runtime refuses the model: {error}{rule}")


def _refusal(runtime: Any, model: onnx.ModelProto) -> str | None:
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.disable_prepacking", "1")
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        new_session(runtime, model.SerializeToString(), options)
    except Exception as error:  # onnxruntime's own, which have no common class
        return " ".join(str(error).split()) or type(error).__name__
    return None


def new_session(runtime: Any, content: bytes, options: Any) -> Any:
    """A session of ONNX Runtime on the processor. In a process that has one pool of threads for all, it uses that."""
    # Its fallback would print to the terminal and try the same again.
    make = partial(runtime.InferenceSession, content, options, ["CPUExecutionProvider"], enable_fallback=0)
    try:
        return make()
    except RuntimeError as error:
        if "use_per_session_threads" not in str(error):
            raise
        options.use_per_session_threads = False
        options.intra_op_num_threads = options.inter_op_num_threads = 0
        return make()


def _without_large_constants(model: onnx.ModelProto, constants: Mapping[str, Array]) -> onnx.ModelProto:
    """The model with its small constants; the others are inputs."""
    outline, source = onnx.ModelProto(), model.graph
    for field, value in model.ListFields():
        if field.name != "graph":
            _copy(outline, field, value)
    graph = outline.graph
    for field, value in source.ListFields():
        if field.name not in ("initializer", "input", "node"):
            _copy(graph, field, value)
    inputs = {value.name: value for value in source.input if value.name not in constants}
    for tensor in source.initializer:
        if tensor.ByteSize() <= LARGEST_KEPT or not tensor.name:
            graph.initializer.add().CopyFrom(tensor)
        else:
            inputs.setdefault(tensor.name, _described(tensor.name, tensor.data_type, tensor.dims))
    for name, array in constants.items():
        if array.nbytes <= LARGEST_KEPT:
            graph.initializer.append(numpy_helper.from_array(array, name))
        else:
            element = helper.np_dtype_to_tensor_dtype(array.dtype)
            inputs.setdefault(name, _described(name, element, array.shape))
    for node in source.node:
        value = _large_constant(node)
        if value is None:
            graph.node.add().CopyFrom(node)
        else:
            inputs.setdefault(node.output[0], _described(node.output[0], value.data_type, value.dims))
    graph.input.extend(inputs.values())
    return outline


def _copy(target: Any, field: Any, value: Any) -> None:
    """Copy a field of a message."""
    if field.is_repeated:
        getattr(target, field.name).extend(value)
    elif field.message_type is not None:
        getattr(target, field.name).CopyFrom(value)
    else:
        setattr(target, field.name, value)


def _described(name: str, element: int, sizes: Iterable[int]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, element, list(sizes))


def _large_constant(node: onnx.NodeProto) -> onnx.TensorProto | None:
    """The tensor of a node Constant, if it is large."""
    is_constant = node.op_type == "Constant" and node.domain in ("", "ai.onnx") and len(node.output) == 1
    if not is_constant or len(node.attribute) != 1 or node.attribute[0].name != "value":
        return None
    tensor = node.attribute[0].t
    return tensor if tensor.ByteSize() > LARGEST_KEPT else None
