"""ELEMENT_WISE_QUANTIZED_LINEAR_ADD: a table of all pairs of bytes is made first, once if the parameters are owned.

sum
    The sum in floats, if it is right for all pairs of bytes on this device, which a kernel finds out; else the table.
table
    The table alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dmlvk.data_type import DataType
from dmlvk.device_profile import DeviceProfile, DeviceType
from dmlvk.planning.builder import DispatchBuilder, PlanBuilder, View, copies
from dmlvk.planning.families.element_wise import FIRST, SECOND, THIRD, Stepping, element_wise_dispatches
from dmlvk.planning.kernel_interface import LOCAL_SIZE_X
from dmlvk.planning.loop_nest import LoopOperand
from dmlvk.planning.plan import PERSISTENT, Access, Dispatch, Plan, require_path
from dmlvk.tensor_desc import TensorFlags

if TYPE_CHECKING:
    from dmlvk.operators import ElementWiseQuantizedLinearAddDesc

SUM, TABLE = "sum", "table"
PATHS = (SUM, TABLE)
FOLDER = "element_wise_quantized_linear_add"
# Bytes that an invocation writes.
UNIT = 16
BLOCK_SIZE = 16

TENSORS = ("a_tensor", "b_tensor", "output_tensor")
SCALES = ("a_scale_tensor", "b_scale_tensor", "output_scale_tensor")
ZERO_POINTS = ("a_zero_point_tensor", "b_zero_point_tensor", "output_zero_point_tensor")
PARAMETERS = SCALES + ZERO_POINTS

# As kernels/element_wise_quantized_linear_add/table.comp writes them: four numbers, and a byte for each pair of bytes.
PAIRS = 1 << 16
TABLE_SIZE = BLOCK_SIZE + PAIRS
# An invocation of table.comp writes a word. It takes as long as copying this many elements.
INVOCATIONS = PAIRS // 4
ELEMENTS_PER_INVOCATION = 16


@dataclass(frozen=True)
class SumTable:
    """The table that kernels read, with the numbers before it, and the stages that fill it.

    before_each_run, once: the stages, of which one of the two has none: the table is made once if all parameters are
        OWNED_BY_DML.
    """

    view: View
    before_each_run: tuple[tuple[Dispatch, ...], ...]
    once: tuple[tuple[Dispatch, ...], ...]

    @classmethod
    def of(cls, desc: ElementWiseQuantizedLinearAddDesc, builder: PlanBuilder, *, is_checked: bool) -> SumTable:
        """The table of a sum, in memory of a builder; for sums in floats, if these are held against it."""
        parameters = [desc.tensors[field] for field in PARAMETERS if field in desc.tensors]
        is_owned = all(tensor.flags & TensorFlags.OWNED_BY_DML for tensor in parameters)
        arena = builder.persistent if is_owned else builder.scratch
        view = View(arena.name, builder.allocate(arena, TABLE_SIZE), 1, (1,))
        stages = _preparation(desc, builder, view)
        if is_checked:
            stages = (*stages, (_check(desc, builder, view),))
        return cls(view, *(((), stages) if is_owned else (stages, ())))


def plan(
    desc: ElementWiseQuantizedLinearAddDesc,
    profile: DeviceProfile,
    *,
    path: str | None = None,
    offsets: Mapping[str, int],
) -> Plan:
    """Plan an ELEMENT_WISE_QUANTIZED_LINEAR_ADD."""
    require_path(desc.operator_name, path, PATHS)
    chosen = path or (SUM if has_floats(profile) else TABLE)
    builder = PlanBuilder(profile, offsets)
    table = SumTable.of(desc, builder, is_checked=chosen == SUM)
    return Plan(
        path=chosen,
        stages=(*table.before_each_run, sums(desc, profile, table, offsets, in_floats=chosen == SUM)),
        initialization=table.once,
        scratch_size=builder.scratch.size,
        persistent_size=builder.persistent.size,
    )


def sums(
    desc: ElementWiseQuantizedLinearAddDesc,
    profile: DeviceProfile,
    table: SumTable,
    offsets: Mapping[str, int],
    *,
    in_floats: bool,
) -> tuple[Dispatch, ...]:
    """The dispatches that add; without `in_floats`, they look each sum up in the table."""
    output = desc.output_tensor
    tensors = [
        Stepping.of(FIRST, "a_tensor", desc.a_tensor, output.rank),
        Stepping.of(SECOND, "b_tensor", desc.b_tensor, output.rank),
        Stepping(THIRD, LoopOperand(table.view.tensor, TABLE_SIZE), (0,) * output.rank),
    ]
    dispatches = element_wise_dispatches(
        f"{FOLDER}/sum",
        UNIT,
        ("output_tensor", output),
        tensors,
        profile,
        specialization={"HAS_FLOATS": int(in_floats), "SUM_UNSIGNED_TYPES": unsigned_types(desc)},
        offsets=offsets,
    )
    # The loop nest begins at the start of the table's memory, before which other things may lie.
    return tuple(
        replace(
            dispatch,
            windows=tuple(
                replace(window, offset=window.offset + table.view.start)
                if window.tensor == table.view.tensor
                else window
                for window in dispatch.windows
            ),
        )
        for dispatch in dispatches
    )


def has_floats(profile: DeviceProfile) -> bool:
    """Whether sums in floats are faster than the table. A CPU driver takes both branches for each group of lanes."""
    return profile.device_type is not DeviceType.CPU


def unsigned_types(desc: ElementWiseQuantizedLinearAddDesc) -> int:
    return sum(int(desc.tensors[field].data_type is DataType.UINT8) << bit for bit, field in enumerate(TENSORS))


def _check(desc: ElementWiseQuantizedLinearAddDesc, builder: PlanBuilder, table: View) -> Dispatch:
    """Hold the sums in floats against the table."""
    dispatch = DispatchBuilder(f"{FOLDER}/check")
    bounds = table.start, table.start + TABLE_SIZE
    dispatch.window(table.tensor, bounds, table.start, BLOCK_SIZE, "table_start", Access.WRITE)
    return dispatch.finish(
        {LOCAL_SIZE_X: builder.workgroup_size, "SUM_UNSIGNED_TYPES": unsigned_types(desc)},
        builder.grid(INVOCATIONS),
        seconds=builder.element_seconds(INVOCATIONS * ELEMENTS_PER_INVOCATION),
        bytes_moved=TABLE_SIZE,
    )


def _preparation(
    desc: ElementWiseQuantizedLinearAddDesc, builder: PlanBuilder, table: View
) -> tuple[tuple[Dispatch, ...], ...]:
    """The stages that fill the table. On devices with few storage buffers, the first gathers the parameters."""
    tensors = desc.tensors
    views = {
        field: View(field, 0, tensors[field].data_type.size_in_bytes, (0,)) for field in PARAMETERS if field in tensors
    }
    is_gathered = builder.profile.limits.max_per_stage_descriptor_storage_buffers <= len(PARAMETERS)
    gathering: list[Dispatch] = []
    kernel = "table_of_gathered" if is_gathered else "table"
    dispatch = DispatchBuilder(f"{FOLDER}/{kernel}")
    bounds = table.start, table.start + TABLE_SIZE
    dispatch.window(table.tensor, bounds, table.start, BLOCK_SIZE, "table_start", Access.WRITE)
    if is_gathered:
        arena = builder.persistent if table.tensor == PERSISTENT else builder.scratch
        start = arena.allocate(BLOCK_SIZE * len(PARAMETERS))
        for index, field in enumerate(PARAMETERS):
            if field in views:
                place = View(arena.name, start + BLOCK_SIZE * index, views[field].element_size, (0,))
                gathering += copies(builder, views[field], place, (1,))
        bounds = start, start + BLOCK_SIZE * len(PARAMETERS)
        dispatch.window(arena.name, bounds, start, BLOCK_SIZE, "parameters_start", Access.READ)
    else:
        for index, field in enumerate(PARAMETERS):
            view, place_of_start = views.get(field), f"starts[{index}]"
            if view is None:
                dispatch.unread_window(dispatch.windows[1], place_of_start)
            else:
                bounds = view.bounds([(0, 1)])
                dispatch.window(view.tensor, bounds, view.start, view.element_size, place_of_start, Access.READ)
    present = sum(int(field in views) << bit for bit, field in enumerate(ZERO_POINTS))
    dispatch.push(present=present, unsigned_types=unsigned_types(desc))
    filling = dispatch.finish(
        {LOCAL_SIZE_X: builder.workgroup_size},
        builder.grid(INVOCATIONS),
        seconds=builder.element_seconds(INVOCATIONS * ELEMENTS_PER_INVOCATION),
        bytes_moved=TABLE_SIZE,
    )
    return (tuple(gathering), (filling,)) if is_gathered else ((filling,),)
