"""K cut over workgroups: where, into how many parts, and the memory of their sums."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dmlvk.planning.plan import CLEAN, Access, PathError
from dmlvk.planning.quantized_linear_convolution.choice import plan_quantized_linear_convolution as plan
from dmlvk.planning.quantized_linear_convolution.matrix_tiles import MANY_STEPS, parts_of
from tests import profiles
from tests.planning.limits import check_plan
from tests.planning.quantized_linear_convolution.descriptors import DESCRIPTORS, convolution
from tests.planning.quantized_linear_convolution.matrix_devices import MATRIX_DEVICES, push_constant


@pytest.mark.parametrize(
    ("batch", "channels", "size", "filters", "kernel", "is_cut"),
    [
        (1, 512, 7, 512, 3, True),
        (1, 2048, 7, 512, 1, True),
        (1, 64, 56, 64, 3, False),  # few steps
        (1, 256, 14, 1024, 1, False),
        (64, 512, 7, 512, 3, False),  # many tiles
    ],
)
def test_k_is_cut_where_tiles_are_few_and_steps_many(
    batch: int, channels: int, size: int, filters: int, kernel: int, is_cut: bool
) -> None:
    desc = convolution(batch, channels, (size, size), filters, (kernel, kernel), padding=(kernel // 2, kernel // 2))
    found = plan(desc, profiles.load("nvidia-h200"))
    (product,) = found.stages[-1]
    parts = push_constant(product, "parts")
    assert (parts > 1) == is_cut == (found.clean_size > 0)
    assert product.groups[2] == parts
    sums = [window for window in product.windows if window.tensor == CLEAN]
    assert all(window.access is Access.WRITE and window.size <= found.clean_size for window in sums)
    assert len(sums) == is_cut


def test_no_part_is_without_a_step() -> None:
    for steps in range(1, 300):
        for tiles in (1, 7, 28, 100, 400):
            parts = parts_of(steps, tiles)
            assert 1 <= parts <= steps and (parts == 1 or steps >= MANY_STEPS)
            assert -(-steps // -(-steps // parts)) == parts


@pytest.mark.parametrize("device", MATRIX_DEVICES)
@pytest.mark.parametrize("parts", [1, 3, 9999])
def test_any_number_of_parts_may_be_forced(device: str, parts: int) -> None:
    profile, desc = profiles.load(device), DESCRIPTORS["ResNet, 512 channels"]
    found = plan(desc, profile, path=f"matrix/{parts}")
    check_plan(found, desc, profile)
    assert found.path == f"matrix/{parts}"
    products = [each for each in found.dispatches if each.kernel.endswith(("/matrix", "/matrix_few_registers"))]
    assert {push_constant(each, "parts") for each in products} == {parts}


def test_sums_that_no_window_shows_are_not_cut() -> None:
    desc = convolution(2, 512, (7, 7), 512, (3, 3), padding=(1, 1))
    rich = profiles.load("nvidia-h200")
    small = replace(rich, limits=replace(rich.limits, max_storage_buffer_range=1 << 19))
    assert plan(desc, rich).clean_size > 0
    assert plan(desc, small).clean_size == 0
    large = convolution(64, 64, (112, 112), 64, (3, 3), padding=(1, 1))
    with pytest.raises(PathError, match="bytes of the sums of parts of K = "):
        plan(large, small, path="matrix/2")


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("matrix/0", "after a slash, the parts of K are 1 to 9999"),
        ("matrix/", "after a slash, the parts of K are 1 to 9999"),
        ("matrix/12345", "after a slash, the parts of K are 1 to 9999"),
        ("direct/2", "path 'direct' does not cut K"),
        ("matrix:128x128x64:64x64*4/2", "a workgroup of several tiles has the whole K of each"),
    ],
)
def test_parts_that_there_cannot_be(path: str, reason: str) -> None:
    with pytest.raises(PathError, match=reason):
        plan(DESCRIPTORS["ResNet, 512 channels"], profiles.load("nvidia-h200"), path=path)
