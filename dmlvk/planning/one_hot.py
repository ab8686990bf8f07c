"""ONE_HOT: OnValue at the index, and OffValue everywhere else.

blocks
    Invocations load an index, or the indices of a block, and write a few blocks. For any layout.
once
    A workgroup loads all its indices at once and then only writes, for long. For outputs whose rows are whole blocks
    and run along the axis, or along the indices; pieces of other layouts are written in blocks. "once:256" writes about
    256 KiB a workgroup, and "once:1024:4" four blocks an invocation at each coordinate of an axis that is not
    innermost. It is not chosen: it is there to be measured.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from dmlvk.device_profile import DeviceProfile
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
from dmlvk.planning.grid import workgroup_size
from dmlvk.planning.loop_nest import BLOCK_SIZE, Dimension, LoopNest, Operand, Role, simplified
from dmlvk.planning.plan import Plan, require_path

# If the axis is innermost: the blocks of one row that an invocation writes, and the least number of invocations with
# neighbouring blocks then. With that many, whole memory sectors are written together.
BLOCKS_PER_INVOCATION = 4
LEAST_NEIGHBOURS = 4

# If the output runs along the indices: an invocation writes a block or a word for this many coordinates of the axis.
AXIS_CHUNK = 64
WORD_SIZE = 4

# If a workgroup loads its indices at once: about what it then writes, the most rows of a workgroup, and the most
# coordinates along the axis.
ONCE_KIBIBYTES = 64
ONCE_ROWS = 1024
LARGEST_CHUNK = 32_767

ONCE = "once"
PATHS = (BLOCKS, ONCE)
# The path that is taken if none is forced. Whether "once" is faster on GPUs is still to be measured.
CHOSEN = BLOCKS


def plan(desc: OneHotDesc, profile: DeviceProfile, *, path: str | None = None, offsets: Mapping[str, int]) -> Plan:
    """Plan a ONE_HOT.

    Parameters
    ----------
    desc : OneHotDesc
    profile : DeviceProfile
    path : str, optional
        One of PATHS, or "once" with a size: see the module. None is CHOSEN.
    offsets : mapping of str to int
        Bytes from the start of its memory to a tensor's own start, by field.
    """
    once = _Once.of(CHOSEN if path is None else path)
    if once is None:
        require_path(desc.operator_name, path, PATHS)
    output, indices = desc.output_tensor, desc.indices_tensor
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
        Operand("output_tensor", element_size),
        Operand("indices_tensor", indices.data_type.size_in_bytes),
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
        at_once = None if once is None else once.arguments(piece, profile, specialization, values)
        if at_once is not None:
            return at_once
        chunks = _chunks(piece)
        if chunks is not None:
            return PieceArguments(
                specialization={**specialization, "AXIS_CHUNK": chunks.size},
                arguments=values,
                kernel="one_hot/words" if chunks.words_of_row else "one_hot/chunks",
                invocation_count=chunks.words_of_row * chunks.row_count or None,
                divisors=(chunks.words_of_row,),
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
        path=CHOSEN if path is None else path,
    )


@dataclass(frozen=True)
class _Once:
    """The path on which a workgroup loads its indices at once.

    Attributes
    ----------
    output_bytes : int
        About what a workgroup writes.
    width : int
        Blocks that an invocation writes at each coordinate, if the output runs along the indices.
    """

    output_bytes: int
    width: int

    @classmethod
    def of(cls, path: str) -> _Once | None:
        """The path by its name; None for another one's name."""
        match = re.fullmatch(rf"{ONCE}(?::([1-9]\d{{0,5}}))?(?::([1-8]))?", path)
        return None if match is None else cls(int(match[1] or ONCE_KIBIBYTES) << 10, int(match[2] or 1))

    def arguments(
        self,
        piece: LoopNest,
        profile: DeviceProfile,
        specialization: Mapping[str, int],
        values: tuple[int, ...],
    ) -> PieceArguments | None:
        """How a piece runs; None if it does not suit the path."""
        if not piece.dimensions or not has_whole_blocks(piece, piece.operands[0].start):
            return None
        if piece.dimensions[-1].role is Role.AXIS:
            return self._rows(piece, specialization, values) if len(piece.dimensions) <= 2 else None
        return self._planes(piece, profile, specialization, values)

    def _rows(
        self, piece: LoopNest, specialization: Mapping[str, int], values: tuple[int, ...]
    ) -> PieceArguments | None:
        """For an output that runs along the axis, in rows that a workgroup writes whole."""
        element_size, length = piece.operands[0].element_size, piece.dimensions[-1].size
        row_count = piece.element_count // length
        if length * element_size > self.output_bytes:
            return None
        rows = max(1, min(self.output_bytes // (length * element_size), ONCE_ROWS, row_count))
        return PieceArguments(
            specialization={**specialization, "MOST_ROWS": ONCE_ROWS},
            arguments=values,
            kernel="one_hot/rows_once",
            group_count=-(-row_count // rows),
            divisors=(length * element_size // BLOCK_SIZE,),
            grouping=rows,
        )

    def _planes(
        self,
        piece: LoopNest,
        profile: DeviceProfile,
        specialization: Mapping[str, int],
        values: tuple[int, ...],
    ) -> PieceArguments | None:
        """For an output that runs along the indices."""
        width = self.width * workgroup_size(profile)
        _, axis_size = piece.extent(Role.AXIS)
        # Parts of nearly equal size.
        parts = -(-axis_size // max(1, min(self.output_bytes // (width * BLOCK_SIZE), LARGEST_CHUNK)))
        chunks = _chunks(piece, -(-axis_size // parts))
        if chunks is None or chunks.words_of_row:
            return None
        blocks = piece.dimensions[-1].size * piece.operands[0].element_size // BLOCK_SIZE
        pieces_of_row = -(-blocks // width)
        return PieceArguments(
            specialization={**specialization, "AXIS_CHUNK": chunks.size, "WIDTH": self.width},
            arguments=values,
            kernel="one_hot/planes_once",
            group_count=pieces_of_row * chunks.row_count,
            divisors=(pieces_of_row,),
            dimensions=chunks.dimensions,
            grouping=axis_size,
        )


@dataclass(frozen=True)
class _Chunks:
    """How an output that runs along the indices is written, one chunk of the axis at a time.

    Attributes
    ----------
    dimensions : tuple of Dimension
        The loops. The outermost loop counts chunks.
    size : int
        Coordinates of a chunk along the axis.
    words_of_row : int
        Invocations of a row if it is written in words or larger elements; 0 if it is written in 16-byte blocks.
    """

    dimensions: tuple[Dimension, ...]
    size: int
    words_of_row: int

    @property
    def row_count(self) -> int:
        """Rows of all chunks."""
        return math.prod(dimension.size for dimension in self.dimensions[:-1])


def _chunks(piece: LoopNest, most: int = AXIS_CHUNK) -> _Chunks | None:
    """The chunks of a piece, of at most so many coordinates along the axis.

    None if the output does not run along the indices, or its rows are too short.
    """
    index = piece.dimension_with(Role.AXIS)
    if index is None or index == len(piece.dimensions) - 1 or piece.run_rank == 0:
        return None
    row, element_size = piece.dimensions[-1].size, piece.operands[0].element_size
    words_of_row = 0
    if row * element_size < LEAST_BLOCKS_OF_A_ROW * BLOCK_SIZE or not has_whole_blocks(piece, piece.operands[0].start):
        if row * element_size < WORD_SIZE:
            return None
        words_of_row = -(-row * element_size // max(element_size, WORD_SIZE))
    axis = piece.dimensions[index]
    size = min(axis.size, most)
    chunk = Dimension(-(-axis.size // size), tuple(size * stride for stride in axis.strides), Role.AXIS)
    dimensions = (chunk, *piece.dimensions[:index], *piece.dimensions[index + 1 :])
    return _Chunks(dimensions, size, words_of_row)
