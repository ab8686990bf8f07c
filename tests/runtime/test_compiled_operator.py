"""Carrying out plans: stages, scratch and persistent memory, tensors that are taken over."""

from __future__ import annotations

import dataclasses
import gc
import time
from typing import Any

import numpy as np
import pytest

import dmlvk
from dmlvk.planning.plan import CLEAN, PERSISTENT, SCRATCH, Dispatch, Plan
from dmlvk.vulkan.instance import open_devices
from tests.runtime.convolutions import convolution
from tests.runtime.test_new_tensors import OnlyDLPack
from tests.vulkan.variants import copy_desc, open_variant

pytestmark = pytest.mark.every_driver

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
        operator = dmlvk.CompiledOperator.of_plan(own.engine, copy_desc(DESC), Plan("twice", stages, scratch_size=256))
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


def test_clean_memory_holds_zeros_at_first_and_is_no_other_binding_s(device: dmlvk.Device) -> None:
    """Memory that held other bytes before is cleared. A binding's own writes stay in it."""
    with open_variant(device, "direct") as own:
        dirty = [own.tensor(np.full_like(VALUES, 77)) for _ in range(4)]
        del dirty
        own.wait()
        reading = dmlvk.CompiledOperator.of_plan(
            own.engine, copy_desc(DESC), Plan("reading", copying(device, CLEAN, "output_tensor"), clean_size=256)
        )
        source, target = own.tensor(VALUES), own.tensor(VALUES)
        reading.bind(input_tensor=source, output_tensor=target)
        reading(input_tensor=source, output_tensor=target).wait()
        np.testing.assert_array_equal(target.numpy(), np.zeros_like(VALUES))
        stages = copying(device, CLEAN, "output_tensor") + copying(device, "input_tensor", CLEAN)
        writing = dmlvk.CompiledOperator.of_plan(own.engine, copy_desc(DESC), Plan("writing", stages, clean_size=256))
        for expected in (np.zeros_like(VALUES), VALUES):
            writing(input_tensor=source, output_tensor=target).wait()
            np.testing.assert_array_equal(target.numpy(), expected)
        other = writing.bind(input_tensor=source, output_tensor=target)
        own.submit([other]).wait()
        np.testing.assert_array_equal(target.numpy(), np.zeros_like(VALUES))


def test_persistent_memory_is_filled_once(device: dmlvk.Device) -> None:
    plan = Plan(
        "prepared",
        stages=copying(device, PERSISTENT, "output_tensor"),
        initialization=copying(device, "input_tensor", PERSISTENT),
        persistent_size=256,
    )
    operator = dmlvk.CompiledOperator.of_plan(device.engine, copy_desc(OWNED, DESC), plan)
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


MATRIX = np.random.default_rng(41).integers(-(2**15), 2**15, (5, 6)).astype(np.int16)
# A matrix whose columns come first, with gaps and padding.
OWNED_MATRIX = dmlvk.TensorDesc("int16", (5, 6), (2, 11), total_size_in_bytes=200, flags=dmlvk.TensorFlags.OWNED_BY_DML)
PACKED_MATRIX = dmlvk.TensorDesc("int16", (5, 6))


class TestInitializingWithArrays:
    @pytest.mark.every_driver(variant=["staged"])
    @pytest.mark.parametrize(
        "array",
        [
            MATRIX,
            MATRIX[::-1, ::-1],
            np.asfortranarray(MATRIX),
            MATRIX.astype(">i2"),
            np.broadcast_to(MATRIX[:1], (5, 6)),
            OnlyDLPack(MATRIX),
        ],
        ids=["packed", "backwards", "Fortran order", "big endian", "broadcast", "another library's"],
    )
    @pytest.mark.parametrize("variant", ["direct", "staged"])
    def test_an_array_of_any_layout_is_taken_over(self, device: dmlvk.Device, variant: str, array: Any) -> None:
        expected = MATRIX if isinstance(array, OnlyDLPack) else array.copy()
        with open_variant(device, variant) as own:
            target = own.tensor(PACKED_MATRIX)
            for owned in (OWNED_MATRIX, dataclasses.replace(OWNED_MATRIX, strides=None)):
                operator = own.compile(copy_desc(owned, PACKED_MATRIX))
                operator.initialize(input_tensor=array)
                operator(output_tensor=target)
                np.testing.assert_array_equal(target.numpy(), expected)

    def test_the_array_may_change_afterwards(self, device: dmlvk.Device) -> None:
        operator = device.compile(copy_desc(OWNED_MATRIX, PACKED_MATRIX))
        array, target = MATRIX.copy(), device.tensor(PACKED_MATRIX)
        operator.initialize(input_tensor=array)
        array[:] = 0
        operator(output_tensor=target)
        np.testing.assert_array_equal(target.numpy(), MATRIX)

    @pytest.mark.parametrize(
        ("array", "message"),
        [
            (MATRIX.T, r"array of shape \(6, 5\) and dtype int16; the descriptor has sizes \(5, 6\) and dtype int16"),
            (MATRIX.astype(np.int32), r"dtype int32; the descriptor .*int16"),
            (MATRIX.tolist(), r"dtype int64; the descriptor .*int16"),
            (MATRIX.view(np.uint16), r"dtype uint16; "),
            (7, r"shape \(\) and dtype int64; "),
            ("text", r"'text': must be numbers or an array, not text"),
            (object(), r"<object .*>: must be numbers, a list of them, or an array"),
            (None, "missing; it takes input_tensor"),
        ],
        ids=["sizes", "type", "a list", "another sign", "a number", "text", "an object", "None"],
    )
    def test_other_arrays_are_refused_and_the_old_contents_stay(
        self, device: dmlvk.Device, array: Any, message: str
    ) -> None:
        operator = device.compile(copy_desc(OWNED_MATRIX, PACKED_MATRIX))
        operator.initialize(input_tensor=MATRIX)
        is_array = not isinstance(array, str) and type(array) is not object
        error = dmlvk.BindingError if is_array else TypeError
        with pytest.raises(error, match=f"SLICE1: input_tensor {'is' if is_array else '='} .*{message}"):
            operator.initialize(input_tensor=array)
        target = device.tensor(PACKED_MATRIX)
        operator(output_tensor=target)
        np.testing.assert_array_equal(target.numpy(), MATRIX)

    def test_elements_that_share_memory_need_a_tensor(self, device: dmlvk.Device) -> None:
        repeated = dataclasses.replace(OWNED_MATRIX, strides=(0, 1))
        operator = device.compile(copy_desc(repeated, PACKED_MATRIX))
        with pytest.raises(dmlvk.BindingError, match=r"share memory \(strides \(0, 1\)\); pass a Tensor, or describe"):
            operator.initialize(input_tensor=MATRIX)
        tensor = device.tensor(dataclasses.replace(repeated, flags=dmlvk.TensorFlags.NONE))
        tensor.write(MATRIX)
        operator.initialize(input_tensor=tensor)
        target = device.tensor(PACKED_MATRIX)
        operator(output_tensor=target)
        np.testing.assert_array_equal(target.numpy(), np.tile(MATRIX[-1], (5, 1)))

    def test_a_tensor_that_is_not_owned_is_named(self, device: dmlvk.Device) -> None:
        operator = device.compile(copy_desc(OWNED_MATRIX, PACKED_MATRIX))
        with pytest.raises(dmlvk.BindingError, match="no tensor named output_tensor; it takes input_tensor"):
            operator.initialize(input_tensor=MATRIX, output_tensor=MATRIX)  # type: ignore[call-arg]

    def test_a_filter_and_its_parameters(self, device: dmlvk.Device) -> None:
        """Arrays and a Tensor together; the results are the reference's."""
        random = np.random.default_rng(43)
        arrays = {
            "input_tensor": random.integers(-128, 128, (2, 4, 6, 6), np.int8),
            "input_scale_tensor": np.array([0.1], np.float32),
            "filter_tensor": random.integers(-128, 128, (8, 4, 3, 3), np.int8),
            "filter_scale_tensor": random.uniform(0.1, 0.3, (1, 8, 1, 1)).astype(np.float32),
            "bias_tensor": random.integers(-1000, 1000, (1, 8, 1, 1)).astype(np.int32),
            "output_scale_tensor": np.array([3.0], np.float32),
        }
        owned = ("filter_tensor", "filter_scale_tensor", "bias_tensor")
        flags = {True: dmlvk.TensorFlags.OWNED_BY_DML, False: dmlvk.TensorFlags.NONE}
        descs: dict[str, Any] = {
            name: dmlvk.TensorDesc(array.dtype, array.shape, flags=flags[name in owned])
            for name, array in arrays.items()
        }
        desc = dmlvk.QuantizedLinearConvolutionDesc(
            **descs,
            output_tensor=dmlvk.TensorDesc("int8", (2, 8, 4, 4)),
            strides=(1, 1),
            dilations=(1, 1),
            start_padding=(0, 0),
            end_padding=(0, 0),
            group_count=1,
        )
        operator = device.compile(desc)
        filters_last = np.ascontiguousarray(arrays["filter_tensor"].transpose(1, 2, 3, 0)).transpose(3, 0, 1, 2)
        operator.initialize(
            filter_tensor=filters_last,
            filter_scale_tensor=OnlyDLPack(arrays["filter_scale_tensor"]),  # type: ignore[arg-type]
            bias_tensor=device.tensor(arrays["bias_tensor"]),
        )
        target = device.tensor(desc.output_tensor)
        bound = {name: device.tensor(array) for name, array in arrays.items() if name not in owned}
        operator(**bound, output_tensor=target)
        np.testing.assert_array_equal(target.numpy(), dmlvk.reference.run(desc, **arrays))


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


def test_a_first_call_does_not_wait_for_a_compiler(device: dmlvk.Device) -> None:
    """Some drivers compile at the first dispatch. A call takes milliseconds, the compiler hundreds of them.

    These are the process's own: another program may take the processor from it in the middle of a call.
    """
    case = convolution(16, 19, 5, groups=16, owned=False)
    with dmlvk.Device(device.name) as own:
        tensors = case.tensors(own)
        start = time.process_time()
        operator = own.compile(case.desc)
        compiled = time.process_time()
        operator(**tensors).wait()
        called = time.process_time()
        np.testing.assert_array_equal(tensors["output_tensor"].numpy(), case.expected())
    assert called - compiled < (compiled - start) / 2
