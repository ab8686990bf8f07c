"""How devices are listed, and whether there is one; how the objects of a device are written."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import dmlvk
from dmlvk.device_profile import DeviceType
from dmlvk.runtime.device_info import DeviceList, binary_size
from dmlvk.vulkan.instance import Instance
from dmlvk.vulkan.library import vk
from tests.programs import python
from tests.vulkan.variants import copy_desc, open_variant

DESC = dmlvk.TensorDesc("int32", (64,))


class TestListing:
    def test_devices_print_one_line_each(self, device: dmlvk.Device) -> None:
        found = dmlvk.devices()
        lines = str(found).splitlines()
        assert len(lines) == len(found) and isinstance(found, list)
        for info, line in zip(found, lines, strict=True):
            assert line == str(info) and line.startswith(f"{info.index}: {info.name}, ")
            for part in (info.driver, binary_size(info.memory_size), *info.accelerated):
                assert part in line
            assert len(line) < 300

    def test_a_line_says_what_kind_of_device_it_is(self, device: dmlvk.Device) -> None:
        info = dataclasses.replace(
            next(each for each in dmlvk.devices() if each.name == device.name),
            index=3,
            name="NVIDIA H200",
            type=DeviceType.DISCRETE_GPU,
            driver="NVIDIA 580.159.04",
            memory_size=150_109_159_424,
            accelerated=("int8 dot product (s8, u8, mixed)", "int8 matrices 16x16x32"),
        )
        line = "3: NVIDIA H200, discrete GPU, NVIDIA 580.159.04, 139.8 GiB, int8 dot product (s8, u8, mixed)"
        assert str(info) == f"{line}, int8 matrices 16x16x32"
        assert repr(info) == f"<dmlvk.DeviceInfo {info}>"

    def test_a_list_s_repr_has_a_line_for_each_device_too(self, device: dmlvk.Device) -> None:
        found = dmlvk.devices()
        assert repr(found) == f"[{',@ '.join(map(repr, found))}]".replace("@", "\n")
        assert str(DeviceList()) == "no Vulkan device that dmlvk can use" and repr(DeviceList()) == "[]"

    @pytest.mark.parametrize(
        ("size", "text"),
        [(0, "0 bytes"), (1023, "1023 bytes"), (65536, "64 KiB"), (1 << 28, "256 MiB"), (3 << 29, "1.5 GiB")],
    )
    def test_memory_has_a_unit(self, size: int, text: str) -> None:
        assert binary_size(size) == text


class TestReprs:
    def test_of_all_that_belongs_to_a_device(self, device: dmlvk.Device) -> None:
        tensor, name = device.tensor(DESC), device.name
        operator = device.compile(copy_desc(DESC))
        binding = operator.bind(input_tensor=tensor, output_tensor=device.tensor(DESC))
        submission = device.submit([binding])
        submission.wait()
        path = operator.plan.path
        assert repr(operator) == f"<dmlvk.CompiledOperator SLICE1 ({path}) on {name}>"
        assert repr(binding) == f"<dmlvk.Binding SLICE1 ({path}) on {name}>"
        assert repr(device.sequence([binding])) == f"<dmlvk.Sequence of 1 bindings on {name}>"
        assert repr(device) == f"<dmlvk.Device {name}>"
        text = repr(submission)
        assert text.startswith("<dmlvk.Submission ") and text.endswith(", done>")
        assert repr(dmlvk.Submission()) == "<dmlvk.Submission of nothing>"

    def test_of_work_on_a_lost_device(self, device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
        with open_variant(device, "direct") as own:
            operator = own.compile(copy_desc(DESC))
            source = own.tensor(np.zeros(64, np.int32))
            submission = operator(input_tensor=source, output_tensor=own.tensor(DESC))
            monkeypatch.setattr(type(submission), "done", property(lost))
            assert "its device is lost" in repr(submission)


def lost(submission: dmlvk.Submission) -> bool:
    raise dmlvk.DeviceError("lost")


# Prints whether a device is available, then what asking has left behind, then what a forked child does with a device.
PROGRAM = """
import json, os, sys
import dmlvk
from dmlvk.vulkan import instance
found = [dmlvk.is_available(), dmlvk.is_available()]
left = instance._instance is not None or bool(instance.open_devices)
child = None
if sys.argv[1:] and hasattr(os, "fork"):
    pid = os.fork()
    if not pid:
        output = dmlvk.one_hot([[1]], [0, 7], output_length=3, axis=1, device=sys.argv[1])
        sys.exit(7 if output.tolist() == [[0, 7, 0]] else 1)
    child = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
print(json.dumps({"found": found, "left": left, "child": child}))
"""


def ask(*arguments: str, **environment: str) -> dict[str, object]:
    done = python("-c", PROGRAM, *arguments, env={**os.environ, "DMLVK_VALIDATE": "0", **environment}, timeout=240)
    assert (done.returncode, done.stderr) == (0, "")
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


class TestIsAvailable:
    def test_with_a_device(self, device: dmlvk.Device) -> None:
        assert dmlvk.is_available() is True

    def test_it_leaves_nothing_open_so_that_a_child_may_use_a_device(self, device: dmlvk.Device) -> None:
        expected = 7 if hasattr(os, "fork") else None
        assert ask(device.name) == {"found": [True, True], "left": False, "child": expected}

    def test_without_a_driver(self, tmp_path: Path) -> None:
        for path in (tmp_path, tmp_path / "missing.json"):
            answer = ask(VK_DRIVER_FILES=str(path), VK_ICD_FILENAMES=str(path))
            assert answer == {"found": [False, False], "left": False, "child": None}

    def test_without_a_loader(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def load() -> None:
            raise dmlvk.DeviceError("no Vulkan loader found")

        monkeypatch.setattr(vk, "_load", load)
        monkeypatch.delattr(vk, "ffi", raising=False)
        assert dmlvk.is_available() is False

    def test_without_a_device(self, device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Instance, "physical_devices", lambda self: [])
        assert dmlvk.is_available() is False

    @pytest.mark.parametrize(
        ("version", "flags", "usable"),
        [(1 << 22 | 2 << 12, 3, True), (1 << 22 | 1 << 12, 3, False), (1 << 22 | 2 << 12, 5, False)],
    )
    def test_a_device_needs_vulkan_1_2_and_a_compute_queue(
        self, device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch, version: int, flags: int, usable: bool
    ) -> None:
        """As `devices()` decides it: flags 3 draw and compute, 5 draw and copy."""

        def properties(handle: object, into: SimpleNamespace) -> None:
            into.apiVersion = version

        def families(handle: object, count: list[int], into: list[SimpleNamespace]) -> None:
            count[0] = 1
            if into != vk.ffi.NULL:
                into[0].queueFlags = flags

        monkeypatch.setattr(vk, "vkGetPhysicalDeviceProperties", properties)
        monkeypatch.setattr(vk, "vkGetPhysicalDeviceQueueFamilyProperties", families)
        assert dmlvk.is_available() is usable
