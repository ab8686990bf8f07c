"""BYTE_SOFTMAX: a workgroup's invocations are lanes of some rows. For its paths see `dmlvk.planning.float32`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product, zip_longest

from dmlvk.data_type import DataType
from dmlvk.device_profile import DeviceProfile
from dmlvk.operators import ByteSoftmaxDesc
from dmlvk.planning.builder import (
    DISPATCH_SECONDS,
    SLOWEST_ELEMENTS_PER_SECOND,
    Box,
    DispatchBuilder,
    Excess,
    PlanBuilder,
    View,
    output_boxes,
    reach,
    sizes_of,
    whole,
)
from dmlvk.planning.byte_table import packed_table, plan_with_tables
from dmlvk.planning.float32 import PATHS, chosen_path
from dmlvk.planning.grid import folded
from dmlvk.planning.kernel_interface import LOCAL_SIZE_X
from dmlvk.planning.plan import SCRATCH, Access, Dispatch, Plan

__all__ = ["PATHS", "plan"]

# As kernels/byte_softmax/softmax.glsl has it: one dispatch makes all of a row; of rows that are cut, each of three
# passes goes over all parts.
ALL, PASSES = 0, (1, 2, 3)
WORD_SIZE, STATE_SIZE = 4, 8
# An element takes as long as this number of copied ones; and the slowest additions, one after the other, in a second.
WORK_OF_ELEMENT = 8
ADDITIONS_PER_SECOND = 10e6


def plan(desc: ByteSoftmaxDesc, profile: DeviceProfile, *, path: str | None = None, offsets: Mapping[str, int]) -> Plan:
    """Plan a BYTE_SOFTMAX: see `dmlvk.planning.plan`."""
    return _SoftmaxPlanner(desc, PlanBuilder(profile, offsets), chosen_path(desc, profile, path)).plan()


@dataclass(frozen=True)
class _SoftmaxPlanner:
    desc: ByteSoftmaxDesc
    builder: PlanBuilder
    path: str

    def plan(self) -> Plan:
        table, copying = packed_table(self.desc.table_tensor, self.builder)
        ranges = whole(self.desc.input_tensor.sizes)
        uncut, cut = output_boxes(ranges[:2], ranges[2:], self._excess, 1)
        first = tuple(self._dispatch((*box, *ranges[2:]), table) for box in uncut)
        rows = [self._passes(box, parts, table) for box, parts in cut]
        stages = [first] if first else []
        stages += [tuple(filter(None, together)) for together in zip_longest(*rows)]
        return plan_with_tables(self.path, [(self.desc.table_tensor, copying)], stages, self.builder)

    def _passes(self, row: Box, parts: list[Box], table: str) -> Iterator[Dispatch]:
        """The dispatches of a row that is cut, each of which goes on from the one before."""
        state = self.builder.allocate(self.builder.scratch, STATE_SIZE)
        for number, part in product(PASSES, parts):
            yield self._dispatch((*row, *part), table, number, state, is_first=part is parts[0])

    @cached_property
    def _views(self) -> tuple[View, View]:
        tensors = {"input_tensor": self.desc.input_tensor, "output_tensor": self.desc.output_tensor}
        source, output = (View(name, 0, 1, tensor.element_strides) for name, tensor in tensors.items())
        return source, output

    def _seconds(self, box: Box) -> float:
        rows, inner, length = sizes_of(box)
        rate = SLOWEST_ELEMENTS_PER_SECOND[self.builder.profile.device_type]
        return rows * inner * length * WORK_OF_ELEMENT / rate + length / ADDITIONS_PER_SECOND

    def _excess(self, rows: Box, elements: Box) -> Excess | None:
        box = (*rows, *elements)
        for view in self._views:
            if not self.builder.fits(view.tensor, view.bounds(box)):
                far = reach(view, box)
                return Excess(far[:2], far[2:])
        return Excess((0, 0), (0,)) if self._seconds(box) > DISPATCH_SECONDS else None

    def _dispatch(
        self, box: Box, table: str, number: int = ALL, state: int | None = None, *, is_first: bool = True
    ) -> Dispatch:
        desc, (outer, inner, length) = self.desc, sizes_of(box)
        source, output = self._views
        dispatch = DispatchBuilder(f"byte_softmax/{self.path}")
        dispatch.show(source, box, "input_start")
        size_of_table = desc.table_tensor.element_count * WORD_SIZE
        dispatch.window(table, (0, size_of_table), 0, WORD_SIZE, "table_start", Access.READ)
        dispatch.show(output, box, "output_start", Access.WRITE)
        if state is None:
            dispatch.unread_window(dispatch.windows[0], "state_start")
        else:
            dispatch.window(SCRATCH, (state, state + STATE_SIZE), state, WORD_SIZE, "state_start", Access.WRITE)
        dispatch.push(
            rows=outer * inner,
            inner=inner,
            count=length,
            largest_term=127 + 126 - desc.input_tensor.sizes[2].bit_length() << 23,
            steps=desc.output_steps,
            zero_point=desc.output_zero_point & 0xFFFFFFFF,
            input_strides=source.strides,
            output_strides=output.strides,
        )
        size = self.builder.workgroup_size
        lanes = min(size, 1 << (length - 1).bit_length())
        rows = size // lanes
        return dispatch.finish(
            {
                LOCAL_SIZE_X: size,
                "LANES": lanes,
                "ROWS": rows,
                "LANE_IS_OUTER": int(source.strides[2] != 1),
                "IS_SIGNED": int(desc.input_tensor.data_type is DataType.INT8),
                "PASS": number,
                "IS_FIRST": int(is_first),
            },
            folded(-(-outer * inner // rows), self.builder.profile),
            seconds=self._seconds(box),
            bytes_moved=2 * outer * inner * length,
        )
