"""From a loop nest to dispatches of a data-movement kernel: what SLICE1, DIAGONAL_MATRIX1 and ONE_HOT share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from dmlvk.device_profile import DeviceProfile, DeviceType
from dmlvk.planning.grid import SLOWEST_BYTES_PER_SECOND, folded, workgroup_size
from dmlvk.planning.loop_nest import BLOCK_SIZE, Dimension, LoopNest, Role, WindowLimits, pieces
from dmlvk.planning.plan import MAXIMUM_SUBMISSION_SECONDS, SCRATCH, Access, Dispatch, Plan, Window

# Offsets inside a window are 32-bit element counts and byte addresses in the kernels.
LARGEST_WINDOW = 1 << 31

# Where kernels/data_movement/loop_nest.glsl has its push constants, in words.
OUTPUT_START_WORD = 0
SOURCE_START_WORD = 1
ARGUMENTS_WORD = 4
DIMENSION_COUNT = 8
# With no more dimensions than this, the tables' other places hold multipliers and shifts for divisions.
QUICK_RANK = 4

NO_DIMENSION = 0xFFFFFFFF

# The path of kernels whose invocations each own a 16-byte block of the output.
BLOCKS = "blocks"

# Blocks are taken by rows where rows are at least this many blocks long. In groups of rows there are whole subgroups of
# blocks across rows; where all rows make one run, there is a place for one row too many, which has to be a small part.
LEAST_BLOCKS_OF_A_ROW = 2
ROWS_PER_GROUP = 64
LEAST_ROWS_OF_A_RUN = 16

# In the order of memory, blocks inside a row have a way of their own where rows are at least this many blocks long. A
# CPU driver goes every way for each group of lanes: there they have to be many.
LONG_ROW = 1
CPU_LONG_ROW = 4


@dataclass(frozen=True)
class FixedWindow:
    """A window on a tensor that does not step with the loops: one element of it.

    Attributes
    ----------
    field : str
        The tensor's descriptor field.
    element, element_size : int
        Which element, and bytes an element.
    argument : int
        Number of the kernel argument that receives the element's place in the window.
    """

    field: str
    element: int
    element_size: int
    argument: int


@dataclass(frozen=True)
class PieceArguments:
    """What a kernel needs beside the loops.

    Attributes
    ----------
    specialization : tuple of int
        The kernel's own specialization constants, from 7 on.
    arguments : tuple of int
        Up to four push constants of its own.
    kernel : str, optional
        Another kernel for this piece than the operator's ordinary one.
    group_count : int, optional
        Workgroups, for a kernel whose workgroups have a unit of work of their own in place of 16-byte blocks.
    invocation_count : int, optional
        Invocations, for a kernel whose invocations have one.
    divisors : tuple of int
        Of such a kernel: the first and the second further divisor.
    blocks_per_invocation : int
        How many blocks of a row each invocation of the kernel can write.
    dimensions : tuple of Dimension, optional
        The loops that invocations are counted by, where the kernel itself makes some of the piece's. Where they are
        counted by blocks, rows of these begin and end with blocks.
    grouping : int
        The push constant of that name, free for kernels with such loops, and those that count work of their own.
    """

    specialization: tuple[int, ...] = ()
    arguments: tuple[int, ...] = ()
    kernel: str | None = None
    group_count: int | None = None
    invocation_count: int | None = None
    divisors: tuple[int, ...] = ()
    blocks_per_invocation: int = 1
    dimensions: tuple[Dimension, ...] | None = None
    grouping: int = 0


@dataclass(frozen=True)
class _BlockOrder:
    """In which order invocations take the blocks: what find_block in loop_nest.glsl goes by."""

    by_rows: bool
    edges_or_long: int  # EDGES_PER_ROW where by rows, otherwise ROWS_ARE_LONG
    blocks_per_invocation: int
    grouping: int
    block_count: int
    divisors: tuple[int, ...]

    @property
    def specialization(self) -> tuple[int, ...]:
        return self.edges_or_long, self.blocks_per_invocation


def plan_data_movement(
    kernel: str,
    nest: LoopNest,
    profile: DeviceProfile,
    arguments: Callable[[LoopNest], PieceArguments],
    *,
    fixed_windows: Sequence[FixedWindow] = (),
    offsets: Mapping[str, int],
    path: str = BLOCKS,
) -> Plan:
    """Cut the nest to the device's limits and make one dispatch of each piece.

    Parameters
    ----------
    kernel : str
        The kernel; with "_by_rows" behind it, that of the one that takes blocks by rows.
    nest : LoopNest
        The output, and the source where there is one.
    profile : DeviceProfile
    arguments : callable
        Gives a piece's specialization constants and push constants.
    fixed_windows : sequence of FixedWindow
        Further bindings, after the nest's operands.
    offsets : mapping of str to int
        Bytes from the start of its memory to a tensor's own start, where that is not 0.
    path : str
        The plan's path.
    """
    bytes_per_element = sum(operand.element_size for operand in nest.operands)
    slowest = SLOWEST_BYTES_PER_SECOND[profile.device_type]
    limits = WindowLimits(
        # The aligned start of a binding may lie before the window's.
        window_size=min(profile.limits.max_storage_buffer_range, LARGEST_WINDOW) - profile.offset_alignment,
        segment_size=profile.segment_size,
        offsets=tuple(offsets.get(operand.field, 0) for operand in nest.operands),
        element_count=max(1, int(slowest * MAXIMUM_SUBMISSION_SECONDS / bytes_per_element)),
    )
    cut = list(pieces(nest, limits))
    # The kernel has a source binding even where it is specialized not to read it; Vulkan wants a buffer there. The
    # output serves, unless other dispatches write to it meanwhile: that nothing is read is not seen from outside.
    unread = None
    if len(nest.operands) == 1 and len(cut) > 1:
        unread = Window(SCRATCH, 0, BLOCK_SIZE, Access.READ, SOURCE_START_WORD, BLOCK_SIZE)
    dispatches = tuple(
        _dispatch(kernel, piece, profile, arguments(piece), fixed_windows, unread, bytes_per_element / slowest)
        for piece in cut
    )
    return Plan(path=path, stages=(dispatches,), scratch_size=0 if unread is None else BLOCK_SIZE)


def dimension_constant(piece: LoopNest, role: Role) -> int:
    """The specialization constant that tells a kernel which dimension has a role, counted from the innermost."""
    index = piece.dimension_with(role)
    return NO_DIMENSION if index is None else len(piece.dimensions) - 1 - index


def _dispatch(
    kernel: str,
    piece: LoopNest,
    profile: DeviceProfile,
    arguments: PieceArguments,
    fixed_windows: Sequence[FixedWindow],
    unread: Window | None,
    seconds_per_element: float,
) -> Dispatch:
    windows: list[Window] = []
    starts: list[int] = []
    for index, operand in enumerate(piece.operands):
        begin, end = piece.bounds(index)
        offset = begin // BLOCK_SIZE * BLOCK_SIZE
        starts.append(operand.start - offset // operand.element_size)
        base_word = OUTPUT_START_WORD if index == 0 else SOURCE_START_WORD
        access = Access.WRITE if index == 0 else Access.READ
        windows.append(_window(operand.field, offset, end, access, base_word, operand.element_size))
    if len(piece.operands) == 1:
        windows.append(unread or replace(windows[0], access=Access.READ, base_word=SOURCE_START_WORD))
    values = list(arguments.arguments) + [0] * (4 - len(arguments.arguments))
    for fixed in fixed_windows:
        begin = fixed.element * fixed.element_size
        offset = begin // BLOCK_SIZE * BLOCK_SIZE
        values[fixed.argument] = (begin - offset) // fixed.element_size
        base_word = ARGUMENTS_WORD + fixed.argument
        windows.append(
            _window(fixed.field, offset, begin + fixed.element_size, Access.READ, base_word, fixed.element_size)
        )

    loops = piece if arguments.dimensions is None else replace(piece, dimensions=arguments.dimensions)
    size = workgroup_size(profile)
    if arguments.group_count is not None:
        order = _BlockOrder(False, 1, 1, arguments.grouping, arguments.group_count, arguments.divisors)
        group_count = arguments.group_count
    else:
        if arguments.invocation_count is not None:
            order = _BlockOrder(False, 1, 1, arguments.grouping, arguments.invocation_count, arguments.divisors)
        else:
            order = _order(loops, profile, starts[0], arguments.blocks_per_invocation)
            if arguments.dimensions is not None:
                order = replace(order, grouping=arguments.grouping)
        group_count = -(-order.block_count // size)
    # Kernels count dimensions from the innermost.
    dimensions = loops.dimensions[::-1]
    strides = [[dimension.strides[index] for dimension in dimensions] for index in range(len(piece.operands))]
    push_constants = [starts[0], starts[1] if len(starts) > 1 else 0, order.grouping, order.block_count, *values]
    tables = [_padded([dimension.size for dimension in dimensions]), *map(_padded, strides)]
    if len(strides) == 1:
        tables.append(_padded([]))
    if len(dimensions) <= QUICK_RANK:
        by_size = [quick_division(dimension.size) for dimension in dimensions]
        by_others = [quick_division(divisor) for divisor in order.divisors]
        tables[0][QUICK_RANK:] = _padded([multiplier for multiplier, _ in by_size], QUICK_RANK)
        tables[1][QUICK_RANK:] = _padded([shift for _, shift in by_size], QUICK_RANK)
        tables[2][QUICK_RANK:] = _padded([word for division in by_others for word in division], QUICK_RANK)
    push_constants += [word for table in tables for word in table]
    return Dispatch(
        kernel=arguments.kernel or (f"{kernel}_by_rows" if order.by_rows else kernel),
        specialization=(
            size,
            piece.operands[0].element_size,
            len(dimensions),
            loops.run_rank,
            *order.specialization,
            int(profile.device_type is DeviceType.CPU),  # GATHERS_IN_LOOP
            *arguments.specialization,
        ),
        # Negative strides become two's complement.
        push_constants=tuple(word & 0xFFFFFFFF for word in push_constants),
        windows=tuple(windows),
        groups=folded(group_count, profile),
        seconds=piece.element_count * seconds_per_element,
        bytes_moved=sum(_distinct_bytes(piece, index) for index in range(len(piece.operands))),
    )


def _distinct_bytes(piece: LoopNest, operand: int) -> int:
    """Bytes of an operand's elements, those that broadcast counted once."""
    sizes = (dimension.size for dimension in piece.dimensions if dimension.strides[operand] != 0)
    return math.prod(sizes) * piece.operands[operand].element_size


def _window(field: str, offset: int, end: int, access: Access, base_word: int, unit: int) -> Window:
    # Kernels read and write whole words and, inside an allocation of whole 16-byte blocks, whole blocks.
    size = -(-(end - offset) // BLOCK_SIZE) * BLOCK_SIZE
    return Window(field, offset, size, access, base_word, unit)


def has_whole_blocks(nest: LoopNest, output_start: int) -> bool:
    """Whether all rows, of the innermost dimension, begin and end with blocks of the output."""
    if nest.run_rank == 0:
        return False
    distances = [output_start, nest.dimensions[-1].size, *(dimension.strides[0] for dimension in nest.dimensions[:-1])]
    return all(distance % (BLOCK_SIZE // nest.operands[0].element_size) == 0 for distance in distances)


def _order(nest: LoopNest, profile: DeviceProfile, output_start: int, blocks_per_invocation: int) -> _BlockOrder:
    elements_per_block = BLOCK_SIZE // nest.operands[0].element_size
    rank = len(nest.dimensions)
    is_cpu = profile.device_type is DeviceType.CPU
    if nest.run_rank and (blocks_of_row := nest.dimensions[-1].size // elements_per_block) >= LEAST_BLOCKS_OF_A_ROW:
        row_count = nest.element_count // nest.dimensions[-1].size
        places = -(-blocks_of_row // blocks_per_invocation)
        if has_whole_blocks(nest, output_start):
            return _BlockOrder(True, 0, blocks_per_invocation, 0, row_count * places, (places,))
        edges = 1 if nest.run_rank == rank else 2
        # That a group of lanes has blocks of one kind is no gain on a CPU, several blocks an invocation are.
        is_gain = not is_cpu or blocks_per_invocation > 1
        if is_gain and (edges == 2 or row_count >= LEAST_ROWS_OF_A_RUN):
            # The end of a single run counts as the begin of one row more.
            row_count += edges == 1
            groups = -(-row_count // ROWS_PER_GROUP)
            rows = -(-row_count // groups)
            size = rows * (places + edges)
            return _BlockOrder(True, edges, blocks_per_invocation, rows, groups * size, (places, size))

    outer = nest.dimensions[: rank - nest.run_rank]
    aligned = all(dimension.strides[0] % elements_per_block == 0 for dimension in outer)
    lead = output_start % elements_per_block if aligned else elements_per_block - 1
    if nest.run_rank == 0:
        lead = 0  # a single element never lies across two blocks
    blocks_per_run = -(-(lead + nest.run_length) // elements_per_block)
    block_count = blocks_per_run * (nest.element_count // nest.run_length)
    long = (CPU_LONG_ROW if is_cpu else LONG_ROW) * elements_per_block
    is_long = (nest.dimensions[-1].size if nest.run_rank else 1) >= long
    return _BlockOrder(False, int(is_long), 1, blocks_per_run, block_count, (blocks_per_run,))


def quick_division(divisor: int) -> tuple[int, int]:
    """A multiplier below 2^32 and a shift: for n < 2^31, n // divisor == (n * multiplier >> 32) >> shift.

    There is none for 1, which the kernels see to. With multiplier * divisor = 2^(32 + shift) + e, 0 < e <= divisor, the
    product is 2^(32 + shift) times n / divisor + n * e / (divisor * 2^(32 + shift)). As divisor <= 2^(shift + 1), n * e
    is less than 2^(32 + shift): the second term is less than 1 / divisor, and the next whole number is not reached.
    """
    shift = max((divisor - 1).bit_length() - 1, 0)
    return ((1 << shift + 32) // divisor + 1) & 0xFFFFFFFF, shift


def _padded(values: Sequence[int], length: int = DIMENSION_COUNT) -> list[int]:
    return list(values) + [0] * (length - len(values))
