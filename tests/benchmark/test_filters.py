"""Options of `dmlvk bench` that choose cases: each value of each has to choose some, or is refused."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

import dmlvk
from dmlvk.command_line import main


def listed(device: dmlvk.Device, *options: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["bench", "--list", "--size", "tiny", "--device", device.name, *options])
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--type", "FLOAT33", "--type", "UINT8"], "there is no 'FLOAT33'; there are "),
        (["--operator", "slice1", "--type", "FLOAT32", "--type", "UINT8"], "--type FLOAT32: no case that the other"),
        (["--operator", "slice1", "--type", "UINT8", "--type", "int8"], "--type int8: no case that the other options"),
        (["--layout", "hwc"], "there is no 'HWC'; there are NHWC, NCHW"),
        (["--layout", "nhwc", "--layout", "hwcn"], "there is no 'HWCN'; there are NHWC, NCHW"),
        (["--operator", "slice1", "--layout", "nhwc"], "--layout nhwc: no case that the other options choose has it"),
        (
            ["--operator", "slice1", "--operator", "quantized_linear_convolution", "--type", "UINT64"],
            "--operator quant",
        ),
        (["--case", "slice1", "--case", "nonsense"], "--case 'nonsense' matches none of the chosen cases"),
        (["--case", "nonsense"], "no case matches the options"),
    ],
)
def test_a_value_that_chooses_nothing_is_refused(device: dmlvk.Device, options: list[str], message: str) -> None:
    status, output = listed(device, *options)
    assert status != 0
    assert message in output and len(output.splitlines()) == 1


@pytest.mark.parametrize(
    "options",
    [
        ["--type", "FLOAT32", "--type", "uint8"],
        ["--layout", "NHWC"],
        ["--operator", "slice1", "--type", "UINT64"],
        ["--operator", "quantized_linear_convolution", "--type", "INT8", "--layout", "nchw"],
        ["--case", "slice1", "--case", "one_hot"],
    ],
)
def test_values_that_choose_something_are_taken(device: dmlvk.Device, options: list[str]) -> None:
    status, output = listed(device, *options)
    assert status == 0, output
    for option, value in zip(options[::2], options[1::2], strict=True):
        wanted = f"{option[2:]}={value}" if option in ("--type", "--layout") else value
        assert wanted.lower() in output.lower()
