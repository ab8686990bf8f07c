"""Whether ONNX Runtime would load a model: asked when the model is loaded, so that its errors come then."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

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
# No message of Protocol Buffers is larger. Where a model is, its run will tell.
LARGEST_ASKED = 1 << 30
# ONNX Runtime has not each operator for each type. The device may have it.
LACKING = "NOT_IMPLEMENTED"


def outlined(model: onnx.ModelProto, constants: Mapping[str, Array]) -> onnx.ModelProto:
    """A copy of a model as it was given, with inputs in the place of its large constants."""
    return _with_constants(model, constants, LARGEST_KEPT)


def require_accepted(
    outline: onnx.ModelProto, model: onnx.ModelProto, constants: Mapping[str, Array], place: str
) -> None:
    """Refuse a model that ONNX Runtime refuses when it is loaded.

    Without the package onnxruntime, only what would end the process is looked for.

    Parameters
    ----------
    outline : ModelProto
        The model as it was given, from `outlined`.
    model : ModelProto
        Its normal form.
    constants : mapping of str to ndarray
        Initializers that are kept beside it.
    place : str
        The model's name for messages.

    Raises
    ------
    ModelError
        With ONNX Runtime's words.
    """
    for nodes in (model.graph.node, *(function.node for function in model.functions)):
        for node in nested(nodes):
            require_harmless(node, place)
    try:
        import onnxruntime
    except ImportError:
        return
    error = _refusal(onnxruntime, outline)
    if error is None or LACKING in error:
        return
    if len(outline.graph.input) > len(model.graph.input):
        # An operator may want a constant where the outline has an input.
        if model.ByteSize() + sum(array.nbytes for array in constants.values()) > LARGEST_ASKED:
            return
        error = _refusal(onnxruntime, _with_constants(model, constants, None))
    if error is not None and LACKING not in error:
        raise ModelError(f"{place}: ONNX Runtime refuses the model: {error}")


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


def _with_constants(model: onnx.ModelProto, constants: Mapping[str, Array], most: int | None) -> onnx.ModelProto:
    """The model with its constants of at most so many bytes; larger ones are inputs."""
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
        if most is None or tensor.ByteSize() <= most or not tensor.name:
            graph.initializer.add().CopyFrom(tensor)
        else:
            inputs.setdefault(tensor.name, _described(tensor.name, tensor.data_type, tensor.dims))
    for name, array in constants.items():
        if most is None or array.nbytes <= most:
            graph.initializer.append(numpy_helper.from_array(array, name))
        else:
            element = helper.np_dtype_to_tensor_dtype(array.dtype)
            inputs.setdefault(name, _described(name, element, array.shape))
    for node in source.node:
        value = _large_constant(node, most)
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


def _large_constant(node: onnx.NodeProto, most: int | None) -> onnx.TensorProto | None:
    """The tensor of a node Constant, if it has more than so many bytes."""
    is_constant = node.op_type == "Constant" and node.domain in ("", "ai.onnx") and len(node.output) == 1
    if most is None or not is_constant or len(node.attribute) != 1 or node.attribute[0].name != "value":
        return None
    tensor = node.attribute[0].t
    return tensor if tensor.ByteSize() > most else None
