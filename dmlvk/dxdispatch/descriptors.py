"""Descriptors in DxDispatch's form, with DirectML's own names, from and to `dmlvk.operators.serialization`'s.

A field's name is the same word in two spellings: InputTensor and input_tensor. So no table of fields is needed, and an
operator that joins the registry is read and written here too.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from dmlvk.data_type import DataType
from dmlvk.dxdispatch.document import DocumentNode
from dmlvk.dxdispatch.elements import data_type_of, element
from dmlvk.dxdispatch.errors import ModelError
from dmlvk.errors import DescriptorError
from dmlvk.operators import OperatorDesc
from dmlvk.operators.declared import (
    INT32_MAX,
    INT32_MIN,
    BooleanRule,
    DataTypeRule,
    ElementRule,
    IntegerRule,
    IntegersRule,
    Rule,
    TensorRule,
)
from dmlvk.operators.serialization import DESCRIPTORS, deserialize, serialize
from dmlvk.tensor_desc import MAXIMUM_UINT32, MAXIMUM_UINT64, TensorDesc, TensorFlags

OPERATOR_PREFIX = "DML_OPERATOR_"
FLAG_PREFIX = "DML_TENSOR_FLAG_"
DIMENSION_COUNT = "DimensionCount"
# Names that are not the same words in both spellings.
TOTAL_SIZE = ("total_size_in_bytes", "TotalTensorSizeInBytes")
# The members of DML_SCALAR_UNION. It has none for FLOAT16, whose bits are given as UInt16.
UNION_MEMBERS: Mapping[DataType, str] = {
    data_type: "UInt16" if data_type is DataType.FLOAT16 else data_type.name.title().replace("Uint", "UInt")
    for data_type in DataType
}


def camel_case(name: str) -> str:
    """InputTensor of input_tensor."""
    return "".join(word.capitalize() for word in name.split("_"))


def operator_of(node: DocumentNode) -> type[OperatorDesc]:
    """The operator of a dispatchable, by its type.

    Raises ModelError: dmlvk does not have it.
    """
    type_node = node.require("type", f"one of {', '.join(DESCRIPTORS)}")
    name = type_node.text()
    operator = DESCRIPTORS.get(name.removeprefix(OPERATOR_PREFIX))
    if operator is not None:
        return operator
    if name.lower() in ("hlsl", "onnx", "dmlserializedgraph"):
        type_node.fail(f"dmlvk.dxdispatch runs no {name}", f"an operator: one of {', '.join(DESCRIPTORS)}")
    type_node.fail("dmlvk does not have this operator", f"one of {', '.join(DESCRIPTORS)}, in capitals")


def read_descriptor(node: DocumentNode) -> tuple[OperatorDesc, DocumentNode]:
    """The descriptor of a dispatchable, and the node that holds its fields.

    Raises ModelError: the error names the field in DirectML's spelling.
    """
    operator = operator_of(node)
    holder = node.get("Desc") or node.get("desc") or node
    content: dict[str, Any] = {"operator": operator.operator_name}
    lists: list[str] = []
    for name, rule in operator.rules.items():
        spelled = camel_case(name)
        is_optional = name in operator.optional_fields
        found = holder.get(spelled) if is_optional else holder.require(spelled)
        if found is None:
            continue
        if isinstance(rule, TensorRule):
            content[name] = read_tensor(found)
        elif isinstance(rule, DataTypeRule):
            content[name] = data_type_of(found).name
        elif isinstance(rule, ElementRule):
            content[name] = _value_bytes(found, holder).hex()
        elif isinstance(rule, BooleanRule):
            content[name] = found.value if isinstance(found.value, bool) else bool(found.integer(0, 1))
        elif isinstance(rule, IntegersRule):
            lists.append(name)
            content[name] = list(found.integers(*_limits(rule)))
        else:
            content[name] = found.integer(*_limits(rule))
    _check_dimension_count(operator, holder, content, lists)
    try:
        return deserialize(content), holder
    except DescriptorError as error:
        raise named(error, holder) from error


def _limits(rule: Rule) -> tuple[int, int]:
    """INT in DirectML if a rule takes negative integers, else UINT."""
    is_signed = isinstance(rule, IntegerRule) and rule.low < 0
    return (INT32_MIN, INT32_MAX) if is_signed else (0, MAXIMUM_UINT32)


def _check_dimension_count(
    operator: type[OperatorDesc], holder: DocumentNode, content: Mapping[str, Any], lists: list[str]
) -> None:
    """DirectML reads as many elements of each list as DimensionCount says, so the lists have to have them."""
    if not lists:
        return
    count = holder.require(DIMENSION_COUNT).integer(1, MAXIMUM_UINT32)
    for name in lists:
        if len(content[name]) != count:
            rule = f"must have as many elements as {DIMENSION_COUNT} says"
            holder.require(camel_case(name)).fail(rule, f"{count} elements")


def read_tensor(node: DocumentNode) -> TensorDesc:
    """A tensor: its fields, or {"Type": "BUFFER", "Desc": its fields}.

    Raises ModelError.
    """
    kind = node.get("Type")
    if kind is not None:
        kind.one_of(["BUFFER"], "DML_TENSOR_TYPE_")
    node = node.get("Desc") or node
    arguments: dict[str, Any] = {
        "data_type": data_type_of(node.require("DataType")),
        "sizes": node.require("Sizes").integers(0, MAXIMUM_UINT32),
    }
    count = node.get(DIMENSION_COUNT)
    if count is not None and count.integer(0, MAXIMUM_UINT32) != len(arguments["sizes"]):
        count.fail("must be the number of Sizes", str(len(arguments["sizes"])))
    strides = node.get("Strides")
    if strides is not None and strides.sequence():  # DxDispatch takes an empty list for none
        arguments["strides"] = strides.integers(0, MAXIMUM_UINT32)
    total = node.get(TOTAL_SIZE[1])
    if total is not None and total.integer(0, MAXIMUM_UINT64):
        arguments[TOTAL_SIZE[0]] = total.value
    alignment = node.get("GuaranteedBaseOffsetAlignment")
    if alignment is not None:
        arguments["guaranteed_base_offset_alignment"] = alignment.integer(0, MAXIMUM_UINT32)
    flags = node.get("Flags")
    if flags is not None:
        names = flags.names(
            [flag.name for flag in (TensorFlags.NONE, TensorFlags.OWNED_BY_DML) if flag.name], FLAG_PREFIX
        )
        arguments["flags"] = TensorFlags(sum({int(TensorFlags[name]) for name in names}))
    try:
        return TensorDesc(**arguments)
    except DescriptorError as error:
        raise named(error, node) from error


def named(error: DescriptorError, holder: DocumentNode) -> ModelError:
    """A descriptor's error, with the field's place in the model and its name in DirectML's spelling."""
    parts = []
    for part in error.field.split("."):
        name, bracket, index = part.partition("[")
        spelled = TOTAL_SIZE[1] if name == TOTAL_SIZE[0] else camel_case(name)
        parts.append(f"{spelled}{bracket}{index}")
    return ModelError(holder.file, ".".join([holder.key, *parts]), error.value, error.rule, error.expected)


def _value_bytes(node: DocumentNode, holder: DocumentNode) -> bytes:
    """A Value in memory: DML_SCALAR_UNION of ValueDataType, or else a FLOAT."""
    type_node = holder.get("ValueDataType")
    if type_node is None:
        return element(node, DataType.FLOAT32).tobytes()
    data_type = data_type_of(type_node)
    if not isinstance(node.value, dict):
        return element(node, data_type, is_special_allowed=False).tobytes()
    member = node.require(UNION_MEMBERS[data_type], f'{{"{UNION_MEMBERS[data_type]}": ...}}, as ValueDataType says')
    return element(member, DataType.UINT16 if data_type is DataType.FLOAT16 else data_type).tobytes()


def write_descriptor(desc: OperatorDesc) -> dict[str, Any]:
    """A descriptor as plain data in DxDispatch's form: "type" and "desc".

    Raises ValueError: the descriptor has a NaN whose bits the format cannot express.
    """
    content = serialize(desc)
    written: dict[str, Any] = {}
    for name, value in content.items():
        if name == "operator":
            continue
        tensor = getattr(desc, name)
        if isinstance(tensor, TensorDesc):
            written[camel_case(name)] = _write_tensor(tensor)
        elif name in desc.bit_fields:
            written[camel_case(name)] = _write_value(bytes.fromhex(value), content.get("value_data_type"))
        else:
            if isinstance(value, list):
                written.setdefault(DIMENSION_COUNT, len(value))
            written[camel_case(name)] = value
    return {"type": f"{OPERATOR_PREFIX}{content['operator']}", "desc": written}


def _write_tensor(tensor: TensorDesc) -> dict[str, Any]:
    written: dict[str, Any] = {"DataType": tensor.data_type.name, "Sizes": list(tensor.sizes)}
    if tensor.strides is not None:
        written["Strides"] = list(tensor.strides)
    if tensor.flags & TensorFlags.OWNED_BY_DML:
        written["Flags"] = f"{FLAG_PREFIX}OWNED_BY_DML"
    written[TOTAL_SIZE[1]] = tensor.total_size_in_bytes
    if tensor.guaranteed_base_offset_alignment:
        written["GuaranteedBaseOffsetAlignment"] = tensor.guaranteed_base_offset_alignment
    return written


def _write_value(bits: bytes, data_type_name: str | None) -> Any:
    if data_type_name is None:
        return _write_float(struct.unpack("<f", bits)[0], bits, DataType.FLOAT32)
    data_type = DataType[data_type_name]
    number = np.frombuffer(bits, np.uint16 if data_type is DataType.FLOAT16 else data_type.numpy_dtype)[0].item()
    if isinstance(number, float):
        number = _write_float(number, bits, data_type)
    return {UNION_MEMBERS[data_type]: number}


def _write_float(value: float, bits: bytes, data_type: DataType) -> float | str:
    if math.isfinite(value):
        return value
    text = "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if element(DocumentNode("", "", text), data_type).tobytes() != bits:
        raise ValueError(f"DxDispatch's format cannot express a NaN with the bits {bits[::-1].hex()}")
    return text
