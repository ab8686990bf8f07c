"""The tensors of a QUANTIZED_LINEAR_CONVOLUTION as the kernels of a path find them."""

from __future__ import annotations

from dataclasses import dataclass

from dmlvk.operators.quantized_linear_convolution import ConvolutionGeometry
from dmlvk.planning.builder import Builder, Range, View
from dmlvk.planning.quantized_linear_convolution.parameters import Sources


@dataclass(frozen=True)
class Operands:
    """A convolution's tensors, and the memory of its plan. `Stages` makes it; a tensor that is added is a field here.

    Attributes
    ----------
    builder : Builder
        The limits of windows, and the memory allocated so far.
    geometry : ConvolutionGeometry
        The convolution as the path sees it: it may step over the input, or have joined groups.
    input, filter, output : View
        Bound tensors, or packed copies of those that are OWNED_BY_DML.
    parameters : Sources
        Scales, zero points and bias, and which of the data tensors are UINT8.
    """

    builder: Builder
    geometry: ConvolutionGeometry
    input: View
    filter: View
    output: View
    parameters: Sources

    @property
    def whole_input(self) -> tuple[Range, ...]:
        """The box of all elements of the input, for `View.bounds`."""
        geometry = self.geometry
        return tuple((0, size) for size in (geometry.batch, geometry.input_channels, *geometry.input_size))

    @property
    def whole_output(self) -> tuple[Range, ...]:
        """The box of all elements of the output."""
        geometry = self.geometry
        return tuple((0, size) for size in (geometry.batch, geometry.output_channels, *geometry.output_size))
