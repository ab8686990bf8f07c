"""The path `first_layer`: on every GPU with matrix units, and the convolutions that it refuses."""

from __future__ import annotations

import pytest

from dmlvk.errors import PathError
from dmlvk.operators import QuantizedLinearConvolutionDesc
from dmlvk.planning.quantized_linear_convolution.choice import plan_quantized_linear_convolution as plan
from dmlvk.planning.quantized_linear_convolution.first_layer import first_layer_tile
from tests import profiles
from tests.planning.limits import check_plan
from tests.planning.quantized_linear_convolution.descriptors import DESCRIPTORS, OWNED, convolution, written_elements
from tests.planning.quantized_linear_convolution.matrix_devices import MATRIX_DEVICES


@pytest.mark.parametrize("device", MATRIX_DEVICES)
@pytest.mark.parametrize(
    "desc",
    [
        DESCRIPTORS["first layer"],
        convolution(1, 3, (224, 224), 32, (3, 3), strides=(2, 2), padding=(1, 1), output_strides=(401408, 1, 3584, 32)),
        convolution(2, 1, (28, 28), 100, (5, 5)),
        convolution(1, 4, (300, 301), 7, (3, 3), strides=(3, 3), flags=OWNED),
        convolution(1, 3, (1 << 13, 1 << 13), 8, (4, 4), strides=(4, 4)),
    ],
    ids=["ResNet", "MobileNet, NHWC", "one channel", "stride 3", "large"],
)
def test_first_layers_on_every_device_with_matrices(desc: QuantizedLinearConvolutionDesc, device: str) -> None:
    profile = profiles.load(device)
    found = plan(desc, profile, path="first_layer")
    check_plan(found, desc, profile)
    assert written_elements(found, desc) == desc.output_tensor.element_count
    tile = first_layer_tile(profile, desc.geometry)
    limit = min(profile.limits.max_compute_shared_memory_size, 48 << 10)
    assert tile.shared_memory(desc.geometry) <= limit
    assert all(
        dispatch.subgroup_size == tile.lanes for dispatch in found.dispatches if "first_layer" in dispatch.kernel
    )


@pytest.mark.parametrize(
    ("desc", "reason"),
    [
        (DESCRIPTORS["odd"], "input channels = 13, possible: at most 4"),
        (convolution(1, 3, (9, 9), 3, (3, 3), groups=3), "groups = 3, possible: 1"),
        (convolution(1, 3, (9, 9), 3, (3, 3), dilations=(2, 2)), r"dilations = \(2, 2\)"),
        (convolution(1, 3, (99, 99), 3, (12, 3)), "filter rows = 12, possible: at most 11"),
        (convolution(1, 3, (99, 99), 3, (3, 3), strides=(5, 5)), r"strides = \(5, 5\), possible: at most 4"),
        (convolution(1, 4, (99, 99), 64, (11, 5)), "bytes of shared memory = .*, possible: at most"),
    ],
)
def test_what_first_layer_does_not_take(desc: QuantizedLinearConvolutionDesc, reason: str) -> None:
    with pytest.raises(PathError, match=f"cannot take path 'first_layer' here: .*{reason}"):
        plan(desc, profiles.load("nvidia-h200"), path="first_layer")
