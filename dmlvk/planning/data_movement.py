"""From a loop nest to dispatches of a data-movement kernel: what SLICE1, DIAGONAL_MATRIX1 and ONE_HOT share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from dmlvk.device_profile import DeviceProfile
from dmlvk.planning.grid import SLOWEST_BYTES_PER_SECOND, folded, workgroup_size
from dmlvk.planning.loop_nest import BLOCK_SIZE, LoopNest, Role, WindowLimits, pieces
from dmlvk.planning.plan import MAXIMUM_SUBMISSION_SECONDS, Access, Dispatch, Plan, Window

# Offsets inside a window are 32-bit element counts and byte addresses in the kernels.
LARGEST_WINDOW = 1 << 31

# Where kernels/include/loop_nest.glsl has its push constants, in words.
OUTPUT_START_WORD = 0
SOURCE_START_WORD = 1
ARGUMENTS_WORD = 4
DIMENSION_COUNT = 8

NO_DIMENSION = 0xFFFFFFFF

# The path of kernels whose invocations each own a 16-byte block of the output.
BLOCKS = "blocks"


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
        The kernel's own specialization constants, from 4 on.
    arguments : tuple of int
        Up to four push constants of its own.
    kernel : str, optional
        Another kernel for this piece than the operator's ordinary one.
    group_count : int, optional
        Workgroups, for a kernel that has a unit of work of its own in place of 16-byte blocks.
    blocks_per_invocation : int
        How many blocks each invocation of the kernel writes.
    """

    specialization: tuple[int, ...] = ()
    arguments: tuple[int, ...] = ()
    kernel: str | None = None
    group_count: int | None = None
    blocks_per_invocation: int = 1


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
        Stem of the kernel.
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
    dispatches = tuple(
        _dispatch(kernel, piece, profile, arguments(piece), fixed_windows, bytes_per_element / slowest)
        for piece in pieces(nest, limits)
    )
    return Plan(path=path, stages=(dispatches,))


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
        # The kernel has a source binding even where it is specialized not to read it; Vulkan wants a buffer there.
        windows.append(replace(windows[0], access=Access.READ, base_word=SOURCE_START_WORD))
    values = list(arguments.arguments) + [0] * (4 - len(arguments.arguments))
    for fixed in fixed_windows:
        begin = fixed.element * fixed.element_size
        offset = begin // BLOCK_SIZE * BLOCK_SIZE
        values[fixed.argument] = (begin - offset) // fixed.element_size
        base_word = ARGUMENTS_WORD + fixed.argument
        windows.append(
            _window(fixed.field, offset, begin + fixed.element_size, Access.READ, base_word, fixed.element_size)
        )

    blocks_per_run, block_count = _blocks(piece, starts[0])
    size = workgroup_size(profile)
    # Kernels count dimensions from the innermost.
    dimensions = piece.dimensions[::-1]
    strides = [[dimension.strides[index] for dimension in dimensions] for index in range(len(piece.operands))]
    group_count = -(-block_count // (size * arguments.blocks_per_invocation))
    if arguments.group_count is not None:
        blocks_per_run, block_count, group_count = 0, arguments.group_count, arguments.group_count
    push_constants = [starts[0], starts[1] if len(starts) > 1 else 0, blocks_per_run, block_count, *values]
    push_constants += _padded([dimension.size for dimension in dimensions])
    push_constants += _padded(strides[0])
    push_constants += _padded(strides[1] if len(strides) > 1 else [])
    return Dispatch(
        kernel=arguments.kernel or kernel,
        specialization=(
            size,
            piece.operands[0].element_size,
            len(piece.dimensions),
            piece.run_rank,
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


def _blocks(piece: LoopNest, output_start: int) -> tuple[int, int]:
    """16-byte blocks that a run touches at most, and that number times the number of runs."""
    elements_per_block = BLOCK_SIZE // piece.operands[0].element_size
    outer = piece.dimensions[: len(piece.dimensions) - piece.run_rank]
    aligned = all(dimension.strides[0] % elements_per_block == 0 for dimension in outer)
    lead = output_start % elements_per_block if aligned else elements_per_block - 1
    if piece.run_rank == 0:
        lead = 0  # a single element never lies across two blocks
    blocks_per_run = -(-(lead + piece.run_length) // elements_per_block)
    return blocks_per_run, blocks_per_run * (piece.element_count // piece.run_length)


def _padded(values: Sequence[int]) -> list[int]:
    return list(values) + [0] * (DIMENSION_COUNT - len(values))
