"""The committed network of digits on the test drivers: its answers, its values, its pictures, and the programs."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

import dmlvk
import dmlvk.demo
from dmlvk.command_line import main
from dmlvk.demo import Reading, draw_digits
from dmlvk.demo.digits import NETWORK, network, read_digits, unseen_pictures
from dmlvk.demo.grid import BELOW, HEADING, SIDE
from dmlvk.demo.palette import DARK, LIGHT, Palette
from dmlvk.onnx import Row
from dmlvk.onnx.checking import Finding
from examples.digits import recognize
from tests.programs import python
from tests.reference.onnx_runtime import ONNX_RUNTIME

ROOT = Path(__file__).parents[2]
README = (ROOT / "examples" / "digits" / "README.md").read_text(encoding="utf-8")
WIDTH = 1108
# Without the operators' panels, which take longer than the network.
DEMO = """
import sys
import dmlvk.demo
from dmlvk.command_line import main
dmlvk.demo.all_panels = lambda photo: {}
main(["demo", *sys.argv[1:]])
"""


def program(device: dmlvk.Device, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own, which has ONNX Runtime."""
    return python(*arguments, env={**os.environ, "DMLVK_DEVICE": device.profile.name}, timeout=120)


def _read(device: str) -> Reading:
    with dmlvk.Device(device) as opened:
        return read_digits(opened)


def promised() -> tuple[int, int]:
    """The right answers and all, as the example's README says."""
    right, total = re.findall(r"(\d+) of (\d+)", README)[0]
    return int(right), int(total)


def test_the_network_reads_and_has_the_values_of_onnx_runtime(device: dmlvk.Device) -> None:
    reading: Reading = ONNX_RUNTIME.call("the network of digits", _read, device.name)
    right, total = promised()
    assert reading.accuracy.total == total == len(reading.labels)
    assert reading.accuracy.right >= right
    assert len(reading.values) == 9 and not reading.different
    rows = re.findall(r"^\| (\w+) \| (\w+)[^|]*\|[^|]*\| (\w+)", README, re.MULTILINE)[1:]
    assert rows == [(row.name, row.op_type, row.where) for row in reading.placement]
    assert {row.where for row in reading.placement} == {"device", "view"}, "it is one part from end to end"


def test_the_files_are_small() -> None:
    assert len(network()) < 100_000
    pictures, labels = unseen_pictures()
    assert pictures.shape == (597, 8, 8) and pictures.dtype == np.uint8 and pictures.max() == 16
    assert labels.shape == (597,) and set(labels) == set(range(10))
    assert (ROOT / "dmlvk" / "demo" / NETWORK).read_bytes() == network()


def test_the_readmes_program_runs(device: dmlvk.Device) -> None:
    (block,) = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    done = program(device, "-c", block)
    assert done.returncode == 0, done.stderr
    right, total = promised()
    assert float(done.stdout) >= right / total


def test_the_program_prints_a_table_and_draws(device: dmlvk.Device, tmp_path: Path) -> None:
    done = program(device, "-m", "examples.digits.recognize", "--output", str(tmp_path / "digits.png"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("equal") == 9 and "DIFFERS" not in done.stdout
    right, total = promised()
    assert f"{right} of {total}" in done.stdout
    with Image.open(tmp_path / "digits.png") as picture:
        assert picture.format == "PNG" and picture.width == recognize.WIDTH


def test_the_demo_reads_digits(device: dmlvk.Device, tmp_path: Path) -> None:
    """Its picture has a dark form, with every colour of its own palette."""
    done = program(device, "-c", DEMO, "--dark", "--output", str(tmp_path / "sheet.png"))
    assert done.returncode == 0, done.stderr
    right, total = promised()
    assert f"Network: {right} of {total}" in done.stdout
    assert "9 of 9 values equal ONNX Runtime's" in done.stdout
    with Image.open(tmp_path / "sheet.png") as sheet:
        colours = [colour for _, colour in sheet.convert("RGB").getcolors(1 << 24) or []]
    assert {_components(colour) for colour in asdict(DARK).values()} <= set(colours)
    assert _components(LIGHT.paper) not in colours


@pytest.mark.parametrize("palette", [LIGHT, DARK])
def test_letters_can_be_read_on_their_paper(palette: Palette) -> None:
    paper = _luminance(palette.paper)
    for colour in (palette.ink, palette.faint, palette.right, palette.wrong):
        darker, lighter = sorted((paper, _luminance(colour)))
        assert (lighter + 0.05) / (darker + 0.05) >= 4.5  # what WCAG asks of text of ordinary size


def _luminance(colour: str) -> float:
    parts = [
        value / 255 / 12.92 if value <= 10 else ((value / 255 + 0.055) / 1.055) ** 2.4 for value in _components(colour)
    ]
    return float(np.dot(parts, (0.2126, 0.7152, 0.0722)))


def _components(colour: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(colour[1:]))


def reading_of(answers: np.ndarray, equal: bool = True) -> Reading:
    pictures, labels = unseen_pictures()
    values = [Finding("classes", True), Finding("probabilities", equal, "" if equal else "probabilities[0] is 1")]
    return Reading(pictures, labels, answers, [Row("classes", "QGemm", "device", "")], values)


def test_without_onnx_runtime_the_demo_goes_on(
    device: dmlvk.Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests' own process has no ONNX Runtime."""
    monkeypatch.setattr(dmlvk.demo, "all_panels", lambda photo: {})
    output = tmp_path / "sheet.png"
    done = CliRunner().invoke(main, ["demo", "--output", str(output), "--device", device.profile.name])
    assert done.exit_code == 0, done.output
    message = "Network: not run: it needs the packages onnx and onnxruntime: pip install 'dmlvk[onnx]'"
    assert message in " ".join(done.output.split())
    assert output.exists()
    done = CliRunner().invoke(recognize.main, ["--output", str(tmp_path / "digits.png")])
    assert done.exit_code == 1 and "pip install 'dmlvk[onnx]'" in done.output
    assert not (tmp_path / "digits.png").exists()


def test_values_that_differ_are_named(device: dmlvk.Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, labels = unseen_pictures()
    for module in (dmlvk.demo, recognize):
        monkeypatch.setattr(module, "read_digits", lambda device: reading_of(labels, equal=False))
        monkeypatch.setattr(module, "missing_package", lambda: "")
    monkeypatch.setattr(recognize, "table", lambda reading, name: "table")
    monkeypatch.setattr(dmlvk.demo, "all_panels", lambda photo: {})
    for command, arguments in ((main, ["demo"]), (recognize.main, [])):
        output = tmp_path / "picture.png"
        done = CliRunner().invoke(command, [*arguments, "--output", str(output), "--device", device.profile.name])
        assert done.exit_code == 1
        assert "from ONNX Runtime's: probabilities[0] is 1" in done.output
        output.unlink()  # drawn all the same


def test_the_picture_of_a_reading() -> None:
    """A digit's ink is where it belongs, wrong answers are all there, and nothing leaves the picture."""
    pictures, labels = unseen_pictures()
    perfect = draw_digits(reading_of(labels), WIDTH)
    assert _components(LIGHT.wrong) not in [colour for _, colour in perfect.getcolors(1 << 24) or []]
    answers = labels.copy()
    wrong = np.arange(100, 600, 25)
    answers[wrong] = (labels[wrong] + 1) % 10
    picture = draw_digits(reading_of(answers), WIDTH)
    assert picture.width == WIDTH
    rows = -(-len(wrong) // 14)
    assert picture.height - perfect.height == HEADING + rows * (SIDE + BELOW)
    # The last wrong picture: its place, and eight pixels a side for each of the data's.
    grey = np.asarray(picture.convert("L")).astype(int)
    column = (len(wrong) - 1) % 14
    x, y = column * (WIDTH - SIDE) // 13, picture.height - SIDE - BELOW
    drawn = grey[y : y + SIDE : 8, x : x + SIDE : 8]
    assert np.corrcoef(drawn.ravel(), pictures[wrong[-1]].ravel())[0, 1] < -0.999
    margin = np.asarray(picture)[-4:].reshape(-1, 3)
    assert (margin == margin[0]).all()


def test_few_pictures_and_a_narrow_picture() -> None:
    pictures, labels = unseen_pictures()
    reading = replace(reading_of(labels), pictures=pictures[:3], labels=labels[:3], answers=labels[:3])
    assert draw_digits(reading, WIDTH).height < draw_digits(reading_of(labels), WIDTH).height
    assert draw_digits(reading, SIDE).width == SIDE
