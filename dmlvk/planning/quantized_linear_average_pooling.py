"""QUANTIZED_LINEAR_AVERAGE_POOLING.

vectors
    Each invocation makes a vector of channels, which are packed in the input and in the output.
rows
    Each invocation makes a word of a row, which is packed in the input and in the output.
planes
    Workgroups add up whole planes, which are packed, or of which they take vectors of channels.
elements
    Each invocation makes the elements of one word of the output, one after the other. For any layout.

Parts that the others do not suit are made by elements. On devices that round to nearest even, there are kernels
that add up float32 numbers; see kernels/quantized_linear_average_pooling/mean.glsl.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial

from dmlvk.data_type import DataType
from dmlvk.device_profile import DeviceProfile
from dmlvk.operators import QuantizedLinearAveragePoolingDesc
from dmlvk.operators.quantized_linear_average_pooling import PARAMETER_FIELDS
from dmlvk.planning import device_traits
from dmlvk.planning.builder import DispatchBuilder, PlanBuilder, View, dense_copy
from dmlvk.planning.device_rates import rates_of
from dmlvk.planning.families.windows import (
    CHANNEL,
    COLUMN,
    ELEMENTS,
    ROWS,
    VECTORS,
    WORD_SIZE,
    WORKGROUPS_OF_PROCESSOR,
    Strips,
    Windows,
    WindowsPart,
    stages_of,
)
from dmlvk.planning.grid import folded
from dmlvk.planning.kernel_interface import LOCAL_SIZE_X
from dmlvk.planning.plan import SCRATCH, Access, Dispatch, Plan, require_path

PLANES = "planes"
PATHS = (PLANES, VECTORS, ROWS, ELEMENTS)
STEM = "quantized_linear_average_pooling"

# Storage buffers of a kernel that reads each scale and zero point in a buffer of its own.
BUFFER_COUNT = 7
# What the kernels have registers for. A workgroup keeps its registers while one invocation makes a mean once more: so
# it is a single subgroup.
STRIPS = {ROWS: Strips(4, 12, takes_turns=False, is_subgroup=True), VECTORS: Strips(1, 6, is_subgroup=True)}
# The same where workgroups may find thresholds together (kernels/quantized_linear_average_pooling/thresholds.glsl).
STRIPS_WITH_THRESHOLDS = {ROWS: Strips(4, 12, takes_turns=True), VECTORS: Strips(1, 6)}
MOST_TAPS_WITH_THRESHOLDS = 16
# What outputs whose taps are cut have in memory, in bytes, and the most of them at a time.
STATE_SIZE = 8
MOST_STATES = 1 << 20
# Bytes whose sum fits 16 bits: the most taps of vectors and rows.
MOST_TAPS = 65_535 // 255
# Bytes whose sum fits 31 bits.
MOST_TAPS_OF_PLANES = 1 << 23
# Of kernels/quantized_linear_average_pooling/planes_of_vectors.comp: invocations of a workgroup, for which it has
# shared memory, and vectors that they take side by side, which are whole lines of caches.
PLANE_WORKGROUP = 128
LANES = 8
# Bytes of a plane that planes.comp takes in one part. 256 planes and their sums fit 16 KiB of shared memory, which all
# devices have.
SMALL_PLANE = 56
# Bytes of a larger plane for each invocation, at most twice as many.
BYTES_OF_PART = 16


def plan(
    desc: QuantizedLinearAveragePoolingDesc,
    profile: DeviceProfile,
    *,
    path: str | None = None,
    offsets: Mapping[str, int],
) -> Plan:
    """Plan a QUANTIZED_LINEAR_AVERAGE_POOLING: see `dmlvk.planning.plan`."""
    require_path(desc.operator_name, path, PATHS)
    return _PoolingPlanner(desc, PlanBuilder(profile, offsets)).plan(path)


@dataclass(frozen=True)
class _PoolingPlanner:
    desc: QuantizedLinearAveragePoolingDesc
    builder: PlanBuilder

    def plan(self, path: str | None) -> Plan:
        copies = [dispatch for _, dispatches in self._gathered.values() for dispatch in dispatches]
        whole, pieces = self.windows.cut()
        is_only = len(whole) == 1 and not pieces
        # Each box of outputs has its states at a place of its own.
        states: dict[int, int] = {}
        for parts in pieces:
            start = self.builder.allocate(self.builder.scratch, parts[0].count * STATE_SIZE)
            states |= {id(part): start for part in parts}
        last = {id(parts[-1]) for parts in pieces}

        chosen = path or self._path()

        def dispatch(part: WindowsPart, number: int | None) -> Dispatch:
            if number is None and not self.has_few_buffers:
                if chosen == PLANES and (found := self._planes(part)) is not None:
                    return found
                words = self.windows.vector_words(part) if chosen == VECTORS and self.has_few_taps else 0
                if words:
                    return self._vectors(part, words, is_only)
                if chosen == ROWS and self.has_few_taps and self.windows.has_rows_of_words(part):
                    return self._rows(part, is_only)
            has_more = number is not None and id(part) not in last
            return self._elements(part, number, has_more, states.get(id(part)), is_only)

        stages = stages_of(whole, pieces, dispatch)
        if copies:
            stages = (tuple(copies), *stages)
        return Plan(chosen, stages, scratch_size=self.builder.scratch.size)

    def _path(self) -> str:
        """The path that suits the layout."""
        if self.has_few_buffers:
            return ELEMENTS
        if self.desc.geometry.tap_count > 1 and self._planes(self.windows.everything) is not None:
            return PLANES
        return self.windows.path() if self.has_few_taps else ELEMENTS

    @property
    def has_few_taps(self) -> bool:
        return self.desc.geometry.tap_count <= MOST_TAPS

    @property
    def has_few_buffers(self) -> bool:
        return self.builder.profile.limits.max_per_stage_descriptor_storage_buffers < BUFFER_COUNT

    @cached_property
    def _gathered(self) -> dict[str, tuple[View, list[Dispatch]]]:
        """The scales and zero points by field, and what copies them where all are in one buffer."""
        gathered: dict[str, tuple[View, list[Dispatch]]] = {}
        for field in PARAMETER_FIELDS:
            tensor = self.desc.tensors.get(field)
            if tensor is None:
                continue
            stride = self.desc.channel_stride(field)
            view = View(field, 0, tensor.data_type.size_in_bytes, (stride,))
            dispatches: list[Dispatch] = []
            if self.has_few_buffers:
                count = self.desc.geometry.channels if stride else 1
                copied, dispatches = dense_copy(self.builder, self.builder.scratch, view, (count,))
                view = View(copied.tensor, copied.start, view.element_size, copied.strides if stride else (0,))
            gathered[field] = view, dispatches
        return gathered

    @cached_property
    def windows(self) -> Windows:
        geometry = self.desc.geometry
        return Windows(
            self.builder,
            geometry,
            View("input_tensor", 0, 1, geometry.input_strides),
            (View("output_tensor", 0, 1, geometry.output_strides),),
            tuple(view for view, _ in self._gathered.values()),
            min(MOST_STATES, max(1, self.builder.window_limit // STATE_SIZE)),  # one window shows them
        )

    def _parameters(self, dispatch: DispatchBuilder, part: WindowsPart) -> None:
        """Bind the scales and zero points, from a part's first channel on."""
        channels = part.box[CHANNEL]
        if self.has_few_buffers:
            # Regions of scratch memory begin where any device's bindings may begin: no start depends on the binding.
            views = {field: view for field, (view, _) in self._gathered.items()}
            begin = min(view.start for view in views.values())
            end = max(view.bounds([(0, self.desc.geometry.channels)])[1] for view in views.values())
            first = views[PARAMETER_FIELDS[0]]
            dispatch.window(SCRATCH, (begin, end), first.address([channels[0]]), 4, "input_scale_start", Access.READ)
            for field in PARAMETER_FIELDS[1:]:
                view = views.get(field)
                start = 0 if view is None else (view.address([channels[0]]) - begin) // view.element_size
                dispatch.push(**{f"{field.removesuffix('_tensor')}_start": start})
            return
        for field in PARAMETER_FIELDS:
            start_name = f"{field.removesuffix('_tensor')}_start"
            if field not in self._gathered:
                dispatch.unread_window(dispatch.windows[0], start_name)
                continue
            view, _ = self._gathered[field]
            bounds, address = view.bounds([channels]), view.address([channels[0]])
            dispatch.window(view.tensor, bounds, address, view.element_size, start_name, Access.READ)

    @property
    def _constants(self) -> dict[str, int]:
        """The specialization constants of kernels/quantized_linear_average_pooling/parameters.glsl, and IS_GLOBAL."""
        views = {field: view for field, (view, _) in self._gathered.items()}
        data = (self.desc.input_tensor, self.desc.output_tensor)
        zero_points = ("input_zero_point_tensor", "output_zero_point_tensor")
        strides = {
            f"{field.removesuffix('_tensor').upper()}_STRIDE": views[field].strides[0] if field in views else 0
            for field in PARAMETER_FIELDS
        }
        counts_all = self.desc.is_global or self.desc.include_padding
        return {
            **strides,
            "PRESENT": sum(1 << bit for bit, field in enumerate(zero_points) if field in views),
            "UNSIGNED_TYPES": sum(1 << bit for bit, each in enumerate(data) if each.data_type is DataType.UINT8),
            "TAPS_OF_MEAN": self.desc.geometry.tap_count if counts_all else 0,
            "IS_GLOBAL": int(self.desc.is_global),
        }

    def _kernel(self, path: str) -> str:
        if self.has_few_buffers:
            return f"{STEM}/{path}_of_few_buffers"
        is_rounding = device_traits.ROUNDING in self.builder.profile.properties
        return f"{STEM}/{path}_float32" if is_rounding else f"{STEM}/{path}"

    def _planes(self, part: WindowsPart) -> Dispatch | None:
        """A dispatch that adds up whole planes; None if they do not suit it."""
        geometry, windows = self.desc.geometry, self.windows
        source, output = windows.input, windows.outputs[0]
        if not self.desc.is_global or geometry.tap_count > MOST_TAPS_OF_PLANES or part.seen is None:
            return None
        depth, height, width = geometry.input_size
        pixel_stride = source.strides[COLUMN]
        sizes, strides = (width, height, depth), source.strides[:1:-1]
        step = next((stride for size, stride in zip(sizes, strides, strict=True) if size > 1), pixel_stride)
        expected = (step, width * step, width * height * step)
        if any(size > 1 and stride != wanted for size, stride, wanted in zip(sizes, strides, expected, strict=True)):
            return None
        if step == 1:
            return self._packed_planes(part)
        words = windows.vector_words(part)
        if not words:
            return None
        unit = words * WORD_SIZE
        vectors = part.extents[CHANNEL] // unit
        size = min(PLANE_WORKGROUP, self.builder.workgroup_size)
        lanes = min(size, self._lanes(part.extents[0] * vectors, size // words), 1 << max(0, vectors - 1).bit_length())
        dispatch = self._plane_windows(f"{STEM}/planes_of_vectors", part, unit, WORD_SIZE)
        dispatch.push(
            images=part.extents[0],
            vectors=vectors,
            input_stride_n=source.strides[0] // unit,
            pixel_stride=step // unit,
            output_stride_n=output.strides[0] // WORD_SIZE,
        )
        workgroups = part.extents[0] * -(-vectors // lanes)
        own = {"LANES": lanes, "VECTOR_WORDS": words}
        return self._plane_dispatch(dispatch, part, workgroups, size, own)

    def _lanes(self, vectors: int, most: int) -> int:
        """The vectors that a workgroup takes side by side; with `most` of them, each invocation finishes a word.

        There are that many if all processors have several workgroups: fewer vectors make more workgroups.
        """
        enough = WORKGROUPS_OF_PROCESSOR * rates_of(self.builder.profile).processors
        return max(LANES, most) if vectors >= most * enough else LANES

    def _packed_planes(self, part: WindowsPart) -> Dispatch | None:
        geometry, windows = self.desc.geometry, self.windows
        (source, output), taps, extents = (windows.input, windows.outputs[0]), geometry.tap_count, part.extents
        if extents[0] > 1 and extents[CHANNEL] < geometry.channels:
            return None
        for view, pitch in ((source, taps), (output, 1)):
            steps = (geometry.channels * pitch, pitch)
            if any(
                extent > 1 and view.strides[k] != step
                for k, (extent, step) in enumerate(zip(extents, steps, strict=False))
            ):
                return None
        size = self.builder.workgroup_size
        parts = 1 if taps <= SMALL_PLANE else min(size, 1 << max(0, taps // BYTES_OF_PART - 1).bit_length())
        planes = extents[0] * extents[CHANNEL]
        dispatch = self._plane_windows(f"{STEM}/planes", part, 1, 1)
        dispatch.push(planes=planes, channels=extents[CHANNEL])
        return self._plane_dispatch(dispatch, part, -(-planes * parts // size), size, {"PARTS": parts})

    def _plane_windows(self, kernel: str, part: WindowsPart, input_unit: int, output_unit: int) -> DispatchBuilder:
        windows, dispatch = self.windows, DispatchBuilder(kernel)
        bounds = windows.input_bounds(part)
        dispatch.window(windows.input.tensor, bounds, bounds[0], input_unit, "input_start", Access.READ)
        bounds = windows.outputs[0].bounds(part.box)
        dispatch.window(windows.outputs[0].tensor, bounds, bounds[0], output_unit, "output_start", Access.WRITE)
        self._parameters(dispatch, part)
        return dispatch

    def _plane_dispatch(
        self, dispatch: DispatchBuilder, part: WindowsPart, workgroups: int, size: int, own: Mapping[str, int]
    ) -> Dispatch:
        constants = {name: value for name, value in self._constants.items() if name != "IS_GLOBAL"}
        first, end = self.windows.input_bounds(part)
        return dispatch.finish(
            {LOCAL_SIZE_X: size, **constants, **own},
            folded(workgroups, self.builder.profile),
            seconds=self.windows.seconds(part),
            bytes_moved=end - first + part.count,
        )

    @property
    def _strips(self) -> dict[str, Strips]:
        taps = self.desc.geometry.tap_count
        return STRIPS_WITH_THRESHOLDS if taps % 2 == 0 and taps <= MOST_TAPS_WITH_THRESHOLDS else STRIPS

    def _vectors(self, part: WindowsPart, words: int, is_only: bool) -> Dispatch:
        kernel, bind, strips = self._kernel(VECTORS), partial(self._parameters, part=part), self._strips[VECTORS]
        return self.windows.vectors(
            kernel, part, words, is_only=is_only, bind=bind, specialization=self._constants, strips=strips
        )

    def _rows(self, part: WindowsPart, is_only: bool) -> Dispatch:
        kernel, bind, strips = self._kernel(ROWS), partial(self._parameters, part=part), self._strips[ROWS]
        return self.windows.rows(
            kernel, part, is_only=is_only, bind=bind, specialization=self._constants, strips=strips
        )

    def _elements(
        self, part: WindowsPart, number: int | None, has_more: bool, state: int | None, is_only: bool
    ) -> Dispatch:
        def bind(dispatch: DispatchBuilder) -> None:
            if state is None:
                dispatch.unread_window(dispatch.windows[0], "state_start")
            else:
                bounds = state, state + part.count * STATE_SIZE
                dispatch.window(SCRATCH, bounds, state, 4, "state_start", Access.WRITE)
            self._parameters(dispatch, part)

        return self.windows.elements(
            self._kernel(ELEMENTS),
            part,
            is_only=is_only,
            bind=bind,
            specialization={
                **self._constants,
                "TAKES_STATE": int(bool(number)),
                "LEAVES_STATE": int(has_more),
            },
        )
