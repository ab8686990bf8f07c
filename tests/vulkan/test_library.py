"""The loader, result codes, and messages of the validation layer."""

from __future__ import annotations

import os
import subprocess
import textwrap
from pathlib import Path

import pytest

import dmlvk
from dmlvk.errors import DeviceLostError, OutOfMemoryError, ValidationError
from dmlvk.vulkan.library import check, failure, vk
from dmlvk.vulkan.recorder import Recorder
from tests.programs import python


def run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return python("-c", textwrap.dedent(program), env={**os.environ, **environment}, timeout=120)


def test_every_result_code_has_a_text() -> None:
    for code, name in vk.ffi.typeof("VkResult").elements.items():
        if code:
            assert name in str(failure(code, "vkSomething"))
    assert "an unknown VkResult (-123456)" in str(failure(-123456, "vkSomething"))
    assert isinstance(failure(-4, "vkQueueSubmit"), DeviceLostError)
    assert isinstance(failure(-2, "vkAllocateMemory"), OutOfMemoryError)
    check(0, "vkSomething")
    with pytest.raises(dmlvk.DeviceError, match=r"vkSomething returned VK_ERROR_FEATURE_NOT_PRESENT \(-8\)"):
        check(-8, "vkSomething")


def test_without_a_loader_dmlvk_imports_and_says_what_to_install() -> None:
    result = run(
        """
        import sys, types
        class NoLoader:
            def find_spec(self, name, path=None, target=None):
                if name.split(".")[0] == "vulkan":
                    raise OSError("Cannot find Vulkan SDK version")
        sys.meta_path.insert(0, NoLoader())
        import dmlvk
        dmlvk.TensorDesc(dmlvk.DataType.INT8, (1,))
        for call in (dmlvk.devices, dmlvk.Device):
            try:
                call()
            except dmlvk.DeviceError as error:
                assert "libvulkan1 mesa-vulkan-drivers" in str(error) and "\\n" not in str(error), error
            else:
                raise AssertionError("no error")
        """
    )
    assert result.returncode == 0, result.stderr


def test_without_a_driver_the_message_says_what_to_install(tmp_path: Path) -> None:
    program = "import dmlvk; dmlvk.Device()"
    result = run(program, VK_DRIVER_FILES=str(tmp_path), VK_ICD_FILENAMES=str(tmp_path), DMLVK_VALIDATE="0")
    assert result.returncode == 1
    assert "DeviceError" in result.stderr
    assert "mesa-vulkan-drivers" in result.stderr


@pytest.mark.parametrize(
    "program", ["import dmlvk; dmlvk.Device()", "from dmlvk.command_line import main; main(['devices'])"]
)
@pytest.mark.parametrize("name", ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"])
def test_drivers_that_a_variable_looks_for_elsewhere_are_not_to_be_installed(
    program: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("VK_DRIVER_FILES", "VK_ICD_FILENAMES"):
        monkeypatch.delenv(variable, raising=False)
    result = run(program, DMLVK_VALIDATE="0", **{name: os.pathsep.join(("/nowhere/a.json", "/nowhere/b.json"))})
    assert result.returncode == 1
    assert f"{name} names files that do not exist: /nowhere/a.json, /nowhere/b.json" in result.stderr
    assert "mesa-vulkan-drivers" not in result.stderr


def test_without_the_validation_layer_the_message_says_what_to_install() -> None:
    program = """
    from dmlvk.vulkan import instance
    instance.VALIDATION_LAYER = "VK_LAYER_that_is_not_there"
    import dmlvk
    dmlvk.devices()
    """
    result = run(program, DMLVK_VALIDATE="1")
    assert result.returncode == 1
    assert "apt install vulkan-validationlayers" in result.stderr


@pytest.mark.every_driver
def test_a_validation_message_is_an_exception_at_the_call_that_provoked_it(device: dmlvk.Device) -> None:
    vulkan = device.vulkan
    segment = device.buffer(256)._live_memory().segments[0]

    def record() -> None:
        recorder = Recorder(vulkan.queue.command_buffers.acquire())
        recorder.copy(segment.block.buffer, 1 << 60, segment.block.buffer, 0, 4)

    with pytest.raises(ValidationError, match="vkCmdCopyBuffer"):
        vulkan.monitor.run(record)
    assert device.tensor([7]).numpy()[0] == 7


def test_a_program_that_closes_nothing_ends_without_a_message(device: dmlvk.Device) -> None:
    program = f"""
    import numpy as np, dmlvk
    device = dmlvk.Device({device.name!r}, timestamps=True)
    kept = device.tensor(np.arange(10))
    print(dmlvk.slice1(kept, input_window_offsets=[0], input_window_sizes=[10], input_window_strides=[-3]).numpy())
    staged = dmlvk.Device({device.name!r}, force_staging=True)
    staged.tensor(np.zeros(1000)).numpy()
    """
    result = run(program, DMLVK_VALIDATE="1")
    assert (result.returncode, result.stdout, result.stderr) == (0, "[9 6 3 0]\n", "")
