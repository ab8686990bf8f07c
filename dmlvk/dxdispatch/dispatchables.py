"""Dispatchables, and the resources that are bound to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dmlvk.dxdispatch.descriptors import camel_case, read_descriptor
from dmlvk.dxdispatch.document import DocumentNode
from dmlvk.dxdispatch.errors import MISSING, ModelError
from dmlvk.dxdispatch.resources import Resource
from dmlvk.operators import OperatorDesc
from dmlvk.runtime.tensor import TENSOR_ALIGNMENT
from dmlvk.tensor_desc import MAXIMUM_UINT64, TensorDesc, TensorFlags

COMPILE_TYPES = ("DmlCompileOp", "DmlCompileGraph")
EXECUTION_FLAGS = ("NONE", "ALLOW_HALF_PRECISION_COMPUTATION", "DISABLE_META_COMMANDS", "DESCRIPTORS_VOLATILE")
INT64_LIMITS = (-(2**63), 2**63 - 1)


@dataclass(frozen=True)
class Source:
    """A place in a resource.

    Attributes:
        node (DocumentNode): For messages.
        resource (Resource):
        offset (int): Bytes from the resource's start.
    """

    node: DocumentNode = field(compare=False)
    resource: Resource
    offset: int


@dataclass(frozen=True)
class Dispatchable:
    """An operator of a model.

    Attributes:
        name (str):
        desc (OperatorDesc):
        owned (mapping of str to Source): By field name, the tensors that are OWNED_BY_DML.
    """

    name: str
    desc: OperatorDesc
    owned: Mapping[str, Source]


def read_dispatchable(name: str, node: DocumentNode, resources: Mapping[str, Resource]) -> Dispatchable:
    """A dispatchable with its descriptor.

    Raises ModelError.
    """
    desc, _ = read_descriptor(node)
    # Both are hints for DirectML, and change no result here. A wrong name is still an error, as it is there.
    if (compile_type := node.get("dmlCompileType")) is not None:
        compile_type.one_of(COMPILE_TYPES)
    if (flags := node.get("executionFlags")) is not None:
        flags.names(EXECUTION_FLAGS, "DML_EXECUTION_FLAG_")
    return Dispatchable(name, desc, read_bindings(node, desc, resources, owned=True))


def read_bindings(
    node: DocumentNode, desc: OperatorDesc, resources: Mapping[str, Resource], *, owned: bool = False
) -> dict[str, Source]:
    """The member "bindings" of a dispatchable or of a dispatch, by field name; everything in it is checked.

    node: the dispatchable or the dispatch.
    owned: whether to bind the tensors that are OWNED_BY_DML (a dispatchable does), or the others (a dispatch does).
    Raises ModelError.
    """
    bindings = node.get("bindings") if owned else node.require("bindings", "an object of resources by tensor")
    tensors = {
        name: tensor for name, tensor in desc.tensors.items() if bool(tensor.flags & TensorFlags.OWNED_BY_DML) is owned
    }
    points = {camel_case(name): name for name in desc.input_fields + desc.output_fields}
    found: dict[str, Source] = {}
    for point, place in bindings.members() if bindings is not None else ():
        sources = [read_source(each, resources) for each in _listed(place)]
        name = points.get(point)
        if name is None:
            continue  # DxDispatch ignores unknown points
        if name not in tensors:
            place.fail(_wrong_point(desc, name, point, owned=owned))
        if len(sources) != 1:
            place.fail(f"{point} is one tensor, and {len(sources)} resources are bound to it", "one resource")
        _check_fit(point, tensors[name], sources[0])
        found[name] = sources[0]
    for name in tensors:
        if name not in found:
            key = bindings.child_key(camel_case(name)) if bindings is not None else node.child_key("bindings")
            reason = "nothing is bound to this tensor" + (", which is OWNED_BY_DML" if owned else "")
            raise ModelError(node.file, key, MISSING, reason, f'"{camel_case(name)}": the name of a resource')
    _check_aliasing(desc, found)
    return found


def _wrong_point(desc: OperatorDesc, name: str, point: str, *, owned: bool) -> str:
    if name not in desc.tensors:
        return f"the descriptor has no {point}, so nothing can be bound to it"
    if owned:
        return f"{point} is not OWNED_BY_DML, so a dispatch binds it, not the dispatchable"
    return f"{point} is OWNED_BY_DML, so the dispatchable binds it, not a dispatch"


def _listed(place: DocumentNode) -> list[DocumentNode]:
    return list(place.items()) if isinstance(place.value, list) else [place]


def read_source(node: DocumentNode, resources: Mapping[str, Resource]) -> Source:
    """A place in a resource: its name, or an object.

    Raises ModelError: also for a resource that the model does not have.
    """
    if isinstance(node.value, str):
        return Source(node, find_resource(node, resources), 0)
    if not isinstance(node.value, dict):
        node.fail("must be a resource", 'its name, or {"name": ..., "elementOffset": ...}')
    resource = find_resource(node.require("name"), resources)
    numbers = {
        key: 0 if (found := node.get(key)) is None else found.integer(0, MAXIMUM_UINT64)
        for key in ("elementOffset", "elementSizeInBytes", "elementCount", "counterOffsetBytes")
    }
    if (counter := node.get("counter")) is not None:
        find_resource(counter, resources)
    if (format_node := node.get("format")) is not None:
        format_node.text()
    if (shape := node.get("shape")) is not None:
        shape.integers(*INT64_LIMITS)
    size = numbers["elementSizeInBytes"]
    if not size and resource.data_type is not None:
        size = resource.data_type.size_in_bytes
    if numbers["elementOffset"] and not size:
        node.fail("the resource's values have several types, so an offset needs elementSizeInBytes")
    return Source(node, resource, numbers["elementOffset"] * size)


def find_resource(node: DocumentNode, resources: Mapping[str, Resource]) -> Resource:
    """The resource that a node names.

    Raises ModelError.
    """
    name = node.text("the name of a resource")
    if name not in resources:
        node.fail("the model has no such resource", f"one of {', '.join(resources) or 'none: there are no resources'}")
    return resources[name]


def _check_fit(point: str, tensor: TensorDesc, source: Source) -> None:
    alignment = max(TENSOR_ALIGNMENT, tensor.guaranteed_base_offset_alignment)
    if source.offset % alignment:
        rule = f"{point} would start {source.offset} bytes into the resource, no multiple of {alignment}"
        source.node.fail(
            rule, f"an offset of {source.offset // alignment * alignment} bytes; DirectML has this rule too"
        )
    if source.offset + tensor.total_size_in_bytes > source.resource.size:
        rule = (
            f"{point} needs {tensor.total_size_in_bytes} bytes from byte {source.offset}, and the resource "
            f"{source.resource.name} has {source.resource.size}"
        )
        source.node.fail(rule, f"a resource of {source.offset + tensor.total_size_in_bytes} bytes or more")
    elements = sum((size - 1) * stride for size, stride in zip(tensor.sizes, tensor.element_strides, strict=True)) + 1
    end = source.offset + elements * tensor.data_type.size_in_bytes
    content = source.resource.content.size
    if not source.resource.is_size_given and end > content:
        rule = (
            f"the elements of {point} end at byte {end}, and the resource {source.resource.name!r} has initial values "
            f"of {content} bytes, and no sizeInBytes that says more"
        )
        source.node.fail(rule, f"initial values of {end} bytes or more, or sizeInBytes")


def _check_aliasing(desc: OperatorDesc, sources: Mapping[str, Source]) -> None:
    for output in desc.output_fields:
        for name, source in sources.items():
            if name == output or output not in sources or source.resource is not sources[output].resource:
                continue
            begin, other = sources[output].offset, source.offset
            tensors = desc.tensors
            if (
                begin < other + tensors[name].total_size_in_bytes
                and other < begin + tensors[output].total_size_in_bytes
            ):
                rule = f"{camel_case(output)} shares memory with {camel_case(name)}; an output needs memory of its own"
                sources[output].node.fail(rule, "another resource")
