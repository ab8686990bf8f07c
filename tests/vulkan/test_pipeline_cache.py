"""The pipeline cache on disk."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import dmlvk
from dmlvk.command_line import main
from dmlvk.planning.device_rates import LARGE_GPU
from dmlvk.runtime.answers_file import Answer, AnswersFile
from dmlvk.runtime.device_files import cached, remembered_files
from dmlvk.runtime.measured_rates import MeasuredRates
from dmlvk.runtime.tuned_paths import TunedPaths
from dmlvk.vulkan import pipeline_cache
from dmlvk.vulkan.library import vk
from dmlvk.vulkan.pipeline_cache import HEADER, PipelineCache, cache_folder
from tests.damaged_files import Damage, damages
from tests.programs import python
from tests.vulkan.variants import copy_desc

DESC = dmlvk.TensorDesc(dmlvk.DataType.INT32, (100,))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DMLVK_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def use(device: dmlvk.Device) -> bytes:
    """Build a pipeline on a fresh device, check its output, and return the cache data that the device loaded."""
    with dmlvk.Device(device.name) as own:
        source, target = own.tensor(np.arange(100, dtype=np.int32)), own.tensor(DESC)
        own.compile(copy_desc(DESC))(input_tensor=source, output_tensor=target)
        np.testing.assert_array_equal(target.numpy(), np.arange(100))
        return own.vulkan.pipelines.cache.loaded


def cache_file(folder: Path) -> Path:
    (path,) = folder.glob("*.bin")
    return path


def driver_data(folder: Path) -> bytes:
    return cache_file(folder).read_bytes()[HEADER.size :]


@pytest.mark.every_driver
def test_what_one_device_saved_the_next_one_loads(device: dmlvk.Device, folder: Path) -> None:
    assert use(device) == b""
    saved = driver_data(folder)
    assert saved
    assert use(device) == saved
    assert not list(folder.glob("*.new"))


def test_a_destroyed_cache_is_not_read(device: dmlvk.Device, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """See quirks.NVIDIA_CRASHES_ON_A_NULL_CACHE. An exception during closing leaves a device without a cache."""
    read = vk.vkGetPipelineCacheData

    def checked(handle: Any, cache: Any, *rest: Any) -> Any:
        assert cache != vk.ffi.NULL
        return read(handle, cache, *rest)

    monkeypatch.setattr(vk, "vkGetPipelineCacheData", checked)
    monkeypatch.setattr(pipeline_cache, "SECONDS_OF_A_COMPILER", math.inf)
    with dmlvk.Device(device.name) as own:
        own.compile(copy_desc(DESC))
        cache = own.vulkan.pipelines.cache
        cache.current._owner.destroy()
        assert cache.added
        cache.save()


def test_the_folder_is_where_the_system_keeps_caches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("DMLVK_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    expected = Path(os.environ["LOCALAPPDATA"], "dmlvk", "Cache") if os.name == "nt" else tmp_path / "dmlvk"
    assert cache_folder() == expected


@pytest.mark.parametrize("value", ["off", "OFF", "0", "none", "no", "false", " off "])
def test_the_cache_can_be_switched_off(
    device: dmlvk.Device, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DMLVK_CACHE_DIR", value)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert cache_folder() is None
    assert use(device) == use(device) == b""
    with dmlvk.Device(device.name) as own:  # and all else that is remembered
        choices, rates, answers = TunedPaths(own.profile), MeasuredRates(own.profile), AnswersFile(own.profile)
        assert choices.path(copy_desc(DESC)) is None and rates.rates() is None and answers.answers() == []
        answers.keep("question", Answer("matrix", "question", "driver", "kernels"))
        with answers.asking("question"):
            pass
        for remember in (lambda: choices.remember(copy_desc(DESC), "blocks", {}), lambda: rates.remember(LARGE_GPU)):
            with pytest.raises(OSError, match="nothing can be remembered: the cache is switched off"):
                remember()
    assert remembered_files("choices-") == [] and cached() == (0, 0)
    assert [path.name for path in tmp_path.iterdir() if path.name != "shader_validation_cache-0.bin"] == []
    (line,) = (line for line in CliRunner().invoke(main, ["devices"]).output.splitlines() if line.startswith("Cache"))
    assert line == "Cache: switched off by DMLVK_CACHE_DIR"
    finished = CliRunner().invoke(main, ["tune", "--device", device.name, "--case", "slice1"])
    assert finished.exit_code == 1 and "the cache is switched off" in finished.output


def test_the_devices_say_where_the_cache_is_and_what_it_holds(device: dmlvk.Device, folder: Path) -> None:
    def said() -> str:
        output = CliRunner().invoke(main, ["devices"]).output
        return " ".join(output[output.index("Cache: ") :].split())

    assert said() == f"Cache: {folder} (empty; CPU drivers give no pipelines to keep)"
    use(device)
    is_cpu = device.profile.device_type is dmlvk.DeviceType.CPU
    assert (cached() == (0, 0)) == is_cpu, "a header alone is nothing"
    (folder / "choices-1-2-00000000.json").write_bytes(b"x" * 3000)
    count = 1 + (not is_cpu)
    assert said().startswith(f"Cache: {folder} ({count} file{'s' if count > 1 else ''}, ")
    content = json.loads(CliRunner().invoke(main, ["devices", "--json"]).output)
    assert content["cache"] == {"folder": str(folder), "files": count, "bytes": cached()[1]}
    assert cached()[1] >= 3000


def test_a_folder_of_any_name(device: dmlvk.Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "Größe & Maß 100% ☂"
    monkeypatch.setenv("DMLVK_CACHE_DIR", str(folder))
    assert use(device) == b""
    saved = driver_data(folder)
    assert use(device) == saved != b""


def test_a_file_that_someone_has_open(device: dmlvk.Device, folder: Path) -> None:
    """Windows does not replace an open file. Only the new pipelines are lost."""
    use(device)
    saved = driver_data(folder)
    with cache_file(folder).open("rb"), dmlvk.Device(device.name) as own:
        own.compile(copy_desc(dmlvk.TensorDesc(dmlvk.DataType.INT8, (3, 3))))
    assert not list(folder.glob("*.new"))
    assert len(use(device)) >= len(saved)


def flipped(position: int) -> Callable[[bytes], bytes]:
    def damage(content: bytes) -> bytes:
        changed = bytearray(content)
        changed[position] ^= 1
        return bytes(changed)

    return damage


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "half a header": lambda content: content[: HEADER.size // 2],
    "header only": lambda content: content[: HEADER.size],
    "half written": lambda content: content[:-1],
    "too long": lambda content: content + b"\0",
    "another magic": flipped(0),
    "another format": flipped(8),
    "another vendor": flipped(12),
    "another device": flipped(16),
    "another driver version": flipped(20),
    "another UUID": flipped(24),
    "another checksum": flipped(HEADER.size - 1),
    "a flipped bit": flipped(-1),
    "something else": lambda content: b"\xff" * 10_000,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_file_that_is_not_whole_or_not_ours_is_a_miss(
    device: dmlvk.Device, folder: Path, damage: Callable[[bytes], bytes]
) -> None:
    use(device)
    whole = cache_file(folder).read_bytes()
    cache_file(folder).write_bytes(damage(whole))
    assert use(device) == b""
    saved = driver_data(folder)  # a new, whole file
    assert use(device) == saved != b""


@pytest.mark.parametrize("field", ["vendor_id", "device_id", "driver_version", "pipeline_cache_uuid"])
def test_each_driver_of_each_device_has_a_file_of_its_own(
    device: dmlvk.Device, folder: Path, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    use(device)
    path = cache_file(folder)
    with dmlvk.Device(device.name) as own:
        context = own.vulkan.context
        physical = context.physical
        if field == "pipeline_cache_uuid":
            other = replace(physical, pipeline_cache_uuid=physical.pipeline_cache_uuid[::-1])
        else:
            profile = physical.profile
            other = replace(physical, profile=replace(profile, **{field: getattr(profile, field) ^ 1}))
        assert PipelineCache(context).loaded == path.read_bytes()[HEADER.size :]
        monkeypatch.setattr(context, "physical", other)
        theirs = PipelineCache(context).path
        assert theirs is not None and theirs != path
        theirs.write_bytes(path.read_bytes())
        assert PipelineCache(context).loaded == b""


def test_without_a_writable_folder_there_is_no_cache(
    device: dmlvk.Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"")
    monkeypatch.setenv("DMLVK_CACHE_DIR", str(file / "folder"))
    assert use(device) == b""
    assert use(device) == b""


@pytest.mark.half_by_day
@pytest.mark.parametrize("damage", damages(), ids=str)
def test_whatever_lies_in_place_of_the_file_is_a_miss(device: dmlvk.Device, folder: Path, damage: Damage) -> None:
    """A regular file of this name is ours and is replaced. Anything else stays."""
    use(device)
    path = cache_file(folder)
    path.unlink()
    damage.make(path)
    assert use(device) == b""
    if damage.is_regular:
        saved = driver_data(folder)
        assert use(device) == saved != b""
    else:
        assert damage.is_untouched()
        assert not list(folder.glob("*.new"))


def test_saving_merges_with_what_another_process_saved(
    device: dmlvk.Device, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline_cache, "SECONDS_OF_A_COMPILER", math.inf)
    merged = []
    real = vk.vkMergePipelineCaches

    def merge(*arguments: object) -> int:
        merged.append(arguments)
        return int(real(*arguments))

    monkeypatch.setattr(vk, "vkMergePipelineCaches", merge)
    with dmlvk.Device(device.name) as own:
        own.compile(copy_desc(DESC))
        use(device)  # another device, which loads nothing and saves first
        assert not merged
        created: list[bytes] = []
        create = own.vulkan.pipelines.cache._create

        def create_noted(data: bytes) -> Any:
            created.append(data)
            return create(data)

        monkeypatch.setattr(own.vulkan.pipelines.cache, "_create", create_noted)
        saved = driver_data(folder)
    assert len(merged) == 1
    assert created == [saved], "what is there is the cache into which the new pipelines are merged"
    assert use(device)


@pytest.mark.every_driver
def test_pipelines_of_another_device_are_added(
    device: dmlvk.Device, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test drivers keep nothing in their caches, so the test looks at what is merged into what."""
    monkeypatch.setattr(pipeline_cache, "SECONDS_OF_A_COMPILER", math.inf)
    merged: list[tuple[Any, list[Any]]] = []
    real = vk.vkMergePipelineCaches

    def merge(handle: Any, target: Any, count: int, sources: list[Any]) -> int:
        assert count == len(sources)
        merged.append((target, list(sources)))
        return int(real(handle, target, count, sources))

    monkeypatch.setattr(vk, "vkMergePipelineCaches", merge)
    with dmlvk.Device(device.name) as first:
        found = first.vulkan.pipelines.cache.data()
        assert found
    created = []
    with dmlvk.Device(device.name) as own:
        cache = own.vulkan.pipelines.cache
        create = cache._create

        def create_counted(data: bytes) -> Any:
            created.append(data)
            return create(data)

        monkeypatch.setattr(cache, "_create", create_counted)
        earlier = cache.current
        cache.add(b"")
        assert cache.current is earlier and not merged
        cache.add(found)
        assert created == [found]
        assert merged == [(cache.current.handle, [earlier.handle])] and cache.current is not earlier
        # Threads that began before still build in the earlier one, so that it is saved too.
        own.compile(copy_desc(DESC))
        cache.save()
        assert merged[1][1] == [cache.current.handle, earlier.handle] and len(merged) == 2
        # So does another device that asks for the data, and what takes the current one's place.
        assert cache.data()
        assert merged[2][1] == [cache.current.handle, earlier.handle]
        second = cache.current
        cache.add(found)
        assert merged[3] == (cache.current.handle, [second.handle, earlier.handle])
    count = len(merged)
    cache.add(found)  # the device is closed
    assert cache.data() == b"" and len(merged) == count


def test_a_process_that_is_killed_has_saved_what_it_compiled(device: dmlvk.Device, folder: Path) -> None:
    program = f"""
import os, dmlvk
from dmlvk.vulkan import pipeline_cache
from tests.vulkan.variants import copy_desc
pipeline_cache.SECONDS_OF_A_COMPILER = 0
device = dmlvk.Device({device.name!r})
device.compile(copy_desc(dmlvk.TensorDesc(dmlvk.DataType.INT32, (100,))))
os._exit(9)
"""
    assert python("-c", program).returncode == 9
    saved = driver_data(folder)
    assert use(device) == saved != b""


def test_processes_that_save_at_once_leave_a_whole_file(device: dmlvk.Device, folder: Path) -> None:
    program = f"""
import dmlvk
from tests.vulkan.variants import copy_desc
for rank in range(1, 5):
    with dmlvk.Device({device.name!r}) as device:
        device.compile(copy_desc(dmlvk.TensorDesc(dmlvk.DataType.INT8, (3,) * rank)))
"""
    running = [subprocess.Popen([sys.executable, "-c", program], cwd=Path(__file__).parents[2]) for _ in range(2)]
    assert [process.wait(timeout=120) for process in running] == [0, 0]
    assert use(device) != b""
