"""BYTE_TABLE: a table's bytes in place of an input's, or of a pair of inputs'.

shared
    A workgroup first loads the table into shared memory, some of the tables along an axis, or most of a table of pairs.
    For one table of 256 bytes; and for the others, where inputs and output are packed in the same order.
buffer
    Tables are read where they lie. For any layout.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dmlvk.device_profile import DeviceProfile, DeviceType
from dmlvk.errors import PathError
from dmlvk.planning.builder import BLOCK_SIZE, Arena, DispatchBuilder, PlanBuilder, View, copies, whole
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
VECTORS_AT_ONCE = 2
# A workgroup's elements at one outer coordinate are a run of at least this many bytes, two sectors of a cache, if there
# are as many: memory is read in such runs.
LEAST_RUN = 64
# Tables of a workgroup. Those of more would leave room for few workgroups beside each other.
MOST_TABLES = 64
# A workgroup moves at least as many bytes as it loads of tables; eight times as many, if it can have them and all
# processors have several workgroups, since those wait for each other's loads.
LEAST_SHARE, ENOUGH_SHARE = 1, 8
WORKGROUPS_OF_PROCESSOR = 8
# Of kernels/byte_table/pairs.comp: bytes of a table; invocations of a workgroup, if the device takes so many; and the
# bytes that a workgroup moves, at least, for each byte of the table that it loads. A processor has one workgroup: a
# second one would load the same table, and leave the rest of it less room in the processor's cache.
PAIRS_SIZE = 65536
LARGEST_WORKGROUP = 1024
SHARE_OF_PAIRS = 4


def plan(desc: ByteTableDesc, profile: DeviceProfile, *, path: str | None = None, offsets: Mapping[str, int]) -> Plan:
    """Plan a BYTE_TABLE."""
    require_path(desc.operator_name, path, PATHS)
    is_single = desc.second_input_tensor is None and desc.axis is None
    builder = PlanBuilder(profile, offsets)
    table, copying = packed_table(desc.table_tensor, builder)
    packed: tuple[Dispatch, ...] = ()
    if path != BUFFER and not is_single:
        packed = _pairs(desc, builder, table) if desc.axis is None else _along_axis(desc, builder, table)
    if path == SHARED and not (is_single or packed):
        raise PathError(
            f"{desc.operator_name} has the path {SHARED!r} for one table of 256 bytes; and where inputs and output are "
            "packed in the same order, and whole vectors of 16 bytes belong to at most 64 tables: for tables along an "
            "axis, and for one table of pairs"
        )
    # CPU drivers have no shared memory that is nearer than a cache, and a barrier costs them much.
    is_gpu = profile.device_type is not DeviceType.CPU
    pays = is_single or (packed and (_is_large(desc, profile) if desc.axis is None else _needs_many_tables(desc)))
    chosen = path or (SHARED if is_gpu and pays else BUFFER)
    output = desc.output_tensor
    along = tuple(int(k == desc.axis) for k in range(output.rank))
    tensors = [Stepping.of(FIRST, "input_tensor", desc.input_tensor, output.rank)]
    if desc.second_input_tensor is not None:
        tensors.append(Stepping.of(SECOND, "second_input_tensor", desc.second_input_tensor, output.rank))
    tensors.append(Stepping(THIRD, LoopOperand(table, desc.table_length), along))
    dispatches = (
        packed
        if chosen == SHARED and packed
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
    return plan_with_tables(chosen, [(desc.table_tensor, copying)], (dispatches,), builder)


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
        by_stride = _packed_order(output, desc.input_tensor)
        if axis is None or desc.second_input_tensor is not None or by_stride is None or output.sizes[axis] == 1:
            return None
        place = by_stride.index(axis)
        inner = math.prod(output.sizes[k] for k in by_stride[place + 1 :])
        return cls(output.element_count // (output.sizes[axis] * inner), output.sizes[axis], inner)

    def tables_of_workgroup(self, shared_memory: int) -> int | None:
        """Tables that a workgroup takes: as few as fill a run; None if whole vectors belong to no such number."""
        most = min(MOST_TABLES, shared_memory // SHARED_TABLE_SIZE)
        possible = [k for k in range(1, most + 1) if self.axis % k == 0 and k * self.inner % UNIT == 0]
        return next((k for k in possible if k * self.inner >= LEAST_RUN), possible[-1] if possible else None)


def _packed_order(output: TensorDesc, *inputs: TensorDesc) -> list[int] | None:
    """The dimensions by their strides, outermost first; None if tensors have gaps, broadcast, or differ in order."""
    strides = output.element_strides
    by_stride = sorted((k for k in range(output.rank) if output.sizes[k] > 1), key=lambda k: -strides[k])
    step = 1
    for k in reversed(by_stride):
        if any(tensor.element_strides[k] != step for tensor in (output, *inputs)):
            return None
        step *= output.sizes[k]
    return by_stride


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


def _room_for_pairs(profile: DeviceProfile) -> int:
    """The bytes of a table of pairs that a workgroup has in shared memory."""
    return min(PAIRS_SIZE, profile.limits.max_compute_shared_memory_size // UNIT * UNIT)


def _is_large(desc: ByteTableDesc, profile: DeviceProfile) -> bool:
    """Whether a workgroup of each processor moves much more than the table of pairs that it loads."""
    share = 3 * desc.output_tensor.element_count / rates_of(profile).processors
    return share >= SHARE_OF_PAIRS * _room_for_pairs(profile)


def _pairs(desc: ByteTableDesc, builder: PlanBuilder, table: str) -> tuple[Dispatch, ...]:
    """The dispatches of kernels/byte_table/pairs.comp; none if it does not suit the layout."""
    second, count, profile = desc.second_input_tensor, desc.output_tensor.element_count, builder.profile
    if second is None or count % UNIT or _packed_order(desc.output_tensor, desc.input_tensor, second) is None:
        return ()
    room, limits = _room_for_pairs(profile), profile.limits
    # As many invocations as possible share a table.
    size = min(LARGEST_WORKGROUP, limits.max_compute_work_group_invocations, limits.max_compute_work_group_size[0])
    most = min(builder.window_limit - BLOCK_SIZE, builder.elements_per_dispatch) // UNIT * UNIT
    fields = ("output_tensor", "input_tensor", "second_input_tensor")
    dispatches = []
    for first in range(0, count, max(most, 1)):
        bounds = first, min(first + most, count)
        if most == 0 or not builder.fits(table, (0, PAIRS_SIZE)) or not all(builder.fits(f, bounds) for f in fields):
            return ()
        bytes_moved = 3 * (bounds[1] - first)
        workgroups = max(1, round(rates_of(profile).processors))
        dispatch = DispatchBuilder("byte_table/pairs")
        for field, start in zip(fields, ("output_start", "first_start", "second_start"), strict=True):
            access = Access.WRITE if field == "output_tensor" else Access.READ
            dispatch.window(field, bounds, first, UNIT, start, access)
        dispatch.window(table, (0, PAIRS_SIZE), 0, UNIT, "table_start", Access.READ)
        vectors = (bounds[1] - first) // UNIT
        dispatch.push(count=vectors, vectors_of_workgroup=-(-vectors // workgroups))
        dispatches.append(
            dispatch.finish(
                {LOCAL_SIZE_X: size, "SHARED_WORDS": room // 4},
                builder.grid(workgroups, 1),
                seconds=builder.element_seconds(bounds[1] - first),
                bytes_moved=bytes_moved + PAIRS_SIZE,
            )
        )
    return tuple(dispatches)


def _outer_of_workgroup(order: _Order, outer: int, groups: int, batch: int, processors: float) -> int:
    """The outer coordinates that a workgroup takes; in `batch` of them, each invocation has all its loads at once."""
    # It reads and writes 2 * inner bytes for each table and outer coordinate.
    least, enough = (-(-share * TABLE_SIZE // (2 * order.inner)) for share in (LEAST_SHARE, ENOUGH_SHARE))
    for_all = math.ceil(outer * groups / (WORKGROUPS_OF_PROCESSOR * processors))
    return min(outer, max(least, min(max(enough, batch), for_all)))


def plan_with_tables(
    path: str,
    tables: Sequence[tuple[TensorDesc, tuple[Dispatch, ...]]],
    stages: Sequence[tuple[Dispatch, ...]],
    builder: PlanBuilder,
) -> Plan:
    """The plan of stages that read packed tables, which are copied before them, or once if they are OWNED_BY_DML."""
    each_run, once = (
        tuple(
            dispatch
            for tensor, copying in tables
            for dispatch in copying
            if bool(tensor.flags & TensorFlags.OWNED_BY_DML) is is_owned
        )
        for is_owned in (False, True)
    )
    return Plan(
        path=path,
        stages=(each_run, *stages) if each_run else tuple(stages),
        initialization=(once,) if once else (),
        scratch_size=builder.scratch.size,
        persistent_size=builder.persistent.size,
    )


def packed_table(tensor: TensorDesc, builder: PlanBuilder) -> tuple[str, tuple[Dispatch, ...]]:
    """Where `table_tensor`, the only table, lies from the beginning on; and the dispatches that copy it there."""
    view, copying = packed_view("table_tensor", tensor, builder)
    return view.tensor, copying


def packed_view(field: str, tensor: TensorDesc, builder: PlanBuilder) -> tuple[View, tuple[Dispatch, ...]]:
    """A tensor of one or two dimensions, packed, in one window; and the dispatches that copy it there.

    It is copied if it has gaps or another order, or lies across two segments of its memory.
    """
    sizes, element_size = tensor.sizes, tensor.data_type.size_in_bytes
    source = View(field, 0, element_size, tensor.element_strides)
    if tensor.is_packed and builder.shows(source, whole(sizes)):
        return source, ()
    is_owned = tensor.flags & TensorFlags.OWNED_BY_DML
    arena: Arena = builder.persistent if is_owned else builder.scratch
    strides = (1,) if len(sizes) == 1 else (sizes[1], 1)
    start = builder.allocate(arena, tensor.element_count * element_size)
    destination = View(arena.name, start, element_size, strides)
    return destination, tuple(copies(builder, source, destination, sizes))
