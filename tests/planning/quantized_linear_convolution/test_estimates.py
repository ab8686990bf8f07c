"""What the estimates of the paths on matrix units count, each by two convolutions that differ in it alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dmlvk.benchmark.cases.quantized_linear_convolution import Layer
from dmlvk.benchmark.networks.work import desc_of
from dmlvk.conformance.profiles import narrow
from dmlvk.operators import QuantizedLinearConvolutionDesc
from dmlvk.planning import plan
from dmlvk.planning.device_rates import rates_of
from dmlvk.planning.plan import NO_OFFSETS
from dmlvk.planning.quantized_linear_convolution.depthwise import DepthwisePath
from dmlvk.planning.quantized_linear_convolution.direct import DirectPath
from dmlvk.planning.quantized_linear_convolution.halo import SPEED as HALO_SPEED
from dmlvk.planning.quantized_linear_convolution.halo import HaloPath
from dmlvk.planning.quantized_linear_convolution.matrix import MatrixPath
from dmlvk.planning.quantized_linear_convolution.matrix_shape import CACHED, uncached_bytes
from dmlvk.planning.quantized_linear_convolution.path import Offer, Path, Problem
from dmlvk.planning.quantized_linear_convolution.split_k import SplitKPath
from tests import profiles
from tests.planning.quantized_linear_convolution.descriptors import convolution

H200 = profiles.load("nvidia-h200")


def layer(
    batch: int, channels: int, size: tuple[int, int], filters: int, kernel: int, groups: int = 1, in_rows: bool = True
) -> QuantizedLinearConvolutionDesc:
    """A convolution that keeps the size, with rows of channels or planes."""
    (height, width), padding = size, (kernel // 2, kernel // 2)

    def strides(count: int) -> tuple[int, int, int, int] | None:
        return (height * width * count, 1, width * count, count) if in_rows else None

    return convolution(
        *(batch, channels, size, filters, (kernel, kernel)),
        groups=groups,
        padding=padding,
        input_strides=strides(channels),
        output_strides=strides(filters),
    )


def seconds(path: Path, desc: QuantizedLinearConvolutionDesc) -> float:
    offer = Offer.of(path, Problem(desc, H200, NO_OFFSETS))
    assert offer is not None
    return offer.seconds


@pytest.mark.parametrize(("path", "kernel", "size"), [(MatrixPath(), 3, 55), (SplitKPath(), 1, 13)])
def test_planes_that_are_no_whole_words_are_stored_byte_by_byte(path: Path, kernel: int, size: int) -> None:
    """Of three by three taps, `matrix` has either input copied first."""
    ragged, whole = (
        seconds(path, layer(64, 64, (each, each), 256, kernel, in_rows=False)) / each**2 for each in (size, size + 1)
    )
    assert ragged > 1.05 * whole


@pytest.mark.parametrize("path", [MatrixPath(), SplitKPath()])
def test_channels_that_are_no_whole_words_are_stored_byte_by_byte(path: Path) -> None:
    ragged, whole = (layer(8, 256, (26, 26), filters, 1) for filters in (255, 256))
    assert seconds(path, ragged) > seconds(path, whole)


def test_a_wide_halo_takes_longer() -> None:
    """As many outputs and as much K, but 390 positions under a tile and not 196."""
    narrow, wide = (layer(8, 128, size, 64, 3) for size in ((512, 32), (128, 128)))
    assert seconds(HaloPath(), wide) > 1.05 * seconds(HaloPath(), narrow)


def test_what_caches_do_not_hold_is_moved() -> None:
    rates = rates_of(H200)
    (small,), (large,) = (
        Problem(layer(batch, 64, (128, 128), 64, 3), H200, NO_OFFSETS).product_geometries for batch in (8, 64)
    )
    assert uncached_bytes(rates, small) == 0
    assert uncached_bytes(rates, large) == 2 * 64 * 64 * 128 * 128 - CACHED * rates.processors
    per_image = {batch: seconds(MatrixPath(), layer(batch, 64, (128, 128), 64, 3)) / batch for batch in (56, 64)}
    assert per_image[64] > per_image[56]


@pytest.mark.parametrize("in_rows", [True, False])
def test_k_of_three_steps_is_split_over_four_subgroups(in_rows: bool) -> None:
    """Two would have two steps one after the other. The fourth has none, and is not waited for."""
    offer = Offer.of(SplitKPath(), Problem(layer(1, 192, (14, 14), 64, 1, in_rows=in_rows), H200, NO_OFFSETS))
    assert offer is not None
    assert offer.tile.steps(offer.tile.runs) == 3 and offer.tile.tile.splits == 4


def test_joined_channels_that_are_no_whole_words_take_longer() -> None:
    """58 single channels are joined to 58 or to 29, 64 of them to whole words."""
    uneven, even = (layer(64, channels, (28, 28), channels, 3, channels, in_rows=False) for channels in (58, 64))
    assert seconds(SplitKPath(), uneven) > seconds(SplitKPath(), even)


@pytest.mark.parametrize("in_rows", [True, False])
def test_tiles_of_planes_that_lie_in_several_images_take_longer(in_rows: bool) -> None:
    """As many pixels, in planes of 36 of them and of 1,764."""
    small, large = (layer(batch, 256, size, 64, 1, in_rows=in_rows) for batch, size in ((784, (6, 6)), (16, (42, 42))))
    ratio = seconds(SplitKPath(), small) / seconds(SplitKPath(), large)
    assert ratio == 1 if in_rows else ratio > 1.005


@pytest.mark.parametrize("batch", [1, 8, 64])
@pytest.mark.parametrize("channels", [384, 480, 576])
def test_without_matrices_depthwise_planes_keep_their_kernel(batch: int, channels: int) -> None:
    """On an H100 384 channels take 40 us with 64 images, and 56 by the direct kernel. Constants are given once."""
    desc = desc_of(Layer(channels, 14, channels, 3, groups=channels), batch, "nchw")
    assert plan(desc, narrow(H200, "no-matrix")).path == "depthwise"


def test_planes_of_a_halo_are_stored_longer() -> None:
    """Beside the copy with the channels last, which is a dispatch before."""
    path, times = HaloPath(), []
    for in_rows in (True, False):
        problem = Problem(layer(64, 64, (56, 56), 64, 3, in_rows=in_rows), H200, NO_OFFSETS)
        offer = Offer.of(path, problem)
        assert offer is not None
        times.append(path.kernel_seconds(problem, offer.tile))
    assert times[1] > 1.03 * times[0]


def test_steps_of_single_bytes_are_as_long_as_k_allows() -> None:
    """Nine vectors of K are five steps of 32 bytes: three of 64 would multiply twelve."""
    offer = Offer.of(SplitKPath(), Problem(layer(8, 16, (55, 55), 32, 3, in_rows=False), H200, NO_OFFSETS))
    assert offer is not None
    assert (offer.tile.runs.total, offer.tile.tile.step) == (9, 32)


def test_a_loop_over_many_single_bytes_takes_longer() -> None:
    """Of 64 bytes each, one step takes no loop, and two take registers for a loop."""
    path, times = SplitKPath(), []
    for channels in (64, 128):
        problem = Problem(layer(64, channels, (28, 28), 64, 1, in_rows=False), H200, NO_OFFSETS)
        of_step = [path.kernel_seconds(problem, path.named_tile(problem, f"32x32x{step}:1")) for step in (64, 32)]
        times.append(of_step[0] / of_step[1])
    assert times[0] < 1 < times[1]


def test_the_last_round_of_workgroups_is_as_long_as_the_others() -> None:
    """132 tiles are a round. 140 are two, whose second one fetches little."""
    full, more, two = (seconds(MatrixPath(), layer(1, 512, (rows, 128), 64, 3)) for rows in (132, 140, 264))
    assert more - full > 0.3 * (two - full)


@pytest.mark.parametrize(
    ("batch", "channels", "size", "in_rows"), [(8, 512, 56, False), (1, 16, 256, False), (1, 24, 32, True)]
)
def test_single_taps_are_not_computed_one_output_at_a_time(batch: int, channels: int, size: int, in_rows: bool) -> None:
    """The last step of an output takes as long as four taps of the direct kernel."""
    desc = desc_of(Layer(channels, size, channels, 1, groups=channels), batch, "nhwc" if in_rows else "nchw")
    assert plan(desc, H200).path != "direct"
    outputs = batch * channels * size**2
    assert not in_rows or seconds(DirectPath(), desc) > 3 * outputs / rates_of(H200).tap


def test_outputs_of_the_direct_kernel_are_counted_as_it_computes_them() -> None:
    """Rows in fours of columns. In channels-last tensors a load fetches a sector, but no more than a pixel."""
    path = DirectPath()
    odd, even = (seconds(path, layer(32, 64, (64, width), 64, 3, 64, in_rows=False)) for width in (61, 64))
    assert odd == pytest.approx(even)
    few, many = (seconds(path, layer(64, count, (64, 64), count, 1, count)) for count in (3, 192))
    assert many - rates_of(H200).dispatch > 1.5 * 64 * (few - rates_of(H200).dispatch)


def test_a_large_filter_of_depthwise_layers_is_loaded_at_once() -> None:
    """An H200 takes 4.7 us for 7x7 taps of few pixels: hardly longer than for 3x3."""
    small, large = (desc_of(Layer(384, 7, 384, kernel, groups=384), 1, "nhwc") for kernel in (3, 7))
    assert 1 < seconds(DepthwisePath(), large) / seconds(DepthwisePath(), small) < 2


@pytest.mark.parametrize("layout", ["nhwc", "nchw"])
def test_bytes_that_are_hard_to_find_take_longer(layout: str) -> None:
    """Of 49 taps there is no bit for each, and neighbours' bytes lie 255 apart in rows of 255 channels."""
    path = SplitKPath()
    few, many = (desc_of(Layer(255, 20, 64, kernel), 1, layout) for kernel in (5, 7))
    assert seconds(path, many) > 49 / 25 * seconds(path, few)
    in_rows, in_planes = (desc_of(Layer(255, 20, 64, 5), 8, each) for each in ("nhwc", "nchw"))
    assert seconds(path, in_rows) > 1.2 * seconds(path, in_planes)


def test_the_filter_of_a_halo_is_fetched_in_each_step() -> None:
    """A step of 64 bytes for each of nine taps, for 64 channels at a time."""
    offer = Offer.of(HaloPath(), Problem(layer(8, 128, (28, 28), 128, 3), H200, NO_OFFSETS))
    assert offer is not None
    none, all_of_it = (offer.tile.fetched_bytes(replace(HALO_SPEED, filter_fetches=share)) for share in (0.0, 1.0))
    assert all_of_it - none == 2 * 9 * 64 * 64
    assert 0 < HALO_SPEED.filter_fetches < 1
