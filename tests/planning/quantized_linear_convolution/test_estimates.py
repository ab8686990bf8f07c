"""What the estimates of the paths on matrix units count, each by two convolutions that differ in it alone."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dmlvk.operators import QuantizedLinearConvolutionDesc
from dmlvk.planning import device_rates, quantized_linear_convolution
from dmlvk.planning.device_rates import LARGE_GPU, rates_of
from dmlvk.planning.plan import NO_OFFSETS
from dmlvk.planning.quantized_linear_convolution import path as paths
from dmlvk.planning.quantized_linear_convolution.direct import DirectPath
from dmlvk.planning.quantized_linear_convolution.estimate import CACHED, EFFICIENCY, FETCHES, ProductCost
from dmlvk.planning.quantized_linear_convolution.halo import FETCHES_OF_A_POSITION, HaloPath
from dmlvk.planning.quantized_linear_convolution.matrix import MatrixPath
from dmlvk.planning.quantized_linear_convolution.path import Offer, Problem
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


def seconds(path: paths.ConvolutionPath[Any], desc: QuantizedLinearConvolutionDesc) -> float:
    offer = Offer.of(path, Problem(desc, H200, NO_OFFSETS))
    assert offer is not None
    return offer.seconds


@pytest.mark.parametrize(("path", "kernel", "size"), [(MatrixPath(), 3, 55), (SplitKPath(), 1, 13)])
def test_planes_that_are_no_whole_words_are_stored_byte_by_byte(
    path: paths.ConvolutionPath[Any], kernel: int, size: int
) -> None:
    """Of three by three taps, `matrix` has either input copied first."""
    ragged, whole = (
        seconds(path, layer(64, 64, (each, each), 256, kernel, in_rows=False)) / each**2 for each in (size, size + 1)
    )
    assert ragged > 1.05 * whole


@pytest.mark.parametrize("path", [MatrixPath(), SplitKPath()])
def test_channels_that_are_no_whole_words_are_stored_byte_by_byte(path: paths.ConvolutionPath[Any]) -> None:
    ragged, whole = (layer(8, 256, (26, 26), filters, 1) for filters in (255, 256))
    assert seconds(path, ragged) > seconds(path, whole)


def test_a_wide_halo_is_fetched_by_each_workgroup() -> None:
    """As many outputs and as much K, but nearly twice the positions under a tile."""
    found = []
    for size in ((512, 32), (128, 128)):
        offer = Offer.of(HaloPath(), Problem(layer(8, 128, size, 64, 3), H200, NO_OFFSETS))
        assert offer is not None
        found.append((offer.tile.fetched_bytes, offer.tile.positions))
    (few, narrow), (many, wide) = found
    steps_of_channels, step = 2, 64
    assert many - few == FETCHES_OF_A_POSITION * steps_of_channels * step * (wide - narrow) > 0
    assert wide > 1.5 * narrow


def test_the_last_round_of_workgroups_is_as_long_as_the_others() -> None:
    """132 tiles are a round. 140 are two, whose second one fetches little."""
    full, more, two = (seconds(MatrixPath(), layer(1, 512, (rows, 128), 64, 3)) for rows in (132, 140, 264))
    assert more - full > 0.3 * (two - full)


def test_outputs_of_the_direct_kernel_are_counted_as_it_computes_them() -> None:
    """Rows in fours of columns. In channels-last tensors a load fetches a sector, but no more than a pixel."""
    path = DirectPath()
    odd, even = (seconds(path, layer(32, 64, (64, width), 64, 3, 64, in_rows=False)) for width in (61, 64))
    assert odd == pytest.approx(even)
    few, many = (seconds(path, layer(64, count, (64, 64), count, 1, count)) for count in (3, 192))
    assert many - rates_of(H200).dispatch > 1.5 * 64 * (few - rates_of(H200).dispatch)


def test_what_caches_do_not_hold_is_moved() -> None:
    held, more = (
        ProductCost(132, 0, 0, 132 * CACHED + bytes_, 0, 0).seconds(LARGE_GPU, "matrix") for bytes_ in (0, 4.2e6)
    )
    assert more - held == pytest.approx(4.2e6 / LARGE_GPU.copy)


def test_work_is_divided_by_its_rate() -> None:
    """Nothing but products, or bytes, or last steps; and twice as much of each takes twice as long."""
    nothing = ProductCost(132, products=0, fetched=0, moved=0, last_steps=0, waits=0)
    for name, amount, expected in (
        ("products", 1.2e12 * EFFICIENCY, 1e-3),
        ("fetched", 4.2e9 * FETCHES, 1e-3),
        ("last_steps", 1.9e9, 1e-3),
        ("waits", 1000.0, 0.3e-3),
    ):
        for times in (1, 2):
            cost = replace(nothing, **{name: times * amount})  # type: ignore[arg-type]
            assert cost.seconds(LARGE_GPU, "matrix") == pytest.approx(times * expected + LARGE_GPU.dispatch)


def test_the_constants_are_few() -> None:
    """All numbers with a point or an exponent that the estimates of the convolution's paths stand on."""
    folder = Path(quantized_linear_convolution.__file__).parent
    # Questions have the scales of their data.
    sources = [*(each for each in folder.glob("*.py") if each.stem != "questions"), Path(device_rates.__file__)]
    found = [
        node
        for source in sources
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, float)
    ]
    assert len(found) <= 40
