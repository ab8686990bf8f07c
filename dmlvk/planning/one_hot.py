"""ONE_HOT: OnValue at the index, and OffValue everywhere else.

blocks
    Invocations load an index, or the indices of a block, and write a few blocks. For any layout.
rows
    A workgroup loads the indices of its rows at once and then only writes. For outputs that run along the axis in rows
    of whole blocks; pieces of other layouts are written in blocks. "rows:256" writes about 256 KiB a workgroup.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from dmlvk.device_profile import DeviceProfile, DeviceType
from dmlvk.operators import OneHotDesc
from dmlvk.planning.data_movement import (
    BLOCKS,
    LEAST_BLOCKS_OF_A_ROW,
    FixedWindow,
    PieceArguments,
    dimension_constant,
    has_whole_blocks,
    plan_data_movement,
)
from dmlvk.planning.device_rates import rates_of
from dmlvk.planning.grid import workgroup_size
from dmlvk.planning.loop_nest import BLOCK_SIZE, Dimension, LoopNest, LoopOperand, Role, simplified
from dmlvk.planning.plan import Plan, require_path

# If the axis is innermost: the blocks of one row that an invocation writes, and the least number of invocations with
# neighbouring blocks then. With that many, whole memory sectors are written together.
BLOCKS_PER_INVOCATION = 4
LEAST_NEIGHBOURS = 4

# If the output runs along the indices: an invocation writes a block or a word for this many coordinates of the axis.
AXIS_CHUNK = 64
# It writes fewer if half of the processors or more would have no workgroup, but no fewer than these: it reads its
# indices again for each chunk.
LEAST_CHUNK = 8
# Workgroups load indices together if those of a block have as many bytes, a line of most caches.
SHARED_INDICES = 128
# So many invocations then share a block where a processor would have fewer than these workgroups, a quarter of its
# room.
PARTS = 4
FEW_WORKGROUPS = 2
WORD_SIZE = 4

# If a workgroup loads the indices of its rows at once: about what it then writes, and the most rows.
KIBIBYTES = 16
MOST_ROWS = 1024

ROWS = "rows"
PATHS = (BLOCKS, ROWS)
# The longest rows, in bytes, of which GPUs write whole ones faster than blocks: 256 bytes in 69 us in place of 96, for
# 256 MiB on an H100, and 512 bytes as fast. CPU drivers are not.
LONGEST_ROW = 256


def plan(desc: OneHotDesc, profile: DeviceProfile, *, path: str | None = None, offsets: Mapping[str, int]) -> Plan:
    """Plan a ONE_HOT.

    path: one of PATHS, or "rows" with a size: see the module. None chooses.
    offsets: bytes from the start of its memory to a tensor's own start, by field.
    """
    output, indices = desc.output_tensor, desc.indices_tensor
    name = _chosen(desc, profile) if path is None else path
    rows = _Rows.of(name)
    if rows is None:
        require_path(desc.operator_name, path, PATHS)
    dimensions = tuple(
        Dimension(
            output.sizes[i],
            # The indices do not step along the axis. Their size there is 1, and their stride may have any value.
            (output.element_strides[i], 0 if i == desc.axis else indices.element_strides[i]),
            Role.AXIS if i == desc.axis else Role.NONE,
        )
        for i in range(output.rank)
    )
    element_size = output.data_type.size_in_bytes
    operands = (
        LoopOperand("output_tensor", element_size),
        LoopOperand("indices_tensor", indices.data_type.size_in_bytes),
    )
    fixed_windows = (
        FixedWindow("values_tensor", 0, element_size, argument=0),
        FixedWindow("values_tensor", desc.on_value_offset, element_size, argument=1),
    )
    depth = output.sizes[desc.axis]

    def arguments(piece: LoopNest) -> PieceArguments:
        axis_start, axis_size = piece.extent(Role.AXIS)
        specialization = {
            "AXIS_DIMENSION": dimension_constant(piece, Role.AXIS),
            "INDEX_WORDS": indices.data_type.size_in_bytes // 4,
            "INDEX_IS_SIGNED": int(desc.indices_are_signed),
        }
        values = (0, 0, axis_start, depth)
        whole_rows = None if rows is None else rows.arguments(piece, specialization, values)
        if whole_rows is not None:
            return whole_rows
        chunks = _chunks(piece, profile)
        if chunks is not None:
            return PieceArguments(
                specialization={**specialization, "AXIS_CHUNK": chunks.size, **chunks.specialization},
                arguments=values,
                kernel="one_hot/words" if chunks.words_of_row else "one_hot/chunks",
                invocation_count=chunks.words_of_row * chunks.row_count or None,
                divisors=(chunks.words_of_row,),
                invocations_per_block=max(1, chunks.parts),
                dimensions=chunks.dimensions,
                grouping=axis_size,
            )
        row = piece.dimensions[-1].size * element_size // BLOCK_SIZE if piece.dimensions else 0
        is_innermost = bool(piece.dimensions) and piece.dimensions[-1].role is Role.AXIS
        return PieceArguments(
            specialization=specialization,
            arguments=values,
            blocks_per_invocation=max(1, min(BLOCKS_PER_INVOCATION, row // LEAST_NEIGHBOURS)) if is_innermost else 1,
        )

    nest = simplified(LoopNest(dimensions, operands))
    return plan_data_movement(
        "one_hot/blocks",
        nest,
        profile,
        arguments,
        fixed_windows=fixed_windows,
        offsets=offsets,
        path=name,
    )


def _chosen(desc: OneHotDesc, profile: DeviceProfile) -> str:
    """The path that is taken if none is forced."""
    output = desc.output_tensor
    row_size = output.sizes[desc.axis] * output.data_type.size_in_bytes
    has_short_rows = row_size % BLOCK_SIZE == 0 and row_size <= LONGEST_ROW and output.element_strides[desc.axis] == 1
    return ROWS if has_short_rows and profile.device_type is not DeviceType.CPU else BLOCKS


@dataclass(frozen=True)
class _Rows:
    """The path on which a workgroup loads the indices of its rows at once.

    output_bytes: about what a workgroup writes.
    """

    output_bytes: int

    @classmethod
    def of(cls, path: str) -> _Rows | None:
        """The path by its name; None for another one's name."""
        match = re.fullmatch(rf"{ROWS}(?::([1-9]\d{{0,5}}))?", path)
        return None if match is None else cls(int(match[1] or KIBIBYTES) << 10)

    def arguments(
        self, piece: LoopNest, specialization: Mapping[str, int], values: tuple[int, ...]
    ) -> PieceArguments | None:
        """How a piece runs; None if it does not suit the path."""
        if not 1 <= len(piece.dimensions) <= 2 or not has_whole_blocks(piece):
            return None
        element_size, length = piece.operands[0].element_size, piece.dimensions[-1].size
        if piece.dimensions[-1].role is not Role.AXIS or length * element_size > self.output_bytes:
            return None
        row_count = piece.element_count // length
        rows = max(1, min(self.output_bytes // (length * element_size), MOST_ROWS, row_count))
        return PieceArguments(
            specialization={**specialization, "MOST_ROWS": MOST_ROWS},
            arguments=values,
            kernel="one_hot/rows",
            group_count=-(-row_count // rows),
            divisors=(length * element_size // BLOCK_SIZE,),
            grouping=rows,
        )


@dataclass(frozen=True)
class _Chunks:
    """How an output that runs along the indices is written, one chunk of the axis at a time.

    dimensions: the loops. The outermost loop counts chunks.
    size: coordinates of a chunk along the axis.
    words_of_row: invocations of a row if it is written in words or larger elements; 0 if it is written in 16-byte
        blocks.
    parts: PARTS in chunks.comp.
    """

    dimensions: tuple[Dimension, ...]
    size: int
    words_of_row: int
    parts: int

    @property
    def specialization(self) -> dict[str, int]:
        """What one_hot/chunks is specialized to, and one_hot/words is not."""
        return {} if self.words_of_row else {"PARTS": self.parts}

    @property
    def row_count(self) -> int:
        """Rows of all chunks."""
        return math.prod(dimension.size for dimension in self.dimensions[:-1])


def _chunks(piece: LoopNest, profile: DeviceProfile) -> _Chunks | None:
    """The chunks of a piece; None if the output does not run along the indices, or its rows are too short."""
    index = piece.dimension_with(Role.AXIS)
    if index is None or index == len(piece.dimensions) - 1 or piece.run_rank == 0:
        return None
    row, element_size = piece.dimensions[-1].size, piece.operands[0].element_size
    words_of_row = 0
    if row * element_size < LEAST_BLOCKS_OF_A_ROW * BLOCK_SIZE or not has_whole_blocks(piece):
        if row * element_size < WORD_SIZE:
            return None
        words_of_row = -(-row * element_size // max(element_size, WORD_SIZE))
    axis = piece.dimensions[index]
    size = min(axis.size, AXIS_CHUNK)
    per_block = BLOCK_SIZE // element_size
    of_chunk = piece.element_count // axis.size // row * (words_of_row or row // per_block)
    processors = rates_of(profile).processors

    def workgroups() -> int:
        return -(-(-(-axis.size // size) * of_chunk) // workgroup_size(profile))

    parts = 0
    if not words_of_row and profile.device_type is not DeviceType.CPU:
        is_line = per_block * piece.operands[1].element_size >= SHARED_INDICES
        parts = 0 if not is_line else PARTS if workgroups() < FEW_WORKGROUPS * processors else 1
    of_chunk *= max(1, parts)
    while size >= 2 * LEAST_CHUNK and 2 * workgroups() <= processors:
        size //= 2
    chunk = Dimension(-(-axis.size // size), tuple(size * stride for stride in axis.strides), Role.AXIS)
    dimensions = (chunk, *piece.dimensions[:index], *piece.dimensions[index + 1 :])
    return _Chunks(dimensions, size, words_of_row, parts)
