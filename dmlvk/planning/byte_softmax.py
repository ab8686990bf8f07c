"""BYTE_SOFTMAX: a workgroup's invocations are lanes of some rows.

rows
    In floats, where there are more rows than processors and they are packed: an invocation adds up a row, and its
    neighbours the rows beside it. What does not suit it runs as `float32`.
float32, integers
    The invocations of a row look up its terms, and the first of them adds. See `dmlvk.planning.float32`.
"""

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
from dmlvk.planning.device_rates import rates_of
from dmlvk.planning.float32 import FLOAT32, chosen_path
from dmlvk.planning.float32 import PATHS as PATHS_OF_NUMBERS
from dmlvk.planning.grid import folded
from dmlvk.planning.kernel_interface import LOCAL_SIZE_X
from dmlvk.planning.plan import SCRATCH, Access, Dispatch, Plan, require_path

__all__ = ["PATHS", "plan"]

ROWS = "rows"
PATHS = (*PATHS_OF_NUMBERS, ROWS)
# As kernels/byte_softmax/rows.comp has it: bytes of the table in shared memory, and of a row beside its elements. The
# rows' bytes are at most so many that a subgroup of 32 adds up rows of 1,000.
TABLE_SIZE, STATE_OF_ROW, LARGEST_STAGE = 8 << 10, 12, 20 << 10
# Elements of a row in a word are those of two rows at most.
LEAST_LENGTH = 4
# As kernels/byte_softmax/softmax.glsl has it: one dispatch makes all of a row; of rows that are cut, each of three
# passes goes over all parts.
ALL, PASSES = 0, (1, 2, 3)
WORD_SIZE, STATE_SIZE = 4, 8
# An element takes as long as this number of copied ones; and the slowest additions, one after the other, in a second.
WORK_OF_ELEMENT = 8
ADDITIONS_PER_SECOND = 10e6


def plan(desc: ByteSoftmaxDesc, profile: DeviceProfile, *, path: str | None = None, offsets: Mapping[str, int]) -> Plan:
    """Plan a BYTE_SOFTMAX: see `dmlvk.planning.plan`."""
    require_path(desc.operator_name, path, PATHS)
    numbers = chosen_path(desc, profile, FLOAT32 if path == ROWS else path)
    takes_rows = path == ROWS or (path is None and numbers == FLOAT32)
    return _SoftmaxPlanner(desc, PlanBuilder(profile, offsets), numbers, path, takes_rows).plan()


@dataclass(frozen=True)
class _SoftmaxPlanner:
    desc: ByteSoftmaxDesc
    builder: PlanBuilder
    numbers: str
    forced_path: str | None
    takes_rows: bool

    def plan(self) -> Plan:
        table, copying = packed_table(self.desc.table_tensor, self.builder)
        ranges = whole(self.desc.input_tensor.sizes)
        uncut, cut = output_boxes(ranges[:2], ranges[2:], self._excess, 1)
        first = tuple(self._dispatch((*box, *ranges[2:]), table) for box in uncut)
        rows = [self._passes(box, parts, table) for box, parts in cut]
        stages = [first] if first else []
        stages += [tuple(filter(None, together)) for together in zip_longest(*rows)]
        path = self.forced_path or (
            ROWS if any(each.kernel == f"byte_softmax/{ROWS}" for each in first) else self.numbers
        )
        return plan_with_tables(path, [(self.desc.table_tensor, copying)], stages, self.builder)

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
        of_rows = self._specialization_of_rows(box) if number == ALL else {}
        dispatch = DispatchBuilder(f"byte_softmax/{ROWS if of_rows else self.numbers}")
        dispatch.show(source, box, "input_start")
        size_of_table = desc.table_tensor.element_count * WORD_SIZE
        dispatch.window(table, (0, size_of_table), 0, WORD_SIZE, "table_start", Access.READ)
        dispatch.show(output, box, "output_start", Access.WRITE)
        if of_rows:
            dispatch.push(state_start=0)
        elif state is None:
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
        rows = of_rows.get("ROWS", size // lanes)
        of_lanes = {
            "LANES": lanes,
            "ROWS": rows,
            "LANE_IS_OUTER": int(source.strides[2] != 1),
            "PASS": number,
            "IS_FIRST": int(is_first),
        }
        is_signed = int(desc.input_tensor.data_type is DataType.INT8)
        return dispatch.finish(
            {LOCAL_SIZE_X: size, "IS_SIGNED": is_signed, **(of_rows or of_lanes)},
            folded(-(-outer * inner // rows), self.builder.profile),
            seconds=self._seconds(box),
            bytes_moved=2 * outer * inner * length,
        )

    def _specialization_of_rows(self, box: Box) -> dict[str, int]:
        """That of kernels/byte_softmax/rows.comp; none if it does not suit the layout, or rows are few or long."""
        (outer, inner, length), profile = sizes_of(box), self.builder.profile
        if not self.takes_rows or length < LEAST_LENGTH:
            return {}
        for view in self._views:
            steps = (inner * length if outer > 1 else None, length if inner > 1 else None, 1)
            is_packed = all(step in (None, stride) for step, stride in zip(steps, view.strides, strict=True))
            if not is_packed or view.address([low for low, _ in box]) % WORD_SIZE:
                return {}
        room = min(profile.limits.max_compute_shared_memory_size - TABLE_SIZE, LARGEST_STAGE) - WORD_SIZE
        words = length // WORD_SIZE
        # An odd number of words, so that the rows of neighbouring invocations lie in different banks.
        pitch = words | 1 if length % WORD_SIZE == 0 else 0
        most = room // ((pitch * WORD_SIZE or length) + STATE_OF_ROW)
        processors = int(rates_of(profile).processors)
        if self.forced_path is None:
            most = min(most, outer * inner // processors)
        rows = 1 << max(0, most.bit_length() - 1)
        if rows < WORD_SIZE:
            return {}
        return {
            "LENGTH": length,
            "ROWS": rows,
            "PITCH": pitch,
            "STAGED_WORDS": rows * pitch or rows * length // WORD_SIZE,
        }
