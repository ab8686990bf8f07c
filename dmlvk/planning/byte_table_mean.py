"""BYTE_TABLE_MEAN: a workgroup's invocations are lanes of some planes.

words
    In floats, four bytes at a time, where there are more workgroups than processors. What does not suit it runs as
    `float32`.
float32, integers
    See `dmlvk.planning.float32`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from dmlvk.device_profile import DeviceProfile, DeviceType
from dmlvk.operators import ByteTableMeanDesc
from dmlvk.planning.builder import DispatchBuilder, PlanBuilder, View, by_dimension
from dmlvk.planning.byte_table import packed_table, plan_with_tables
from dmlvk.planning.device_rates import rates_of
from dmlvk.planning.families.windows import CHANNEL, COLUMN, DIMENSIONS, WORD_SIZE, Windows, WindowsPart, stages_of
from dmlvk.planning.float32 import FLOAT32, chosen_path
from dmlvk.planning.float32 import PATHS as PATHS_OF_NUMBERS
from dmlvk.planning.grid import folded
from dmlvk.planning.kernel_interface import LOCAL_SIZE_X
from dmlvk.planning.plan import SCRATCH, Access, Dispatch, Plan, require_path

__all__ = ["PATHS", "plan"]

STEM = "byte_table_mean"
WORDS = "words"
PATHS = (*PATHS_OF_NUMBERS, WORDS)
# What a lane of a plane that is cut has in memory, in words, and the most lanes of such planes at a time.
WORDS_OF_STATE = 3
MOST_LANES = 1 << 20
# A network's planes are some hundreds, of which each lane adds up one element after the other: so they go to many
# workgroups.
WORKGROUP = 64
# As kernels/byte_table_mean/words.comp has it: invocations, words of a plane in shared memory at a time, bytes of a
# copy of the table, and the most copies: with two banks for each, an invocation waits once.
WORKGROUP_OF_WORDS, CHUNK, TABLE_SIZE, MOST_COPIES = 128, 16, 1 << 10, 16
# Bytes, or words, of a lane that are on their way together. Those of a CPU do not wait.
AT_ONCE, AT_ONCE_OF_CPU = 16, 8


def plan(
    desc: ByteTableMeanDesc, profile: DeviceProfile, *, path: str | None = None, offsets: Mapping[str, int]
) -> Plan:
    """Plan a BYTE_TABLE_MEAN: see `dmlvk.planning.plan`."""
    require_path(desc.operator_name, path, PATHS)
    numbers = chosen_path(desc, profile, FLOAT32 if path == WORDS else path)
    return _MeanPlanner(desc, PlanBuilder(profile, offsets), numbers, path).plan()


@dataclass(frozen=True)
class _MeanPlanner:
    desc: ByteTableMeanDesc
    builder: PlanBuilder
    numbers: str
    forced_path: str | None

    def plan(self) -> Plan:
        table, copying = packed_table(self.desc.table_tensor, self.builder)
        whole, pieces = self.windows.cut()
        # Each box of outputs has its states at a place of its own.
        states: dict[int, int] = {}
        for parts in pieces:
            size = parts[0].count * self.desc.lane_count * WORDS_OF_STATE * WORD_SIZE
            start = self.builder.allocate(self.builder.scratch, size)
            states |= {id(part): start for part in parts}
        last = {id(parts[-1]) for parts in pieces}

        def dispatch(part: WindowsPart, number: int | None) -> Dispatch:
            constants = {
                "TAKES_STATE": int(bool(number)),
                "LEAVES_STATE": int(number is not None and id(part) not in last),
            }
            return self._dispatch(part, table, states.get(id(part)), constants)

        stages = stages_of(whole, pieces, dispatch)
        takes_words = any(each.kernel == f"{STEM}/{WORDS}" for stage in stages for each in stage)
        path = self.forced_path or (WORDS if takes_words else self.numbers)
        return plan_with_tables(path, [(self.desc.table_tensor, copying)], stages, self.builder)

    @cached_property
    def windows(self) -> Windows:
        geometry, state_size = self.desc.geometry, WORDS_OF_STATE * WORD_SIZE
        return Windows(
            self.builder,
            geometry,
            View("input_tensor", 0, 1, geometry.input_strides),
            (View("output_tensor", 0, WORD_SIZE, geometry.output_strides),),
            most_outputs=max(1, min(MOST_LANES, self.builder.window_limit // state_size) // self.desc.lane_count),
        )

    def _dispatch(self, part: WindowsPart, table: str, state: int | None, constants: Mapping[str, int]) -> Dispatch:
        windows, geometry, lanes = self.windows, self.desc.geometry, self.desc.lane_count
        source, output, extents = windows.input, windows.outputs[0], part.extents
        of_words = {} if state is not None else self._specialization_of_words(part)
        dispatch = DispatchBuilder(f"{STEM}/{WORDS if of_words else self.numbers}")
        bounds = windows.input_bounds(part)
        first_of_plane = source.address([part.box[0][0], part.box[CHANNEL][0], 0, 0, 0])
        dispatch.window(source.tensor, bounds, first_of_plane, 1, "input_start", Access.READ)
        size_of_table = self.desc.table_tensor.element_count * WORD_SIZE
        dispatch.window(table, (0, size_of_table), 0, WORD_SIZE, "table_start", Access.READ)
        bounds = output.bounds(part.box)
        dispatch.window(output.tensor, bounds, bounds[0], WORD_SIZE, "output_start", Access.WRITE)
        planes = extents[0] * extents[CHANNEL]
        strides = by_dimension("input_stride", DIMENSIONS, self._input_strides)
        # What both kernels have.
        dispatch.push(
            planes=planes,
            channels=extents[CHANNEL],
            count=geometry.tap_count,
            **by_dimension("output_stride", DIMENSIONS[:2], output.strides[:2]),
        )
        if of_words:
            dispatch.push(**{name: strides[name] for name in ("input_stride_n", "input_stride_c", "input_stride_w")})
            planes_at_once = of_words["PLANES"]
        else:
            if state is None:
                dispatch.unread_window(dispatch.windows[0], "state_start")
            else:
                states = state, state + planes * lanes * WORDS_OF_STATE * WORD_SIZE
                dispatch.window(SCRATCH, states, state, WORD_SIZE, "state_start", Access.WRITE)
            # The parts of a plane that is cut are ranges of its elements.
            place = [low for low, _ in part.taps], [high - 1 for _, high in part.taps]
            first, final = ((d * geometry.window[1] + h) * geometry.window[2] + w for d, h, w in place)
            dispatch.push(
                first_plane=part.box[0][0] * geometry.channels + part.box[CHANNEL][0],
                planes_of_image=geometry.channels,
                first=first,
                end=final + 1,
                height=geometry.window[1],
                width=geometry.window[2],
                **strides,
            )
            size = min(WORKGROUP, self.builder.workgroup_size)
            planes_at_once = size // lanes
            constants = {
                LOCAL_SIZE_X: size,
                "LANES": lanes,
                "PLANES": planes_at_once,
                "LANE_IS_OUTER": int(source.strides[CHANNEL] == 1),
                "IS_EVEN": int(self._step is not None),
                "AT_ONCE": self._at_once,
                **constants,
            }
        return dispatch.finish(
            of_words or constants,
            folded(-(-planes // planes_at_once), self.builder.profile),
            seconds=windows.seconds(part),
            bytes_moved=part.count * (part.tap_count + WORD_SIZE),
        )

    def _specialization_of_words(self, part: WindowsPart) -> dict[str, int]:
        """That of kernels/byte_table_mean/words.comp; none if it does not suit the layout, or planes are few."""
        desc, profile, lanes, extents = self.desc, self.builder.profile, self.desc.lane_count, part.extents
        strides, step, is_forced = self._input_strides, self._step, self.forced_path == WORDS
        if not (is_forced or (self.forced_path is None and self.numbers == FLOAT32)) or step is None:
            return {}
        is_last = strides[CHANNEL] == 1 and extents[CHANNEL] > 1
        distances = [self.windows.input_bounds(part)[0], desc.geometry.tap_count, strides[0]]
        distances += [extents[CHANNEL], part.box[CHANNEL][0], step] if is_last else [strides[CHANNEL]]
        if math.gcd(*distances) % WORD_SIZE or not (is_last or step == 1):
            return {}
        size = min(WORKGROUP_OF_WORDS, self.builder.workgroup_size)
        planes = size // lanes * WORD_SIZE if is_last else size
        # A CPU has its rows of words in a cache.
        is_quicker = part.count // planes >= rates_of(profile).processors and (is_last or not self._is_cpu)
        if not is_forced and not is_quicker:
            return {}
        staged = planes * (lanes | 1 if is_last else CHUNK + 1)
        # Sums of lanes, where planes begin, and a word that all share.
        room = profile.limits.max_compute_shared_memory_size - (staged + planes + 1) * WORD_SIZE
        most = 1 if self._is_cpu else min(MOST_COPIES, room // TABLE_SIZE)
        return {
            LOCAL_SIZE_X: size,
            "LANES": lanes,
            "PLANES": planes,
            "IS_CHANNELS_LAST": int(is_last),
            "COPY_BITS": most.bit_length() - 1,
            "STAGED_WORDS": staged,
            "AT_ONCE": self._at_once,
        }

    @property
    def _at_once(self) -> int:
        return AT_ONCE_OF_CPU if self._is_cpu else AT_ONCE

    @property
    def _is_cpu(self) -> bool:
        return self.builder.profile.device_type is DeviceType.CPU

    @cached_property
    def _step(self) -> int | None:
        """The distance of a plane's elements, if they are evenly spaced."""
        geometry = self.desc.geometry
        depth, height, width = geometry.window
        sizes, strides = (width, height, depth), geometry.input_strides[:1:-1]
        step = next((stride for size, stride in zip(sizes, strides, strict=True) if size > 1), 1)
        expected = (step, width * step, width * height * step)
        is_even = all(
            size == 1 or stride == wanted for size, stride, wanted in zip(sizes, strides, expected, strict=True)
        )
        return step if is_even else None

    @property
    def _input_strides(self) -> tuple[int, ...]:
        strides = self.desc.geometry.input_strides
        return strides if self._step is None else (*strides[:COLUMN], self._step)
