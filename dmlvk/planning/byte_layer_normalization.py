"""BYTE_LAYER_NORMALIZATION: a workgroup's invocations are lanes of some rows.

integers
    In integers, on any device: a device may round a product and a sum once or twice, and does not say which. The
    smallest window of a device shows a row, whose scales have 4 MiB at most.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from dmlvk.data_type import DataType
from dmlvk.device_profile import DeviceProfile
from dmlvk.operators import ByteLayerNormalizationDesc
from dmlvk.operators.byte_layer_normalization import LANES
from dmlvk.operators.byte_softmax import limits_of
from dmlvk.planning.builder import (
    BLOCK_SIZE,
    DISPATCH_SECONDS,
    Box,
    DispatchBuilder,
    PlanBuilder,
    View,
    boxes,
    copies,
    dense,
    dense_copy,
    sizes_of,
    whole,
)
from dmlvk.planning.byte_table import packed_view, plan_with_tables
from dmlvk.planning.device_rates import rates_of
from dmlvk.planning.float32 import INTEGERS
from dmlvk.planning.grid import folded
from dmlvk.planning.kernel_interface import LOCAL_SIZE_X
from dmlvk.planning.plan import Access, Dispatch, Plan, require_path

PATHS = (INTEGERS,)

# An element takes as long as this number of copied ones.
WORK_OF_ELEMENT = 32
# The most rows of a workgroup: each has 256 words in shared memory.
MOST_ROWS = 8


def plan(
    desc: ByteLayerNormalizationDesc, profile: DeviceProfile, *, path: str | None = None, offsets: Mapping[str, int]
) -> Plan:
    """Plan a BYTE_LAYER_NORMALIZATION: see `dmlvk.planning.plan`."""
    require_path(desc.operator_name, path, PATHS)
    return _NormalizationPlanner(desc, PlanBuilder(profile, offsets)).plan()


@dataclass(frozen=True)
class _NormalizationPlanner:
    desc: ByteLayerNormalizationDesc
    builder: PlanBuilder

    def plan(self) -> Plan:
        tables = {}
        for field in ("scale_tensor", "bias_tensor"):
            tensor = getattr(self.desc, field)
            tables[field] = (tensor, *packed_view(field, tensor, self.builder))
        views = {field: view for field, (_, view, _) in tables.items()}
        before: list[Dispatch] = []
        behind: list[Dispatch] = []
        rows = [
            self._dispatch(box, views, before, behind) for box in boxes(whole(self.desc.input_tensor.sizes), self._cut)
        ]
        stages = [tuple(each) for each in (before, rows, behind) if each]
        copying = [(tensor, needed) for tensor, _, needed in tables.values()]
        return plan_with_tables(INTEGERS, copying, stages, self.builder)

    def _cut(self, box: Box) -> int | None:
        rows, length = sizes_of(box)
        is_large = rows * length > self.builder.window_limit - BLOCK_SIZE
        return 0 if rows > 1 and (is_large or self._seconds(box) > DISPATCH_SECONDS) else None

    def _seconds(self, box: Box) -> float:
        return self.builder.element_seconds(math.prod(sizes_of(box)) * WORK_OF_ELEMENT)

    def _dispatch(
        self, box: Box, tables: Mapping[str, View], before: list[Dispatch], behind: list[Dispatch]
    ) -> Dispatch:
        desc, builder, sizes = self.desc, self.builder, sizes_of(box)
        origin = [low for low, _ in box]
        source, output = (
            View(field, tensor.element_strides[0] * origin[0], 1, tensor.element_strides)
            for field, tensor in (("input_tensor", desc.input_tensor), ("output_tensor", desc.output_tensor))
        )
        # What no window shows is brought together before, or goes apart behind.
        if not builder.shows(source, whole(sizes)):
            source, needed = dense_copy(builder, builder.scratch, source, sizes)
            before += needed
        if not builder.shows(output, whole(sizes)):
            place = builder.allocate(builder.scratch, math.prod(sizes))
            output, far = dense(builder.scratch.name, place, 1, sizes), output
            behind += copies(builder, output, far, sizes)
        dispatch = DispatchBuilder(f"byte_layer_normalization/{INTEGERS}")
        dispatch.show(source, whole(sizes), "input_start")
        for field, view in tables.items():
            dispatch.show(view, whole(sizes[1:]), f"{field.removesuffix('_tensor')}_start")
        dispatch.show(output, whole(sizes), "output_start", Access.WRITE)
        least = limits_of(desc.input_tensor.data_type)[0]
        (output_scale,) = struct.unpack("<f", desc.output_scale_bytes)
        dispatch.push(
            rows=sizes[0],
            count=sizes[1],
            input_strides=source.strides,
            output_strides=output.strides,
            epsilon=_bits(desc.epsilon_bytes),
            input_scale=_bits(desc.input_scale_bytes),
            input_zero_point=desc.input_zero_point - least,
            output_scale=_bits(desc.output_scale_bytes),
            steps_of_one=_bits(struct.pack("<f", 1 / output_scale)),
            output_zero_point=desc.output_zero_point & 0xFFFFFFFF,
        )
        size = builder.workgroup_size
        # Each processor has a row before one has two.
        for_all = sizes[0] / rates_of(builder.profile).processors
        rows = 1
        while 2 * rows <= min(MOST_ROWS, size // LANES, for_all):
            rows *= 2
        return dispatch.finish(
            {
                LOCAL_SIZE_X: size,
                "LANES": size // rows,
                "ROWS": rows,
                "IS_SIGNED": int(desc.input_tensor.data_type is DataType.INT8),
            },
            folded(-(-sizes[0] // rows), builder.profile),
            seconds=self._seconds(box),
            bytes_moved=2 * math.prod(sizes),
        )


def _bits(number: bytes) -> int:
    """The bits of a number of binary32."""
    return int.from_bytes(number, "little")
