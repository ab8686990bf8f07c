"""Scales, zero points and bytes for tests of quantized element-wise operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from dmlvk import DataType, TensorDesc

BYTE_TYPES = (np.uint8, np.int8)
# Sets of three scales that a network does not have, and that must still give what the reference says.
ODD_SCALES = (
    (0, 1, 1),
    (1, 0, 1),
    (1, 1, 0),
    (0, 1, 0),
    (np.inf, 1, 1),
    (1, 1, np.inf),
    (np.inf, 1, np.inf),
    (np.nan, 1, 1),
    (1, 1, np.nan),
    (1e-45, 1e-45, 1e-45),
    (1e-45, 1, 1e-40),
    (-1, 0.5, 0.25),
    (0.5, 0.5, -0.25),
    (3e38, 3e38, 1),
    (1, 1, 1e-38),
    (1e9, 1, 1),
    (2e7, -2e7, 1),
    (1e-20, 1e-20, 1e20),
)


def float32(values: Any) -> np.ndarray:
    return np.asarray(values, np.float32)


def random_scales(random: np.random.Generator, kind: int) -> np.ndarray:
    """Three scales. 0: eighths of the third, so that many sums are ties; 1: near each other; 2: any; 3: odd."""
    if kind == 0:
        return (np.append(random.integers(1, 25, 2), 8) * random.uniform(0.001, 1)).astype(np.float32)
    if kind == 1:
        return np.exp2(random.uniform(-4, 4, 3)).astype(np.float32)
    if kind == 2:
        return np.exp2(random.uniform(-148, 127, 3)).astype(np.float32)
    return np.array(ODD_SCALES[random.integers(len(ODD_SCALES))], np.float32)


def random_bytes_of(random: np.random.Generator, shape: Any, dtype: Any) -> np.ndarray:
    """Any bytes, as numbers of a type."""
    return random.integers(0, 256, shape, np.uint8).view(dtype)


def floats_near(random: np.random.Generator, scale: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Floats that lie on integer multiples of a scale, between two of them, or next to that; and what is no number."""
    with np.errstate(all="ignore"):
        value = (random.integers(-1300, 1300, shape) / 4 * scale).astype(np.float32)
        beside = np.nextafter(value, random.choice(np.array([-np.inf, np.inf], np.float32), shape))
    value = np.where(random.random(shape) < 0.4, beside, value)
    extreme = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-45, -1e-40, 3.4e38, -3.4e38], np.float32)
    return np.where(random.random(shape) < 0.1, random.choice(extreme, shape), value)


def desc_of(array: np.ndarray) -> TensorDesc:
    """A packed tensor for an array."""
    return TensorDesc(DataType.from_numpy(array.dtype), array.shape or (1,))
