"""`dmlvk tune --rates` measures a device, later Devices plan by it, and no content of its file breaks a program."""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import dmlvk
from dmlvk._common.rates import Rates
from dmlvk.benchmark import device_rates
from dmlvk.benchmark.device_rates import MeasuredDevice, measure_rates
from dmlvk.benchmark.marks import Mark
from dmlvk.benchmark.timing import Times
from dmlvk.command_line import main
from dmlvk.planning.device_rates import LARGE_GPU, rates_of, rates_of_class
from dmlvk.planning.quantized_linear_convolution.choice import plan_quantized_linear_convolution as plan
from dmlvk.runtime import device_files, measured_rates
from dmlvk.runtime.measured_rates import MeasuredRates
from tests import profiles
from tests.planning.quantized_linear_convolution.descriptors import convolution

H200 = profiles.load("nvidia-h200")
OTHER = replace(LARGE_GPU, matrix=3.25e12, wait=1e-6)


@pytest.fixture(autouse=True)
def _own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DMLVK_CACHE_DIR", str(tmp_path / "cache"))


def test_rates_are_remembered_for_a_device_and_its_driver() -> None:
    store = MeasuredRates(H200)
    assert store.rates() is None
    store.remember(OTHER)
    assert MeasuredRates(H200).rates() == OTHER
    assert MeasuredRates(replace(H200, driver_version=1)).rates() is None
    assert MeasuredRates(replace(H200, name="another")).rates() is None
    (file,) = device_files.remembered_files(measured_rates.PREFIX)
    assert measured_rates.read(file) == (H200.name, store.driver, OTHER)
    store.remember(LARGE_GPU)
    assert store.rates() == LARGE_GPU
    device_files.clear(file)
    assert store.rates() is None and not device_files.remembered_files(measured_rates.PREFIX)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\x00",
        b"[]",
        b'{"format": 1}',
        b'{"format": 2, "driver": DRIVER, "rates": RATES}',
        b'{"format": 1, "driver": DRIVER, "rates": []}',
        b'{"format": 1, "driver": DRIVER, "rates": {"matrix": 1.0}}',
        b'{"format": 1, "driver": DRIVER, "rates": ZERO}',
        b'{"format": 1, "driver": DRIVER, "rates": INFINITE}',
        b'{"format": 1, "driver": DRIVER, "rates": TEXT}',
        b'{"format": 1, "driver": ["another"], "rates": RATES}',
    ],
)
def test_a_damaged_file_holds_no_rates(content: bytes) -> None:
    store = MeasuredRates(H200)
    assert store.file is not None
    store.file.parent.mkdir(parents=True)
    names = [field.name for field in fields(Rates)]
    values: dict[bytes, Any] = {
        b"RATES": dict.fromkeys(names, 1.0),
        b"ZERO": dict.fromkeys(names, 1.0) | {"copy": 0.0},
        b"INFINITE": dict.fromkeys(names, 1.0) | {"tap": float("inf")},
        b"TEXT": dict.fromkeys(names, "1.0"),
        b"DRIVER": store.driver,
    }
    whole = b'{"format": 1, "driver": DRIVER, "rates": RATES}'
    for word, value in values.items():
        content, whole = (text.replace(word, json.dumps(value).encode()) for text in (content, whole))
    store.file.write_bytes(content)
    assert store.rates() is None
    store.file.write_bytes(whole)
    assert store.rates() is not None, "the same words make a file that can be read"


def test_the_planner_chooses_by_the_device_s_own_rates() -> None:
    """Matrix units as slow as a hundredth of the dot products: nothing is left of their advantage."""
    desc = convolution(64, 256, (14, 14), 256, (3, 3), padding=(1, 1))
    assert plan(desc, H200).path == "matrix"
    slow = replace(LARGE_GPU, matrix=LARGE_GPU.dot_product / 100)
    found = plan(desc, replace(H200, rates=slow))
    assert found.path == "vectors"
    assert plan(desc, replace(H200, rates=slow), path="matrix").seconds > found.seconds > 0
    assert rates_of(replace(H200, rates=slow)) is slow and rates_of(H200) is LARGE_GPU


def test_a_device_takes_the_remembered_rates(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a CPU driver; and a profile that is given has the rates that it has."""
    MeasuredRates(device.profile).remember(OTHER)
    with dmlvk.Device(device.name) as own:
        assert own.profile.rates is None
    monkeypatch.setattr(measured_rates, "WITHOUT_RATES", frozenset())
    with dmlvk.Device(device.name) as own:
        assert own.profile.rates == OTHER
    with dmlvk.Device(device.name, profile=device.profile) as own:
        assert own.profile.rates is None
    with dmlvk.Device(device.name, profile=replace(device.profile, rates=LARGE_GPU)) as own:
        assert own.profile.rates == LARGE_GPU
    with pytest.raises(TypeError, match=r"profile\.rates must be Rates or None, not int"):
        dmlvk.Device(device.name, profile=replace(device.profile, rates=3))  # type: ignore[arg-type]


def test_what_is_measured(device: dmlvk.Device) -> None:
    with dmlvk.Device(device.name, timestamps=True) as own:
        found = measure_rates(own, 1 << 20)
    assert not found.wrong and found.floor > 0
    assert found.rates.copy == found.marks["copy"].rate
    assert found.rates.integer == found.marks["integer_multiply_add"].rate
    assert found.rates.float32 == found.marks["float_multiply_add"].rate
    assert found.rates.dot_product == found.marks["dot_product"].rate
    typical = rates_of_class(device.profile)
    assert found.rates.tap / typical.tap == pytest.approx(found.rates.integer / typical.integer)
    if typical.last_step == math.inf:  # of CPU drivers, on which a last step costs nothing beside the products
        assert found.rates.last_step == math.inf
    else:
        assert found.rates.last_step / typical.last_step == pytest.approx(found.rates.float32 / typical.float32)


def command(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["tune", *arguments])


def test_the_command_measures_lists_and_forgets(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = command("--rates", "--device", device.name)
    assert refused.exit_code == 1 and "is no GPU; on CPU drivers rates decide nothing" in refused.output
    assert not device_files.remembered_files(measured_rates.PREFIX)
    monkeypatch.setattr(measured_rates, "WITHOUT_RATES", frozenset())
    monkeypatch.setattr(device_rates, "measure_rates", lambda opened: MeasuredDevice(OTHER, {}, 1e-6))
    found = command("--rates", "--device", device.name)
    assert found.exit_code == 0 and "3.25" in found.output, found.output
    assert MeasuredRates(device.profile).rates() == OTHER
    assert "3.25" in command("--list").output
    assert "rates forgotten: " in command("--clear").output
    assert MeasuredRates(device.profile).rates() is None
    assert "nothing is remembered" in command("--list").output


def test_wrong_marks_are_not_remembered(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured_rates, "WITHOUT_RATES", frozenset())
    mark = Mark("copy", 1.0, "bytes/s", "", Times((1.0,)), correct=False)
    monkeypatch.setattr(device_rates, "measure_rates", lambda opened: MeasuredDevice(OTHER, {"copy": mark}, 1e-6))
    found = command("--rates", "--device", device.name)
    assert found.exit_code == 1 and "wrong results of the marks copy" in found.output
    assert MeasuredRates(device.profile).rates() is None


@pytest.mark.parametrize("option", [("--case", "x"), ("--batch", "2"), ("--descriptors", "file")])
def test_rates_are_of_no_case(option: tuple[str, str]) -> None:
    found = command("--rates", *option)
    assert found.exit_code == 2 and "leave out --case, --descriptors and --batch" in found.output
