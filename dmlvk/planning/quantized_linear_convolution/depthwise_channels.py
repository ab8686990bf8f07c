"""The weights and parameters of the channels of a depthwise convolution, where nothing but its input changes."""

from __future__ import annotations

from dataclasses import dataclass

from dmlvk.planning.builder import DispatchBuilder, Range, by_dimension
from dmlvk.planning.kernel_interface import LOCAL_SIZE_X
from dmlvk.planning.plan import Access, Dispatch
from dmlvk.planning.quantized_linear_convolution.operands import Operands

KERNEL = "quantized_linear_convolution/depthwise_prepare"

# As in kernels/quantized_linear_convolution/depthwise_channel.glsl: channels of a panel, and rows before the weights.
PANEL = 64
PARAMETER_ROWS = 4

# Channels are fewer than a GPU has invocations. Small workgroups spread over it.
WORKGROUP_SIZE = 64


@dataclass(frozen=True)
class PreparedChannels:
    """Panels of channels: rows with a word of each channel, of parameters and of weights.

    Attributes
    ----------
    tensor : str
    bounds : (int, int)
        The first byte of all panels, and the byte after the last.
    """

    tensor: str
    bounds: Range


def prepared_channels(operands: Operands) -> tuple[PreparedChannels, Dispatch] | None:
    """Room for the panels in persistent memory, and the dispatch that fills them; None if one dispatch cannot do it."""
    builder, geometry, source = operands.builder, operands.geometry, operands.filter
    parameters = operands.parameters
    channels, (height, width) = geometry.output_channels, geometry.filter_size
    chunks = -(-((width - 1) * geometry.dilations[1] + 1) // 4)
    words = height * chunks
    rows = PARAMETER_ROWS + (2 if parameters.has_filter_zero_point else 1) * words
    size = -(-channels // PANEL) * rows * PANEL * 4
    arena = builder.persistent
    filter_bounds = source.bounds([(0, channels), (0, 1), (0, height), (0, width)])
    seen = [(view.tensor, view.bounds([(0, channels)])) for view in parameters.views.values()]
    seen += [(source.tensor, filter_bounds), (arena.name, (arena.size, arena.size + size))]
    elements = 4 * words * channels
    if not all(builder.fits(*each) for each in seen) or elements > builder.elements_per_dispatch:
        return None
    start = arena.allocate(size)
    prepared = PreparedChannels(arena.name, (start, start + size))
    dispatch = DispatchBuilder(KERNEL)
    dispatch.window(prepared.tensor, prepared.bounds, start, 4, "panels_start", Access.WRITE)
    dispatch.window(source.tensor, filter_bounds, filter_bounds[0], 1, "filter_start", Access.READ)
    parameters.bind(dispatch, (0, channels))
    dispatch.push(
        channels=channels,
        tap_rows=height,
        tap_columns=width,
        dilation_w=geometry.dilations[1],
        **by_dimension("filter_stride", "mhw", (source.strides[0], *source.strides[2:])),
    )
    finished = dispatch.finish(
        {
            LOCAL_SIZE_X: WORKGROUP_SIZE,
            "FILTER_ZERO_POINT": int(parameters.has_filter_zero_point),
            **parameters.constants,
        },
        builder.grid(-(-channels // 4) * 4, WORKGROUP_SIZE),
        seconds=builder.element_seconds(elements),
        bytes_moved=elements + size,
    )
    return prepared, finished
