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


def hang() -> Workload:
    time.sleep(3600)
    raise AssertionError("nobody waits so long")


def die() -> Workload:
    os.abort()


def leave() -> Workload:
    os._exit(3)


def wrong() -> Workload:
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
    for name, build in (("hang", hang), ("die", die), ("leave", leave), ("wrong", wrong), ("confused", confused)):
        yield Case(f"drill:{name}:it=1", build, is_default=True)
        yield next(good)
    name = "drill:unsupported:it=1"
    yield Case(name, partial(workload, name), is_default=True, support=lacks_everything)
    name = "drill:path:path=tiles"
    yield Case(name, partial(workload, name), path="nonsense", is_default=True)
    yield from good
