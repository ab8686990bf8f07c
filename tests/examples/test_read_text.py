"""The parts of the example that reads a photograph which need no network. tests/models runs the whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from examples import read_text
from examples.read_text import Line, Reader


def test_other_words_are_noticed() -> None:
    def lines(texts: list[str]) -> list[Line]:
        return [Line(np.zeros((4, 2)), text) for text in texts]

    assert read_text.share_read(lines(read_text.PRINTED)) == 1
    assert read_text.share_read(lines(read_text.PRINTED[:-1])) < 0.95
    assert read_text.share_read(lines([text[::-1] for text in read_text.PRINTED])) < read_text.LEAST_SHARE
    assert read_text.share_read(lines([*read_text.PRINTED, "something else that nobody wrote"])) < 0.95


def test_lines_are_found_where_they_are() -> None:
    """Two lines, one of them turned by 3 degrees, and a speck."""
    probabilities = np.zeros((120, 200), np.float32)
    probabilities[10:20, 0:200] = 0.9
    x = np.arange(20, 180)
    for offset in range(8):
        probabilities[np.rint(60 + offset + np.tan(np.deg2rad(3)) * x).astype(int), x] = 0.8
    probabilities[100:102, 100:102] = 1
    flat, turned = read_text.lines_of(probabilities)
    margin = read_text.MARGIN
    np.testing.assert_allclose(flat[0], [-9 * margin + 0.5, 10.5 - 9 * margin], atol=0.2)
    along = turned[3] - turned[0]
    assert np.rad2deg(np.arctan2(along[1], along[0])) == pytest.approx(3, abs=0.2)


def test_a_line_on_its_head_is_turned_and_columns_are_characters() -> None:
    """Networks that are functions of what they see: the direction says which end is bright."""

    def detection(planes: np.ndarray) -> np.ndarray:
        found = np.zeros((1, 1, *planes.shape[2:]), np.float32)
        found[:, :, 20:30, 16:112] = 0.9
        return found

    def direction(planes: np.ndarray) -> np.ndarray:
        turned = (planes[..., 100:].mean(axis=(1, 2, 3)) > planes[..., :90].mean(axis=(1, 2, 3))).astype(np.float32)
        return np.stack([1 - turned, turned], axis=1)

    seen = []

    def recognition(planes: np.ndarray) -> np.ndarray:
        seen.append(planes)
        return np.eye(4, dtype=np.float32)[[[0, 1, 1, 0, 1, 2, 2, 3, 0]]]

    pixels = np.zeros((64, 128, 3), np.uint8)
    pixels[:, 64:] = 255
    (line,) = Reader(detection, direction, recognition, ["", "a", "b", " "])(Image.fromarray(pixels))
    assert line.text == "aab"
    (planes,) = seen
    width = planes.shape[3]
    assert planes[..., : width // 4].mean() > 0.9 and planes[..., width // 2 : 3 * width // 4].mean() < -0.9


def test_missing_networks_are_named(tmp_path: Path) -> None:
    result = CliRunner().invoke(read_text.main, ["--models", str(tmp_path)])
    assert result.exit_code == 1
    assert "page.png" in result.output and "python -m tools.models" in result.output
