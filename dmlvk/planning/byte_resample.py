"""BYTE_RESAMPLE: an invocation makes words of some rows of the output. For its paths see `dmlvk.planning.float32`.

Where the elements lie between which an output lies, only a run knows. So a dispatch shows all of a plane's elements, or
a part of them: then it makes those outputs that lie in the part.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from dmlvk.data_type import DataType
from dmlvk.device_profile import DeviceProfile
from dmlvk.operators import ByteResampleDesc
from dmlvk.operators.byte_softmax import limits_of
from dmlvk.planning.builder import (
    BLOCK_SIZE,
    DISPATCH_SECONDS,
    Box,
    DispatchBuilder,
    Excess,
    PlanBuilder,
    View,
    dense_copy,
    output_boxes,
    reach,
    sizes_of,
    whole,
)
from dmlvk.planning.byte_table import WORKGROUPS_OF_PROCESSOR, packed_view, plan_with_tables
from dmlvk.planning.device_rates import rates_of
from dmlvk.planning.float32 import PATHS, chosen_path
from dmlvk.planning.kernel_interface import LOCAL_SIZE_X
from dmlvk.planning.plan import Access, Dispatch, Plan

__all__ = ["PATHS", "plan"]

CHANNEL, COLUMN = 1, 3
WORD_SIZE = 4
# An element takes as long as this number of copied ones.
WORK_OF_ELEMENT = 16
# The most rows of an invocation: then a workgroup loads few thresholds, and finds few columns, for many outputs.
MOST_TURNS = 8


def plan(
    desc: ByteResampleDesc, profile: DeviceProfile, *, path: str | None = None, offsets: Mapping[str, int]
) -> Plan:
    """Plan a BYTE_RESAMPLE: see `dmlvk.planning.plan`."""
    return _Planner(desc, PlanBuilder(profile, offsets), chosen_path(desc, profile, path)).plan()


@dataclass(frozen=True)
class _Planner:
    desc: ByteResampleDesc
    builder: PlanBuilder
    path: str

    def plan(self) -> Plan:
        tables = {}
        for field in ("coordinate_tensor", "threshold_tensor"):
            tensor = getattr(self.desc, field)
            tables[field] = (tensor, *packed_view(field, tensor, self.builder))
        views = {field: view for field, (_, view, _) in tables.items()}
        outputs, taps = whole(self.desc.output_tensor.sizes), whole(self.desc.input_tensor.sizes[2:])
        uncut, cut = output_boxes(outputs, taps, self._excess, self.desc.output_tensor.element_count)
        copies: list[Dispatch] = []
        dispatches = [
            self._dispatch(box, part, views, copies)
            for box, parts in ([(box, [taps]) for box in uncut] + cut)
            for part in parts
        ]
        stages = [tuple(each) for each in (copies, dispatches) if each]
        copying = [(tensor, needed) for tensor, _, needed in tables.values()]
        return plan_with_tables(self.path, copying, stages, self.builder)

    @cached_property
    def _views(self) -> tuple[View, View]:
        tensors = {"input_tensor": self.desc.input_tensor, "output_tensor": self.desc.output_tensor}
        source, output = (View(name, 0, 1, tensor.element_strides) for name, tensor in tensors.items())
        return source, output

    def _read(self, box: Box, part: Box) -> Box:
        """The elements that are read: those of a part, and those behind them."""
        sizes = self.desc.input_tensor.sizes[2:]
        behind = ((low, min(high + 1, size)) for (low, high), size in zip(part, sizes, strict=True))
        return (*box[:2], *behind)

    def _seconds(self, box: Box) -> float:
        return self.builder.element_seconds(math.prod(sizes_of(box)) * WORK_OF_ELEMENT)

    def _excess(self, box: Box, part: Box) -> Excess | None:
        source, output = self._views
        if not self.builder.shows(output, box):
            return Excess(reach(output, box), (0, 0))
        if self._seconds(box) > DISPATCH_SECONDS:
            return Excess((0, 0, 0, 0), (0, 0))
        read = self._read(box, part)
        if self.builder.shows(source, read) or math.prod(sizes_of(read)) <= self._most_copied:
            return None
        batch, channels, *sizes = sizes_of(read)
        of_planes = (batch - 1, channels - 1, 0, 0)
        return Excess(of_planes, [size - 1 for size in sizes], by_outputs=any(of_planes))

    @property
    def _most_copied(self) -> int:
        return self.builder.window_limit - BLOCK_SIZE

    def _dispatch(self, box: Box, part: Box, tables: Mapping[str, View], copies: list[Dispatch]) -> Dispatch:
        desc, (source, output) = self.desc, self._views
        read = self._read(box, part)
        if not self.builder.shows(source, read):
            # Its elements are far from each other: they are brought together.
            first = View(source.tensor, source.address([low for low, _ in read]), 1, source.strides)
            copied, needed = dense_copy(self.builder, self.builder.scratch, first, sizes_of(read))
            copies += needed
            start = copied.start - sum(low * step for (low, _), step in zip(read, copied.strides, strict=True))
            source = View(copied.tensor, start, 1, copied.strides)
        height = desc.output_tensor.sizes[2]
        dispatch = DispatchBuilder(f"byte_resample/{self.path}")
        dispatch.show(source, read, "input_start", at=(box[0][0], box[1][0], 0, 0))
        for field, view in tables.items():
            dispatch.show(view, ((0, desc.tensors[field].element_count),), f"{field.removesuffix('_tensor')}_start")
        dispatch.show(output, box, "output_start", Access.WRITE)

        extents = sizes_of(box)
        lane_is_channels = output.strides[CHANNEL] == 1 and extents[CHANNEL] > 1
        lane = CHANNEL if lane_is_channels else COLUMN
        has_words = output.strides[lane] == 1 or extents[lane] == 1
        starts = (output.address([low for low, _ in box]), *(output.strides[k] for k in range(4) if k != lane))
        is_aligned = not any(start % WORD_SIZE for start in starts)
        reads_words = (
            lane_is_channels
            and is_aligned
            and extents[CHANNEL] % WORD_SIZE == 0
            and source.strides[CHANNEL] == 1
            and not any(k % WORD_SIZE for k in (source.address((box[0][0], box[1][0], 0, 0)), *source.strides[::2]))
            and source.strides[COLUMN] % WORD_SIZE == 0
        )
        # An invocation takes two words where the channels are pairs of them: then it finds a row's place for both.
        words = (2 if extents[CHANNEL] % (2 * WORD_SIZE) == 0 else 1) if reads_words else 0
        per_unit = WORD_SIZE * max(1, words) if has_words else 1
        # A row may begin and end inside a word.
        units = extents[lane] if not has_words else (extents[lane] + (per_unit - 1 if is_aligned else 6)) // per_unit
        unit_count = units * extents[0] * (extents[3] if lane_is_channels else extents[1])
        size = self.builder.workgroup_size
        enough = size * WORKGROUPS_OF_PROCESSOR * rates_of(self.builder.profile).processors
        turns = max(1, min(MOST_TURNS, extents[2], int(unit_count * extents[2] / enough)))
        groups = -(-extents[2] // turns)
        units_of_group = units * (extents[3] if lane_is_channels else 1)
        dispatch.push(
            count=unit_count * groups,
            turns=turns,
            rows=extents[2],
            extents=(units, extents[3], groups) if lane_is_channels else (units, groups, extents[1]),
            lane_extent=extents[lane],
            sides=desc.input_tensor.sizes[2:],
            first_taps=[low for low, _ in part],
            end_taps=[high for _, high in part],
            coordinates=(box[2][0], height + box[3][0]),
            input_strides=source.strides,
            output_strides=output.strides,
            scale=struct.unpack("<I", desc.input_scale_bytes)[0],
            zero_point=desc.input_zero_point - limits_of(desc.input_tensor.data_type)[0],
        )
        types = (desc.input_tensor.data_type, desc.output_tensor.data_type)
        return dispatch.finish(
            {
                LOCAL_SIZE_X: size,
                "LANE_IS_CHANNELS": int(lane_is_channels),
                "PER_UNIT": per_unit,
                "READS_WORDS": words,
                "SHARES_ROWS": int(turns * ((size - 1) // units_of_group + 2) <= size),
                "UNSIGNED_TYPES": sum(1 << bit for bit, kind in enumerate(types) if kind is DataType.UINT8),
            },
            self.builder.grid(unit_count * groups),
            seconds=self._seconds(box),
            bytes_moved=math.prod(sizes_of(read)) + math.prod(extents),
        )
