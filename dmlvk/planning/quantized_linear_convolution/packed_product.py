"""QUANTIZED_LINEAR_CONVOLUTION by 32-bit integers or float32: tiles, dispatches, paths."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from dmlvk.device_profile import DeviceProfile, DeviceType
from dmlvk.planning import device_traits
from dmlvk.planning.builder import Box, DispatchBuilder, View, by_dimension, sizes_of
from dmlvk.planning.device_rates import rates_of
from dmlvk.planning.kernel_interface import LOCAL_SIZE_X
from dmlvk.planning.plan import Dispatch, Plan
from dmlvk.planning.quantized_linear_convolution.estimate import EFFICIENCY
from dmlvk.planning.quantized_linear_convolution.operands import table_bounds
from dmlvk.planning.quantized_linear_convolution.packing import ChannelWords, PackedInput
from dmlvk.planning.quantized_linear_convolution.path import Obstacle, Problem
from dmlvk.planning.quantized_linear_convolution.product import (
    COLUMN,
    GROUP,
    IMAGE,
    OPERATIONS_OF_WORD,
    ROW,
    ProductCutter,
    ProductPath,
    ProductShape,
    product_dispatches,
)
from dmlvk.planning.quantized_linear_convolution.product_geometry import ProductGeometry
from dmlvk.planning.quantized_linear_convolution.stages import Stages
from dmlvk.planning.quantized_linear_convolution.tiles import packs_channels

# Groups of one channel are mostly zeros, in words or joined. The direct kernel is up to three times as fast on lavapipe
# and twice on SwiftShader, and with eight filters a group about as fast: it is to be taken.
SINGLE_CHANNELS = 8
# Loads that a workgroup waits for, one after the other, before its first product.
FIRST_WAITS = 90


def product_shape(path: str, profile: DeviceProfile, geometry: ProductGeometry) -> ProductShape:
    """The kernel and tile of a path that the device can run."""
    prefix = "quantized_linear_convolution"
    if path == "float":
        lanes = profile.subgroup_size
        return ProductShape(geometry, f"{prefix}/registers_float", lanes, 8, 2, 2 * lanes, False, True)
    if profile.device_type is DeviceType.CPU:
        return ProductShape(geometry, f"{prefix}/registers_{path}", 16, 8, 1, 64, False, False)
    channels = _tile_channels(profile, geometry)
    return ProductShape(geometry, f"{prefix}/tile_{path}", 2 * channels, channels, 1, 128, True, False)


def _tile_channels(profile: DeviceProfile, geometry: ProductGeometry) -> int:
    """Output channels of a tile: not many more than the convolution has, and fewer if large tiles would be too few."""
    channels = geometry.output_channels_per_group
    pixels = geometry.batch * geometry.output_size[0] * geometry.output_size[1]
    tiles = geometry.group_count * -(-channels // 128) * -(-pixels // 128)
    if profile.limits.max_compute_work_group_invocations >= 256 and channels > 64 and tiles >= 512:
        return 128
    return 64 if channels > 32 else 32


@dataclass(frozen=True)
class PackedProductCutter(ProductCutter[ProductShape]):
    """One part's product by dot products or multiplications, with a table of the channels' parameters."""

    table: View

    def parameters_fit(self, box: Box) -> bool:
        return self.operands.builder.fits(self.table.tensor, table_bounds(self.table, self.channels(box)))

    def dispatch(self, box: Box) -> Dispatch:
        geometry, part = self.geometry, self.part
        extents, (image, group, quad, row, column) = sizes_of(box), part.strides
        dispatch = DispatchBuilder(self.shape.kernel)
        place = part.place(geometry, *(box[dimension][0] for dimension in (IMAGE, GROUP, ROW, COLUMN)))
        dispatch.window(part.tensor, (part.start, part.start + part.size), place, 4, "input_start")
        self.show_filter(dispatch, box, 4)
        rows = table_bounds(self.table, self.channels(box))
        dispatch.window(self.table.tensor, rows, rows[0], 4, "table_start")
        self.show_output(dispatch, box)
        dispatch.push(
            pixels=self.pixels(box),
            rows=extents[ROW],
            columns=extents[COLUMN],
            words=self.packed_filter.words,
            input_stride_n=image,
            input_stride_group=group,
            input_stride_quad=quad,
            input_stride_h=row * geometry.strides[0],
            input_stride_w=column * geometry.strides[1],
            tap_stride_h=row * geometry.dilations[0],
            tap_stride_w=column * geometry.dilations[1],
            **by_dimension("output_stride", "nchw", self.operands.output.strides),
        )
        specialization = {
            LOCAL_SIZE_X: self.shape.local_size,
            "FILTER_HEIGHT": geometry.filter_size[0],
            "FILTER_WIDTH": geometry.filter_size[1],
            "OUTPUT_UNSIGNED": int(self.operands.parameters.output_unsigned),
            "STORE_CHANNELS": int(packs_channels(geometry)),
        }
        if self.shape.tiled:
            specialization["TILE_CHANNELS"] = self.shape.panel
        if self.shape.channels_last:
            # Words of K at once: if a pixel has an even number of words, pairs lie together, at multiples of 8 bytes.
            specialization["WORDS"] = 1 if part.quads % 2 else 2
        return dispatch.finish(
            specialization,
            self.grid(box),
            seconds=self.seconds(box),
            bytes_moved=self.bytes_moved(box),
            operations=self.operations(box),
        )


class PackedProductPath(ProductPath[ProductShape]):
    """A path that packs both operands and multiplies the packed words."""

    # The unit that multiplies, by its name among the `Rates`.
    unit: ClassVar[str]

    def shape(self, problem: Problem, geometry: ProductGeometry) -> ProductShape:
        return product_shape(self.name, problem.profile, geometry)

    def kernel_seconds(self, problem: Problem, tile: ProductShape) -> float:
        geometry, rates = tile.geometry, rates_of(problem.profile)
        words = ChannelWords.of(geometry).per_output
        outputs = tile.padded_outputs(geometry.batch * math.prod(geometry.output_size))
        operations = float(OPERATIONS_OF_WORD * words * outputs)
        if geometry.filter_sizes[1] == 1 and problem.geometry.group_count > 1:
            operations *= SINGLE_CHANNELS
        # CPU drivers have kernels of their own. On a GPU, half of the instructions take bytes out of words.
        share = 1 if problem.profile.device_type is DeviceType.CPU else EFFICIENCY / 2
        waits = FIRST_WAITS + words
        return rates.seconds(1, waits, operations / (share * getattr(rates, self.unit)) + outputs / rates.last_step)

    def plan(self, problem: Problem, tile: ProductShape) -> Plan:
        stages = Stages(problem, tile.geometry, ("input",))
        table = stages.parameter_table()
        packed_filter = stages.packed_filter(tile.panel, tile.filter_packing)
        longest_seconds = self.longest_seconds(problem, tile)

        def product(part: PackedInput) -> list[Dispatch]:
            cutter = PackedProductCutter(stages.operands, tile, packed_filter, part, longest_seconds, table)
            return product_dispatches(cutter)

        stages.add_packed_product(tile.quads, tile.channels_last, product)
        return stages.plan(self.name)


class IntegerPath(PackedProductPath):
    """Packs input and filter; 32-bit multiplications, which every device has."""

    name = "integer"
    unit = "integer"


class FloatPath(PackedProductPath):
    """Packs input and filter; float32 multiplications, in sums short enough to be exact. For lavapipe, which supports
    shuffles.
    """

    name = "float"
    unit = "float32"

    def obstacle_on(self, profile: DeviceProfile) -> Obstacle | None:
        if device_traits.can_run_float_kernel(profile):
            return None
        possible = "lavapipe, with 8 lanes or more and shaderInt64"
        return Obstacle("driver and lanes of a subgroup", (profile.driver_name, profile.min_subgroup_size), possible)
