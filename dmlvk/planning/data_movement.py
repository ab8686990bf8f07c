"""From a loop nest to dispatches of a data-movement kernel, shared by SLICE1, DIAGONAL_MATRIX1 and ONE_HOT."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from dmlvk.device_profile import DeviceProfile, DeviceType
from dmlvk.planning.builder import DispatchBuilder
from dmlvk.planning.division import quick_division
from dmlvk.planning.grid import SLOWEST_BYTES_PER_SECOND, folded, workgroup_size
from dmlvk.planning.kernel_interface import LOCAL_SIZE_X, kernel_interface
from dmlvk.planning.loop_nest import BLOCK_SIZE, Dimension, LoopNest, Role, WindowLimits, pieces
from dmlvk.planning.plan import SCRATCH, Access, Dispatch, Plan, Window

# The sizes of the tables in kernels/data_movement/loop_nest.glsl: dimensions, and the kernel's own arguments.
DIMENSION_COUNT = 8
ARGUMENT_COUNT = 4
# With at most this many dimensions, the unused places of the tables hold multipliers and shifts for divisions.
QUICK_RANK = 4

NO_DIMENSION = 0xFFFFFFFF

# The path of kernels whose invocations each own a 16-byte block of the output.
BLOCKS = "blocks"

# Blocks are taken by rows if rows are at least this many blocks long. In groups of rows, blocks across rows fill whole
# subgroups. If all rows make one run, there is a place for one row too many, which has to be a small part of the whole.
LEAST_BLOCKS_OF_A_ROW = 2
ROWS_PER_GROUP = 64
LEAST_ROWS_OF_A_RUN = 16

# In the order of memory, blocks inside a row take a branch of their own if rows are at least this many blocks long. A
# CPU driver takes every branch for each group of lanes, so there rows have to be longer.
LONG_ROW = 1
CPU_LONG_ROW = 4


@dataclass(frozen=True)
class FixedWindow:
    """A window on a tensor that does not step with the loops: one element of it.

    field: the tensor's descriptor field.
    element, element_size: the index of the element, and its bytes.
    argument: number of the kernel argument that receives the element's place in the window.
    """

    field: str
    element: int
    element_size: int
    argument: int


@dataclass(frozen=True)
class PieceArguments:
    """What a kernel needs in addition to the loops.

    specialization: the kernel's own specialization constants by name.
    arguments: up to four push constants of its own.
    kernel: the kernel for this piece, if it is not the operator's ordinary kernel.
    group_count: workgroups, for a kernel whose workgroups have their own unit of work instead of 16-byte blocks.
    invocation_count: invocations, for a kernel whose invocations have their own unit of work.
    divisors: up to two more divisors, for kernels that count their own units of work.
    blocks_per_invocation: how many blocks of a row each invocation of the kernel can write.
    invocations_per_block: how many invocations share a block, each of which writes a part of what lies behind it.
    dimensions: the loops that count invocations, if the kernel itself runs some of the piece's loops. If invocations
        are counted by blocks, the rows of these loops begin and end with blocks.
    grouping: the push constant of that name. Free for kernels with such loops, and for kernels with their own unit of
        work.
    nest: the piece in other units, if the kernel counts an operand's elements in others: the same bytes.
    counts: what the kernel divides by for each loop, innermost first, if that is not the loop's size.
    """

    specialization: Mapping[str, int]
    arguments: tuple[int, ...] = ()
    kernel: str | None = None
    group_count: int | None = None
    invocation_count: int | None = None
    divisors: tuple[int, ...] = ()
    blocks_per_invocation: int = 1
    invocations_per_block: int = 1
    dimensions: tuple[Dimension, ...] | None = None
    grouping: int = 0
    nest: LoopNest | None = None
    counts: tuple[int, ...] | None = None


@dataclass(frozen=True)
class _BlockOrder:
    """The order in which invocations take the blocks, for find_block in loop_nest.glsl."""

    by_rows: bool
    edges_or_long: int  # EDGES_PER_ROW if by rows, otherwise ROWS_ARE_LONG
    blocks_per_invocation: int
    grouping: int
    block_count: int
    divisors: tuple[int, ...]

    def specialization(self, kernel: str) -> dict[str, int]:
        """The order as constants of loop_nest.glsl. The name of the first constant depends on BY_ROWS there."""
        names = kernel_interface(kernel).specialization_constants
        edges_or_long = next(name for name in ("EDGES_PER_ROW", "ROWS_ARE_LONG") if name in names)
        return {edges_or_long: self.edges_or_long, "BLOCKS_PER_INVOCATION": self.blocks_per_invocation}


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

    kernel: the name of the kernel. The name of its variant that takes blocks by rows has "_by_rows" appended.
    nest: the output, and the source if there is one.
    arguments: gives a piece's specialization constants and push constants.
    fixed_windows: further bindings, after the nest's operands.
    offsets: bytes from the start of its memory to a tensor's own start, if that is not 0.
    path: the plan's path.
    """
    bytes_per_element = sum(operand.element_size for operand in nest.operands)
    cut = list(pieces(nest, WindowLimits.of(nest, profile, offsets, bytes_per_element)))
    # The kernel has a source binding even if it is specialized not to read it. Vulkan requires a buffer there. The
    # output serves, unless other dispatches write to it meanwhile: only the kernel knows that it does not read it.
    has_unread = len(nest.operands) == 1 and len(cut) > 1
    seconds = bytes_per_element / SLOWEST_BYTES_PER_SECOND[profile.device_type]
    dispatches = tuple(
        _dispatch(kernel, piece, profile, arguments(piece), fixed_windows, has_unread, seconds) for piece in cut
    )
    return Plan(path=path, stages=(dispatches,), scratch_size=BLOCK_SIZE if has_unread else 0)


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
    has_unread: bool,
    seconds_per_element: float,
) -> Dispatch:
    loops = arguments.nest or piece
    if arguments.dimensions is not None:
        loops = replace(loops, dimensions=arguments.dimensions)
    output = loops.operands[0]
    size = workgroup_size(profile)
    if arguments.group_count is not None:
        order = _BlockOrder(False, 1, 1, arguments.grouping, arguments.group_count, arguments.divisors)
        group_count = arguments.group_count
    else:
        if arguments.invocation_count is not None:
            order = _BlockOrder(False, 1, 1, arguments.grouping, arguments.invocation_count, arguments.divisors)
        else:
            order = _order(loops, profile, arguments.blocks_per_invocation)
            if arguments.dimensions is not None:
                order = replace(order, grouping=arguments.grouping)
        group_count = -(-order.block_count * arguments.invocations_per_block // size)

    dispatch = DispatchBuilder(arguments.kernel or (f"{kernel}_by_rows" if order.by_rows else kernel))
    for index, (start, access) in enumerate((("output_start", Access.WRITE), ("source_start", Access.READ))):
        if index < len(piece.operands):
            operand, bounds = loops.operands[index], piece.bounds(index)
            address = operand.start * operand.element_size
            dispatch.window(operand.field, bounds, address, operand.element_size, start, access)
        elif has_unread:
            dispatch.unread_window(Window(SCRATCH, 0, BLOCK_SIZE, Access.READ, 0, BLOCK_SIZE), start)
        else:
            dispatch.unread_window(replace(dispatch.windows[0], access=Access.READ), start)
    dispatch.push(arguments=_padded(arguments.arguments, ARGUMENT_COUNT))
    for fixed in fixed_windows:
        address = fixed.element * fixed.element_size
        bounds = address, address + fixed.element_size
        dispatch.window(fixed.field, bounds, address, fixed.element_size, f"arguments[{fixed.argument}]", Access.READ)
    tables = _tables(loops, order, arguments.counts)
    dispatch.push(grouping=order.grouping, block_count=order.block_count, **tables)
    return dispatch.finish(
        {
            LOCAL_SIZE_X: size,
            "ELEMENT_SIZE": output.element_size,
            "RANK": len(loops.dimensions),
            "RUN_RANK": loops.run_rank,
            **order.specialization(dispatch.kernel),
            "GATHERS_IN_LOOP": int(profile.device_type is DeviceType.CPU),
            **arguments.specialization,
        },
        folded(group_count, profile),
        seconds=piece.element_count * seconds_per_element,
        bytes_moved=piece.bytes_moved,
    )


def _tables(loops: LoopNest, order: _BlockOrder, counts: tuple[int, ...] | None) -> dict[str, list[int]]:
    """The sizes and strides of the loops as push constants.

    Kernels count dimensions from the innermost. If there are few of them, the unused places of the tables hold
    multipliers and shifts for divisions.
    """
    dimensions = loops.dimensions[::-1]
    sizes = _padded([dimension.size for dimension in dimensions])
    output_strides = _padded([dimension.strides[0] for dimension in dimensions])
    source_strides = _padded([dimension.strides[1] for dimension in dimensions] if len(loops.operands) > 1 else [])
    if len(dimensions) <= QUICK_RANK:
        by_size = [quick_division(count) for count in counts or [dimension.size for dimension in dimensions]]
        by_others = [quick_division(divisor) for divisor in order.divisors]
        sizes[QUICK_RANK:] = _padded([multiplier for multiplier, _ in by_size], QUICK_RANK)
        output_strides[QUICK_RANK:] = _padded([shift for _, shift in by_size], QUICK_RANK)
        source_strides[QUICK_RANK:] = _padded([word for division in by_others for word in division], QUICK_RANK)
    return {"sizes": sizes, "output_strides": output_strides, "source_strides": source_strides}


def has_whole_blocks(nest: LoopNest) -> bool:
    """Whether all rows (along the innermost dimension) begin and end with blocks of the output."""
    return nest.has_whole_units(BLOCK_SIZE // nest.operands[0].element_size)


def _order(nest: LoopNest, profile: DeviceProfile, blocks_per_invocation: int) -> _BlockOrder:
    elements_per_block = BLOCK_SIZE // nest.operands[0].element_size
    is_cpu = profile.device_type is DeviceType.CPU
    if nest.run_rank and (blocks_of_row := nest.dimensions[-1].size // elements_per_block) >= LEAST_BLOCKS_OF_A_ROW:
        row_count = nest.element_count // nest.dimensions[-1].size
        places = -(-blocks_of_row // blocks_per_invocation)
        if has_whole_blocks(nest):
            return _BlockOrder(True, 0, blocks_per_invocation, 0, row_count * places, (places,))
        edges = 1 if nest.run_rank == len(nest.dimensions) else 2
        # On a CPU, blocks of one kind in a group of lanes are no gain, but several blocks an invocation are.
        is_gain = not is_cpu or blocks_per_invocation > 1
        if is_gain and (edges == 2 or row_count >= LEAST_ROWS_OF_A_RUN):
            # The end of a single run counts as the beginning of one more row.
            row_count += edges == 1
            groups = -(-row_count // ROWS_PER_GROUP)
            rows = -(-row_count // groups)
            size = rows * (places + edges)
            return _BlockOrder(True, edges, blocks_per_invocation, rows, groups * size, (places, size))

    blocks_per_run = nest.units_of_run(elements_per_block)
    block_count = blocks_per_run * (nest.element_count // nest.run_length)
    long = (CPU_LONG_ROW if is_cpu else LONG_ROW) * elements_per_block
    is_long = (nest.dimensions[-1].size if nest.run_rank else 1) >= long
    return _BlockOrder(False, int(is_long), 1, blocks_per_run, block_count, (blocks_per_run,))


def _padded(values: Sequence[int], length: int = DIMENSION_COUNT) -> list[int]:
    return list(values) + [0] * (length - len(values))
