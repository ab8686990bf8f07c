"""Layers and layouts on every path that a device has, against the reference."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dmlvk
from dmlvk import TensorDesc
from dmlvk.conformance.recorded import NAMES, load
from dmlvk.planning import plan
from dmlvk.planning.quantized_linear_convolution.choice import PATH_NAMES
from tests.amount import THOROUGH
from tests.convolution_cases import TYPES, random_case
from tests.kernels.quantized_linear_convolution.arrays import PLAIN, describe, quantized, special_case
from tests.kernels.quantized_linear_convolution.paths import MADE_FOR_SOME, PATHS, paths_of, run, takes
from tests.layouts import random_bytes

# First layers: channels, filters, attributes. One needs more shared memory than some devices have.
FIRST_LAYERS: list[tuple[int, int, dict[str, Any]]] = [
    (3, 20, {"kernel": (7, 7), "strides": (2, 2), "start_padding": (3, 3), "end_padding": (3, 3)}),
    (4, 5, {"kernel": (2, 9), "strides": (3, 3)}),
]


def test_every_path_is_named_here() -> None:
    assert sorted((*PATHS, *MADE_FOR_SOME)) == sorted(PATH_NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_forced_path_is_taken_or_says_its_obstacle_on_recorded_devices(name: str) -> None:
    """The convolutions on which tests here force each path of a device, on devices that are not at hand."""
    profile = load(name)
    recorded: Any = SimpleNamespace(profile=profile, plan=lambda desc, path: plan(desc, profile, path=path))
    cases = [random_case(5, "u8", "s8")]  # groups
    cases += [special_case(1, "u8", 1, channels, filters, (17, 45), **rest) for channels, filters, rest in FIRST_LAYERS]
    taken = set()
    for arrays, attributes in cases:
        desc = describe(arrays, np.int8, attributes)
        for path in paths_of(recorded):
            if takes(recorded, desc, path):
                assert plan(desc, profile, path=path).path == path
                taken.add(path)
    assert taken >= set(paths_of(recorded)) - {"depthwise", "halo"}, "each is tested where it runs"


@pytest.mark.every_driver(x_type=["u8"])
@pytest.mark.half_by_day
@pytest.mark.parametrize("x_type", list(TYPES))
@pytest.mark.parametrize("w_type", list(TYPES)[::-1])
def test_depthwise_and_wide_layers_on_every_path(device: dmlvk.Device, x_type: str, w_type: str) -> None:
    generator = np.random.default_rng(2)

    def data(kind: str, shape: tuple[int, ...]) -> np.ndarray:
        return np.frombuffer(generator.bytes(int(np.prod(shape))), TYPES[kind]).reshape(shape)

    layers = ((24, 24, 24), (1, 40, 36), (2, 18, 130), (1, 3, 20))
    # By day each layer has one pair of types.
    for groups, channels, filters in layers if THOROUGH else layers[[*TYPES].index(x_type) % 2 :: 2]:
        arrays = quantized(
            data(x_type, (2, channels, 11, 9)),
            data(w_type, (filters, channels // groups, 3, 3)),
            input_zero_point_tensor=data(x_type, (1,)),
            filter_zero_point_tensor=data(w_type, (filters,)),
            output_scale_tensor=np.array([2.0**8 * channels / groups], np.float32),
        )
        attributes = {**PLAIN, "strides": (2, 1), "start_padding": (1, 1), "end_padding": (1, 1), "group_count": groups}
        desc = describe(arrays, np.int8, attributes)
        run(device, desc, arrays, dmlvk.reference.run(desc, **arrays), None, groups)


@pytest.mark.every_driver(stride=[2])
@pytest.mark.half_by_day
@pytest.mark.parametrize("x_type", TYPES)
@pytest.mark.parametrize(
    ("channels", "filters", "kernel", "stride", "padding", "groups"),
    [(32, 40, 3, 1, 1, 1), (32, 40, 3, 2, 1, 1), (64, 33, 1, 2, 0, 1), (32, 48, 3, 1, 0, 2), (3, 20, 7, 2, 3, 1)],
)
def test_channels_last_on_every_path(
    device: dmlvk.Device,
    channels: int,
    filters: int,
    kernel: int,
    stride: int,
    padding: int,
    groups: int,
    x_type: str,
) -> None:
    """Whole vectors of channels side by side, which a kernel may read in place, and rows of few channels."""
    generator = np.random.default_rng(channels)
    kind, size = TYPES[x_type], 11
    arrays = quantized(
        np.frombuffer(generator.bytes(2 * channels * size * size), kind).reshape(2, channels, size, size),
        generator.integers(-128, 128, (filters, channels // groups, kernel, kernel)).astype(np.int8),
        input_zero_point_tensor=np.array([17], kind),
        filter_zero_point_tensor=generator.integers(-9, 9, filters).astype(np.int8),
        output_scale_tensor=np.array([2.0**7 * channels * kernel / groups], np.float32),
    )
    attributes = {
        **PLAIN,
        "strides": (stride, stride),
        "start_padding": (padding, padding),
        "end_padding": (padding, padding),
        "group_count": groups,
    }
    desc = describe(arrays, np.uint8, attributes)
    last: dict[str, Any] = {
        name: TensorDesc(tensor.data_type, tensor.sizes, [s[1] * s[2] * s[3], 1, s[3] * s[1], s[1]])
        for name, tensor in desc.tensors.items()
        if name in ("input_tensor", "output_tensor")
        for s in [tensor.sizes]
    }
    expected = dmlvk.reference.run(desc, **arrays)
    run(device, replace(desc, **last), arrays, expected, None)


def test_per_channel_tensors_may_be_broadcast_views(device: dmlvk.Device) -> None:
    """Sizes {1, C, 1, 1} with all strides 0: one element in memory for every channel."""
    arrays = quantized(
        np.frombuffer(random_bytes(1, 2 * 8 * 49).tobytes(), np.uint8).reshape(2, 8, 7, 7),
        np.frombuffer(random_bytes(2, 6 * 8 * 9).tobytes(), np.int8).reshape(6, 8, 3, 3),
        filter_scale_tensor=np.full((1, 6, 1, 1), 2.0**-9, np.float32),
        filter_zero_point_tensor=np.full((1, 6, 1, 1), -5, np.int8),
        bias_tensor=np.full((1, 6, 1, 1), 777, np.int32),
    )
    desc = describe(arrays, np.uint8, PLAIN)
    names = ("filter_scale_tensor", "filter_zero_point_tensor", "bias_tensor")
    views: dict[str, Any] = {
        name: TensorDesc(desc.tensors[name].data_type, (1, 6, 1, 1), (0, 0, 0, 0)) for name in names
    }
    run(device, replace(desc, **views), arrays, dmlvk.reference.run(desc, **arrays), None)
