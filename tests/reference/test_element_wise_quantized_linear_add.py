"""ELEMENT_WISE_QUANTIZED_LINEAR_ADD's reference against ONNX Runtime's QLinearAdd, and its sums against fractions."""

from __future__ import annotations

import platform
import sys
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dmlvk.operators import ElementWiseQuantizedLinearAddDesc
from dmlvk.reference import run
from dmlvk.reference.element_wise_quantized_linear_add import fused
from tests.reference.onnx_runtime import run_node
from tests.reference.quantized import BYTE_TYPES, ODD_SCALES, desc_of, float32, random_bytes_of, random_scales

PAIRS = tuple(side.ravel().astype(np.uint8) for side in np.meshgrid(np.arange(256), np.arange(256), indexing="ij"))
# ONNX Runtime's own results depend on the processor and the compiler; the reference is what this one gives.
IS_LINUX_X86 = sys.platform == "linux" and platform.machine() in ("x86_64", "AMD64")


def add(a: np.ndarray, b: np.ndarray, scales: Any, zero_points: np.ndarray) -> np.ndarray:
    """A and B, whose type is that of the output."""
    arrays: dict[str, np.ndarray] = {"a_tensor": a, "b_tensor": b}
    for name, scale, zero_point in zip(("a", "b", "output"), float32(scales), zero_points, strict=True):
        arrays |= {f"{name}_scale_tensor": scale.reshape(1), f"{name}_zero_point_tensor": zero_point.reshape(1)}
    tensors: dict[str, Any] = {field: desc_of(array) for field, array in arrays.items()}
    return run(ElementWiseQuantizedLinearAddDesc(**tensors, output_tensor=desc_of(a)), **arrays)


def onnx_add(a: np.ndarray, b: np.ndarray, scales: Any, zero_points: np.ndarray) -> np.ndarray:
    (sa, sb, sy), (za, zb, zy) = float32(scales), zero_points
    arrays = [a, sa, za, b, sb, zb, sy, zy]
    return run_node("QLinearAdd", [np.asarray(array) for array in arrays], a.dtype, 17, domain="com.microsoft")


def check(dtype: Any, scales: Any, zero_points: np.ndarray) -> None:
    a, b = (side.view(dtype) for side in PAIRS)
    mine, theirs = add(a, b, scales, zero_points), onnx_add(a, b, scales, zero_points)
    assert mine.dtype == theirs.dtype
    if IS_LINUX_X86:
        np.testing.assert_array_equal(mine, theirs, err_msg=f"{scales} {zero_points}")
    elif np.isfinite(scales).all() and min(np.abs(scales)) > 1e-6 and max(np.abs(scales)) < 1e6:
        assert np.abs(mine.astype(int) - theirs).max() <= 1, (scales, zero_points)


@pytest.mark.parametrize("dtype", BYTE_TYPES)
@pytest.mark.parametrize("kind", [0, 1, 2])
def test_all_pairs_of_bytes_are_onnx_runtime_s(dtype: Any, kind: int) -> None:
    random = np.random.default_rng(kind)
    for _ in range(15):
        check(dtype, random_scales(random, kind), random_bytes_of(random, 3, dtype))


@pytest.mark.parametrize("dtype", BYTE_TYPES)
def test_odd_scales_are_onnx_runtime_s(dtype: Any) -> None:
    random = np.random.default_rng(3)
    for scales in ODD_SCALES:
        check(dtype, scales, random_bytes_of(random, 3, dtype))


def test_a_and_b_are_not_exchangeable() -> None:
    random = np.random.default_rng(4)
    (a, b), exchanged = PAIRS, [1, 0, 2]
    differing = 0
    for _ in range(20):
        scales, zero_points = random_scales(random, 0), random_bytes_of(random, 3, np.uint8)
        other = add(b, a, scales[exchanged], zero_points[exchanged])
        differing += int(np.count_nonzero(add(a, b, scales, zero_points) != other))
    assert differing > 0


def test_an_absent_zero_point_is_0() -> None:
    a, b = PAIRS
    scales = {f"{name}_scale_tensor": float32([value]) for name, value in (("a", 0.5), ("b", 0.3), ("output", 0.7))}
    arrays = {"a_tensor": a, "b_tensor": b, **scales}
    tensors: dict[str, Any] = {field: desc_of(array) for field, array in arrays.items()}
    output = run(ElementWiseQuantizedLinearAddDesc(**tensors, output_tensor=desc_of(a)), **arrays)
    np.testing.assert_array_equal(output, add(a, b, (0.5, 0.3, 0.7), np.zeros(3, np.uint8)))


def test_a_fused_sum_is_rounded_once() -> None:
    """Sums whose two parts lie any distance apart, and which lie at or next to the middle of two float32."""
    random = np.random.default_rng(5)
    count = 3000
    a = random.integers(-255, 256, count).astype(np.float32)
    r = np.exp2(random.uniform(-20, 20, count)).astype(np.float32)
    c = (np.exp2(random.uniform(-60, 30, count)) * random.choice([-1, 1], count)).astype(np.float32)
    # As far below the product's last bit as can be, on either side of a tie.
    ties = slice(0, 1000)
    r[ties] = (random.integers(1 << 23, 1 << 24, 1000) | 1).astype(np.float32)
    a[ties] = 1.5
    c[ties] = random.choice(float32([0, 1e-30, -1e-30, 2**-31]), 1000)
    for x, y, z, sum_ in zip(a, r, c, fused(a, r, c), strict=True):
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        down, up = sorted(float32([np.nextafter(sum_, -np.inf), np.nextafter(sum_, np.inf)]).tolist())
        distance = abs(Fraction(float(sum_)) - exact)
        for other in (down, up):
            further = abs(Fraction(other) - exact)
            is_even = int(np.float32(sum_).view(np.uint32)) & 1 == 0
            assert distance < further or (distance == further and is_even), (x, y, z)
