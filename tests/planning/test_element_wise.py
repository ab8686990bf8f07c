"""Plans of element-wise operators, on recorded devices."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from dmlvk import DataType, DeviceType, TensorDesc, TensorFlags
from dmlvk.operators import (
    ByteTableDesc,
    ElementWiseDequantizeLinearDesc,
    ElementWiseQuantizedLinearAddDesc,
    ElementWiseQuantizeLinearDesc,
    OperatorDesc,
)
from dmlvk.planning import KERNEL_PATHS, MAXIMUM_SUBMISSION_SECONDS, PathError, plan
from tests import profiles
from tests.amount import THOROUGH
from tests.planning.limits import check_plan

U8, I8, F32 = DataType.UINT8, DataType.INT8, DataType.FLOAT32
H200 = profiles.load("nvidia-h200")


def table(sizes: Any, *, pairs: bool = False, axis: int | None = None, strides: Any = None) -> ByteTableDesc:
    length = 65536 if pairs else 256
    tensor = TensorDesc(U8, sizes)
    tables = (length,) if axis is None else (sizes[axis], length)
    return ByteTableDesc(
        input_tensor=tensor,
        second_input_tensor=tensor if pairs else None,
        table_tensor=TensorDesc(I8, tables, strides),
        output_tensor=TensorDesc(I8, sizes),
        axis=axis,
    )


def added(sizes: Any, b_strides: Any = None, flags: TensorFlags = TensorFlags.NONE) -> Any:
    one = (1,) * len(sizes)
    tensors: dict[str, Any] = {
        "a_tensor": TensorDesc(U8, sizes),
        "b_tensor": TensorDesc(U8, sizes, b_strides),
        "output_tensor": TensorDesc(U8, sizes),
    }
    for name in ("a", "b", "output"):
        tensors[f"{name}_scale_tensor"] = TensorDesc(F32, one, flags=flags)
        tensors[f"{name}_zero_point_tensor"] = TensorDesc(U8, one, flags=flags)
    return ElementWiseQuantizedLinearAddDesc(**tensors)


def quantized(sizes: Any, strides: Any) -> tuple[OperatorDesc, OperatorDesc]:
    scale, zero_point = TensorDesc(F32, sizes, strides), TensorDesc(U8, sizes, strides)
    floats, integers = TensorDesc(F32, sizes), TensorDesc(U8, sizes)
    return (
        ElementWiseQuantizeLinearDesc(
            input_tensor=floats, scale_tensor=scale, zero_point_tensor=zero_point, output_tensor=integers
        ),
        ElementWiseDequantizeLinearDesc(
            input_tensor=integers, scale_tensor=scale, zero_point_tensor=zero_point, output_tensor=floats
        ),
    )


NCHW, NHWC = (64, 256, 56, 56), (64, 56, 56, 256)
DESCRIPTORS: dict[str, OperatorDesc] = {
    "table": table(NCHW),
    "a table of pairs": table(NHWC, pairs=True),
    "a table a channel, NCHW": table(NCHW, axis=1),
    "a table a channel, NHWC": table(NHWC, axis=3),
    "a table of pairs a channel": table((1, 3, 5, 7), pairs=True, axis=1),
    "a table with gaps": table((1, 3, 5, 7), axis=1, strides=(1, 7)),
    "almost 4 GiB": table((3, 1 << 30)),
    "a table of pairs, almost 4 GiB": table((3, 1 << 30), pairs=True, axis=0),
    "sum": added(NCHW),
    "sum, owned": added(NHWC, flags=TensorFlags.OWNED_BY_DML),
    "sum, broadcast": added(NCHW, (0, 1, 0, 0)),
    "sum of seven dimensions": added((2, 3, 2, 3, 2, 3, 2, 3), (1, 0, 2, 7, 14, 42, 100, 210)),
    "quantize": quantized(NCHW, (0, 0, 0, 0))[0],
    "quantize a channel": quantized(NHWC, (0, 0, 0, 1))[0],
    "quantize more than 4 GiB": quantized((1 << 31,), (0,))[0],
    "dequantize": quantized(NCHW, (0, 1, 0, 0))[1],
    "dequantize more than 4 GiB": quantized((1 << 31,), (1,))[1],
}


@pytest.mark.parametrize("name", DESCRIPTORS)
def test_every_recorded_device_carries_out_every_path(name: str) -> None:
    """By day each descriptor has a quarter of the devices, and each device a quarter of the descriptors."""
    desc = DESCRIPTORS[name]
    for device in profiles.NAMES if THOROUGH else profiles.NAMES[[*DESCRIPTORS].index(name) % 4 :: 4]:
        profile = profiles.load(device)
        if "GiB" in name and profile.device_type is DeviceType.CPU:
            continue  # which would take thousands of dispatches
        for path in (None, *KERNEL_PATHS[type(desc)]):
            try:
                made = plan(desc, profile, path=path)
            except PathError:
                assert path in ("shared", "float32")
                continue
            check_plan(made, desc, profile)
            assert all(dispatch.seconds <= MAXIMUM_SUBMISSION_SECONDS for dispatch in made.dispatches)


def test_whole_tensors_are_one_dispatch_of_whole_units() -> None:
    for name in ("table", "a table of pairs", "sum, owned", "quantize"):
        desc = DESCRIPTORS[name]
        (stage,) = plan(desc, H200).stages
        (dispatch,) = stage
        unit = 4 if name == "quantize" else 16
        assert dispatch.push_constants[4] == math.prod(desc.tensors["output_tensor"].sizes) // unit


def test_owned_parameters_make_the_table_once() -> None:
    owned, bound = (plan(DESCRIPTORS[name], H200) for name in ("sum, owned", "sum"))
    assert (len(owned.stages), len(owned.initialization)) == (1, 2)
    assert (len(bound.stages), len(bound.initialization)) == (3, 0)
    assert owned.persistent_size == bound.scratch_size >= 65536 + 16


def test_one_parameter_that_is_not_owned_makes_the_table_in_each_call() -> None:
    desc = DESCRIPTORS["sum, owned"]
    free = replace(desc, b_scale_tensor=TensorDesc(F32, (1, 1, 1, 1)))  # type: ignore[call-arg]
    made = plan(free, H200)
    kernels = [stage[0].kernel.rpartition("/")[2] for stage in made.stages]
    assert (kernels, made.persistent_size) == (["table", "check", "sum"], 0)


def test_packed_tables_are_read_where_they_lie() -> None:
    assert len(plan(DESCRIPTORS["a table a channel, NCHW"], H200).stages) == 1
    assert len(plan(DESCRIPTORS["a table with gaps"], H200).stages) == 2
    owned = table((1, 3, 5, 7), axis=1, strides=(1, 7))
    owned = replace(owned, table_tensor=TensorDesc(I8, (3, 256), (1, 7), flags=TensorFlags.OWNED_BY_DML))
    made = plan(owned, H200)
    assert (len(made.stages), len(made.initialization)) == (1, 1)


def test_a_table_that_lies_across_two_segments_is_copied() -> None:
    desc = DESCRIPTORS["table"]
    offset = H200.segment_size - 128
    made = plan(desc, H200, offsets={"table_tensor": offset})
    assert len(made.stages) == 2
    windows = [window for dispatch in made.stages[-1] for window in dispatch.windows]
    assert "table_tensor" not in {window.tensor for window in windows}


def test_a_table_that_fits_no_storage_buffer_is_refused() -> None:
    """Vulkan guarantees storage buffers of 128 MiB: only a made-up device has so small ones."""
    tiny = replace(H200, limits=replace(H200.limits, max_storage_buffer_range=1 << 12))
    for name in ("a table of pairs", "sum"):
        with pytest.raises(PathError, match="in one storage buffer"):
            plan(DESCRIPTORS[name], tiny)
