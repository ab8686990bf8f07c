"""ONNX's backend interface, with which ONNX's own tests and other programs run models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.backend.base import Backend, BackendRep, namedtupledict

from dmlvk.onnx.errors import ModelError
from dmlvk.onnx.inference import inferred
from dmlvk.onnx.session import InferenceSession
from dmlvk.runtime.device import Device
from dmlvk.runtime.device_info import devices


class Prepared(BackendRep):  # type: ignore[misc]
    """A model that is ready to run.

    Attributes:
        session (InferenceSession):
    """

    def __init__(self, session: InferenceSession) -> None:
        self.session = session

    def run(self, inputs: Any, **kwargs: Any) -> Any:
        """The outputs as a named tuple.

        Args:
            inputs (array, sequence of arrays, or mapping of str to array): In the order of the model's inputs, or by
                name.
        """
        names = [described.name for described in self.session.get_inputs()]
        if isinstance(inputs, dict):
            feeds = inputs
        else:
            listed = [inputs] if isinstance(inputs, np.ndarray) else list(inputs)
            if len(listed) != len(names):
                raise ModelError(f"{len(listed)} inputs given; the model has {len(names)}: {', '.join(names)}")
            feeds = dict(zip(names, listed, strict=True))
        outputs = self.session.run(None, feeds)
        return namedtupledict("Outputs", [described.name for described in self.session.get_outputs()])(*outputs)


class DmlvkBackend(Backend):  # type: ignore[misc]
    """Runs models on a Vulkan device.

    The device is "VULKAN", with a device's number on demand, as in "VULKAN:1"; "CPU", ONNX's default, stands for the
    same. A dmlvk.Device may be given too.
    """

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str | Device = "VULKAN", **kwargs: Any) -> Prepared:
        """Make a session of a model. `kwargs` are those of InferenceSession."""
        return Prepared(InferenceSession(model, cls._selected(device), **kwargs))

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str | Device = "VULKAN", **kwargs: Any) -> Any:
        """Run a model once."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str | Device = "VULKAN",
        outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Run one node.

        Args:
            node (NodeProto):
            inputs (array or sequence of arrays): One for each input that is there.
            outputs_info (sequence of tuple, optional): (dtype, shape) of each output; ONNX infers them by default.
            opset_version (int, optional): Of ONNX's operators; the newest that is released by default.

        Raises:
            ModelError: The inputs do not fit the node, or the type of an output is not known.
        """
        released = max(version for domain, version in helper.OP_SET_ID_VERSION_MAP if domain in ("", "ai.onnx"))
        opset = kwargs.pop("opset_version", released)
        listed = [inputs] if isinstance(inputs, np.ndarray) else [np.asarray(array) for array in inputs]
        names = list(dict.fromkeys(filter(None, node.input)))
        if len(listed) != len(names):
            raise ModelError(f"{len(listed)} inputs given; the node {node.name!r} has {len(names)}: {', '.join(names)}")
        element = helper.np_dtype_to_tensor_dtype
        graph = helper.make_graph(
            [node],
            "one node",
            [
                helper.make_tensor_value_info(name, element(array.dtype), array.shape)
                for name, array in zip(names, listed, strict=True)
            ],
            [onnx.ValueInfoProto(name=name) for name in node.output if name],
        )
        imports = [helper.make_opsetid("", opset), *([helper.make_opsetid(node.domain, 1)] if node.domain else [])]
        version = helper.OP_SET_ID_VERSION_MAP.get(("ai.onnx", opset), onnx.IR_VERSION)
        model = helper.make_model(graph, opset_imports=imports, ir_version=version)
        if outputs_info is not None:
            for value, (dtype, shape) in zip(graph.output, outputs_info, strict=True):
                kind = helper.make_tensor_type_proto(element(np.dtype(dtype)), shape)
                next(given for given in model.graph.output if given.name == value.name).type.CopyFrom(kind)
        else:
            _infer_outputs(model, node)
        return cls.run_model(model, listed, device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether there is a device of this name: "VULKAN", "VULKAN:1", "CPU"."""
        kind, _, number = device.partition(":")
        if kind not in ("CPU", "VULKAN"):
            return False
        return (int(number) if number.isdecimal() else 0) < len(devices())

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str | Device = "VULKAN", **kwargs: Any) -> bool:
        """Whether a model can be prepared."""
        try:
            InferenceSession(model, cls._selected(device), **kwargs)
        except ModelError:
            return False
        return True

    @classmethod
    def _selected(cls, device: str | Device) -> Device | int | None:
        if isinstance(device, Device):
            return device
        if not cls.supports_device(device):
            raise ModelError(f"device {device!r} is not there: it is VULKAN, or VULKAN:k with the number of a device")
        _, _, number = device.partition(":")
        return int(number) if number.isdecimal() and device.startswith("VULKAN") else None


def _infer_outputs(model: onnx.ModelProto, node: onnx.NodeProto) -> None:
    for value, found in zip(model.graph.output, inferred(model).output, strict=True):
        if not found.type.WhichOneof("value"):
            raise ModelError(f"the type of the output {value.name!r} of {node.op_type} is not known: pass outputs_info")
        value.type.CopyFrom(found.type)


is_compatible = DmlvkBackend.is_compatible
prepare = DmlvkBackend.prepare
run_model = DmlvkBackend.run_model
run_node = DmlvkBackend.run_node
supports_device = DmlvkBackend.supports_device
