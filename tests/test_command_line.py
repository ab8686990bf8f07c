"""The command `dmlvk`: its output, its files and its exit status."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from PIL import Image

import dmlvk
import dmlvk.demo
from dmlvk import quirks, version
from dmlvk.command_line import main
from dmlvk.command_line.terminal import PlainConsole
from dmlvk.demo import measure, photograph
from dmlvk.demo.panels import quantized_linear_convolution_panels, slice1_panels
from dmlvk.demo.sheet import _places
from dmlvk.runtime.device_info import RejectedDevice
from tests.programs import python

ROOT = Path(__file__).parents[1]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def test_help_names_every_command() -> None:
    result = run("--help")
    assert result.exit_code == 0
    assert "devices" in result.output
    assert "demo" in result.output


def test_python_m_dmlvk_is_the_same_command() -> None:
    finished = subprocess.run([sys.executable, "-m", "dmlvk", "--help"], capture_output=True, text=True)
    assert finished.returncode == 0
    assert "devices" in finished.stdout


def test_devices_names_every_device(device: dmlvk.Device) -> None:
    result = run("devices")
    assert result.exit_code == 0
    shown = "".join(result.output.split())
    for info in dmlvk.devices():
        assert "".join(info.name.split())[:12] in shown
    for label in ("driver", "Vulkan version", "memory", "integer dot product", "subgroup size"):
        assert label in result.output


@pytest.mark.parametrize("width", [24, 200])
def test_devices_says_which_quirks_apply(device: dmlvk.Device, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A narrow terminal may break words, but shows all of them."""
    monkeypatch.setattr(sys.modules["dmlvk.command_line.devices"], "console", lambda: PlainConsole(width=width))
    result = run("devices")
    assert result.exit_code == 0
    shown = "".join(result.output.split())
    applying = quirks.of(device.profile)
    assert applying
    for quirk in applying:
        assert "".join(f"{quirk.name}: {quirk.effect}".split()) in shown
    others = {quirk.name for quirk in quirks.ALL} - {
        q.name for info in dmlvk.devices() for q in quirks.of(info.profile)
    }
    assert others
    assert not [name for name in others if name in shown]


def test_devices_as_json(device: dmlvk.Device) -> None:
    """With keys that programs may rely on, and no key that a reader of dmlvk's own records could not read back."""
    result = run("devices", "--json")
    assert result.exit_code == 0
    content = json.loads(result.output)
    assert list(content) == ["dmlvk", "devices", "rejected", "cache"]
    assert content["dmlvk"] == dmlvk.__version__ and content["rejected"] == []
    assert [entry["name"] for entry in content["devices"]] == [info.name for info in dmlvk.devices()]
    keys = ["index", "name", "type", "vendor", "driver", "driver_release", "vulkan", "memory_size", "accelerated"]
    for info, entry in zip(dmlvk.devices(), content["devices"], strict=True):
        assert list(entry) == [*keys, "quirks", "distrusted_paths", "profile"]
        assert (entry["index"], entry["type"], entry["vendor"]) == (info.index, info.type.name, info.vendor)
        assert (entry["driver"], entry["memory_size"]) == (info.driver, info.memory_size)
        assert entry["vulkan"].count(".") == 2 and tuple(entry["driver_release"]) == info.profile.driver_release
        assert tuple(entry["accelerated"]) == info.accelerated
        assert [list(quirk) for quirk in entry["quirks"]] == [["name", "effect", "remedy", "reported"]] * len(
            quirks.of(info.profile)
        )
        assert {quirk["name"] for quirk in entry["quirks"]} == {quirk.name for quirk in quirks.of(info.profile)}
        assert dmlvk.DeviceProfile.from_record(entry["profile"]) == info.profile


def test_devices_as_json_with_no_device_that_can_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    rejected = [RejectedDevice("Old GPU", "it offers Vulkan 1.0")]
    monkeypatch.setattr(dmlvk, "devices", list)
    monkeypatch.setattr(dmlvk, "rejected_devices", lambda: rejected)
    result = run("devices", "--json")
    assert result.exit_code == 0
    expected = [{"name": "Old GPU", "reason": "it offers Vulkan 1.0"}]
    content = json.loads(result.output)
    assert content.pop("cache").keys() == {"folder", "files", "bytes"}
    assert content == {"dmlvk": dmlvk.__version__, "devices": [], "rejected": expected}


@pytest.mark.parametrize("other", [("--record", "profile.json"), ("--device", "0")])
def test_devices_as_json_goes_with_no_other_option(other: tuple[str, ...]) -> None:
    result = run("devices", "--json", *other)
    assert result.exit_code == 2
    assert "goes with no other option" in result.output


def test_the_version_is_written_in_one_place() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert 'dynamic = ["version"]' in text and '[tool.hatch.version]\npath = "dmlvk/version.py"' in text
    assert re.findall(r'^version = "', text, re.MULTILINE) == []
    assert dmlvk.__version__ == version.__version__ and re.fullmatch(r"\d+\.\d+\.\d+\S*", dmlvk.__version__)
    assert run("--version").output == f"dmlvk, version {dmlvk.__version__}\n"


def test_devices_without_a_driver_says_what_to_install(tmp_path: Path) -> None:
    environment = dict(os.environ, VK_DRIVER_FILES=str(tmp_path), VK_ICD_FILENAMES=str(tmp_path), DMLVK_VALIDATE="0")
    finished = python("-m", "dmlvk", "devices", env=environment)
    assert finished.returncode == 1
    assert "Traceback" not in finished.stderr
    assert len(finished.stderr.strip().splitlines()) == 1
    assert "mesa-vulkan-drivers" in finished.stderr


def test_demo_writes_a_picture_and_a_table(
    device: dmlvk.Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FEWEST_RUNS", "MOST_RUNS"):
        monkeypatch.setattr(sys.modules["dmlvk.demo.measure"], name, 1)
    filters = quantized_linear_convolution_panels  # of every second pixel: they are most of the time
    monkeypatch.setattr(
        "dmlvk.demo.panels.quantized_linear_convolution_panels", lambda photo: filters(photo[::2, ::2].copy())
    )
    output = tmp_path / "sheet.png"
    result = run("demo", "--output", str(output), "--device", device.profile.name)
    assert result.exit_code == 0, result.output
    assert "DIFFERS" not in result.output
    for operator in ("SLICE1", "DIAGONAL_MATRIX1", "ONE_HOT", "QUANTIZED_LINEAR_CONVOLUTION"):
        assert operator in result.output
    with Image.open(output) as image:
        assert image.format == "PNG"
        assert len(image.getcolors(1 << 24) or []) > 1000, "the photograph is in the picture"
        assert image.width > 1.5 * image.height, "a page that shows it keeps its place"


def test_the_sections_of_the_demo_share_rows() -> None:
    assert _places({"a": 8, "b": 4, "c": 4, "d": 8}) == ({"a": (0, 0), "b": (1, 0), "c": (1, 4), "d": (2, 0)}, 3)
    assert _places({"a": 3, "b": 6, "c": 2}) == ({"a": (0, 0), "b": (1, 0), "c": (1, 6)}, 2)
    assert _places({"a": 17, "b": 2}) == ({"a": (0, 0), "b": (2, 1)}, 3)
    assert _places({}) == ({}, 1)


def test_demo_ends_with_status_1_when_a_result_differs(
    device: dmlvk.Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    panels = slice1_panels(photograph())[:2]
    monkeypatch.setattr(dmlvk.demo, "all_panels", lambda photo: {"SLICE1": panels})
    monkeypatch.setattr(dmlvk.demo, "measure", lambda *arguments: replace(measure(*arguments), correct=False))
    result = run("demo", "--output", str(tmp_path / "sheet.png"), "--device", device.profile.name)
    assert result.exit_code == 1
    assert "differs from the NumPy reference" in result.output


def test_demo_checks_every_byte_of_a_result(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check itself notices one wrong bit."""
    panel = slice1_panels(photograph())[0]
    assert measure(device, panel).correct
    expected = dmlvk.reference.run(panel.desc, **panel.inputs)
    expected.reshape(-1)[-1] ^= 1
    monkeypatch.setattr(dmlvk.reference, "run", lambda *arguments, **named: expected)
    assert not measure(device, panel).correct


def test_demo_lists_the_kernels_of_a_convolution(device: dmlvk.Device) -> None:
    """Kernels are listed by their names. A depthwise filter is not packed."""
    bank, *_, sharpen, _ = quantized_linear_convolution_panels(photograph()[::2, ::2].copy())
    assert len(bank.views) == bank.desc.output_tensor.sizes[1] == 4
    assert any(kernel.endswith("pack_input") for kernel in measure(device, bank).kernels)
    measured = measure(device, sharpen)
    assert measured.correct
    assert "quantized_linear_convolution/direct" in measured.kernels
    assert not any(kernel.endswith("pack_input") for kernel in measured.kernels)


def test_demo_filters_do_what_their_names_say() -> None:
    """The reference alone, on a picture with a known edge. No device is used."""
    step = np.full((32, 32, 3), 128, np.uint8)
    step[:, 16:] = 168
    bank, blur, motion, sharpen, sepia = quantized_linear_convolution_panels(step)
    left_to_right, top_to_bottom, laplacian, emboss = dmlvk.reference.run(bank.desc, **bank.inputs)[0]
    inside = np.s_[8:24, 4:28]  # away from the padding
    assert left_to_right[inside].max() > 160
    assert (top_to_bottom[inside] == 128).all()
    assert laplacian[inside].min() < 128 < laplacian[inside].max()
    assert emboss[inside].max() > 168
    blurred = dmlvk.reference.run(motion.desc, **motion.inputs)[0, 0, 16]
    assert (np.diff(blurred[8:24].astype(int)) >= 0).all()
    assert len(np.unique(blurred[8:24])) > 8
    assert dmlvk.reference.run(blur.desc, **blur.inputs).shape == (1, 3, 16, 16)
    sharpened = dmlvk.reference.run(sharpen.desc, **sharpen.inputs)[0, 0, 16]
    assert sharpened[4:28].min() < 128
    assert sharpened[4:28].max() > 168
    red, _, blue = dmlvk.reference.run(sepia.desc, **sepia.inputs)[0]
    assert (red > blue).all(), "sepia is warm"


@pytest.mark.parametrize("arguments", [("demo", "--device", "no such device"), ("demo", "--device", "99")])
def test_unknown_device_is_one_clear_line(arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.exit_code == 1
    assert len(result.output.strip().splitlines()) == 1
    assert result.output.startswith("Error: ")
    assert "matches no device" in result.output


def test_output_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    result = run("demo", "--output", str(tmp_path / "missing" / "sheet.png"))
    assert result.exit_code == 1
    assert len(result.output.strip().splitlines()) == 1
    assert "missing" in result.output


def test_photograph_is_not_uniform() -> None:
    photo = photograph()
    assert photo.shape == (512, 512, 3)
    assert photo.dtype == np.uint8
    assert photo.std() > 50
