"""Plans for devices with few registers, and for those whose fast dot products are of mixed signs alone."""

from __future__ import annotations

import pytest

from dmlvk import DataType
from dmlvk.benchmark.cases.quantized_linear_convolution import Layer, descriptor
from dmlvk.conformance.profiles import PROFILES
from dmlvk.conformance.recorded import NAMES
from dmlvk.planning.device_traits import has_few_registers
from dmlvk.planning.kernel_interface import kernel_interface
from dmlvk.planning.plan import Dispatch, Plan
from dmlvk.planning.quantized_linear_convolution.choice import plan_quantized_linear_convolution as plan
from tests import profiles
from tests.planning.limits import check_plan
from tests.planning.quantized_linear_convolution.descriptors import convolution

MANY = ("nvidia", "nvk", "amd", "lavapipe", "swiftshader")
MIXED = ("adreno-660", "adreno-730", "adreno-740", "adreno-750", "adreno-x1-85")
FORMS = ("few-registers", "mixed-dot-product", "emulated-dot-product")
LARGE = convolution(64, 64, (56, 56), 64, (3, 3), padding=(1, 1))


def product(device: str, form: str = "device", path: str | None = None) -> tuple[Plan, Dispatch]:
    """The plan of a large layer for a device, or for a form of it, and the dispatch that multiplies."""
    profile = PROFILES[form](profiles.load(device))
    made = plan(LARGE, profile, path=path)
    check_plan(made, LARGE, profile)
    return made, max(made.dispatches, key=lambda dispatch: dispatch.operations)


def constant(dispatch: Dispatch, name: str) -> int:
    return dispatch.specialization[kernel_interface(dispatch.kernel).specialization_constants.index(name)]


def own_outputs(dispatch: Dispatch) -> int:
    return constant(dispatch, "SUBGROUP_PIXELS") * constant(dispatch, "SUBGROUP_CHANNELS")


@pytest.mark.parametrize("device", NAMES)
def test_the_vendor_says_how_many_registers_there_are(device: str) -> None:
    assert has_few_registers(profiles.load(device)) == (not device.startswith(MANY))
    for form in FORMS:
        assert has_few_registers(PROFILES[form](profiles.load(device)))


@pytest.mark.parametrize(("device", "outputs"), [("intel-tgl", 16), ("adreno-830", 16), ("amd-navi21", 32)])
def test_outputs_of_an_invocation_by_vectors(device: str, outputs: int) -> None:
    made, dispatch = product(device)
    assert made.path == "vectors"
    assert own_outputs(dispatch) == outputs


@pytest.mark.parametrize("device", NAMES)
def test_only_devices_with_mixed_signs_alone_get_their_kernel(device: str) -> None:
    made, dispatch = product(device)
    assert dispatch.kernel.endswith("_mixed") == (device in MIXED), dispatch.kernel
    if device in MIXED:
        assert made.path == "vectors"


@pytest.mark.parametrize(
    ("device", "kernel", "sums"),
    [("intel-dg2", "matrix_few_registers", 32), ("intel-bmg", "matrix_few_registers", 32)],
)
def test_matrix_units_on_few_registers(device: str, kernel: str, sums: int) -> None:
    """32 sums an invocation, and `matrix` where `halo` would be taken."""
    _, dispatch = product(device)
    lanes = profiles.load(device).min_subgroup_size
    assert dispatch.kernel.endswith(f"/{kernel}")
    assert own_outputs(dispatch) // lanes == sums


def constants(layer: Layer, layout: str, device: str, path: str, *names: str) -> tuple[int, ...]:
    """Constants of the dispatch that multiplies 64 images of a layer."""
    desc = descriptor(layer, 64, layout, DataType.UINT8, filter_is_owned=True)
    made = plan(desc, profiles.load(device), path=path)
    dispatch = max(made.dispatches, key=lambda dispatch: dispatch.operations)
    return tuple(constant(dispatch, name) for name in names)


@pytest.mark.parametrize(
    ("device", "held", "planes", "channels"),
    [("nvidia-h200", 1, 4, 2), ("nvk-ampere", 1, 2, 2), ("intel-dg2", 0, 4, 1), ("adreno-660", 0, 4, 1)],
)
def test_weights_and_rows_of_a_depthwise_layer(device: str, held: int, planes: int, channels: int) -> None:
    """Weights that registers have no room for stay in shared memory, and fewer rows are fetched together."""
    layer = Layer(240, 28, 240, 5, 1, 240)
    for layout, rows in (("nchw", planes), ("nhwc", channels)):
        assert constants(layer, layout, device, "depthwise", "HELD", "BATCH") == (held, rows)


@pytest.mark.parametrize(("device", "is_large"), [("nvidia-h200", True), ("nvk-ampere", False), ("nvk-ada", False)])
def test_tiles_of_128_sums_are_for_nvidias_own_driver(device: str, is_large: bool) -> None:
    pixels, channels = constants(Layer(512, 28, 512, 3), "nhwc", device, "matrix", "TILE_PIXELS", "TILE_CHANNELS")
    assert (pixels * channels == 128 * 128) == is_large


def test_a_gpu_with_255_registers_keeps_its_forms() -> None:
    _, dispatch = product("nvidia-h200", path="matrix")
    assert dispatch.kernel == "quantized_linear_convolution/matrix"
    _, dispatch = product("nvidia-h200", form="few-registers", path="matrix")
    assert dispatch.kernel == "quantized_linear_convolution/matrix_few_registers"
