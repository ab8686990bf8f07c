"""SLICE1: a strided copy, widened to 16-byte elements if possible.

blocks
    Each invocation writes one 16-byte block of the output and reads the elements for it. For any layout.
elements
    Each invocation copies a few elements, or words of several elements, that lie apart. For steps of more than one
    element, whose loads touch fewer lines then, and for short rows, which need no blocks across rows.
tiles
    If rows of the output are columns of the input, workgroups transpose tiles in shared memory. Short rows or columns
    are several dimensions that follow each other without a gap.
boxes
    For dimensions in any other order, workgroups move boxes by way of shared memory: some coordinates of each
    dimension, which are long pieces of the output and of the input alike.

Pieces that another path does not suit are copied in blocks. The path with the least estimated time is taken.
"""

from __future__ import annotations

from collections.abc import Mapping

from dmlvk.device_profile import DeviceProfile, DeviceType
from dmlvk.operators import Slice1Desc, SliceDesc
from dmlvk.planning.data_movement import PieceArguments, plan_data_movement
from dmlvk.planning.device_rates import rates_of
from dmlvk.planning.loop_nest import Dimension, LoopNest, LoopOperand, simplified, widened
from dmlvk.planning.plan import Plan, require_path
from dmlvk.planning.slice1.blocks import BlocksPath
from dmlvk.planning.slice1.boxes import BoxesPath
from dmlvk.planning.slice1.elements import ElementsPath
from dmlvk.planning.slice1.path import CopyPath
from dmlvk.planning.slice1.tiles import TilesPath

# The first takes every piece.
EVERY_PIECE = BlocksPath()
# In place of the first, for pieces that it suits.
ELEMENTS = ElementsPath()
BY_SHARED_MEMORY: tuple[CopyPath, ...] = (TilesPath(), BoxesPath())
COPY_PATHS: tuple[CopyPath, ...] = (EVERY_PIECE, ELEMENTS, *BY_SHARED_MEMORY)
PATHS = tuple(path.name for path in COPY_PATHS)
# A path by shared memory has to take so much less than those before it: estimates are no better than that.
GAIN = 0.95
# Elements have to take so much less than a path by shared memory: with 64 MiB, on an H200, their estimates were up to
# 15% from the times. A workgroup waits for its loads before the barrier, and for its tile behind it. In a small tensor,
# no other workgroup works meanwhile.
GAIN_OF_ELEMENTS = 0.85
WAITS = 2


def plan(
    desc: Slice1Desc | SliceDesc,
    profile: DeviceProfile,
    *,
    path: str | None = None,
    offsets: Mapping[str, int],
) -> Plan:
    """Plan a SLICE1 or a SLICE."""
    require_path(desc.operator_name, path, PATHS)
    nest = nest_of(desc)
    chosen = cheapest(nest, profile) if path is None else next(each for each in COPY_PATHS if each.name == path)

    def arguments(piece: LoopNest) -> PieceArguments:
        candidate = chosen.candidate(piece, profile) or EVERY_PIECE.candidate(piece, profile)
        return candidate.arguments

    return plan_data_movement("slice1/blocks", nest, profile, arguments, offsets=offsets, path=chosen.name)


def nest_of(desc: Slice1Desc | SliceDesc) -> LoopNest:
    """The loops of the copy: as few as possible, over elements that are as large as possible."""
    input_strides = desc.input_tensor.element_strides
    source_start = sum(start * stride for start, stride in zip(desc.copy_starts, input_strides, strict=True))
    dimensions = tuple(
        Dimension(size, (output_stride, window_stride * input_stride))
        for size, output_stride, window_stride, input_stride in zip(
            desc.output_tensor.sizes,
            desc.output_tensor.element_strides,
            desc.input_window_strides,
            input_strides,
            strict=True,
        )
    )
    element_size = desc.output_tensor.data_type.size_in_bytes
    operands = (LoopOperand("output_tensor", element_size), LoopOperand("input_tensor", element_size, source_start))
    return widened(simplified(LoopNest(dimensions, operands)))


def cheapest(nest: LoopNest, profile: DeviceProfile) -> CopyPath:
    """The path with the least estimated time. On a CPU, shared memory and barriers only cost time."""
    best: CopyPath = EVERY_PIECE
    if profile.device_type is DeviceType.CPU:
        return best
    least = best.seconds(nest, profile)
    for path in BY_SHARED_MEMORY:
        seconds = path.seconds(nest, profile)
        if seconds < GAIN * least:
            best, least = path, seconds
    if best is not EVERY_PIECE:
        least = GAIN_OF_ELEMENTS * (least + WAITS * rates_of(profile).wait)
    return ELEMENTS if ELEMENTS.seconds(nest, profile) < least else best
