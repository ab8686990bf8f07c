"""Element-wise operators: an output and up to three tensors that step along with it, in any layout.

Their kernels (kernels/element_wise/loop_nest.glsl) have four places: the output, and a first, second and third tensor.
A place that an operator does not use is left out. A tensor of tables counts whole tables as its elements.

An operator on one or two tensors of bytes, or of floats, needs no planning of its own: `plan` runs its kernel
`<stem>/operation`, which is an operation in the frame of kernels/element_wise/operation.glsl or word_operation.glsl.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dmlvk.data_type import DataType
from dmlvk.device_profile import DeviceProfile
from dmlvk.errors import PathError
from dmlvk.operators.declared import EIGHT_BIT_TYPES, OperatorDesc
from dmlvk.planning.builder import DispatchBuilder
from dmlvk.planning.division import quick_division
from dmlvk.planning.grid import SLOWEST_BYTES_PER_SECOND, folded, workgroup_size
from dmlvk.planning.kernel_interface import LOCAL_SIZE_X
from dmlvk.planning.loop_nest import Dimension, LoopNest, LoopOperand, WindowLimits, pieces, simplified
from dmlvk.planning.plan import Access, Dispatch, Plan, require_path
from dmlvk.tensor_desc import TensorDesc

OUTPUT, FIRST, SECOND, THIRD = range(4)
PLACES = (OUTPUT, FIRST, SECOND, THIRD)

OPERATION = "operation"
PATHS = (OPERATION,)
# Bytes that an invocation of an operation writes.
UNIT = 16

# The largest element that has a type; larger ones are tables, whose places count bytes.
LARGEST_ELEMENT = 4
# Dimensions in push constants; further ones are specialization constants.
PUSHED_DIMENSIONS = 4
FURTHER_DIMENSIONS = ("FIFTH", "SIXTH", "SEVENTH", "EIGHTH")
# The step of a tensor from one element of a row to the next, if it is neither 0 nor 1.
ANY_OTHER_STEP = 2


@dataclass(frozen=True)
class Stepping:
    """A tensor that steps along with an element-wise output.

    place: its place in the kernel: FIRST, SECOND or THIRD.
    strides: elements that it advances with each of the output's dimensions.
    """

    place: int
    operand: LoopOperand
    strides: tuple[int, ...]

    @classmethod
    def of(cls, place: int, field: str, tensor: TensorDesc, rank: int) -> Stepping:
        """A tensor with the output's sizes, or with one element for all of them."""
        strides = (0,) * rank if tensor.element_count == 1 else tensor.element_strides
        return cls(place, LoopOperand(field, tensor.data_type.size_in_bytes), strides)


def plan(desc: OperatorDesc, profile: DeviceProfile, *, path: str | None = None, offsets: Mapping[str, int]) -> Plan:
    """Plan an operator on one or two tensors of bytes or of floats: an operation of its own in the family's frame.

    path: one of PATHS; None chooses.
    offsets: bytes from the start of its memory to a tensor's own start, by field.
    Raises NotImplementedError: the operator takes more tensors or other types: it needs a module of its own in
        `dmlvk.planning`.
    """
    require_path(desc.operator_name, path, PATHS)
    return operation_plan(desc, profile, OPERATION, offsets)


def operation_plan(desc: OperatorDesc, profile: DeviceProfile, path: str, offsets: Mapping[str, int]) -> Plan:
    """Plan an operator with the kernel of a path that is an operation."""
    inputs = [field for field in desc.input_fields if field in desc.tensors]
    (output,) = desc.output_fields
    types = {tensor.data_type for tensor in desc.tensors.values()}
    if len(inputs) > SECOND or not (types <= set(EIGHT_BIT_TYPES) or types == {DataType.FLOAT32}):
        raise NotImplementedError(
            f"{desc.operator_name}: the family's plan takes one or two tensors of bytes, or of FLOAT32; "
            f"dmlvk/planning/{desc.stem}.py has to plan any other operator"
        )
    rank = desc.tensors[output].rank
    dispatches = element_wise_dispatches(
        f"{desc.stem}/{path}",
        UNIT // desc.tensors[output].data_type.size_in_bytes,
        (output, desc.tensors[output]),
        [Stepping.of(place, field, desc.tensors[field], rank) for place, field in enumerate(inputs, FIRST)],
        profile,
        specialization={"HAS_SECOND": int(len(inputs) == SECOND)},
        offsets=offsets,
        bindings=(OUTPUT, FIRST, SECOND),
    )
    return Plan(path=path, stages=(dispatches,))


def element_wise_dispatches(
    kernel: str,
    unit: int,
    output: tuple[str, TensorDesc],
    tensors: Sequence[Stepping],
    profile: DeviceProfile,
    *,
    specialization: Mapping[str, int],
    offsets: Mapping[str, int],
    bindings: Sequence[int] = PLACES,
) -> tuple[Dispatch, ...]:
    """Cut the loops to the device's limits and make one dispatch of each piece.

    unit: elements of the output that an invocation writes: UNIT in the kernel.
    output: its field and its desc.
    tensors: in order of their places.
    specialization: the kernel's own specialization constants.
    offsets: bytes from the start of its memory to a tensor's own start, by field.
    bindings: the places that the kernel has, in the order of its bindings.
    Raises PathError: a table does not fit into a storage buffer. Those that Vulkan guarantees have 128 MiB.
    """
    field, desc = output
    operands = (LoopOperand(field, desc.data_type.size_in_bytes), *(tensor.operand for tensor in tensors))
    nest = LoopNest(
        tuple(
            Dimension(size, (desc.element_strides[k], *(tensor.strides[k] for tensor in tensors)))
            for k, size in enumerate(desc.sizes)
        ),
        operands,
    )
    slowest = SLOWEST_BYTES_PER_SECOND[profile.device_type]
    bytes_per_element = sum(min(operand.element_size, LARGEST_ELEMENT) for operand in operands)
    limits = WindowLimits.of(nest, profile, offsets, bytes_per_element)
    largest = max(operand.element_size for operand in operands)
    if largest > min(limits.window_size, limits.segment_size):
        raise PathError(f"{kernel} needs a table of {largest} bytes in one storage buffer, more than the device allows")
    places = (OUTPUT, *(tensor.place for tensor in tensors))
    return tuple(
        _dispatch(kernel, unit, piece, places, bindings, profile, specialization, bytes_per_element / slowest)
        for piece in pieces(simplified(nest), limits)
    )


def _dispatch(
    kernel: str,
    unit: int,
    piece: LoopNest,
    places: Sequence[int],
    bindings: Sequence[int],
    profile: DeviceProfile,
    specialization: Mapping[str, int],
    seconds_per_element: float,
) -> Dispatch:
    dispatch = DispatchBuilder(kernel)
    for place in bindings:
        start = f"starts[{place}]"
        if place not in places:
            dispatch.unread_window(dispatch.windows[FIRST], start)
            continue
        index = places.index(place)
        operand = piece.operands[index]
        address = operand.start * operand.element_size
        access = Access.WRITE if place == OUTPUT else Access.READ
        dispatch.window(operand.field, piece.bounds(index), address, _unit_of(operand), start, access)
    dimensions = piece.dimensions[::-1]  # kernels count them from the innermost
    strides = [_strides_by_place(piece, dimension, places) for dimension in dimensions]
    pushed = [dimension.size for dimension in dimensions[:PUSHED_DIMENSIONS]]
    pushed += [1] * (PUSHED_DIMENSIONS - len(pushed))
    grouping = piece.units_of_run(unit)
    divisions = [quick_division(divisor) for divisor in (*pushed, grouping)]
    unit_count = grouping * (piece.element_count // piece.run_length)
    steps = strides[0] if piece.run_rank else (0,) * len(PLACES)
    size = workgroup_size(profile)
    dispatch.push(
        unit_count=unit_count,
        grouping=grouping,
        grouping_multiplier=divisions[-1][0],
        shifts=sum(shift << 5 * k for k, (_, shift) in enumerate(divisions)),
        sizes=pushed,
        multipliers=[multiplier for multiplier, _ in divisions[:-1]],
        strides=_padded([stride for row in strides[:PUSHED_DIMENSIONS] for stride in row], len(PLACES)),
    )
    return dispatch.finish(
        {
            LOCAL_SIZE_X: size,
            "RANK": len(dimensions),
            "RUN_RANK": piece.run_rank,
            "HAS_ONLY_WHOLE_UNITS": int(piece.has_whole_units(unit)),
            **{
                f"{name}_STEP": min(steps[place], ANY_OTHER_STEP)
                for place, name in ((FIRST, "FIRST"), (SECOND, "SECOND"), (THIRD, "THIRD"))
            },
            **dict(_further_dimensions(dimensions, strides)),
            **specialization,
        },
        folded(-(-unit_count // size), profile),
        seconds=piece.element_count * seconds_per_element,
        bytes_moved=piece.bytes_moved,
    )


def _unit_of(operand: LoopOperand) -> int:
    """Bytes in which a kernel counts places in a tensor: its elements; of tables, bytes."""
    return operand.element_size if operand.element_size <= LARGEST_ELEMENT else 1


def _strides_by_place(piece: LoopNest, dimension: Dimension, places: Sequence[int]) -> tuple[int, ...]:
    """The strides of a dimension at all places, as the kernel counts them; 0 at those that are not used."""
    by_place = [0] * len(PLACES)
    for place, operand, stride in zip(places, piece.operands, dimension.strides, strict=True):
        by_place[place] = stride * (operand.element_size // _unit_of(operand))
    return tuple(by_place)


def _further_dimensions(dimensions: Sequence[Dimension], strides: Sequence[Sequence[int]]) -> Iterator[tuple[str, int]]:
    """The dimensions that have no room in the push constants, as specialization constants."""
    for k, name in enumerate(FURTHER_DIMENSIONS, PUSHED_DIMENSIONS):
        is_used = k < len(dimensions)
        yield f"{name}_SIZE", dimensions[k].size if is_used else 1
        for place in PLACES:
            yield f"{name}_STRIDE_{place}", strides[k][place] if is_used else 0


def _padded(values: list[int], rows: int) -> list[int]:
    return values + [0] * (PUSHED_DIMENSIONS * rows - len(values))
