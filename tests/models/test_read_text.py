"""The example that reads a photograph, as a user runs it. `make test-models` fetches what it reads."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from examples import read_text
from tests.conftest import DEVICE_NAMES
from tools import models

ROOT = Path(read_text.__file__).parents[1]


def test_the_words_of_the_page_are_read(tmp_path: Path) -> None:
    """On one driver: each network has its bits on all of them, and SwiftShader takes a quarter of an hour."""
    if models.missing():
        pytest.fail(f"make test-models, or {models.how()}", pytrace=False)
    sheet = tmp_path / "words.png"
    options = ["--device", DEVICE_NAMES[0], "--pages", "3", "--frames", "1", "--output", str(sheet)]
    command = [sys.executable, "-m", "examples.read_text", *options]
    finished = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=dict(os.environ), timeout=900)
    assert finished.returncode == 0, finished.stderr
    said = finished.stdout
    assert "  Region-based segmentation\n" in said
    for name in models.NETWORKS:
        on_device, nodes = map(int, re.findall(rf"^{name}: (\d+) of (\d+) nodes", said, re.MULTILINE)[0])
        assert 0.85 * nodes < on_device <= nodes
    assert re.search(
        r"^Frames a second: [\d.]+ by dmlvk on .*, [\d.]+ by ONNX Runtime on the CPU\n", said, re.MULTILINE
    )
    assert finished.stderr == ""
    assert "This device is a driver on the CPU" in said
    with Image.open(sheet) as image:
        above, below = np.split(np.asarray(image.convert("RGB")), 2)
        assert above.shape == (382, 768, 3)
        box, ink = (np.array(colour) for colour in (read_text.BOX, read_text.INK))
        assert (above == box).all(axis=2).sum() > 7 * 500
        assert (below == ink).all(axis=2).sum() > 1000
