"""BYTE_RESAMPLE's reference against its page, one element at a time, and against fractions where nothing rounds."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dmlvk import DataType, TensorDesc
from dmlvk.conformance.cases.byte_resample import COORDINATES, RESULTS, coordinates_of, thresholds_of
from dmlvk.operators import ByteResampleDesc
from dmlvk.reference import run

F = np.float32


def taps(coordinate: np.float32, size: int) -> list[tuple[int, np.float32]]:
    """Both elements of a coordinate along a dimension, with their weights."""
    place = float(coordinate)
    if np.signbit(coordinate) or place < 2.0**-30:
        place = 0.0
    elif not place < size - 1:  # a NaN lies beyond
        place = float(size - 1)
    i = int(place)
    return [(i, F(0.5))] * 2 if i == size - 1 else [(i, F(i + 1) - F(place)), (i + 1, F(place) - F(i))]


def by_the_page(plane: np.ndarray, y: np.float32, x: np.float32, scale: float, zero: int) -> np.float32:
    total = None
    for row, of_row in taps(y, plane.shape[0]):
        for column, of_column in taps(x, plane.shape[1]):
            term = F(of_row * of_column) * F(F(scale) * F(int(plane[row, column]) - zero))
            total = term if total is None else F(total + term)
    assert total is not None
    return total


def described(x: np.ndarray, rows: int, columns: int, scale: float, zero: int) -> ByteResampleDesc:
    return ByteResampleDesc(
        input_tensor=TensorDesc(DataType.from_numpy(x.dtype), x.shape),
        coordinate_tensor=TensorDesc(DataType.FLOAT32, (rows + columns,)),
        threshold_tensor=TensorDesc(DataType.FLOAT32, (255,)),
        output_tensor=TensorDesc(DataType.INT8, (*x.shape[:2], rows, columns)),
        input_scale=scale,
        input_zero_point=zero,
    )


@pytest.mark.parametrize("result", [kind for kind in RESULTS if kind != "falling"])
@pytest.mark.parametrize("coordinates", COORDINATES)
def test_elements_are_those_of_the_page(coordinates: str, result: str) -> None:
    random = np.random.default_rng(len(coordinates) + 100 * len(result))
    scale = 1.0 if result == "integers" else 0.0437
    for _ in range(20):
        x = random.integers(0, 256, (1, 1, *random.integers(1, 6, 2)), np.uint8)
        rows, columns = (int(length) for length in random.integers(1, 9, 2))
        ys, xs = (coordinates_of(coordinates, *pair, random) for pair in zip(x.shape[2:], (rows, columns), strict=True))
        thresholds = thresholds_of(result, scale, random)
        desc = described(x, rows, columns, scale, 128)
        given = np.concatenate([ys, xs]).astype(np.float32)
        found = run(desc, input_tensor=x, coordinate_tensor=given, threshold_tensor=thresholds)
        sums = [[by_the_page(x[0, 0], y, each, scale, 128) for each in xs] for y in ys]
        expected = [[int((thresholds <= total).sum()) - 128 for total in row] for row in sums]
        np.testing.assert_array_equal(found[0, 0], expected)


def test_powers_of_two_are_exact_integers() -> None:
    """Weights of quarters make no rounding: the whole number of a fraction."""
    x = np.random.default_rng(1).integers(0, 256, (1, 1, 6, 7), np.uint8)
    desc = described(x, 12, 14, 1.0, 0)
    half = [coordinates_of("half_pixel", size, 2 * size, np.random.default_rng()) for size in (6, 7)]
    integers = np.arange(1, 256, dtype=np.float32)
    found = run(desc, input_tensor=x, coordinate_tensor=np.concatenate(half), threshold_tensor=integers)
    for row in range(12):
        for column in range(14):
            exact = Fraction(0)
            for i, of_row in taps(half[0][row], 6):
                for j, of_column in taps(half[1][column], 7):
                    exact += Fraction(float(of_row)) * Fraction(float(of_column)) * int(x[0, 0, i, j])
            assert int(found[0, 0, row, column]) + 128 == int(exact)
