"""The path `halo`: its tiles, the convolutions that it takes, and where it is faster than `matrix`."""

from __future__ import annotations

import pytest

from dmlvk.benchmark.cases.quantized_linear_convolution import Layer
from dmlvk.benchmark.networks.work import desc_of
from dmlvk.errors import PathError
from dmlvk.operators import QuantizedLinearConvolutionDesc
from dmlvk.planning.quantized_linear_convolution.choice import plan_quantized_linear_convolution as plan
from dmlvk.planning.quantized_linear_convolution.halo import Positions
from tests import profiles
from tests.planning.limits import check_plan
from tests.planning.quantized_linear_convolution.descriptors import DESCRIPTORS, convolution, written_elements
from tests.planning.quantized_linear_convolution.matrix_devices import MATRIX_DEVICES, constant


@pytest.mark.half_by_day
@pytest.mark.parametrize("device", MATRIX_DEVICES)
@pytest.mark.parametrize("name", DESCRIPTORS)
def test_halos_wherever_a_device_has_matrices(name: str, device: str) -> None:
    """Tiles are multiples of the driver's matrices. A tile with its halo stays within 48 KiB of shared memory."""
    profile, desc = profiles.load(device), DESCRIPTORS[name]
    try:
        found = plan(desc, profile, path="halo")
    except PathError as error:
        assert "cannot take path 'halo' here: " in str(error)
        return
    check_plan(found, desc, profile)
    assert written_elements(found, desc) == desc.output_tensor.element_count
    products = [dispatch for dispatch in found.dispatches if dispatch.kernel == "quantized_linear_convolution/halo"]
    assert products
    for dispatch in products:
        m, n, k, lanes, pixels, channels, own_pixels, own_channels, step, run = dispatch.specialization[6:16]
        runs_w, padding, taps, pitch = (constant(dispatch, name) for name in ("RUNS_W", "PADDING", "TAPS", "PITCH"))
        dilations = dispatch.specialization[20:22]
        halo = (taps // runs_w - 1) * dilations[0] * pitch + (runs_w - 1) * dilations[1]
        rows = pixels + halo + 2 * channels
        assert 16 * rows * (step * max(1, 16 // k) + padding) <= 48 << 10
        assert run % step == 0 and 16 * step % (2 * k) == 0 and own_pixels % m == own_channels % (4 * n) == 0
        assert dispatch.specialization[0] == lanes * (pixels // own_pixels) * (channels // own_channels)


@pytest.mark.parametrize(
    ("batch", "channels", "size", "groups", "path"),
    [
        (64, 256, 28, 32, "halo"),  # the other kernel fetches a part of a line for each tap of a group
        (64, 128, 56, 32, "halo"),
        (1, 128, 28, 1, "split_k"),  # few workgroups: the K of small tiles is split
        (1, 512, 7, 1, "split_k"),
        (64, 256, 14, 1, "matrix"),
        (64, 512, 28, 1, "matrix"),
    ],
)
def test_halos_where_they_are_faster(batch: int, channels: int, size: int, groups: int, path: str) -> None:
    """In NHWC, with constants that are given once, on the GPU that was measured."""
    desc = desc_of(Layer(channels, size, channels, 3, groups=groups), batch, "nhwc")
    assert plan(desc, profiles.load("nvidia-h200")).path == path


@pytest.mark.parametrize(
    ("desc", "reason"),
    [
        (convolution(1, 64, (9, 9), 64, (1, 1)), r"filter size = \(1, 1\), possible: several taps"),
        (convolution(1, 64, (9, 9), 64, (3, 3), strides=(2, 2)), r"strides = \(2, 2\), possible: 1"),
        (convolution(1, 40, (9, 9), 64, (3, 3)), "input channels of a group = 40, possible: multiples of 16"),
        (convolution(1, 64, (9, 900), 64, (9, 1)), "tiles that fit into shared memory = 0"),
    ],
)
def test_what_halos_do_not_take(desc: QuantizedLinearConvolutionDesc, reason: str) -> None:
    with pytest.raises(PathError, match=f"cannot take path 'halo' here: {reason}"):
        plan(desc, profiles.load("nvidia-h200"), path="halo")


def test_positions_share_the_border() -> None:
    same = convolution(2, 64, (5, 6), 64, (3, 3), padding=(1, 1)).geometry
    assert Positions.of(same, (5, 6)) == Positions(pitch=7, plane=42, halo=16), "one column and one row for both sides"
    assert Positions.of(same, (5, 4)) == Positions(pitch=6, plane=36, halo=14), "a part has real columns on both sides"
    whole = convolution(2, 64, (5, 6), 64, (3, 3)).geometry
    assert Positions.of(whole, (3, 4)) == Positions(pitch=6, plane=30, halo=14), "nothing is border"
