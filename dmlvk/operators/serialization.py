"""Descriptors as plain data, for JSON, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dmlvk.data_type import DataType
from dmlvk.errors import shown
from dmlvk.operators.declared import DataTypeRule, OperatorDesc
from dmlvk.operators.registry import OPERATORS
from dmlvk.tensor_desc import TensorDesc, TensorFlags

DESCRIPTORS: Mapping[str, type[OperatorDesc]] = {desc.operator_name: desc for desc in OPERATORS}
TENSOR_DEFAULTS = {"strides": None, "guaranteed_base_offset_alignment": 0, "flags": TensorFlags.NONE}


def serialize(desc: OperatorDesc) -> dict[str, Any]:
    """A descriptor as plain data: its operator's name under "operator", and its fields.

    A tensor becomes its data type's name, its sizes, and the members that differ from their defaults. A field that is
    kept by its bits (`OperatorDesc.bit_fields`) becomes its bytes in hexadecimal digits, in the order of memory.
    """
    content: dict[str, Any] = {"operator": desc.operator_name}
    for name in desc.rules:
        value = getattr(desc, name)
        if value is None:
            continue
        if name in desc.bit_fields:
            content[name] = getattr(desc, desc.bit_fields[name]).hex()
        elif isinstance(value, TensorDesc):
            content[name] = _serialize_tensor(value)
        elif isinstance(value, DataType):
            content[name] = value.name
        elif isinstance(value, tuple):
            content[name] = list(value)
        else:
            content[name] = value
    return content


def deserialize(content: Mapping[str, Any]) -> OperatorDesc:
    """The descriptor that `serialize` wrote. A field that is kept by its bits may also be a number.

    Raises ValueError: the content is no descriptor; the message says what is wrong. A DescriptorError if the descriptor
        breaks a rule.
    """
    name = content.get("operator") if isinstance(content, Mapping) else None
    if not isinstance(name, str) or name not in DESCRIPTORS:
        raise ValueError(f"operator = {shown(name)}: a descriptor's record must name one of {', '.join(DESCRIPTORS)}")
    operator = DESCRIPTORS[name]
    arguments: dict[str, Any] = {}
    for name, value in content.items():
        if name == "operator":
            continue
        if name not in operator.rules:
            raise ValueError(
                f"{operator.operator_name} has no field {name}; it has {', '.join(sorted(operator.rules))}"
            )
        try:
            if isinstance(value, Mapping):
                arguments[name] = _deserialize_tensor(value)
            elif isinstance(operator.rules[name], DataTypeRule):
                arguments[name] = DataType[value]
            elif name in operator.bit_fields and isinstance(value, str):
                arguments[name] = bytes.fromhex(value)
            else:
                arguments[name] = value
        except (KeyError, TypeError) as error:
            raise ValueError(f"{operator.operator_name}: {name} = {shown(value)} cannot be read: {error!r}") from None
    try:
        return operator(**arguments)
    except TypeError as error:
        raise ValueError(f"{operator.operator_name}: {error}") from None


def _serialize_tensor(tensor: TensorDesc) -> dict[str, Any]:
    content: dict[str, Any] = {"data_type": tensor.data_type.name, "sizes": list(tensor.sizes)}
    for name, default in TENSOR_DEFAULTS.items():
        value = getattr(tensor, name)
        if value != default:
            content[name] = list(value) if isinstance(value, tuple) else int(value)
    if tensor.total_size_in_bytes != tensor.minimum_size_in_bytes:
        content["total_size_in_bytes"] = tensor.total_size_in_bytes
    return content


def _deserialize_tensor(content: Mapping[str, Any]) -> TensorDesc:
    arguments = dict(content)
    return TensorDesc(DataType[arguments.pop("data_type")], arguments.pop("sizes"), **arguments)
