"""What a cluster runs for each batch: plain data that is sent to each worker once, and opened there on its device."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from dmlvk.device_profile import DeviceType
from dmlvk.errors import BindingError
from dmlvk.operators import OperatorDesc
from dmlvk.operators.serialization import serialize
from dmlvk.runtime.compiled_operator import CompiledOperator
from dmlvk.runtime.device import Device
from dmlvk.runtime.layouts import plain
from dmlvk.runtime.pickling import recipe
from dmlvk.tensor_desc import TensorDesc, TensorFlags

if TYPE_CHECKING:
    from dmlvk.onnx.model_file import LoadedModel
    from dmlvk.onnx.session import Options

Array = npt.NDArray[Any]


class OpenedModel(Protocol):
    """A model on a device."""

    def run(self, batch: Any, output_names: Sequence[str] | None) -> Any:
        """The outputs of a batch, as NumPy arrays. May be called from several threads."""


class PortableModel(Protocol):
    """A model that can be pickled.

    digest: equal for equal models alone.
    """

    @property
    def digest(self) -> str: ...

    def open(self, device: Device) -> OpenedModel:
        """Prepare it on a device."""


def model_of(given: Any, constants: Mapping[str, Any] | None = None) -> PortableModel:
    """A model as plain data.

    given: an ONNX model, or one operator. Only a session and a compiled operator need a device here.
    constants: for an operator: by field, the tensors that are the same for all batches.
    Raises ModelError, BindingError: the model cannot be read; or a constant is no input of the operator, or does not
        fit.
    Raises TypeError: for something else.
    """
    if isinstance(given, (OperatorDesc, CompiledOperator)):
        desc, owned = recipe(given) if isinstance(given, CompiledOperator) else (given, {})
        return OperatorModel.of(desc, owned, constants or {})
    if constants:
        raise TypeError("constants belong to an operator; the constants of an ONNX model are in the model")
    if not isinstance(given, (str, os.PathLike, bytes, bytearray, memoryview)) and not _is_onnx(given):
        kinds = "an InferenceSession, a model (a path, bytes or a ModelProto), a descriptor or a CompiledOperator"
        raise TypeError(f"a cluster runs {kinds}, not {type(given).__name__}")
    from dmlvk.onnx.model_file import load
    from dmlvk.onnx.session import InferenceSession, Options

    if isinstance(given, InferenceSession):
        return OnnxModel(*given.recipe())
    return OnnxModel(load(given), Options())


def _is_onnx(given: object) -> bool:
    """Whether it is a session or a ModelProto, without the import of ONNX for what is neither."""
    return not {"InferenceSession", "ModelProto"}.isdisjoint(kind.__name__ for kind in type(given).__mro__)


@dataclass(frozen=True)
class OnnxModel:
    """An ONNX model."""

    model: LoadedModel = field(repr=False)
    options: Options

    @property
    def digest(self) -> str:
        options = "-".join(str(option) for option in self.options)
        return f"onnx-{self.model.digest[:32]}-{options}"

    def open(self, device: Device) -> OpenedModel:
        return _OpenedSession(self, device)


class _OpenedSession:
    def __init__(self, model: OnnxModel, device: Device) -> None:
        from dmlvk.onnx.session import loaded

        # A worker runs two portions at once. A CPU driver has no time for the second one.
        runs_at_once = 1 if device.profile.device_type is DeviceType.CPU else 2
        self._session = loaded(model.model, model.options, device, runs_at_once)

    def run(self, batch: Any, output_names: Sequence[str] | None) -> Any:
        return self._session.run_batch(output_names, batch)


@dataclass(frozen=True)
class OperatorModel:
    """One operator.

    owned: by field, the whole memory of the tensors that are OWNED_BY_DML.
    constants: the other tensors that are the same for all batches.
    """

    desc: OperatorDesc
    owned: dict[str, bytes] = field(repr=False)
    constants: dict[str, Array] = field(repr=False)

    @classmethod
    def of(cls, desc: OperatorDesc, owned: Mapping[str, bytes], constants: Mapping[str, Any]) -> OperatorModel:
        """Check the fields."""
        name, fields = desc.operator_name, desc.tensors
        inputs = [each for each in fields if each not in desc.output_fields]
        for each in constants:
            if each not in inputs:
                raise BindingError(
                    f"{name}: constants has {each!r}, which is no input; the inputs are {_listed(inputs)}"
                )
        checked = {each: _fitting(name, each, value, fields[each]) for each, value in constants.items()}
        owned = {each: content for each, content in owned.items() if each not in checked}
        for each in inputs:
            if fields[each].flags & TensorFlags.OWNED_BY_DML and each not in checked and each not in owned:
                raise BindingError(
                    f"{name}: {each} is OWNED_BY_DML, so it is the same for all batches: give it in constants"
                )
        model = cls(desc, dict(owned), checked)
        if not model.varying:
            raise BindingError(f"{name}: all its inputs are constants; leave out of constants what the batches give")
        return model

    @property
    def varying(self) -> list[str]:
        """The fields that a batch gives."""
        same = {*self.owned, *self.constants, *self.desc.output_fields}
        return [each for each in self.desc.tensors if each not in same]

    @property
    def digest(self) -> str:
        found = hashlib.sha256(json.dumps(serialize(self.desc), sort_keys=True).encode())
        contents = {**self.owned, **{each: array.tobytes() for each, array in self.constants.items()}}
        for each, content in sorted(contents.items()):
            found.update(f"{each} {len(content)} ".encode() + content)
        return f"operator-{found.hexdigest()[:32]}"

    def open(self, device: Device) -> OpenedModel:
        return _OpenedOperator(self, device)


class _OpenedOperator:
    def __init__(self, model: OperatorModel, device: Device) -> None:
        desc = model.desc
        self._model = model
        self._lock = threading.Lock()
        self._operator = device.compile(desc)
        owned = {each for each, tensor in desc.tensors.items() if tensor.flags & TensorFlags.OWNED_BY_DML}
        tensors = {each: device.tensor(plain(tensor)) for each, tensor in desc.tensors.items()}
        for each, content in model.owned.items():
            tensors[each].write_bytes(content)
        for each, array in model.constants.items():
            tensors[each].write(array)
        if self._operator.has_state:
            self._operator.initialize(**{each: tensors[each] for each in owned})
        self._tensors = {each: tensor for each, tensor in tensors.items() if each not in owned}

    def run(self, batch: Any, output_names: Sequence[str] | None) -> Any:
        arrays = self._checked(batch)
        with self._lock:
            for each, array in arrays.items():
                self._tensors[each].write(array)
            self._operator(**self._tensors)
            return self._tensors[self._model.desc.output_fields[0]].numpy()

    def _checked(self, batch: Any) -> dict[str, Array]:
        model, name = self._model, self._model.desc.operator_name
        varying = model.varying
        if not isinstance(batch, Mapping):
            if len(varying) != 1:
                raise BindingError(f"{name}: a batch is a mapping from fields to arrays, for {_listed(varying)}")
            batch = {varying[0]: batch}
        if set(batch) != set(varying):
            raise BindingError(f"{name}: a batch has {_listed(batch) or 'nothing'}; it must have {_listed(varying)}")
        return {each: _fitting(name, each, batch[each], model.desc.tensors[each]) for each in varying}


def _fitting(name: str, each: str, value: Any, desc: TensorDesc) -> Array:
    """An array of the sizes and the type of its field."""
    array = np.asarray(value)
    if array.shape != desc.sizes or array.dtype.newbyteorder("=") != desc.data_type.numpy_dtype:
        raise BindingError(
            f"{name}: {each} is an array of shape {array.shape} and dtype {array.dtype}; the descriptor has sizes "
            f"{desc.sizes} and dtype {desc.data_type.numpy_dtype}"
        )
    return array


def _listed(names: Any) -> str:
    return ", ".join(map(str, names))
