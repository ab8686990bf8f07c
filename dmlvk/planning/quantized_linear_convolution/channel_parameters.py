"""The parameters of output channels in the panels of a packed filter, where they never change."""

from __future__ import annotations

from dataclasses import replace

from dmlvk.planning.builder import Box, DispatchBuilder, boxes
from dmlvk.planning.grid import folded
from dmlvk.planning.kernel_interface import LOCAL_SIZE_X
from dmlvk.planning.plan import Access, Dispatch
from dmlvk.planning.quantized_linear_convolution.operands import Operands
from dmlvk.planning.quantized_linear_convolution.packing import FilterPacking, PackedFilter

KERNEL = "quantized_linear_convolution/matrix_parameters"
WORKGROUP_SIZE = 64
# Rows of a panel after its words: the sums, and those of kernels/quantized_linear_convolution/prepared_channel.glsl.
PREPARED_ROWS = 5


def with_parameters(packing: FilterPacking) -> FilterPacking:
    """The same packing, with room for the channels' parameters."""
    return replace(packing, rows_after=PREPARED_ROWS)


def channel_parameters(operands: Operands, packed: PackedFilter) -> list[Dispatch]:
    """Dispatches that work the parameters out, after the filter is packed. Each source fits one window."""
    builder, geometry, sources = operands.builder, operands.geometry, operands.parameters

    def cut(box: Box) -> int | None:
        (panels,) = box
        return 0 if panels[1] - panels[0] > 1 and not builder.fits(packed.tensor, packed.bounds(panels)) else None

    dispatches: list[Dispatch] = []
    for (panels,) in boxes(((0, geometry.group_count * packed.panels_of_group),), cut):
        bounds = packed.bounds(panels)
        channels = packed.channels(panels)
        count = panels[1] - panels[0]
        dispatch = DispatchBuilder(KERNEL)
        dispatch.window(packed.tensor, bounds, bounds[0], 4, "panels_start", Access.WRITE)
        sources.bind(dispatch, channels, dispatch.windows[0])
        dispatch.push(
            panels=count,
            words=packed.words,
            channels_of_group=packed.channels_of_group,
            first_panel=panels[0] % packed.panels_of_group,
            taps=geometry.tap_count,
            width=packed.width,
        )
        dispatches.append(
            dispatch.finish(
                {LOCAL_SIZE_X: WORKGROUP_SIZE, **sources.constants},
                folded(count, builder.profile),
                seconds=builder.element_seconds(8 * packed.width * count),
                bytes_moved=40 * (channels[1] - channels[0]),
            )
        )
    return dispatches
