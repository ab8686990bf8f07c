"""Builds the stages of a QUANTIZED_LINEAR_CONVOLUTION plan, and knows what the packed operands need."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from dmlvk.device_profile import DeviceProfile
from dmlvk.operators.quantized_linear_convolution import ConvolutionGeometry
from dmlvk.planning.builder import PlanBuilder, View, dense_copy
from dmlvk.planning.device_rates import rates_of
from dmlvk.planning.plan import PERSISTENT, Dispatch, Plan
from dmlvk.planning.quantized_linear_convolution import packing
from dmlvk.planning.quantized_linear_convolution.operands import ROW_SIZE, Sources, parameter_table, parameter_views
from dmlvk.planning.quantized_linear_convolution.path import Obstacle, Problem
from dmlvk.planning.quantized_linear_convolution.product_geometry import joined_groups
from dmlvk.tensor_desc import TensorFlags

# Packing takes as long as a copy that reads and writes this number of bytes for each byte written.
BYTES_OF_PACKING = 3
# A larger input is packed in parts. A part is large enough to keep any GPU busy and small enough to be allocated.
LARGEST_PART = 1 << 28
# A plan uses at most this much scratch memory.
LARGEST_SCRATCH = 1 << 31
# Room for the parameters' tensors if they are gathered, and for the alignment of each region.
OTHER_SCRATCH = 4096
REGION_ALIGNMENT = 256

# Matrix kernels read up to a vector past the end of a part.
PART_END = 16

# A product of two signed bytes is at most 2^14. So the sum over this many words of four always fits 31 bits.
LARGEST_WORD_COUNT = 131_071 // 4


class Stages:
    """Puts a plan together: the tensors' views, the parameters, the packed filter, and the stages that use them.

    geometry: the convolution as the path sees it: it may step over some rows and columns of the input.
    copied: "input" and "filter", if they are read in place: tensors that are OWNED_BY_DML are copied first.
    """

    def __init__(self, problem: Problem, geometry: ConvolutionGeometry, copied: tuple[str, ...]) -> None:
        self.desc = problem.desc
        # The tensors as they are found after the stages so far.
        self.operands = problem.operands(geometry)
        self.builder = self.operands.builder
        # What runs once. Each stage uses what the one before makes: copies, what is packed, what is worked out.
        self.initialization: tuple[list[Dispatch], list[Dispatch], list[Dispatch]] = ([], [], [])
        # What prepares something for the next added stage, side by side.
        self.prepared: list[Dispatch] = []
        self._stages: list[tuple[Dispatch, ...]] = []
        sizes = {"input": geometry.input_sizes, "filter": self.desc.geometry.filter_sizes}
        owned = [name for name in sizes if self.desc.tensors[f"{name}_tensor"].flags & TensorFlags.OWNED_BY_DML]
        # Zero points stand between the channels of joined groups. If they may change, so does the packed filter.
        zero_point = self.desc.filter_zero_point_tensor
        may_change = zero_point is not None and not zero_point.flags & TensorFlags.OWNED_BY_DML
        self._packs_once = "filter" in owned and not (may_change and joined_groups(geometry) > 1)
        for name in owned:
            if name in copied or (name == "filter" and not self._packs_once):
                view = getattr(self.operands, name)
                view, dispatches = dense_copy(self.builder, self.builder.persistent, view, sizes[name])
                changes: dict[str, Any] = {name: view}
                self.operands = replace(self.operands, **changes)
                self.initialization[0].extend(dispatches)
        sources = Sources.of(self.desc, parameter_views(self.desc, self.builder, self.initialization[0]))
        self.operands = replace(self.operands, parameters=sources)

    def gather_parameters(self) -> None:
        """Let each tensor of parameters fit one window: in place, or copied if its elements lie far apart."""
        views, channels = dict(self.operands.parameters.views), self.operands.geometry.output_channels
        for name, view in views.items():
            if not self.builder.shows(view, [(0, channels)]):
                views[name], copying = dense_copy(self.builder, self.builder.scratch, view, (channels,))
                self.prepared += copying
        self.operands = replace(self.operands, parameters=replace(self.operands.parameters, views=views))

    def parameter_table(self) -> View:
        """The table of parameters, a row for each output channel. It is made once if the tensors are OWNED_BY_DML."""
        once = all(view.tensor == PERSISTENT for view in self.operands.parameters.views.values())
        table, dispatches = parameter_table(self.operands, once)
        (self.initialization[1] if once else self.prepared).extend(dispatches)
        return table

    def packed_filter(self, wanted: packing.PackedFilter) -> packing.PackedFilter:
        """The filter in panels, with a place. It is packed once if the tensor is OWNED_BY_DML."""
        arena = self.builder.persistent if self._packs_once else self.builder.scratch
        packed, copying, dispatches = packing.pack_filter(self.operands, arena, wanted)
        if self._packs_once:
            self.initialization[0].extend(copying)
            self.initialization[1].extend(dispatches)
        else:
            self._stages.append(tuple(copying))
            self.prepared += dispatches
        return packed

    def add(self, *stages: Iterable[Dispatch]) -> None:
        """Add stages. The prepared dispatches run before them."""
        self._stages.append(tuple(self.prepared))
        self.prepared = []
        self._stages.extend(tuple(stage) for stage in stages)

    def add_packed_product(
        self, quads: int, channels_last: bool, product: Callable[[packing.PackedInput], list[Dispatch]]
    ) -> None:
        """Add stages that pack the input in parts and multiply each.

        While one part is multiplied, the next part is packed. Parts take turns in two places in memory.
        """
        builder, geometry = self.builder, self.operands.geometry
        size_limit = part_limit(builder, builder.scratch.size)
        parts = packing.packed_parts(geometry, quads, size_limit, channels_last)
        room = max(part.size for part in parts) + PART_END
        starts = [builder.scratch.allocate(room) for _ in parts[:2]]
        for index, part in enumerate(parts):
            placed = replace(part, tensor=builder.scratch.name, start=starts[index % 2])
            self.prepared += packing.pack_input(self.operands, placed)
            self.add()
            self.prepared = product(placed)
        self.add()

    def plan(self, path: str) -> Plan:
        """The plan of these stages, excluding empty stages, with the memory that was allocated for it."""
        return Plan(
            path=path,
            stages=tuple(stage for stage in self._stages if stage),
            initialization=tuple(tuple(stage) for stage in self.initialization if stage),
            scratch_size=self.builder.scratch.size,
            persistent_size=self.builder.persistent.size,
            clean_size=self.builder.clean.size,
        )


def part_limit(builder: PlanBuilder, other_size: int) -> int:
    """Bytes that a packed part of the input may take. There are two parts at a time."""
    room = (_scratch_limit(builder.profile) - other_size) // 2 - REGION_ALIGNMENT
    return max(0, min(builder.window_limit, room, LARGEST_PART))


def obstacle_to_packing(
    geometry: ConvolutionGeometry, profile: DeviceProfile, quads: int, packed: packing.PackedFilter
) -> Obstacle | None:
    """Why the operands cannot be packed, with so many words of a pixel in the packed input; None if they can."""
    if (words := packing.words_of(geometry)) > LARGEST_WORD_COUNT:
        return Obstacle("words of four taps that an output sums up in 32 bits", words, _most(LARGEST_WORD_COUNT))
    # The widest panels bound the filter's size on every path.
    packed = replace(packed, width=packing.WIDEST_PANEL, rows_after=1)
    other_size = packed.panels * packed.panel_size + geometry.output_channels * (geometry.tap_count + ROW_SIZE)
    other_size += OTHER_SCRATCH
    if other_size > (most := _scratch_limit(profile) // 2):
        return Obstacle("bytes of the packed filter and the parameters", other_size, _most(most))
    rows, columns = ((k - 1) * d + 1 for k, d in zip(geometry.filter_size, geometry.dilations, strict=True))
    limit = part_limit(PlanBuilder(profile, {}), other_size)
    if (smallest_part := quads * rows * columns * 4) > limit:
        return Obstacle("packed bytes of the input under one output", smallest_part, _most(limit))
    if packed.panel_size > limit:
        return Obstacle(
            f"packed bytes of {packing.WIDEST_PANEL} channels of the filter", packed.panel_size, _most(limit)
        )
    return None


def packing_seconds(problem: Problem, geometry: ConvolutionGeometry, quads: int) -> float:
    """An estimate for packing or converting the input, by the number of elements written."""
    (height, width), (rows, columns) = geometry.input_size, geometry.output_size
    # A filter with strides does not read the whole input. A filter with a border reads more than the input.
    seen = min(
        (height + geometry.start_padding[0] + geometry.end_padding[0])
        * (width + geometry.start_padding[1] + geometry.end_padding[1]),
        rows * columns * geometry.filter_size[0] * geometry.filter_size[1],
    )
    written = 4 * quads * geometry.group_count * geometry.batch * seen
    return BYTES_OF_PACKING * written / rates_of(problem.profile).copy


def _scratch_limit(profile: DeviceProfile) -> int:
    return min(profile.segment_size, LARGEST_SCRATCH)


def _most(limit: int) -> str:
    return f"at most {limit}"
