"""The kernel of few registers with the matrices of Intel's GPUs, on a CPU.

Lavapipe lists matrices of 8 x 8 x 8 alone, but its compiler takes other sizes too. That shows whether the kernel is
right for 8 x 16 x 32, whose rows and columns differ: no other device at hand has such. `make test-matrices` runs this
on lavapipe of Mesa 26.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

import dmlvk
from dmlvk.conformance.profiles import narrow
from dmlvk.planning.kernel_interface import kernel_interface
from dmlvk.planning.quantized_linear_convolution import matrix as matrix_paths
from dmlvk.planning.quantized_linear_convolution.tiled_product import KERNEL_OF_FEW_REGISTERS, Tile
from dmlvk.vulkan import device as vulkan_device
from tests import profiles
from tests.kernels.quantized_linear_convolution.arrays import PLAIN, describe, quantized
from tests.kernels.quantized_linear_convolution.paths import run
from tests.kernels.quantized_linear_convolution.test_forms_for_gpus import channels_last

PLANES = 2  # of the kernel's ways to read the input


@pytest.fixture(params=["intel-dg2", "intel-bmg"])
def gpu(
    device: dmlvk.Device, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dmlvk.Device]:
    """The device with the matrices and the tiles of one of Intel's GPUs."""
    own = [entry for entry in device.profile.cooperative_matrices if entry.a_type == "sint8"]
    assert own and device.name.startswith("llvmpipe"), "needs the lavapipe of Mesa 26: make test-matrices fetches it"
    intel = profiles.load(request.param)
    matrix = matrix_paths.matrix_of(intel)
    assert matrix is not None
    own_tiles = matrix_paths._gpu_tiles

    def tiles(profile: object, channels: bool) -> list[Tile]:
        return own_tiles(intel, channels)

    def claimed(profile: object, of_device: object) -> object:
        return profile

    monkeypatch.setattr(matrix_paths, "_gpu_tiles", tiles)
    monkeypatch.setattr(vulkan_device, "narrower", claimed)
    sizes = replace(own[0], m=matrix.m, n=matrix.n, k=matrix.k)
    profile = replace(narrow(device.profile, "few-registers"), cooperative_matrices=(sizes,))
    with dmlvk.Device(device.name, profile=profile) as opened:
        yield opened


@pytest.mark.parametrize("last", [False, True], ids=["NCHW", "NHWC"])
@pytest.mark.parametrize(
    ("channels", "filters", "size", "taps"),
    [(64, 64, 16, 1), (96, 72, 9, 3), (256, 32, 16, 1)],
    ids=["whole matrices", "strips", "many steps"],
)
def test_matrices_of_intel(gpu: dmlvk.Device, channels: int, filters: int, size: int, taps: int, last: bool) -> None:
    generator = np.random.default_rng(channels)
    arrays = quantized(
        generator.integers(0, 256, (2, channels, size, size)).astype(np.uint8),
        generator.integers(-128, 128, (filters, channels, taps, taps)).astype(np.int8),
        input_zero_point_tensor=np.array([17], np.uint8),
        filter_zero_point_tensor=generator.integers(-9, 9, filters).astype(np.int8),
        filter_scale_tensor=generator.uniform(0.5, 2, (1, filters, 1, 1)).astype(np.float32),
        bias_tensor=generator.integers(-9999, 9999, (1, filters, 1, 1)).astype(np.int32),
        output_scale_tensor=np.array([10.0 * channels * taps], np.float32),
    )
    padding = (taps // 2, taps // 2)
    desc = describe(arrays, np.uint8, {**PLAIN, "start_padding": padding, "end_padding": padding})
    if last:
        desc = replace(
            desc, input_tensor=channels_last(desc.input_tensor), output_tensor=channels_last(desc.output_tensor)
        )
    expected = dmlvk.reference.run(desc, **arrays)
    assert len(np.unique(expected)) > 200
    (product,) = (each for each in gpu.plan(desc, "matrix").dispatches if each.kernel == KERNEL_OF_FEW_REGISTERS)
    names = kernel_interface(product.kernel).specialization_constants
    reads_planes = product.specialization[names.index("FETCH")] == PLANES
    assert reads_planes == (not last and taps == 1)
    assert product.specialization[names.index("STORE_MATRICES")] == int(size == 16)
    run(gpu, desc, arrays, expected, "matrix")
