"""MAX_POOLING2.

vectors
    Each invocation makes a vector of channels, which are packed in the input and in the output.
rows
    Each invocation makes a word of a row, which is packed in the input and in the output.
elements
    Each invocation makes the elements of one word of the output, one after the other. For any layout, and for indices.

Parts that vectors or rows do not suit are made by elements.
"""

from __future__ import annotations

from collections.abc import Mapping

from dmlvk.device_profile import DeviceProfile
from dmlvk.operators import MaxPooling2Desc
from dmlvk.planning.builder import DispatchBuilder, PlanBuilder, View, by_dimension
from dmlvk.planning.families.windows import (
    CHANNEL,
    DIMENSIONS,
    ELEMENTS,
    ROWS,
    VECTORS,
    WORD_SIZE,
    Strips,
    Windows,
    WindowsPart,
    stages_of,
)
from dmlvk.planning.plan import Access, Dispatch, Plan, require_path

PATHS = (VECTORS, ROWS, ELEMENTS)
# What the kernels have registers for: rows of vectors take four times as many as those of words.
STRIPS = {ROWS: Strips(rows=4, tap_rows=12), VECTORS: Strips(rows=2, tap_rows=8, takes_turns=True)}
# Of rows that share few taps: more of them would only be fewer invocations.
STRIPS_APART = STRIPS | {ROWS: Strips(rows=2, tap_rows=12)}


def plan(desc: MaxPooling2Desc, profile: DeviceProfile, *, path: str | None = None, offsets: Mapping[str, int]) -> Plan:
    """Plan a MAX_POOLING2: see `dmlvk.planning.plan`."""
    require_path(desc.operator_name, path, PATHS)
    size = desc.input_tensor.data_type.size_in_bytes
    outputs = [View("output_tensor", 0, size, desc.geometry.output_strides)]
    if desc.indices_strides is not None:
        outputs.append(View("output_indices_tensor", 0, 4, desc.indices_strides))
    source = View("input_tensor", 0, size, desc.geometry.input_strides)
    windows = Windows(PlanBuilder(profile, offsets), desc.geometry, source, tuple(outputs))
    whole, pieces = windows.cut()
    takes_words = len(outputs) == 1 and size <= WORD_SIZE
    chosen = path or (windows.path() if takes_words else ELEMENTS)
    is_only = len(whole) == 1 and not pieces
    strips = STRIPS if 2 * desc.geometry.strides[1] <= desc.geometry.window[1] else STRIPS_APART
    types = {"ELEMENT_SIZE": size, "IS_SIGNED": int(desc.input_tensor.data_type.is_signed_integer)}

    def dispatch(part: WindowsPart, number: int | None) -> Dispatch:
        is_plain = number is None and takes_words
        if chosen == VECTORS and is_plain and (words := windows.vector_words(part)):
            kernel = "max_pooling2/vectors"
            return windows.vectors(kernel, part, words, is_only=is_only, specialization=types, strips=strips[VECTORS])
        if chosen == ROWS and is_plain and windows.has_rows_of_words(part):
            kernel = "max_pooling2/rows"
            return windows.rows(kernel, part, is_only=is_only, specialization=types, strips=strips[ROWS])
        return _elements(desc, windows, part, number or 0, is_only, types)

    return Plan(chosen, stages_of(whole, pieces, dispatch))


def _elements(
    desc: MaxPooling2Desc, windows: Windows, part: WindowsPart, number: int, is_only: bool, types: Mapping[str, int]
) -> Dispatch:
    depth, height, width = desc.geometry.input_size
    packed = (desc.geometry.channels * depth * height * width, depth * height * width, height * width, width)

    def bind(dispatch: DispatchBuilder) -> None:
        strides: tuple[int, ...] = (0,) * len(DIMENSIONS)
        if len(windows.outputs) == 1:
            dispatch.unread_window(dispatch.windows[0], "indices_start")
        else:
            indices = windows.outputs[1]
            bounds, strides = indices.bounds(part.box), indices.strides
            dispatch.window(indices.tensor, bounds, bounds[0], 4, "indices_start", Access.WRITE)
        coordinates = (part.box[0][0], part.box[CHANNEL][0], *windows.first_positions(part))
        first_index = sum(at * step for at, step in zip(coordinates, (*packed, 1), strict=True))
        dispatch.push(first_index=first_index, **by_dimension("indices_stride", DIMENSIONS, strides))

    return windows.elements(
        "max_pooling2/elements",
        part,
        is_only=is_only,
        bind=bind,
        specialization={
            **types,
            "MERGES": int(number > 0),
            "HAS_INDICES": int(len(windows.outputs) > 1),
            **by_dimension("PACKED", "NCDH", [step & 0xFFFFFFFF for step in packed]),
        },
    )
