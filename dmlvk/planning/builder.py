"""What plans are made of: strided views, windows on them, regions of memory, and the boxes that dispatches make."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from operator import mul
from typing import NamedTuple, TypeAlias, TypeVar

from dmlvk.device_profile import LARGEST_OFFSET_ALIGNMENT, DeviceProfile, DeviceType
from dmlvk.planning.grid import folded, workgroup_size
from dmlvk.planning.kernel_interface import LOCAL_SIZE_X, kernel_interface
from dmlvk.planning.plan import CLEAN, MAXIMUM_SUBMISSION_SECONDS, PERSISTENT, SCRATCH, Access, Dispatch, Window

BLOCK_SIZE = 16
# Byte addresses and word indices inside a window are 32-bit numbers in the kernels.
LARGEST_WINDOW = 1 << 31
# Dispatches are cut to this duration. So an estimate that is a little too low does no harm.
DISPATCH_SECONDS = 0.8 * MAXIMUM_SUBMISSION_SECONDS

Range: TypeAlias = tuple[int, int]
Box: TypeAlias = tuple[Range, ...]
AnyPiece = TypeVar("AnyPiece")

# The lowest rates of simple per-element kernels (packing, copying), in elements a second.
SLOWEST_ELEMENTS_PER_SECOND = {
    DeviceType.CPU: 25e6,
    DeviceType.INTEGRATED_GPU: 1e9,
    DeviceType.DISCRETE_GPU: 10e9,
    DeviceType.VIRTUAL_GPU: 1e9,
    DeviceType.OTHER: 25e6,
}


@dataclass(frozen=True)
class View:
    """Elements with strides in some memory.

    tensor: descriptor field, SCRATCH or PERSISTENT.
    start: bytes from the tensor's start to the element at the origin.
    element_size: bytes: 1 or 4, or those of a row of a table.
    strides: strides in elements, one for each dimension.
    """

    tensor: str
    start: int
    element_size: int
    strides: tuple[int, ...]

    def address(self, coordinates: Sequence[int]) -> int:
        """The byte address of an element. Coordinates, and so the address, may lie outside the tensor."""
        assert len(coordinates) == len(self.strides), (coordinates, self.strides)
        return self.start + sum(map(mul, coordinates, self.strides)) * self.element_size

    def bounds(self, box: Sequence[Range]) -> Range:
        """The first byte of the elements in a box, and the byte after the last. The box must not be empty."""
        first = self.address([low for low, _ in box])
        return first, self.address([high - 1 for _, high in box]) + self.element_size


@dataclass
class Arena:
    """Hands out regions of memory that no caller binds, each at a multiple of 256 bytes."""

    name: str
    size: int = 0

    def allocate(self, size: int) -> int:
        start = self.size
        self.size += -(-size // LARGEST_OFFSET_ALIGNMENT) * LARGEST_OFFSET_ALIGNMENT
        return start


@dataclass
class PlanBuilder:
    """The state that all steps of the planner share: the device's limits, and the memory allocated so far."""

    profile: DeviceProfile
    offsets: Mapping[str, int]
    scratch: Arena = field(default_factory=lambda: Arena(SCRATCH))
    persistent: Arena = field(default_factory=lambda: Arena(PERSISTENT))
    clean: Arena = field(default_factory=lambda: Arena(CLEAN))

    @cached_property
    def window_limit(self) -> int:
        """Bytes of the largest window; the aligned start of a binding may lie before it."""
        limit = min(self.profile.limits.max_storage_buffer_range, LARGEST_WINDOW, self.profile.segment_size)
        return (limit - self.profile.offset_alignment) // BLOCK_SIZE * BLOCK_SIZE

    @property
    def workgroup_size(self) -> int:
        return workgroup_size(self.profile)

    @property
    def elements_per_dispatch(self) -> int:
        """The most elements for which a dispatch of a packing or copying kernel stays short."""
        return int(SLOWEST_ELEMENTS_PER_SECOND[self.profile.device_type] * DISPATCH_SECONDS)

    def allocate(self, arena: Arena, size: int) -> int:
        """A region of an arena in one segment. A region larger than a segment begins where a segment begins."""
        segment = self.profile.segment_size
        if arena.size % segment + size > segment:
            arena.allocate(-arena.size % segment)
        return arena.allocate(size)

    def fits(self, tensor: str, bounds: Range) -> bool:
        """Whether bytes of a tensor lie in one window and in one segment of its memory."""
        first, last = _blocks(bounds)
        if last - first > self.window_limit:
            return False
        base = self.offsets.get(tensor, 0)
        return (first + base) // self.profile.segment_size == (last - 1 + base) // self.profile.segment_size

    def shows(self, view: View, box: Sequence[Range]) -> bool:
        """Whether the elements in a box of a view do."""
        return self.fits(view.tensor, view.bounds(box))

    def grid(self, invocations: int, size: int | None = None) -> tuple[int, int, int]:
        return folded(-(-invocations // (size or self.workgroup_size)), self.profile)

    def element_seconds(self, elements: int) -> float:
        return elements / SLOWEST_ELEMENTS_PER_SECOND[self.profile.device_type]


def _blocks(bounds: Range) -> Range:
    return bounds[0] // BLOCK_SIZE * BLOCK_SIZE, -(-bounds[1] // BLOCK_SIZE) * BLOCK_SIZE


class DispatchBuilder:
    """Collects the windows and the constants of one dispatch, by their names in the kernel."""

    def __init__(self, kernel: str) -> None:
        self.kernel = kernel
        self.windows: list[Window] = []
        self._interface = kernel_interface(kernel)
        self._push_constants: dict[str, int | Sequence[int]] = {}
        self._starts: list[tuple[int, int]] = []

    def window(
        self, tensor: str, bounds: Range, address: int, unit: int, start: str, access: Access = Access.READ
    ) -> None:
        """Bind some bytes of a tensor; push constant `start` tells the kernel where `address` is, in units of `unit`.

        The address may lie outside of the window: the kernel's arithmetic is modulo 2**32.
        """
        first, last = _blocks(bounds)
        word = self._interface.word_of(start)
        self.windows.append(Window(tensor, first, last - first, access, word, unit))
        self._starts.append((word, (address - first) // unit))
        name = start.partition("[")[0]
        self._push_constants.setdefault(name, [0] * self._interface.push_constants[name][1])

    def show(
        self,
        view: View,
        box: Sequence[Range],
        start: str,
        access: Access = Access.READ,
        *,
        at: Sequence[int] | None = None,
        unit: int = 0,
    ) -> int:
        """Bind the elements of a box of a view. Push constant `start` gives the first of them, or the one `at` a place.

        unit: the bytes in which the constant counts; 0 for those of an element.

        Returns the number of bytes.
        """
        first, end = view.bounds(box)
        address = first if at is None else view.address(at)
        self.window(view.tensor, (first, end), address, unit or view.element_size, start, access)
        return end - first

    def unread_window(self, other: Window, start: str) -> None:
        """Bind another window's memory at a binding that the kernel does not read: Vulkan requires a buffer there."""
        word = self._interface.word_of(start)
        self.windows.append(replace(other, base_word=word))
        name = start.partition("[")[0]
        self._push_constants.setdefault(name, [0] * self._interface.push_constants[name][1])

    def push(self, **values: int | Sequence[int]) -> None:
        """Set push constants."""
        self._push_constants.update(values)

    def finish(
        self,
        specialization: Mapping[str, int],
        groups: tuple[int, int, int],
        *,
        seconds: float,
        bytes_moved: int = 0,
        operations: int = 0,
        subgroup_size: int = 0,
    ) -> Dispatch:
        """The dispatch.

        Raises KernelInterfaceError: a constant of the kernel is missing, or a given constant is not the kernel's.
        """
        words = list(self._interface.push_constant_words(self._push_constants))
        for word, start in self._starts:
            words[word] = start & 0xFFFFFFFF
        return Dispatch(
            kernel=self.kernel,
            specialization=self._interface.specialization(specialization),
            push_constants=tuple(words),
            windows=tuple(self.windows),
            groups=groups,
            seconds=min(seconds, MAXIMUM_SUBMISSION_SECONDS),
            bytes_moved=bytes_moved,
            operations=operations,
            subgroup_size=subgroup_size,
        )


def by_dimension(name: str, dimensions: str, values: Sequence[int]) -> dict[str, int]:
    """Constants whose names end in a dimension's letter: "input_stride" and "nchw" make input_stride_n and so on."""
    return {f"{name}_{letter}": value for letter, value in zip(dimensions, values, strict=True)}


def sizes_of(box: Box) -> list[int]:
    """The number of elements along each dimension of a box."""
    return [high - low for low, high in box]


def whole(sizes: Sequence[int]) -> Box:
    """The box of all elements of a tensor of some sizes."""
    return tuple((0, size) for size in sizes)


def outermost(box: Box) -> int | None:
    """The first dimension along which a box can be cut; None for a single element."""
    return next((k for k, (low, high) in enumerate(box) if high - low > 1), None)


def halves(box: Box, dimension: int, unit: int = 1) -> Iterator[Box]:
    """A box cut in two along a dimension, at a multiple of a unit from its start."""
    low, high = box[dimension]
    middle = low + -(-(high - low) // unit) // 2 * unit
    for part in ((low, middle), (middle, high)):
        yield (*box[:dimension], part, *box[dimension + 1 :])


def pieces(whole: AnyPiece, parts_of: Callable[[AnyPiece], Iterable[AnyPiece] | None]) -> Iterator[AnyPiece]:
    """Cut a whole into pieces, in order: `parts_of` gives the parts of a piece, or None for one that stays whole."""
    pending = [whole]
    while pending:
        piece = pending.pop()
        parts = parts_of(piece)
        if parts is None:
            yield piece
        else:
            pending.extend(reversed([*parts]))


def boxes(whole: Box, cut: Callable[[Box], int | None], units: Sequence[int] | None = None) -> Iterator[Box]:
    """Boxes that need no cut: a box is halved along the dimension that `cut` names, until `cut` names none.

    With `units`, boxes begin at multiples of these along each dimension.
    """

    def parts_of(box: Box) -> Iterator[Box] | None:
        dimension = cut(box)
        return None if dimension is None else halves(box, dimension, 1 if units is None else units[dimension])

    return pieces(whole, parts_of)


class Excess(NamedTuple):
    """Why one dispatch cannot make a box of outputs from a box of taps.

    of_outputs, of_taps: how much each dimension contributes. If none does, the outermost one is to be cut.
    by_outputs: whether cutting the outputs alone is enough, and not too much work.
    """

    of_outputs: Sequence[int]
    of_taps: Sequence[int]
    by_outputs: bool = True


def output_boxes(
    outputs: Box, taps: Box, excess: Callable[[Box, Box], Excess | None], most_outputs: int
) -> tuple[list[Box], list[tuple[Box, list[Box]]]]:
    """Boxes of outputs that one dispatch each can make from all taps, and the others with the boxes of their taps.

    excess: what is too much about some outputs and some taps; None if a dispatch can take them. One tap of one output
        is never too much.
    most_outputs: the most outputs of a box whose taps are cut: of those, there are intermediate results in memory.
    """
    parts: dict[Box, list[Box]] = {}

    def boxes_of_taps(box: Box) -> list[Box] | Excess:
        """Boxes of taps that one dispatch each can take; if a single tap of these outputs is too much, what is."""

        def cut(part: Box) -> int | None:
            found = excess(box, part)
            return None if found is None else farthest(found.of_taps, sizes_of(part))

        found: list[Box] = []
        for part in boxes(taps, cut):
            too_much = excess(box, part)
            if too_much is not None:
                return too_much
            found.append(part)
        return found

    def cut(box: Box) -> int | None:
        found = excess(box, taps)
        if found is None:
            return None
        dimension, count = farthest(found.of_outputs, sizes_of(box)), math.prod(sizes_of(box))
        if dimension is None or (not found.by_outputs and count <= most_outputs):
            of_taps = boxes_of_taps(box)
            if not isinstance(of_taps, Excess):
                parts[box] = of_taps
                return None
            dimension = farthest(of_taps.of_outputs, sizes_of(box))
        assert dimension is not None, "one tap of one output is never too much"
        return dimension

    whole = [box for box in boxes(outputs, cut) if box not in parts]
    return whole, list(parts.items())


def farthest(contributions: Sequence[int], sizes: Sequence[int]) -> int | None:
    """The dimension along which a box of some sizes is to be cut; None for a single element."""
    found = largest([far if size > 1 else 0 for far, size in zip(contributions, sizes, strict=True)])
    return next((k for k, size in enumerate(sizes) if size > 1), None) if found is None else found


def largest(contributions: Sequence[int]) -> int | None:
    """The dimension that contributes most; None if no dimension contributes."""
    best = max(range(len(contributions)), key=lambda k: contributions[k])
    return best if contributions[best] > 0 else None


def reach(view: View, box: Sequence[Range]) -> list[int]:
    """How far each dimension of a box stretches the memory range of the box."""
    return [(high - low - 1) * stride for (low, high), stride in zip(box, view.strides, strict=True)]


def dense(tensor: str, start: int, element_size: int, sizes: Sequence[int]) -> View:
    """A packed row-major view."""
    strides: list[int] = []
    step = 1
    for size in reversed(sizes):
        strides.insert(0, step)
        step *= size
    return View(tensor, start, element_size, tuple(strides))


def dense_copy(builder: PlanBuilder, arena: Arena, source: View, sizes: Sequence[int]) -> tuple[View, list[Dispatch]]:
    """A packed copy of a view in an arena, and the dispatches that make it; of at most four dimensions."""
    start = builder.allocate(arena, math.prod(sizes) * source.element_size)
    copied = dense(arena.name, start, source.element_size, sizes)
    return copied, copies(builder, source, copied, sizes)


def copies(builder: PlanBuilder, source: View, destination: View, sizes: Sequence[int]) -> list[Dispatch]:
    """Dispatches that copy the elements of one view to another; both have at most four dimensions."""
    offsets = tuple((view.tensor, builder.offsets.get(view.tensor, 0)) for view in (source, destination))
    return list(_copies(builder.profile, offsets, source, destination, tuple(sizes)))


@lru_cache(maxsize=256)
def _copies(
    profile: DeviceProfile,
    offsets: tuple[tuple[str, int], ...],
    source: View,
    destination: View,
    sizes: tuple[int, ...],
) -> tuple[Dispatch, ...]:
    """As `copies`. The layers of a network copy the same scales and zero points to the same places, seven for each."""
    builder, padding = PlanBuilder(profile, dict(offsets)), 4 - len(sizes)
    source = replace(source, strides=(0,) * padding + source.strides)
    destination = replace(destination, strides=(0,) * padding + destination.strides)

    def cut(box: Box) -> int | None:
        for view in (destination, source):
            if not builder.fits(view.tensor, view.bounds(box)):
                return largest(reach(view, box))
        is_long = math.prod(sizes_of(box)) > builder.elements_per_dispatch
        return largest([size - 1 for size in sizes_of(box)]) if is_long else None

    dispatches: list[Dispatch] = []
    for box in boxes(whole((1,) * padding + sizes), cut):
        count, unit = math.prod(sizes_of(box)), source.element_size
        dispatch = DispatchBuilder("quantized_linear_convolution/copy")
        dispatch.show(source, box, "source_start")
        dispatch.show(destination, box, "destination_start", Access.WRITE)
        dispatch.push(
            count=count,
            unused=0,
            sizes=sizes_of(box),
            source_strides=source.strides,
            destination_strides=destination.strides,
        )
        dispatches.append(
            dispatch.finish(
                {LOCAL_SIZE_X: builder.workgroup_size, "ELEMENT_SIZE": unit},
                builder.grid(count),
                seconds=builder.element_seconds(count),
                bytes_moved=2 * count * unit,
            )
        )
    return tuple(dispatches)
