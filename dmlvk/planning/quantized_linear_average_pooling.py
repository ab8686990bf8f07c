"""QUANTIZED_LINEAR_AVERAGE_POOLING.

vectors
    Each invocation makes a vector of channels, which are packed in the input and in the output.
rows
    Each invocation makes a word of a row, which is packed in the input and in the output.
elements
    Each invocation makes the elements of one word of the output, one after the other. For any layout.

Parts that vectors or rows do not suit are made by elements. On devices that round to nearest even, there are kernels
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
from dmlvk.planning.builder import Builder, DispatchBuilder, View, dense_copy
from dmlvk.planning.families.windows import CHANNEL, ELEMENTS, ROWS, VECTORS, Part, Windows, stages_of
from dmlvk.planning.plan import SCRATCH, Access, Dispatch, Plan, require_path

PATHS = (VECTORS, ROWS, ELEMENTS)
STEM = "quantized_linear_average_pooling"

# Storage buffers of a kernel that reads each scale and zero point in a buffer of its own.
BUFFER_COUNT = 7
# What outputs whose taps are cut have in memory, in bytes, and the most of them at a time.
STATE_SIZE = 8
MOST_STATES = 1 << 20
# Bytes whose sum fits 16 bits: the most taps of kernels/quantized_linear_average_pooling/vectors.glsl.
MOST_TAPS_OF_VECTORS = 65_535 // 255


def plan(
    desc: QuantizedLinearAveragePoolingDesc,
    profile: DeviceProfile,
    *,
    path: str | None = None,
    offsets: Mapping[str, int],
) -> Plan:
    """Plan a QUANTIZED_LINEAR_AVERAGE_POOLING: see `dmlvk.planning.plan`."""
    require_path(desc.operator_name, path, PATHS)
    return _Planner(desc, Builder(profile, offsets)).plan(path)


@dataclass(frozen=True)
class _Planner:
    desc: QuantizedLinearAveragePoolingDesc
    builder: Builder

    def plan(self, path: str | None) -> Plan:
        copies = [dispatch for _, dispatches in self._gathered.values() for dispatch in dispatches]
        whole, pieces = self.windows.cut()
        is_only = len(whole) == 1 and not pieces
        # Each box of outputs has its states at a place of its own.
        states: dict[int, int] = {}
        for parts in pieces:
            start = self.builder.scratch.allocate(parts[0].count * STATE_SIZE)
            states |= {id(part): start for part in parts}
        last = {id(parts[-1]) for parts in pieces}

        takes_few_taps = self.desc.geometry.tap_count <= MOST_TAPS_OF_VECTORS
        chosen = path or (ELEMENTS if self.has_few_buffers else self.windows.path(has_vectors=takes_few_taps))

        def dispatch(part: Part, number: int | None) -> Dispatch:
            if number is None and not self.has_few_buffers:
                words = self.windows.vector_words(part) if chosen == VECTORS and takes_few_taps else 0
                if words:
                    return self._vectors(part, words, is_only)
                if chosen == ROWS and self.windows.has_rows_of_words(part):
                    return self._rows(part, is_only)
            has_more = number is not None and id(part) not in last
            return self._elements(part, number, has_more, states.get(id(part)), is_only)

        stages = stages_of(whole, pieces, dispatch)
        if copies:
            stages = (tuple(copies), *stages)
        return Plan(chosen, stages, scratch_size=self.builder.scratch.size)

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
            MOST_STATES,
        )

    def _parameters(self, dispatch: DispatchBuilder, part: Part) -> None:
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
        return f"{STEM}/{path}_rounding" if is_rounding else f"{STEM}/{path}"

    def _vectors(self, part: Part, words: int, is_only: bool) -> Dispatch:
        kernel = self._kernel(VECTORS)
        bind = partial(self._parameters, part=part)
        return self.windows.vectors(kernel, part, words, is_only=is_only, bind=bind, specialization=self._constants)

    def _rows(self, part: Part, is_only: bool) -> Dispatch:
        bind = partial(self._parameters, part=part)
        return self.windows.rows(self._kernel(ROWS), part, is_only=is_only, bind=bind, specialization=self._constants)

    def _elements(self, part: Part, number: int | None, has_more: bool, state: int | None, is_only: bool) -> Dispatch:
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
