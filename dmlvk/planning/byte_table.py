"""BYTE_TABLE: a table's bytes in place of an input's, or of a pair of inputs'.

shared
    A workgroup first loads the table into shared memory. For one table of 256 bytes.
buffer
    Tables are read where they lie. For tables of pairs, and for a table for each index along an axis.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dmlvk.device_profile import DeviceProfile, DeviceType
from dmlvk.errors import PathError
from dmlvk.planning.builder import Arena, PlanBuilder, View, copies
from dmlvk.planning.families.element_wise import FIRST, OUTPUT, SECOND, THIRD, Stepping, element_wise_dispatches
from dmlvk.planning.loop_nest import LoopOperand
from dmlvk.planning.plan import Dispatch, Plan, require_path
from dmlvk.tensor_desc import TensorDesc, TensorFlags

if TYPE_CHECKING:
    from dmlvk.operators import ByteTableDesc

SHARED, BUFFER = "shared", "buffer"
PATHS = (SHARED, BUFFER)
# Bytes that an invocation writes.
UNIT = 16


def plan(desc: ByteTableDesc, profile: DeviceProfile, *, path: str | None = None, offsets: Mapping[str, int]) -> Plan:
    """Plan a BYTE_TABLE."""
    require_path(desc.operator_name, path, PATHS)
    is_single = desc.second_input_tensor is None and desc.axis is None
    if path == SHARED and not is_single:
        raise PathError(
            f"{desc.operator_name} has the path {SHARED!r} for one table of 256 bytes, not for pairs or along an axis"
        )
    # CPU drivers have no shared memory that is nearer than a cache, and a barrier costs them much.
    chosen = path or (SHARED if is_single and profile.device_type is not DeviceType.CPU else BUFFER)
    builder = PlanBuilder(profile, offsets)
    table, copying = packed_table(desc.table_tensor, builder)
    output = desc.output_tensor
    along = tuple(int(k == desc.axis) for k in range(output.rank))
    tensors = [Stepping.of(FIRST, "input_tensor", desc.input_tensor, output.rank)]
    if desc.second_input_tensor is not None:
        tensors.append(Stepping.of(SECOND, "second_input_tensor", desc.second_input_tensor, output.rank))
    tensors.append(Stepping(THIRD, LoopOperand(table, desc.table_length), along))
    dispatches = element_wise_dispatches(
        f"byte_table/{chosen}",
        UNIT,
        ("output_tensor", output),
        tensors,
        profile,
        specialization={} if chosen == SHARED else {"HAS_SECOND": int(desc.second_input_tensor is not None)},
        offsets=offsets,
        bindings=(OUTPUT, FIRST, THIRD) if chosen == SHARED else (OUTPUT, FIRST, SECOND, THIRD),
    )
    is_owned = bool(desc.table_tensor.flags & TensorFlags.OWNED_BY_DML)
    return Plan(
        path=chosen,
        stages=(*(() if is_owned or not copying else (copying,)), dispatches),
        initialization=(copying,) if is_owned and copying else (),
        scratch_size=builder.scratch.size,
        persistent_size=builder.persistent.size,
    )


def packed_table(tensor: TensorDesc, builder: PlanBuilder) -> tuple[str, tuple[Dispatch, ...]]:
    """Where all of `table_tensor` lies, packed, in one window; and the dispatches that copy it there.

    It is copied if it has gaps or another order, or lies across two segments of its memory.
    """
    sizes, element_size = tensor.sizes, tensor.data_type.size_in_bytes
    source = View("table_tensor", 0, element_size, tensor.element_strides)
    if tensor.is_packed and builder.fits(source.tensor, source.bounds([(0, size) for size in sizes])):
        return source.tensor, ()
    is_owned = tensor.flags & TensorFlags.OWNED_BY_DML
    arena: Arena = builder.persistent if is_owned else builder.scratch
    strides = (1,) if len(sizes) == 1 else (sizes[1], 1)
    destination = View(arena.name, arena.allocate(tensor.element_count * element_size), element_size, strides)
    return arena.name, tuple(copies(builder, source, destination, sizes))
