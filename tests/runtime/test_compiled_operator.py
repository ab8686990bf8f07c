"""Carrying out plans: stages, scratch and persistent memory, tensors that are taken over."""

from __future__ import annotations

import dataclasses
import gc

import numpy as np
import pytest

import dmlvk
from dmlvk.planning.plan import PERSISTENT, SCRATCH, Dispatch, Plan
from dmlvk.vulkan.instance import open_devices
from tests.vulkan.variants import copy_desc, open_variant

DESC = dmlvk.TensorDesc(dmlvk.DataType.INT32, (64,))
OWNED = dmlvk.TensorDesc(dmlvk.DataType.INT32, (64,), flags=dmlvk.TensorFlags.OWNED_BY_DML)
VALUES = np.arange(64, dtype=np.int32)


def copying(device: dmlvk.Device, source: str, target: str) -> tuple[tuple[Dispatch, ...], ...]:
    """The stages of a plan that copies, with other names for its input and output."""
    names = {"input_tensor": source, "output_tensor": target}
    return tuple(
        tuple(
            dataclasses.replace(
                dispatch,
                windows=tuple(dataclasses.replace(window, tensor=names[window.tensor]) for window in dispatch.windows),
            )
            for dispatch in stage
        )
        for stage in device.plan(copy_desc(DESC)).stages
    )


def test_stages_run_in_order_and_scratch_is_there(device: dmlvk.Device) -> None:
    stages = copying(device, "input_tensor", SCRATCH) + copying(device, SCRATCH, "output_tensor")
    with open_variant(device, "direct") as own:
        operator = dmlvk.CompiledOperator(own, copy_desc(DESC), Plan("twice", stages, scratch_size=256))
        source, first, second = own.tensor(VALUES), own.tensor(DESC), own.tensor(DESC)
        bindings = [operator.bind(input_tensor=source, output_tensor=target) for target in (first, second)]
        assert own.memory_used == 5 * 256
        for _ in range(5):
            own.submit(bindings)
        np.testing.assert_array_equal(first.numpy(), VALUES)
        np.testing.assert_array_equal(second.numpy(), VALUES)
        bindings.clear()
        own.wait()
        assert own.memory_used == 3 * 256


def test_persistent_memory_is_filled_once(device: dmlvk.Device) -> None:
    plan = Plan(
        "prepared",
        stages=copying(device, PERSISTENT, "output_tensor"),
        initialization=copying(device, "input_tensor", PERSISTENT),
        persistent_size=256,
    )
    operator = dmlvk.CompiledOperator(device, copy_desc(OWNED, DESC), plan)
    target = device.tensor(DESC)
    with pytest.raises(dmlvk.BindingError, match=r"call initialize\(input_tensor\) first"):
        operator(output_tensor=target)
    source = device.tensor(VALUES)
    operator.initialize(input_tensor=source)
    source.write(VALUES + 1000)
    for _ in range(3):
        operator(output_tensor=target)
    np.testing.assert_array_equal(target.numpy(), VALUES)


@pytest.mark.parametrize("variant", ["direct", "staged"])
def test_a_tensor_that_is_owned_by_dml_is_bound_once(device: dmlvk.Device, variant: str) -> None:
    with open_variant(device, variant) as own:
        operator = own.compile(copy_desc(OWNED, DESC))
        target, source = own.tensor(DESC), own.tensor(VALUES)
        with pytest.raises(dmlvk.BindingError, match="input_tensor is missing"):
            operator.initialize()
        operator.initialize(input_tensor=source)
        source.write(-VALUES)
        with pytest.raises(dmlvk.BindingError, match="input_tensor is OWNED_BY_DML"):
            operator(input_tensor=source, output_tensor=target)
        operator(output_tensor=target)
        np.testing.assert_array_equal(target.numpy(), VALUES)
        operator.initialize(input_tensor=source)
        operator(output_tensor=target)
        np.testing.assert_array_equal(target.numpy(), -VALUES)
        # Another user of the same descriptor initialises an operator of its own.
        assert own.compile(copy_desc(OWNED, DESC)) is not operator


def test_a_device_that_is_dropped_is_closed(device: dmlvk.Device) -> None:
    gc.collect()
    before = len(open_devices)
    own = open_variant(device, "direct")
    operator = own.compile(copy_desc(DESC))
    target = own.tensor(DESC)
    submission = operator(input_tensor=own.tensor(VALUES), output_tensor=target)
    del own
    np.testing.assert_array_equal(target.numpy(), VALUES)
    assert len(open_devices) == before + 1
    del operator, target
    gc.collect()
    assert len(open_devices) == before
    assert submission.done
