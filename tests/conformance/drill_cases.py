"""Cases that go wrong on purpose, each in its own way, among cases that are right."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import partial

import numpy as np

from dmlvk import DataType, Slice1Desc, TensorDesc
from dmlvk.conformance.case import Case, NotSupported, Workload, generator
from dmlvk.device_profile import DeviceProfile
from dmlvk.vulkan.library import DeviceLostError

TYPES = {"u8": DataType.UINT8, "f16": DataType.FLOAT16, "s64": DataType.INT64}


def workload(name: str, data_type: DataType = DataType.UINT8) -> Workload:
    """Every third column from the right, into rows with gaps behind each element."""
    elements = np.frombuffer(generator(name).bytes(30 * data_type.size_in_bytes), data_type.numpy_dtype)
    desc = Slice1Desc(
        input_tensor=TensorDesc(data_type, (2, 15)),
        output_tensor=TensorDesc(data_type, (2, 5), (20, 2)),
        input_window_offsets=(0, 0),
        input_window_sizes=(2, 15),
        input_window_strides=(1, -3),
    )
    return Workload(desc, {"input_tensor": elements.reshape(2, 15)}, offsets={"output_tensor": 16})


def good_cases(count: int = 12) -> Iterator[Case]:
    """Cases that pass."""
    for number in range(count):
        for label, data_type in TYPES.items():
            name = f"slice1:good:type={label};number={number}"
            yield Case(name, partial(workload, name, data_type), is_default=number < count // 2)


def lacks_everything(profile: DeviceProfile) -> NotSupported:
    return NotSupported("feature:telepathy", f"{profile.name} cannot know what was meant")


# What goes wrong in a driver goes wrong while the device runs; here, when it is asked what it can do.


def hang(profile: DeviceProfile) -> None:
    time.sleep(3600)


def die(profile: DeviceProfile) -> None:
    os.abort()


def leave(profile: DeviceProfile) -> None:
    os._exit(3)


def lose(profile: DeviceProfile) -> None:
    raise DeviceLostError("vkQueueSubmit returned VK_ERROR_DEVICE_LOST (-4)")


def wrong() -> Workload:
    """Expects one bit that is not so."""
    made = workload("wrong")
    expected = made.result().copy()
    expected[1, 3] ^= 1
    return Workload(made.desc, made.inputs, expected)


def confused() -> Workload:
    raise RuntimeError("this case cannot be built")


def all_cases() -> Iterator[Case]:
    """The bad ones with good ones between."""
    good = good_cases()
    yield next(good)
    for support in (hang, die, leave, lose, lacks_everything):
        name = f"drill:support:it={support.__name__}"
        yield Case(name, partial(workload, name), is_default=True, support=support)
        yield next(good)
    yield Case("drill:build:it=wrong", wrong, is_default=True)
    yield Case("drill:build:it=confused", confused, is_default=True)
    name = "drill:path:path=nonsense"
    yield Case(name, partial(workload, name), path="nonsense", is_default=True)
    yield from good
