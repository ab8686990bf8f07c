"""QUANTIZED_LINEAR_CONVOLUTION_TABLE: the table is the last step of the convolution's kernel, if that has such a form.

The paths are those of the convolution. A path whose kernel has no such form, or parameters or a table that may change:
the convolution's output goes to scratch memory, and a kernel of BYTE_TABLE looks it up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from dmlvk.device_profile import DeviceProfile
from dmlvk.planning.builder import Arena, PlanBuilder, View, copies
from dmlvk.planning.byte_table import plan as plan_byte_table
from dmlvk.planning.kernel_interface import kernel_interface
from dmlvk.planning.last_step import HAS_TABLE, OUTPUT, TABLE_SIZE, in_last_step, moved, stored_in_scratch
from dmlvk.planning.plan import PERSISTENT, SCRATCH, Access, Dispatch, Plan, Window
from dmlvk.planning.quantized_linear_convolution import PATHS as PATHS
from dmlvk.planning.quantized_linear_convolution import close_paths as close_convolution_paths
from dmlvk.planning.quantized_linear_convolution import plan as plan_convolution
from dmlvk.tensor_desc import TensorFlags

if TYPE_CHECKING:
    from dmlvk.operators import QuantizedLinearConvolutionTableDesc

TABLE = "table_tensor"
# The binding of the input's scale, which kernels do not read if channels are prepared.
TABLE_BINDING = 3


def plan(
    desc: QuantizedLinearConvolutionTableDesc,
    profile: DeviceProfile,
    *,
    path: str | None = None,
    offsets: Mapping[str, int],
) -> Plan:
    """Plan a QUANTIZED_LINEAR_CONVOLUTION_TABLE."""
    # If the table is apart, the convolution's output lies elsewhere.
    convolved = {field: offset for field, offset in offsets.items() if field != OUTPUT}
    convolution = plan_convolution(desc.convolution, profile, path=path, offsets=convolved)
    builder = PlanBuilder(
        profile,
        offsets,
        scratch=Arena(SCRATCH, convolution.scratch_size),
        persistent=Arena(PERSISTENT, convolution.persistent_size),
    )
    if not desc.table_tensor.flags & TensorFlags.OWNED_BY_DML or OUTPUT in offsets:
        return _apart(desc, profile, convolution, builder)
    table = View(PERSISTENT, builder.allocate(builder.persistent, TABLE_SIZE), 1, (1,))
    stages = in_last_step(convolution.stages, profile, lambda dispatch: _with_table(dispatch, table))
    if stages is None:
        return _apart(desc, profile, convolution, builder)
    source = View(TABLE, 0, 1, desc.table_tensor.element_strides)
    return replace(
        convolution,
        stages=stages,
        initialization=(*convolution.initialization, tuple(copies(builder, source, table, (TABLE_SIZE,)))),
        persistent_size=builder.persistent.size,
    )


def close_paths(desc: QuantizedLinearConvolutionTableDesc, profile: DeviceProfile, *, every: bool = False) -> list[str]:
    """As for the convolution, whose tiles make most of the time."""
    return close_convolution_paths(desc.convolution, profile, every=every)


def _with_table(dispatch: Dispatch, table: View) -> Dispatch | None:
    """A dispatch whose kernel looks up what it stores; None if the kernel has no such form, or reads scales."""
    names = kernel_interface(dispatch.kernel).specialization_constants
    constants = dict(zip(names, dispatch.specialization, strict=True))
    if HAS_TABLE not in constants or not constants["PREPARED"]:
        return None
    # A region of persistent memory lies where every device can bind it: nothing is ever added to the push constant.
    window = Window(table.tensor, table.start, TABLE_SIZE, Access.READ, 0, 1)
    windows = (*dispatch.windows[:TABLE_BINDING], window, *dispatch.windows[TABLE_BINDING + 1 :])
    return replace(dispatch, specialization=tuple({**constants, HAS_TABLE: 1}.values()), windows=windows)


def _apart(
    desc: QuantizedLinearConvolutionTableDesc, profile: DeviceProfile, convolution: Plan, builder: PlanBuilder
) -> Plan:
    """A convolution's plan, with its output in scratch memory, and a stage that looks it up."""
    # As planned, the output is whole in a segment, or begins one.
    start = builder.allocate(builder.scratch, desc.output_tensor.total_size_in_bytes)
    places = {field: offset for field, offset in builder.offsets.items() if field in (TABLE, OUTPUT)}
    lookup = plan_byte_table(desc.lookup, profile, offsets=places)
    own = {
        "input_tensor": (SCRATCH, start),
        SCRATCH: (SCRATCH, builder.allocate(builder.scratch, lookup.scratch_size)),
        PERSISTENT: (PERSISTENT, builder.allocate(builder.persistent, lookup.persistent_size)),
    }
    return replace(
        convolution,
        stages=(*stored_in_scratch(convolution.stages, start), *moved(lookup.stages, own)),
        initialization=(*convolution.initialization, *moved(lookup.initialization, own)),
        scratch_size=builder.scratch.size,
        persistent_size=builder.persistent.size,
    )
