"""Cases that fail on purpose, each in its own way, among cases that pass."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from dmlvk import DataType, QuantizedLinearConvolutionDesc, Slice1Desc, TensorDesc, TensorFlags
from dmlvk.conformance.case import Case, NotSupported, Workload, generator
from dmlvk.device_profile import DeviceProfile
from dmlvk.errors import DeviceLostError
from dmlvk.vulkan.recorder import Recorder

TYPES = {"u8": DataType.UINT8, "f16": DataType.FLOAT16, "s64": DataType.INT64}


def workload(name: str, data_type: DataType = DataType.UINT8) -> Workload:
    """SLICE1 that takes every third column from the right; the output has a gap after each element."""
    elements = np.frombuffer(generator(name).bytes(30 * data_type.size_in_bytes), data_type.numpy_dtype)
    desc = Slice1Desc(
        input_tensor=TensorDesc(data_type, (2, 15)),
        output_tensor=TensorDesc(data_type, (2, 5), (20, 2)),
        input_window_offsets=(0, 0),
        input_window_sizes=(2, 15),
        input_window_strides=(1, -3),
    )
    return Workload(desc, {"input_tensor": elements.reshape(2, 15)}, offsets={"output_tensor": 16})


def good_cases(default_only: bool = False) -> Iterator[Case]:
    """Cases that pass."""
    for number in range(6 if default_only else 12):
        for label, data_type in TYPES.items():
            name = f"slice1:good:type={label};number={number}"
            yield Case(name, partial(workload, name, data_type), is_default=number < 6)


def convolution_workload(name: str) -> Workload:
    """Three dispatches and scratch memory; the filter is OWNED_BY_DML, and packed at initialization."""
    random = generator(name)
    arrays: dict[str, np.ndarray] = {
        "input_tensor": random.integers(0, 256, (1, 16, 9, 11), np.uint8),
        "input_scale_tensor": np.full((1,), 0.02, np.float32),
        "input_zero_point_tensor": np.full((1,), 120, np.uint8),
        "filter_tensor": random.integers(-128, 128, (24, 16, 3, 3), np.int8),
        "filter_scale_tensor": np.full((1,), 0.001, np.float32),
        "output_scale_tensor": np.full((1,), 0.03, np.float32),
    }
    tensors = {field: TensorDesc(array.dtype, array.shape) for field, array in arrays.items()}
    tensors["filter_tensor"] = TensorDesc(DataType.INT8, (24, 16, 3, 3), flags=TensorFlags.OWNED_BY_DML)
    desc = QuantizedLinearConvolutionDesc(
        **tensors,
        output_tensor=TensorDesc(DataType.INT8, (1, 24, 9, 11), (24 * 9 * 12, 9 * 12, 12, 1)),
        strides=(1, 1),
        dilations=(1, 1),
        start_padding=(1, 1),
        end_padding=(1, 1),
        group_count=1,
    )
    return Workload(desc, arrays, offsets={"input_tensor": 48})


def lacks_everything(profile: DeviceProfile) -> NotSupported:
    return NotSupported("feature:telepathy", f"{profile.name} cannot know what was meant")


# A driver fails while the device runs. These drills fail in the question whether the device supports the case.


def hang(profile: DeviceProfile) -> None:
    time.sleep(3600)


def die(profile: DeviceProfile) -> None:
    os.abort()


def leave(profile: DeviceProfile) -> None:
    os._exit(3)


def lose(profile: DeviceProfile) -> None:
    raise DeviceLostError("vkQueueSubmit returned VK_ERROR_DEVICE_LOST (-4)")


def wrong() -> Workload:
    """One bit of the expected output is wrong."""
    made = workload("wrong")
    expected = made.result().copy()
    expected[1, 3] ^= 1
    return Workload(made.desc, made.inputs, expected)


def confused() -> Workload:
    raise RuntimeError("this case cannot be built")


def all_cases(default_only: bool = False) -> Iterator[Case]:
    """The drills, with good cases between them."""
    good = good_cases(default_only)
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


def forget_barriers(profile: DeviceProfile) -> None:
    """From now on, this process records no barriers between dispatches that depend on each other."""
    Recorder.between_dispatches = lambda self: None  # type: ignore[method-assign]


def cases_without_barriers(default_only: bool = False) -> Iterator[Case]:
    """One case as it is, then the same case without barriers."""
    for name, support in (("with", None), ("without", forget_barriers)):
        yield Case(f"drill:barriers:it={name}", partial(convolution_workload, name), is_default=True, support=support)


def fail_once(profile: DeviceProfile) -> None:
    """Fail in the first process that asks."""
    mark = Path(os.environ["DMLVK_DRILL"])
    if not mark.exists():
        mark.touch()
        raise RuntimeError("not this time")


def cases_that_fail_now_and_then(default_only: bool = False) -> Iterator[Case]:
    """A case that fails when it is run for the first time."""
    name = "drill:flaky:it=first_run"
    yield Case(name, partial(workload, name), is_default=True, support=fail_once)
