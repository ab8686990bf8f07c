"""Sizes as push constants: what replaces divisions by them, and the layers that share pipelines."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlvk.data_type import DataType
from dmlvk.device_profile import DeviceProfile, DriverId
from dmlvk.operators import QuantizedLinearConvolutionDesc
from dmlvk.planning import plan
from dmlvk.planning.division import reciprocals
from dmlvk.planning.kernel_interface import kernel_interface
from dmlvk.planning.quantized_linear_convolution import halo, split_k, tiled_product
from dmlvk.planning.quantized_linear_convolution.tiled_product import PUSH_CONSTANTS_SIZE
from tests import profiles
from tests.planning.quantized_linear_convolution.descriptors import convolution
from tools.pipelines import pipelines

NUMBERS = st.one_of(st.integers(0, (1 << 31) - 1), st.integers(0, 31).map(lambda bits: (1 << bits) - 1))
DIVISORS = st.one_of(st.integers(1, (1 << 31) - 1), st.integers(1, 300))

SOME_SIZES = ("OUTPUT_STRIDE_W", "VECTORS_OF_K", "RUN", "ROWS", "STRIDE_H", "INPUT_STRIDE_N")


@given(NUMBERS, DIVISORS, st.integers(-1, 1))
def test_a_reciprocal_gives_each_quotient(number: int, divisor: int, off: int) -> None:
    number = min(max(0, number // divisor * divisor + off), (1 << 31) - 1)  # where rounding would show
    (_, reciprocal), shifts = reciprocals(7, divisor)
    shift = shifts >> 5
    assert reciprocal < 1 << 32 and shift < 32
    # As in matrix.glsl: the high word of a product of 32-bit numbers.
    assert (2 * number * reciprocal >> 32) >> shift == number // divisor


@pytest.mark.parametrize(
    "kernel", [tiled_product.KERNEL, tiled_product.KERNEL_OF_FEW_REGISTERS, split_k.KERNEL, halo.KERNEL]
)
def test_the_kernels_push_constants_are_the_paths(kernel: str) -> None:
    places = kernel_interface(kernel).push_constants.values()
    assert 4 * max(first + count for first, count in places) == PUSH_CONSTANTS_SIZE


@pytest.mark.parametrize(
    ("network", "layout", "most"), [("resnet50", "nhwc", 21), ("mobilenetv2", "nhwc", 23), ("mobilenetv2", "nchw", 31)]
)
def test_layers_of_a_kind_share_a_pipeline(network: str, layout: str, most: int) -> None:
    """A GPU's compiler takes up to half a second for a pipeline, and a network of 23 to 30 layers waits for all."""
    found = pipelines(profiles.load("nvidia-h200"), network, 1, layout)
    assert sum(map(len, found.values())) <= most


@pytest.mark.parametrize(("batch", "has_constants"), [(1, False), (2, True), (64, True)])
def test_short_dispatches_share_pipelines_and_long_ones_have_constants(batch: int, has_constants: bool) -> None:
    """A layer of ResNet-50: one picture is below the limit, two are above it."""
    desc = convolution(batch, 256, (14, 14), 256, (3, 3), padding=(1, 1))
    constants = _constants_of_product(desc, profiles.load("nvidia-h200"))
    assert all((constants[name] != 0) == has_constants for name in SOME_SIZES)
    # Nine taps of 256 bytes are whole steps; a pipeline for several layers looks for their end in any case.
    assert constants["CHECK_BORDER"] == 1 and constants["WHOLE_STEPS"] == has_constants


def test_samsung_s_compiler_gets_constants() -> None:
    """See quirks.SAMSUNG_MATRIX_OPERANDS_FROM_BUFFERS."""
    desc = convolution(1, 512, (7, 7), 512, (3, 3), padding=(1, 1))
    nvidia = profiles.load("nvidia-h200")
    for driver, has_constants in ((nvidia.driver_id, False), (DriverId.SAMSUNG_PROPRIETARY, True)):
        for path, names in (("matrix", SOME_SIZES), ("split_k", SOME_SIZES), ("split_k/3", (*SOME_SIZES, "PARTS"))):
            constants = _constants_of_product(desc, replace(nvidia, driver_id=driver), path)
            assert all((constants[name] != 0) == has_constants for name in names), path


@pytest.mark.parametrize(("path", "parts"), [("matrix", 1), ("split_k", 1), ("split_k/1", 1), ("split_k/5", 0)])
def test_one_part_is_a_constant(path: str, parts: int) -> None:
    """Then the kernel has no code for more. Layers that are cut share a pipeline, whatever the number of parts."""
    desc = convolution(1, 512, (7, 7), 512, (3, 3), padding=(1, 1))
    assert _constants_of_product(desc, profiles.load("nvidia-h200"), path)["PARTS"] == parts


@pytest.mark.parametrize("filter_type", [DataType.INT8, DataType.UINT8])
@pytest.mark.parametrize(
    ("device", "path", "is_kept"),
    [
        ("nvidia-h200", "matrix:64x128x64:64x32", True),
        ("nvidia-h200", "matrix:128x64x64:64x32", True),
        ("nvidia-h200", "matrix:128x128x64:64x64", False),
        ("nvidia-h200", "matrix:64x64x128:64x16", False),
        ("nvidia-h200", "split_k", False),
        ("nvidia-h200", "halo", False),
        ("nvk-ada", "matrix:64x128x64:64x32", False),
    ],
)
def test_small_tiles_of_nvidia_keep_the_code_for_filter_zero_points(
    device: str, path: str, is_kept: bool, filter_type: DataType
) -> None:
    """A UINT8 filter has the zero point 128 once its bytes are signed."""
    desc = convolution(8, 256, (14, 14), 256, (3, 3), padding=(1, 1), everything_owned=True)
    filter_tensor = replace(desc.filter_tensor, data_type=filter_type)
    nothing = replace(desc, filter_tensor=filter_tensor, filter_zero_point_tensor=None)
    constants = _constants_of_product(nothing, profiles.load(device), path)
    assert constants["FILTER_ZERO_POINT"] == (is_kept or filter_type is DataType.UINT8)
    assert _constants_of_product(desc, profiles.load(device), path)["FILTER_ZERO_POINT"] == 1


@pytest.mark.parametrize(("channels", "has_constants"), [(3, True), (64, False)])
def test_rows_of_taps_have_constants(channels: int, has_constants: bool) -> None:
    """A network has one layer of so few channels, so no other layer could share its pipeline."""
    desc = convolution(1, channels, (56, 56), 32, (3, 3), padding=(1, 1), everything_owned=True)
    constants = _constants_of_product(desc, profiles.load("nvidia-h200"), "split_k")
    assert (constants["PIXEL_BYTES"] != 0) == has_constants
    assert all((constants[name] != 0) == has_constants for name in SOME_SIZES)


def _constants_of_product(
    desc: QuantizedLinearConvolutionDesc, profile: DeviceProfile, path: str = "matrix"
) -> dict[str, int]:
    (product,) = plan(desc, profile, path=path).stages[-1]
    return dict(zip(kernel_interface(product.kernel).specialization_constants, product.specialization, strict=True))
