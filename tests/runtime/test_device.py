"""Opening, closing and sharing a device."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest

import dmlvk
from dmlvk.vulkan.library import vk
from tests.runtime.busy import keep_busy
from tests.vulkan.variants import copy_desc, open_variant

pytestmark = pytest.mark.every_driver

DESC = dmlvk.TensorDesc(dmlvk.DataType.INT32, (64,))
VALUES = np.arange(64, dtype=np.int32)


def test_a_device_is_chosen_by_name_and_index(device: dmlvk.Device) -> None:
    (index,) = [info.index for info in dmlvk.devices() if info.name == device.name]
    for selector in (index, str(index), device.name.upper(), device.name[2:8]):
        with dmlvk.Device(selector) as own:
            assert own.name == device.name


def test_closing_twice_does_nothing(device: dmlvk.Device) -> None:
    own = open_variant(device, "direct")
    own.close()
    own.close()
    assert own.is_closed
    assert "closed" in repr(own)


def test_a_closed_device_cannot_be_used(device: dmlvk.Device) -> None:
    with open_variant(device, "direct") as own:
        tensor, buffer = own.tensor(VALUES), own.buffer(64)
        operator = own.compile(copy_desc(DESC))
        binding = operator.bind(input_tensor=tensor, output_tensor=own.tensor(DESC))
        sequence = own.sequence([binding])
    uses: list[Callable[[], object]] = [
        tensor.numpy,
        tensor.read_bytes,
        lambda: tensor.write(VALUES),
        lambda: tensor.write_bytes(bytes(256)),
        lambda: buffer.tensor(dmlvk.TensorDesc(dmlvk.DataType.INT32, (1,))),
        lambda: own.tensor(VALUES),
        lambda: own.empty(3),
        lambda: own.zeros(3),
        lambda: tensor.numpy(out=VALUES.copy()),
        lambda: np.asarray(tensor),
        lambda: np.from_dlpack(tensor),
        tensor.__dlpack_device__,
        lambda: own.buffer(1),
        lambda: own.compile(copy_desc(DESC)),
        lambda: operator(input_tensor=tensor, output_tensor=tensor),
        lambda: operator.bind(input_tensor=tensor, output_tensor=tensor),
        lambda: own.submit([binding]),
        lambda: own.sequence([binding]),
        sequence.submit,
        own.wait,
        lambda: own.memory_used,
    ]
    for use in uses:
        with pytest.raises(dmlvk.DeviceError, match="closed"):
            use()


def test_equal_descriptors_compile_once_and_equal_plans_share_a_pipeline(device: dmlvk.Device) -> None:
    with open_variant(device, "direct") as own:
        first = own.compile(copy_desc(DESC))
        assert own.compile(copy_desc(dmlvk.TensorDesc(dmlvk.DataType.INT32, (64,)))) is first
        count = own.vulkan.pipelines.count
        other = own.compile(copy_desc(dmlvk.TensorDesc(dmlvk.DataType.FLOAT32, (64,))))
        assert other is not first
        assert own.vulkan.pipelines.count == count


def test_the_environment_forces_a_kernel_path(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLVK_KERNEL", "nonsense")
    with pytest.raises(ValueError, match="nonsense"):
        device.compile(copy_desc(DESC))
    monkeypatch.setenv("DMLVK_KERNEL", "blocks")
    assert device.compile(copy_desc(DESC)).plan.path == "blocks"


def test_a_binding_alone_is_no_list(device: dmlvk.Device) -> None:
    operator = device.compile(copy_desc(DESC))
    binding = operator.bind(input_tensor=device.tensor(VALUES), output_tensor=device.tensor(DESC))
    for use in (device.submit, device.sequence):
        with pytest.raises(TypeError, match=r"a Binding, not a list of Bindings; pass a single one as \[binding\]"):
            use(binding)  # type: ignore[arg-type]


def test_two_devices_work_side_by_side(device: dmlvk.Device) -> None:
    with open_variant(device, "direct") as first, open_variant(device, "staged") as second:
        pairs = [(own.tensor(VALUES + number), own.tensor(DESC)) for number, own in enumerate((first, second))]
        for own, (source, target) in zip((first, second), pairs, strict=True):
            own.compile(copy_desc(DESC))(input_tensor=source, output_tensor=target)
        for number, (_, target) in enumerate(pairs):
            np.testing.assert_array_equal(target.numpy(), VALUES + number)


@pytest.mark.parametrize("variant", ["direct", "segmented-staged"])
def test_threads_share_a_device(device: dmlvk.Device, variant: str) -> None:
    failures: list[BaseException] = []
    with open_variant(device, variant, timestamps=True) as own:

        def work(number: int) -> None:
            try:
                for count in range(1, 13):
                    desc = dmlvk.TensorDesc(dmlvk.DataType.INT16, (count, number + 2))
                    values = np.full(desc.sizes, 100 * number + count, np.int16)
                    source, target = own.tensor(values), own.tensor(desc)
                    submission = own.compile(copy_desc(desc))(input_tensor=source, output_tensor=target)
                    del source
                    np.testing.assert_array_equal(target.numpy(), values)
                    assert submission.gpu_time is not None
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        own.wait()
        assert own.memory_used == 0


def test_closing_while_another_thread_waits(device: dmlvk.Device) -> None:
    own = open_variant(device, "direct")
    submission, _ = keep_busy(own)
    results: list[object] = []

    def wait() -> None:
        try:
            submission.wait()
            results.append("done")
        except dmlvk.DeviceError as error:
            results.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    own.close()
    thread.join(60)
    assert len(results) == 1
    assert submission.done


def test_a_lost_device_says_so_and_can_be_closed(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    own = open_variant(device, "direct")
    source, target = own.tensor(VALUES), own.tensor(DESC)
    binding = own.compile(copy_desc(DESC)).bind(input_tensor=source, output_tensor=target)
    monkeypatch.setattr(vk, "vkQueueSubmit", lambda *arguments: -4)
    with pytest.raises(dmlvk.DeviceError, match="VK_ERROR_DEVICE_LOST"):
        own.submit([binding])
    monkeypatch.undo()
    with pytest.raises(dmlvk.DeviceError, match="was lost"):
        own.submit([binding])
    own.close()


def test_a_refused_submission_leaves_the_device_usable(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_variant(device, "staged") as own:
        source, target = own.tensor(VALUES), own.tensor(DESC)
        binding = own.compile(copy_desc(DESC)).bind(input_tensor=source, output_tensor=target)
        monkeypatch.setattr(vk, "vkQueueSubmit", lambda *arguments: -1)
        for use in (lambda: own.submit([binding]), target.numpy, lambda: source.write(VALUES)):
            with pytest.raises(dmlvk.DeviceError, match="VK_ERROR_OUT_OF_HOST_MEMORY"):
                use()
        monkeypatch.undo()
        own.submit([binding])
        np.testing.assert_array_equal(target.numpy(), VALUES)
