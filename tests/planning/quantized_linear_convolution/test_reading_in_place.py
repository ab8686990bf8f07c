"""Inputs that are read as they lie, by words of channels too, and pixels whose places take no divisions."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlvk.conformance.profiles import PROFILES
from dmlvk.device_profile import DeviceProfile
from dmlvk.operators import QuantizedLinearConvolutionDesc
from dmlvk.planning.builder import View
from dmlvk.planning.plan import NO_OFFSETS, Dispatch
from dmlvk.planning.quantized_linear_convolution.choice import plan_quantized_linear_convolution as plan
from dmlvk.planning.quantized_linear_convolution.halo import HaloPath
from dmlvk.planning.quantized_linear_convolution.matrix import MatrixPath
from dmlvk.planning.quantized_linear_convolution.path import Problem
from dmlvk.planning.quantized_linear_convolution.split_k import SplitKPath
from dmlvk.planning.quantized_linear_convolution.tiled_product import (
    BYTES,
    PLANES,
    VECTORS,
    WORDS,
    TiledPath,
    fetch_in_place,
)
from dmlvk.planning.quantized_linear_convolution.vectors import VectorsPath
from tests import profiles
from tests.planning.limits import check_plan
from tests.planning.quantized_linear_convolution.descriptors import convolution, written_elements
from tests.planning.quantized_linear_convolution.matrix_devices import MATRIX_DEVICES, constant, size_of

H200 = profiles.load("nvidia-h200")
WITHOUT_MATRICES = PROFILES["no-matrix"](H200)
DEVICE_OF = {"matrix": H200, "split_k": H200, "vectors": WITHOUT_MATRICES}
READERS = tuple(DEVICE_OF)


def last(channels: int, size: tuple[int, int], *, pixel: int = 0, row: int = 0, image: int = 0) -> tuple[int, ...]:
    """Strides of channels last, with so many bytes more after each pixel, row and image."""
    step = channels + pixel
    line = size[1] * step + row
    return (size[0] * line + image, 1, line, step)


def or_bytes(path: str, fetch: int | None) -> int | None:
    """How a path reads what can be read so, or not at all, by vectors and words: one path reads bytes then."""
    return BYTES if fetch is None and path == "split_k" else fetch


def product_of(
    desc: QuantizedLinearConvolutionDesc, path: str, profile: DeviceProfile | None = None
) -> tuple[Dispatch, bool]:
    """The only dispatch of the product, and whether it reads the input in place."""
    profile = profile or DEVICE_OF[path]
    found = plan(desc, profile, path=path)
    check_plan(found, desc, profile)
    assert written_elements(found, desc) == desc.output_tensor.element_count
    (product,) = (each for each in found.dispatches if each.operations)
    return product, product.windows[0].tensor == "input_tensor"


@pytest.mark.parametrize("path", READERS)
@pytest.mark.parametrize(
    ("channels", "kernel", "groups", "fetch"),
    [
        (64, 1, 1, VECTORS),
        (64, 3, 1, VECTORS),
        (24, 1, 1, WORDS),
        (36, 1, 1, WORDS),
        (36, 3, 1, WORDS),
        (4, 1, 1, WORDS),
        (200, 3, 2, WORDS),  # 100 channels of a group
        (26, 1, 1, None),
        (26, 3, 1, None),
        (4, 3, 1, None),  # so few that a row of taps is one run, which may reach over the border
    ],
)
def test_channels_last_are_read_by_the_largest_unit_that_they_are_made_of(
    path: str, channels: int, kernel: int, groups: int, fetch: int | None
) -> None:
    size = (14, 14)
    desc = convolution(
        *(2, channels, size, 64, (kernel, kernel)),
        groups=groups,
        padding=(kernel // 2, kernel // 2),
        input_strides=last(channels, size),
        output_strides=last(64, size),
    )
    product, in_place = product_of(desc, path)
    fetch = or_bytes(path, fetch)
    assert in_place == (fetch is not None)
    if fetch is not None:
        assert constant(product, "FETCH") == fetch
        if fetch != BYTES:
            # All four words of a vector, or those of the channels of one tap alone.
            assert constant(product, "RUN_WORDS") == (4 if fetch == VECTORS else channels // groups // 4)
            assert size_of(product, "RUN") == -(-channels // groups // 16)
        unit = product.windows[0].base_unit
        assert unit == {VECTORS: 16, WORDS: 4, BYTES: 1}[fetch]
        assert size_of(product, "INPUT_STRIDE_W") * unit == channels
        assert size_of(product, "TAP_STRIDE_H") * unit == 14 * channels
        assert size_of(product, "INPUT_STRIDE_GROUP") * unit == channels // groups


@pytest.mark.parametrize("path", READERS)
@pytest.mark.parametrize(
    ("channels", "gaps", "fetch"),
    [
        (36, {"pixel": 4, "row": 8, "image": 12}, WORDS),
        (36, {"pixel": 2}, None),
        (36, {"row": 2}, None),
        (36, {"image": 2}, None),
        (64, {"pixel": 4}, WORDS),  # whole vectors of channels that do not begin at one
        (64, {"row": 4}, WORDS),
        (64, {"image": 4}, WORDS),
        (64, {"image": 2}, None),
        (64, {"pixel": 16, "row": 32, "image": 48}, VECTORS),
    ],
)
def test_gaps_decide_as_channels_do(path: str, channels: int, gaps: dict[str, int], fetch: int | None) -> None:
    size = (14, 14)
    desc = convolution(2, channels, size, 64, (1, 1), input_strides=last(channels, size, **gaps))
    product, in_place = product_of(desc, path)
    assert (constant(product, "FETCH") if in_place else None) == or_bytes(path, fetch)


@pytest.mark.parametrize("device", MATRIX_DEVICES)
@pytest.mark.parametrize("kernel", [1, 3])
def test_words_in_place_on_every_device(device: str, kernel: int) -> None:
    size = (28, 28)
    desc = convolution(
        *(8, 36, size, 72, (kernel, kernel)),
        padding=(kernel // 2, kernel // 2),
        input_strides=last(36, size),
    )
    profile = profiles.load(device)
    for path in ("matrix", "vectors"):
        found = plan(desc, profile, path=path)
        check_plan(found, desc, profile)
        products = [each for each in found.dispatches if each.operations]
        assert {each.windows[0].base_unit for each in products} == {4}
        assert {constant(each, "FETCH") for each in products} == {WORDS}
        assert not any("pack_input" in each.kernel for each in found.dispatches)


PATHS: tuple[TiledPath, ...] = (MatrixPath(), SplitKPath(), VectorsPath())  # type: ignore[type-arg]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
@pytest.mark.parametrize(
    ("channels", "start", "fetch"), [(36, 4, WORDS), (36, 2, None), (64, 16, VECTORS), (64, 4, WORDS), (64, 1, None)]
)
def test_the_start_decides_as_strides_do(
    path: TiledPath[Any],
    channels: int,
    start: int,
    fetch: int | None,
) -> None:
    desc = convolution(1, channels, (9, 9), 64, (1, 1), input_strides=last(channels, (9, 9)))
    problem = Problem(desc, DEVICE_OF[path.name], NO_OFFSETS)
    (tile, *_), geometry = path.tiles(problem), desc.geometry
    source = View("input_tensor", start, 1, geometry.input_strides)
    found = fetch_in_place(replace(problem.operands(geometry), input=source), tile, 0.0)
    assert found == or_bytes(path.name, fetch)


def test_halos_are_not_read_by_words() -> None:
    """The kernel copies whole vectors. What lies otherwise is converted first."""
    size = (14, 14)
    for gap, in_place in ((0, True), (4, False), (16, True)):
        desc = convolution(2, 64, size, 64, (3, 3), padding=(1, 1), input_strides=last(64, size, pixel=gap))
        product, found = product_of(desc, "halo", H200)
        assert found == in_place and constant(product, "FETCH") == VECTORS
        assert product_of(desc, "matrix")[1]
        (tile,) = HaloPath().tiles(Problem(desc, H200, NO_OFFSETS))
        assert not tile.reads_words


def places(product: Dispatch, prefix: str, images: int) -> list[tuple[int, int]]:
    """A pixel's place by the strides of images, rows and columns, and by its index alone."""
    rows, columns = size_of(product, "ROWS"), size_of(product, "COLUMNS")
    steps = [size_of(product, f"{prefix}_{letter}") for letter in "NHW"]
    found = []
    for index, pixel in enumerate(itertools.product(range(images), range(rows), range(columns))):
        found.append((sum(map(operator.mul, pixel, steps)), index * steps[2]))
    return found


def check_evenness(desc: QuantizedLinearConvolutionDesc, path: str) -> tuple[bool, bool]:
    """Both constants say what is so; returns them."""
    product, _ = product_of(desc, path)
    rows, columns = size_of(product, "ROWS"), size_of(product, "COLUMNS")
    images, left = divmod(size_of(product, "pixels"), rows * columns)
    assert not left
    is_even = {
        prefix: all(by_strides == by_index for by_strides, by_index in places(product, prefix, images))
        for prefix in ("INPUT_STRIDE", "OUTPUT_STRIDE")
    }
    reads, writes = bool(constant(product, "EVEN_INPUT")), bool(constant(product, "EVEN_OUTPUT"))
    if constant(product, "CHECK_BORDER") or constant(product, "FETCH") == PLANES:
        assert not reads
    else:
        assert reads <= is_even["INPUT_STRIDE"]
        # A single column has no stride that counts, so what is even then is not always known to be.
        assert reads or columns == 1 or not is_even["INPUT_STRIDE"]
    assert writes <= is_even["OUTPUT_STRIDE"]
    assert writes or columns == 1 or not is_even["OUTPUT_STRIDE"]
    return reads, writes


@pytest.mark.parametrize("path", READERS)
@pytest.mark.parametrize(
    ("batch", "size", "kernel", "stride", "padding", "input_gaps", "output_gaps", "expected"),
    [
        (2, (9, 12), 1, 1, 0, {}, {}, (True, True)),
        (2, (9, 12), 1, 1, 0, {"pixel": 16}, {"pixel": 4}, (True, True)),
        (2, (9, 12), 1, 1, 0, {"row": 16}, {}, (False, True)),
        (2, (9, 12), 1, 1, 0, {"image": 16}, {}, (False, True)),
        (1, (9, 12), 1, 1, 0, {"image": 16}, {"image": 4}, (True, True)),  # there is no next image
        (2, (9, 12), 1, 1, 0, {}, {"row": 4}, (True, False)),
        (2, (9, 12), 1, 1, 0, {}, {"image": 4}, (True, False)),
        (2, (1, 12), 1, 1, 0, {"row": 16}, {}, (False, True)),  # a row is an image here
        (1, (1, 12), 1, 1, 0, {"row": 16}, {"row": 4}, (True, True)),
        (2, (9, 12), 1, 2, 0, {}, {}, (False, True)),
        (1, (1, 12), 1, 2, 0, {}, {}, (True, True)),  # every second pixel of one row
        (2, (9, 12), 3, 1, 1, {}, {}, (False, True)),  # a border
        (2, (9, 12), 3, 1, 0, {}, {}, (False, True)),  # a row's outputs are fewer than its pixels
        (1, (3, 12), 3, 1, 0, {}, {}, (True, True)),  # one row of outputs
    ],
)
def test_pixels_that_are_one_stride_apart(
    path: str,
    batch: int,
    size: tuple[int, int],
    kernel: int,
    stride: int,
    padding: int,
    input_gaps: dict[str, int],
    output_gaps: dict[str, int],
    expected: tuple[bool, bool],
) -> None:
    outputs = ((size[0] + 2 * padding - kernel) // stride + 1, (size[1] + 2 * padding - kernel) // stride + 1)
    desc = convolution(
        *(batch, 32, size, 64, (kernel, kernel)),
        strides=(stride, stride),
        padding=(padding, padding),
        input_strides=last(32, size, **input_gaps),
        output_strides=last(64, outputs, **output_gaps),
    )
    assert check_evenness(desc, path) == expected


@pytest.mark.parametrize("path", READERS)
@pytest.mark.parametrize(
    ("batch", "size", "channels", "expected"),
    [
        (1, (8, 12), 32, (False, True)),  # planes; as bytes, pixels are neighbours
        (2, (8, 12), 32, (False, False)),  # the next image comes after all planes
        (1, (7, 7), 32, (True, True)),  # planes that are no whole words are packed before
        (2, (7, 7), 17, (True, False)),
    ],
)
def test_planes_and_packed_pixels(
    path: str, batch: int, size: tuple[int, int], channels: int, expected: tuple[bool, bool]
) -> None:
    if path == "split_k":
        expected = batch == 1, expected[1]
    assert check_evenness(convolution(batch, channels, size, 40, (1, 1)), path) == expected


@pytest.mark.parametrize(
    ("channels", "kernel", "groups", "pixel_bytes", "pixel_channels", "run_words"),
    [
        (64, 3, 1, 0, 0, 4),  # a run is one tap, whose channels fill its vectors
        (21, 3, 1, 0, 21, 8),  # or leave a part of them empty
        (21, 1, 1, 0, 21, 8),
        (3, 3, 1, 4, 3, 3),  # a run is a row of three pixels of four bytes
        (5, 3, 1, 8, 5, 6),
        (16, 1, 1, 0, 0, 4),
        (260, 3, 2, 0, 130, 36),  # two groups
    ],
)
@pytest.mark.parametrize("layout", ["planes", "gaps"])
def test_bytes_of_a_run(
    channels: int, kernel: int, groups: int, pixel_bytes: int, pixel_channels: int, run_words: int, layout: str
) -> None:
    """What the kernel is told of them: without it, it would read the bytes between the channels and the run's end."""
    size = (9, 12)
    strides = (channels * 9 * 40, 9 * 40, 40, 3) if layout == "gaps" else (channels * 9 * 12, 9 * 12, 12, 1)
    desc = convolution(
        *(2, channels, size, 24 * groups, (kernel, kernel)),
        groups=groups,
        strides=(2, 1),
        padding=(kernel // 2, kernel // 2),
        input_strides=strides,
    )
    product, in_place = product_of(desc, "split_k")
    assert in_place and constant(product, "FETCH") == BYTES and product.windows[0].base_unit == 1
    assert [constant(product, name) for name in ("PIXEL_BYTES", "PIXEL_CHANNELS", "RUN_WORDS")] == [
        *(pixel_bytes, pixel_channels, run_words)
    ]
    runs = kernel if pixel_bytes else kernel * kernel
    assert (constant(product, "RUNS_W"), constant(product, "TAPS")) == (1 if pixel_bytes else kernel, runs)
    vectors = -(-run_words // 4) if pixel_bytes else -(-channels // groups // 16)
    assert (size_of(product, "RUN"), size_of(product, "VECTORS_OF_K")) == (vectors, runs * vectors)
    assert [size_of(product, f"INPUT_STRIDE_{letter}") for letter in "NHW"] == [strides[0], 2 * strides[2], strides[3]]
    assert size_of(product, "CHANNEL_STRIDE") == strides[1]
    if kernel > 1:
        assert [size_of(product, f"TAP_STRIDE_{letter}") for letter in "HW"] == list(strides[2:])
    assert size_of(product, "INPUT_STRIDE_GROUP") == channels // groups * strides[1]


GAPS = st.sampled_from([0, 0, 4, 16])


@given(
    path=st.sampled_from(READERS),
    batch=st.integers(1, 3),
    size=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    channels=st.sampled_from([16, 20, 21]),
    kernel=st.sampled_from([(1, 1), (1, 3), (2, 1)]),
    strides=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    input_gaps=st.tuples(GAPS, GAPS, GAPS),
    output_gaps=st.tuples(GAPS, GAPS, GAPS),
    is_last=st.booleans(),
)
def test_evenness_is_never_wrong(
    path: str,
    batch: int,
    size: tuple[int, int],
    channels: int,
    kernel: tuple[int, int],
    strides: tuple[int, int],
    input_gaps: Sequence[int],
    output_gaps: Sequence[int],
    is_last: bool,
) -> None:
    inside = (size[0] + kernel[0] - 1, size[1] + kernel[1] - 1)
    outputs = tuple((length - 1) // step + 1 for length, step in zip(size, strides, strict=True))
    names = ("pixel", "row", "image")
    desc = convolution(
        *(batch, channels, inside, 24, kernel),
        strides=strides,
        input_strides=last(channels, inside, **dict(zip(names, input_gaps, strict=True))) if is_last else None,
        output_strides=last(24, (outputs[0], outputs[1]), **dict(zip(names, output_gaps, strict=True)))
        if is_last
        else None,
    )
    check_evenness(desc, path)
