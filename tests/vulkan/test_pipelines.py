"""Pipelines that several threads build at the same time, and what each is built with."""

from __future__ import annotations

import dataclasses
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dmlvk
from dmlvk import DataType, TensorDesc
from dmlvk.conformance.profiles import narrow
from dmlvk.runtime import device as device_module
from dmlvk.runtime.kernel_modules import spirv
from dmlvk.vulkan import pipeline_cache, pipelines
from dmlvk.vulkan.device_properties import chain_of, feature_structures
from dmlvk.vulkan.library import vk
from tests.vulkan.variants import copy_desc

WAIT_SECONDS = 60


def desc(rank: int = 1, data_type: DataType = DataType.UINT8) -> dmlvk.Slice1Desc:
    """A copy of rows that are not whole blocks: other ranks and element sizes need other pipelines."""
    sizes = (3,) * rank
    return copy_desc(TensorDesc(data_type, sizes, [5**k for k in range(rank, 0, -1)]))


@pytest.fixture
def own(device: dmlvk.Device) -> Iterator[dmlvk.Device]:
    """A device without pipelines."""
    with dmlvk.Device(device.name) as opened:
        yield opened


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], int | None]], list[int]]:
    """Has a function called before each call of the driver's compiler; returns the threads of the calls.

    If the function returns a VkResult, that is the call's.
    """

    def install(before: Callable[[], int | None]) -> list[int]:
        real, threads = vk.vkCreateComputePipelines, []

        def create(*arguments: Any) -> Any:
            threads.append(threading.get_ident())
            result = before()
            return real(*arguments) if result is None else result

        monkeypatch.setattr(vk, "vkCreateComputePipelines", create)
        return threads

    return install


def run(operator: dmlvk.CompiledOperator, tensor: TensorDesc) -> None:
    """Run a copy and compare."""
    device = operator.device
    array = np.random.default_rng(1).integers(0, 256, tensor.sizes, np.uint8).astype(tensor.data_type.numpy_dtype)
    source, target = device.tensor(tensor), device.tensor(tensor)
    source.write(array)
    operator(input_tensor=source, output_tensor=target)
    np.testing.assert_array_equal(target.numpy(), array)


def meeting(barrier: threading.Barrier) -> Callable[[], None]:
    """Wait for the other threads."""

    def wait() -> None:
        barrier.wait()

    return wait


@pytest.mark.every_driver
def test_threads_compile_at_the_same_time(own: dmlvk.Device, compiler: Any) -> None:
    """Each call of the compiler waits for the other one."""
    barrier = threading.Barrier(2, timeout=WAIT_SECONDS)
    threads = compiler(meeting(barrier))
    with ThreadPoolExecutor(2) as executor:
        operators = list(executor.map(own.compile, [desc(1), desc(2)]))
    assert len(set(threads)) == 2
    for operator in operators:
        run(operator, operator.desc.input_tensor)


def test_threads_that_want_the_same_compile_it_once(own: dmlvk.Device, compiler: Any) -> None:
    threads = compiler(lambda: time.sleep(0.1))
    start = threading.Barrier(4, timeout=WAIT_SECONDS)

    def compile_one(_: int) -> dmlvk.CompiledOperator:
        start.wait()
        return own.compile(desc())

    with ThreadPoolExecutor(4) as executor:
        operators = list(executor.map(compile_one, range(4)))
    assert len(threads) == 1
    for operator in operators:
        run(operator, operator.desc.input_tensor)


def test_a_thread_that_waited_tries_itself_after_a_failure(own: dmlvk.Device, compiler: Any) -> None:
    """The first call of the compiler finds no memory."""
    failures = [vk.VK_ERROR_OUT_OF_HOST_MEMORY]

    def before() -> int | None:
        time.sleep(0.1)
        return failures.pop() if failures else None

    threads = compiler(before)
    start = threading.Barrier(2, timeout=WAIT_SECONDS)

    def compile_one(_: int) -> str:
        start.wait()
        try:
            run(own.compile(desc()), desc().input_tensor)
        except dmlvk.DeviceError:
            return "no memory"
        return "right"

    with ThreadPoolExecutor(2) as executor:
        assert sorted(executor.map(compile_one, range(2))) == ["no memory", "right"]
    assert len(threads) == 2


def test_closing_waits_for_the_compiler(own: dmlvk.Device, compiler: Any) -> None:
    began, ended = threading.Event(), []

    def before() -> None:
        began.set()
        time.sleep(0.2)
        ended.append(time.monotonic())

    compiler(before)
    with ThreadPoolExecutor(1) as executor:
        compiled = executor.submit(own.compile, desc())
        assert began.wait(WAIT_SECONDS)
        own.close()
        assert ended and time.monotonic() >= ended[0]
        with pytest.raises(dmlvk.DeviceError, match="closed"):
            compiled.result()


def test_the_pipeline_that_was_asked_for_last_is_kept_longest(
    device: dmlvk.Device, compiler: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipelines, "PIPELINES_KEPT_ON_CPU", 2)
    compiled = compiler(lambda: None)
    with dmlvk.Device(device.name) as own:
        dispatches = {rank: own.plan(desc(rank)).dispatches[0] for rank in (1, 2, 3)}
        for rank, count in ((1, 1), (2, 2), (1, 2), (3, 3), (1, 3), (2, 4)):
            kernel = dispatches[rank].kernel
            own.vulkan.pipelines.get(kernel, spirv(kernel), dispatches[rank].specialization)
            assert len(compiled) == count


def test_compiling_in_the_middle_of_compiling_the_same(own: dmlvk.Device, compiler: Any) -> None:
    """As a signal handler may do it."""
    refusals = []

    def before() -> None:
        with pytest.raises(dmlvk.DeviceError, match="signal handler") as caught:
            own.compile(desc())
        refusals.append(caught)

    compiler(before)
    run(own.compile(desc()), desc().input_tensor)
    assert len(refusals) == 1


def test_a_full_cache_is_replaced_while_threads_compile(
    own: dmlvk.Device, compiler: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline_cache, "SIZE_INTERVAL", 1)
    monkeypatch.setattr(pipeline_cache, "LARGEST_SIZE", 1)
    compiler(lambda: time.sleep(0.02))
    first = own.vulkan.pipelines.cache.current
    descs = [desc(rank, data_type) for rank in range(1, 5) for data_type in (DataType.UINT8, DataType.UINT16)]
    with ThreadPoolExecutor(4) as executor:
        for operator in executor.map(own.compile, descs):
            run(operator, operator.desc.input_tensor)
    assert own.vulkan.pipelines.cache.current is not first


def test_a_cache_that_is_saved_often_is_bounded_too(
    own: dmlvk.Device, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Saving does not begin the count anew after which the cache's size is looked at."""
    monkeypatch.setattr(pipeline_cache, "SIZE_INTERVAL", 4)
    monkeypatch.setattr(pipeline_cache, "LARGEST_SIZE", 1)
    monkeypatch.setattr(pipeline_cache, "SECONDS_OF_A_COMPILER", 0)
    monkeypatch.setattr(pipeline_cache, "SAVING_SHARE", 0)
    cache = own.vulkan.pipelines.cache
    cache.path = tmp_path / "pipelines.bin"
    first = cache.current
    for rank in range(1, 5):
        own.compile(desc(rank))
    assert cache.current is not first
    assert cache.path.exists()


def test_a_thread_looks_at_locks_that_other_threads_add_and_drop(own: dmlvk.Device) -> None:
    """To find whether it is in the middle of building a pipeline."""
    building = own.vulkan.pipelines._building
    kept: dict[Any, Any] = {("many", (number,), 0): threading.RLock() for number in range(200)}
    building.update(kept)
    stop = threading.Event()

    def change() -> None:
        while not stop.is_set():
            locks = [threading.RLock() for _ in range(50)]
            for number, lock in enumerate(locks):
                building["few", (number,), 0] = lock

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(1) as executor:
            changing = executor.submit(change)
            try:
                assert not any(own.vulkan.is_entered for _ in range(500))
            finally:
                stop.set()
            changing.result()
    finally:
        sys.setswitchinterval(interval)


def test_a_list_is_compiled_by_threads(own: dmlvk.Device, compiler: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    barrier = threading.Barrier(2, timeout=WAIT_SECONDS)
    threads = compiler(meeting(barrier))
    monkeypatch.setattr(device_module, "core_count", lambda: 2)
    descs = [desc(1), desc(2), desc(3), desc(4)]
    operators = own.compile_all(iter(descs))
    assert [operator.desc for operator in operators] == descs
    assert len(set(threads)) == 2
    for operator in operators:
        run(operator, operator.desc.input_tensor)
    assert own.compile_all([]) == []


def test_a_list_with_a_descriptor_that_is_refused(own: dmlvk.Device, compiler: Any) -> None:
    compiler(lambda: vk.VK_ERROR_OUT_OF_DEVICE_MEMORY)
    with pytest.raises(dmlvk.DeviceError, match="kernel slice1"):
        own.compile_all([desc(1), desc(2)])


ROBUSTNESS = "VK_EXT_pipeline_robustness"


def robustness(information: Any) -> list[Any]:
    """The VkPipelineRobustnessCreateInfoEXT that are chained to a VkComputePipelineCreateInfo."""
    found, link = [], vk.ffi.cast("VkBaseInStructure*", information.pNext)
    while link != vk.ffi.NULL:
        if link.sType == vk.VK_STRUCTURE_TYPE_PIPELINE_ROBUSTNESS_CREATE_INFO_EXT:
            found.append(vk.ffi.cast("VkPipelineRobustnessCreateInfoEXT*", link))
        link = vk.ffi.cast("VkBaseInStructure*", link.pNext)
    return found


@pytest.mark.every_driver
@pytest.mark.parametrize("kept", ["all features", "all features but this", "what Vulkan 1.2 guarantees"])
def test_each_pipeline_is_without_bounds_checks_where_the_device_has_the_feature(
    device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch, kept: str
) -> None:
    """With it, drivers are told that nothing accesses a buffer outside of its bounds; without, nothing is chained."""
    profile = device.profile
    if kept == "all features but this":
        profile = dataclasses.replace(profile, features=profile.features - {"pipelineRobustness"})
    elif kept != "all features":
        profile = narrow(profile, "minimum")
    has_feature = kept == "all features" and ROBUSTNESS in device.profile.extensions
    real, seen = vk.vkCreateComputePipelines, []

    def create(handle: Any, cache: Any, count: int, information: Any, *rest: Any) -> Any:
        chained = robustness(information)
        assert (count, len(chained)) == (1, has_feature)
        disabled = vk.VK_PIPELINE_ROBUSTNESS_BUFFER_BEHAVIOR_DISABLED_EXT
        assert all((each.storageBuffers, each.uniformBuffers) == (disabled, disabled) for each in chained)
        # What no kernel has stays as the device has it.
        default = vk.VK_PIPELINE_ROBUSTNESS_BUFFER_BEHAVIOR_DEVICE_DEFAULT_EXT
        assert all((each.vertexInputs, each.images) == (default, default) for each in chained)
        seen.append(information.stage.module)
        return real(handle, cache, count, information, *rest)

    monkeypatch.setattr(vk, "vkCreateComputePipelines", create)
    with dmlvk.Device(device.name, profile=profile) as own:
        configuration = own.vulkan.context.configuration
        assert ("pipelineRobustness" in configuration.features) == has_feature
        assert ROBUSTNESS in configuration.extensions or not has_feature
        for rank in (1, 2):
            run(own.compile(desc(rank)), desc(rank).input_tensor)
    assert len(seen) == 2


def test_features_of_extensions_are_asked_for_where_they_are_listed() -> None:
    """A structure of an extension that a device lacks must not be chained."""
    names = {"VK_KHR_cooperative_matrix": "CooperativeMatrix", ROBUSTNESS: "PipelineRobustness"}
    for version in ((1, 2, 0), (1, 3, 0)):
        for listed in ((), tuple(names), *((name,) for name in names)):
            structures = feature_structures(version, frozenset(listed))
            for extension, part in names.items():
                assert sum(part in structure for structure in structures) == (extension in listed)
            assert len(chain_of(feature_structures(version, frozenset(listed)))) == len(structures)
