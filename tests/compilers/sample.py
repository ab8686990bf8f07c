"""The descriptors whose kernels are compiled for every chip, and the plans of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

from dmlvk import DataType, TensorDesc
from dmlvk.benchmark.cases.quantized_linear_convolution import LAYERS, LAYOUTS, Layer, descriptor
from dmlvk.benchmark.networks.work import desc_of
from dmlvk.device_profile import DeviceProfile
from dmlvk.operators import (
    DiagonalMatrix1Desc,
    OneHotDesc,
    OperatorDesc,
    QuantizedLinearConvolutionAddDesc,
    QuantizedLinearConvolutionDesc,
    Slice1Desc,
)
from dmlvk.planning import KERNEL_PATHS, Dispatch, plan
from tests.planning import test_data_movement
from tests.planning.quantized_linear_convolution import descriptors as convolutions

# A type of each element size.
DATA_TYPES = (DataType.UINT8, DataType.FLOAT16, DataType.FLOAT32, DataType.INT64)
BATCHES = (1, 64)
# Layers of the networks that `dmlvk bench` has no case of: groups of eight channels, a large depthwise filter, a first
# layer of three by three, and the fully connected layer.
MORE_LAYERS = (
    Layer(256, 28, 256, 3, 1, 32),
    Layer(240, 28, 240, 5, 1, 240),
    Layer(3, 224, 32, 3, 2),
    Layer(2048, 1, 1000, 1),
)
# These are planned in every kernel path, besides the one that the planner takes.
IN_EVERY_PATH = (Layer(64, 56, 64, 3), Layer(144, 56, 144, 3, 1, 144), Layer(3, 224, 64, 7, 2))


# These are also planned with a sum as their last step, as in residual networks, and in every path.
WITH_SUM = (Layer(64, 56, 64, 3), Layer(64, 56, 256, 1), Layer(512, 7, 2048, 1))


@dataclass(frozen=True)
class Planned:
    """A dispatch of a plan.

    Attributes
    ----------
    name : str
        The descriptor's.
    path : str
        The plan's kernel path.
    is_chosen : bool
        Whether the planner took the path by itself.
    dispatch : Dispatch
    """

    name: str
    path: str
    is_chosen: bool
    dispatch: Dispatch


def with_sum(convolution: QuantizedLinearConvolutionDesc) -> QuantizedLinearConvolutionAddDesc:
    """The convolution, to whose output a tensor is added that lies as it does."""
    given = {field.name: getattr(convolution, field.name) for field in fields(convolution)}
    scale, zero_point = TensorDesc(DataType.FLOAT32, [1]), TensorDesc(convolution.output_tensor.data_type, [1])
    return QuantizedLinearConvolutionAddDesc(
        **given,
        addend_tensor=convolution.output_tensor,
        addend_scale_tensor=scale,
        addend_zero_point_tensor=zero_point,
        sum_scale_tensor=scale,
        sum_zero_point_tensor=zero_point,
        addend_comes_first=False,
    )


def in_each_element_size() -> Iterator[OperatorDesc]:
    for data_type in DATA_TYPES:
        matrix = TensorDesc(data_type, [3, 199, 201])
        value = data_type.numpy_dtype.type(1)
        yield DiagonalMatrix1Desc(
            input_tensor=matrix, output_tensor=matrix, value=value, diagonal_fill_begin=-1, diagonal_fill_end=7
        )
        for strides in (None, [201 * 199, 1, 199]):  # the second is a transpose
            for step in (1, -2):
                yield Slice1Desc(
                    input_tensor=TensorDesc(data_type, [3, 199, 201], strides),
                    output_tensor=TensorDesc(data_type, [3, 197, 1 + 199 // abs(step)]),
                    input_window_offsets=[0, 1, 1],
                    input_window_sizes=[3, 197, 200],
                    input_window_strides=[1, 1, step],
                )
        for axis in (0, 1):
            yield OneHotDesc(
                indices_tensor=TensorDesc(DataType.INT64, [160, 1] if axis else [1, 160]),
                values_tensor=TensorDesc(data_type, [1, 2]),
                output_tensor=TensorDesc(data_type, [160, 320] if axis else [320, 160]),
                axis=axis,
            )


def descriptors() -> Iterator[tuple[str, OperatorDesc, bool]]:
    """Names and descriptors, and whether the descriptor is planned in every path."""
    for layer in (*LAYERS, *MORE_LAYERS):
        for batch in BATCHES:
            for layout in LAYOUTS:
                name = f"{layer.name} {layout} batch {batch}"
                in_every_path = layer in IN_EVERY_PATH and (batch, layout) == (64, "nhwc")
                found = descriptor(layer, batch, layout, DataType.UINT8, filter_is_owned=True)
                yield name, found, in_every_path
                yield f"{name}, as in a model", desc_of(layer, batch, layout), False
    for layer in WITH_SUM:
        for batch in BATCHES:
            for layout in LAYOUTS:
                yield f"{layer.name} {layout} batch {batch}, with a sum", with_sum(desc_of(layer, batch, layout)), True
    for name, convolution in convolutions.DESCRIPTORS.items():
        yield name, convolution, name == "odd"
    for number, movement in enumerate(in_each_element_size()):
        yield f"element size {number}", movement, True
    for name, desc in test_data_movement.DESCRIPTORS.items():
        yield name, desc, False


def dispatches(profile: DeviceProfile, *, chosen_alone: bool = False) -> Iterator[Planned]:
    """The dispatches of all descriptors on a device, or those alone whose path the planner takes by itself."""
    for name, desc, in_every_path in descriptors():
        for path in (None, *KERNEL_PATHS[type(desc)]) if in_every_path and not chosen_alone else (None,):
            try:
                planned = plan(desc, profile, path=path)
            except ValueError:  # the operator or the device does not have the path
                continue
            for stage in (*planned.initialization, *planned.stages):
                for dispatch in stage:
                    yield Planned(name, planned.path, path is None, dispatch)
