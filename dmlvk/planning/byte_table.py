"""BYTE_TABLE: a table's bytes in place of an input's, or of a pair of inputs'.

shared
    A workgroup first loads the table into shared memory, or some of the tables along an axis. For one table of 256
    bytes; and for a table for each index along an axis, where input and output are packed in the same order.
buffer
    Tables are read where they lie. For tables of pairs, and for an axis in any layout.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dmlvk.device_profile import DeviceProfile, DeviceType
from dmlvk.errors import PathError
from dmlvk.planning.builder import BLOCK_SIZE, Arena, DispatchBuilder, PlanBuilder, View, copies
from dmlvk.planning.device_rates import rates_of
from dmlvk.planning.families.element_wise import FIRST, OUTPUT, SECOND, THIRD, Stepping, element_wise_dispatches
from dmlvk.planning.kernel_interface import LOCAL_SIZE_X
from dmlvk.planning.loop_nest import LoopOperand
from dmlvk.planning.plan import Access, Dispatch, Plan, require_path
from dmlvk.tensor_desc import TensorDesc, TensorFlags

if TYPE_CHECKING:
    from dmlvk.operators import ByteTableDesc

SHARED, BUFFER = "shared", "buffer"
PATHS = (SHARED, BUFFER)
# Bytes that an invocation writes.
UNIT = 16
# Of kernels/byte_table/tables.comp: bytes of a table, and of it in shared memory.
TABLE_SIZE, SHARED_TABLE_SIZE = 256, 260
# Invocations that look up at once. Most GPUs have subgroups of 32.
LARGEST_SUBGROUP = 32
# Vectors that an invocation loads before it looks up the first one.
VECTORS_AT_ONCE = 4
# A workgroup's elements at one outer coordinate are a run of at least this many bytes, two sectors of a cache, if there
# are as many: memory is read in such runs.
LEAST_RUN = 64
# Tables of a workgroup. Those of more would leave room for few workgroups beside each other.
MOST_TABLES = 64
# A workgroup moves at least as many bytes as it loads of tables; eight times as many, if it can have them and all
# processors have several workgroups, since those wait for each other's loads.
LEAST_SHARE, ENOUGH_SHARE = 1, 8
WORKGROUPS_OF_PROCESSOR = 8


def plan(desc: ByteTableDesc, profile: DeviceProfile, *, path: str | None = None, offsets: Mapping[str, int]) -> Plan:
    """Plan a BYTE_TABLE."""
    require_path(desc.operator_name, path, PATHS)
    is_single = desc.second_input_tensor is None and desc.axis is None
    builder = PlanBuilder(profile, offsets)
    table, copying = packed_table(desc.table_tensor, builder)
    along_axis = () if path == BUFFER or is_single else _along_axis(desc, builder, table)
    if path == SHARED and not (is_single or along_axis):
        raise PathError(
            f"{desc.operator_name} has the path {SHARED!r} for one table of 256 bytes, and along an axis where input "
            "and output are packed in the same order, and whole vectors of 16 bytes belong to at most 64 tables; not "
            "for pairs"
        )
    # CPU drivers have no shared memory that is nearer than a cache, and a barrier costs them much.
    is_gpu = profile.device_type is not DeviceType.CPU
    chosen = path or (SHARED if is_gpu and (is_single or (along_axis and _needs_many_tables(desc))) else BUFFER)
    output = desc.output_tensor
    along = tuple(int(k == desc.axis) for k in range(output.rank))
    tensors = [Stepping.of(FIRST, "input_tensor", desc.input_tensor, output.rank)]
    if desc.second_input_tensor is not None:
        tensors.append(Stepping.of(SECOND, "second_input_tensor", desc.second_input_tensor, output.rank))
    tensors.append(Stepping(THIRD, LoopOperand(table, desc.table_length), along))
    dispatches = (
        along_axis
        if chosen == SHARED and along_axis
        else element_wise_dispatches(
            f"byte_table/{chosen}",
            UNIT,
            ("output_tensor", output),
            tensors,
            profile,
            specialization={} if chosen == SHARED else {"HAS_SECOND": int(desc.second_input_tensor is not None)},
            offsets=offsets,
            bindings=(OUTPUT, FIRST, THIRD) if chosen == SHARED else (OUTPUT, FIRST, SECOND, THIRD),
        )
    )
    is_owned = bool(desc.table_tensor.flags & TensorFlags.OWNED_BY_DML)
    return Plan(
        path=chosen,
        stages=(*(() if is_owned or not copying else (copying,)), dispatches),
        initialization=(copying,) if is_owned and copying else (),
        scratch_size=builder.scratch.size,
        persistent_size=builder.persistent.size,
    )


@dataclass(frozen=True)
class _Order:
    """The order in memory of an output without gaps, and of an input like it: {outer, axis, inner}."""

    outer: int
    axis: int
    inner: int

    @classmethod
    def of(cls, desc: ByteTableDesc) -> _Order | None:
        """None if the tensors have gaps or broadcast, or another order than each other."""
        output, axis = desc.output_tensor, desc.axis
        if axis is None or desc.second_input_tensor is not None:
            return None
        strides = output.element_strides
        by_stride = sorted((k for k in range(output.rank) if output.sizes[k] > 1), key=lambda k: -strides[k])
        step = 1
        for k in reversed(by_stride):
            if strides[k] != step or desc.input_tensor.element_strides[k] != step:
                return None
            step *= output.sizes[k]
        if output.sizes[axis] == 1:
            return None
        place = by_stride.index(axis)
        inner = math.prod(output.sizes[k] for k in by_stride[place + 1 :])
        return cls(step // (output.sizes[axis] * inner), output.sizes[axis], inner)

    def tables_of_workgroup(self, shared_memory: int) -> int | None:
        """Tables that a workgroup takes: as few as fill a run; None if whole vectors belong to no such number."""
        most = min(MOST_TABLES, shared_memory // SHARED_TABLE_SIZE)
        possible = [k for k in range(1, most + 1) if self.axis % k == 0 and k * self.inner % UNIT == 0]
        return next((k for k in possible if k * self.inner >= LEAST_RUN), possible[-1] if possible else None)


def _needs_many_tables(desc: ByteTableDesc) -> bool:
    """Whether neighbouring invocations need many tables: a cache serves those that need one or two as fast."""
    order = _Order.of(desc)
    return order is not None and order.inner < UNIT * LARGEST_SUBGROUP


def _along_axis(desc: ByteTableDesc, builder: PlanBuilder, table: str) -> tuple[Dispatch, ...]:
    """The dispatches of kernels/byte_table/tables.comp; none if it does not suit the layout."""
    order, profile = _Order.of(desc), builder.profile
    tables = order and order.tables_of_workgroup(profile.limits.max_compute_shared_memory_size)
    if not order or not tables or not builder.fits(table, (0, order.axis * TABLE_SIZE)):
        return ()
    row = order.axis * order.inner
    most = min(builder.window_limit - BLOCK_SIZE, builder.elements_per_dispatch) // row
    dispatches = []
    for first in range(0, order.outer, max(most, 1)):
        end = min(first + most, order.outer)
        bounds = first * row, end * row
        if (
            most == 0
            or row % UNIT
            or not all(builder.fits(field, bounds) for field in ("input_tensor", "output_tensor"))
        ):
            return ()
        groups = order.axis // tables
        vectors = tables * order.inner // UNIT
        batch = VECTORS_AT_ONCE * builder.workgroup_size // vectors
        of_workgroup = _outer_of_workgroup(order, end - first, groups, batch, rates_of(profile).processors)
        dispatch = DispatchBuilder("byte_table/tables")
        dispatch.window("output_tensor", bounds, bounds[0], UNIT, "output_start", Access.WRITE)
        dispatch.window("input_tensor", bounds, bounds[0], UNIT, "input_start", Access.READ)
        dispatch.window(table, (0, order.axis * TABLE_SIZE), 0, UNIT, "table_start", Access.READ)
        dispatch.push(outer_count=end - first, outer_of_workgroup=of_workgroup, groups=groups)
        count = (end - first) * row
        dispatches.append(
            dispatch.finish(
                {LOCAL_SIZE_X: builder.workgroup_size, "TABLES": tables, "INNER": order.inner},
                builder.grid(-(-(end - first) // of_workgroup) * groups, 1),
                seconds=builder.element_seconds(count),
                bytes_moved=2 * count + order.axis * TABLE_SIZE,
            )
        )
    return tuple(dispatches)


def _outer_of_workgroup(order: _Order, outer: int, groups: int, batch: int, processors: float) -> int:
    """The outer coordinates that a workgroup takes; in `batch` of them, each invocation has all its loads at once."""
    # It reads and writes 2 * inner bytes for each table and outer coordinate.
    least, enough = (-(-share * TABLE_SIZE // (2 * order.inner)) for share in (LEAST_SHARE, ENOUGH_SHARE))
    for_all = math.ceil(outer * groups / (WORKGROUPS_OF_PROCESSOR * processors))
    return min(outer, max(least, min(max(enough, batch), for_all)))


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
