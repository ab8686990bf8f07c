"""A session on several devices: the same bits, runs at the same time, batches in order; and sessions in pickle."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Iterator
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import dmlvk
from dmlvk.errors import OutOfMemoryError
from dmlvk.onnx import InferenceSession, ModelError
from dmlvk.onnx import session as sessions
from dmlvk.onnx.direct_run import Turns
from dmlvk.onnx.on_device import ModelOnDevice
from dmlvk.onnx.steps import DeviceStep, HostStep
from dmlvk.runtime import device_info, shared_devices
from tests.conftest import DEVICE_NAMES
from tests.onnx.models import (
    Array,
    Node,
    convolution,
    convolution_parameters,
    convolved,
    elements,
    model_of,
    require_equal,
)
from tests.programs import python


def network() -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A convolution for batches of any size, and its constants."""
    parameters = convolution_parameters(np.random.default_rng(7), (5, 3, 3, 3), per_channel=True)
    given = helper.make_tensor_value_info("x", onnx.TensorProto.UINT8, ["n", 3, 8, 8])
    return model_of([convolution(parameters)], {"x": given}, {"y": np.uint8}, parameters), parameters


def batches(number: int) -> list[Array]:
    generator = np.random.default_rng(8)
    return [elements(generator, np.uint8, (1 + k % 3, 3, 8, 8)) for k in range(number)]


def expected(x: Array, parameters: dict[str, Array]) -> Array:
    return convolved(x, parameters, (0,) * 4, (1, 1))


@pytest.fixture(scope="module")
def session() -> Iterator[InferenceSession]:
    """On all test devices, which are CPU drivers unless others are named."""
    session = InferenceSession(network()[0], "all" if DEVICE_NAMES == ["llvmpipe", "SwiftShader"] else DEVICE_NAMES)
    yield session
    for device in session.devices:
        device.close()


def test_all_devices_of_the_best_kind(session: InferenceSession) -> None:
    found = [device.name for device in session.devices]
    assert len(found) == len(DEVICE_NAMES)
    assert all(any(name in one for one in found) for name in DEVICE_NAMES)
    assert session.device is session.devices[0]
    assert all(name in repr(session) for name in found)


def test_batches_in_order_with_the_bits_of_one_device(session: InferenceSession) -> None:
    _, parameters = network()
    given = batches(40)
    found = list(session.map(given))
    assert len(found) == 40
    for x, outputs in zip(given, found, strict=True):
        require_equal(outputs, [expected(x, parameters)])
    assert all(part.last is not None for part in session._parts)  # each device ran
    require_equal(next(session.map([{"x": given[0]}], ["y"])), [expected(given[0], parameters)])
    require_equal(session.run_async(None, {"x": given[1]}).result(), [expected(given[1], parameters)])
    assert [row.where for row in session.placement] == ["device"]
    assert session.memory.peak > 0


def require_runs_at_once(session: InferenceSession, many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run waits on its device for so many runs: with fewer at once, the barrier would break."""
    barrier = threading.Barrier(many, timeout=60)
    places: list[ModelOnDevice] = []
    whole = Turns.run

    def run(turns: Turns, change: Any, *arguments: Any) -> Any:
        if change.__name__ == "_run":
            places.append(next(part for part in session._parts if part.turns is turns))
            barrier.wait()
        return whole(turns, change, *arguments)

    monkeypatch.setattr(Turns, "run", run)
    given = batches(4 * many)
    for x, outputs in zip(given, session.map(given), strict=True):
        require_equal(outputs, [expected(x, network()[1])])
    assert len(session._parts) == many
    assert all(set(places[k : k + many]) == set(session._parts) for k in range(0, len(given), many)), places
    assert not any(part.turns.users for part in session._parts)
    monkeypatch.undo()


def test_as_many_runs_at_once_as_devices(session: InferenceSession, monkeypatch: pytest.MonkeyPatch) -> None:
    require_runs_at_once(session, len(session.devices), monkeypatch)


def test_a_run_waits_for_its_turn_if_the_device_has_no_memory_for_two(
    device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As another one may be there: it stands here for runs of other threads."""
    (x,), parameters = batches(1), network()[1]
    session = InferenceSession(network()[0], device, runs_at_once=2)
    (first,), whole = session._parts, ModelOnDevice.run
    refusing: list[ModelOnDevice] = []
    refused: list[ModelOnDevice] = []

    def run(part: ModelOnDevice, *arguments: Any) -> Any:
        if part is not first or first in refusing:
            refused.append(part)
            raise OutOfMemoryError("as a small GPU does")
        return whole(part, *arguments)

    monkeypatch.setattr(ModelOnDevice, "run", run)
    first.turns.users.add(0)
    for _ in range(3):
        require_equal(session.run(None, {"x": x}), [expected(x, parameters)])
    assert len(refused) == 1 and session._parts == [first]
    assert first.turns.users == {0}
    first.turns.users.clear()
    refusing.append(first)
    with pytest.raises(OutOfMemoryError, match="small GPU"):
        session.run(None, {"x": np.concatenate([x, x])})
    assert len(refused) == 2 and not first.turns.users


def test_two_runs_share_a_device(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = network()[1]
    session = InferenceSession(network()[0], device, runs_at_once=2)
    for x in batches(6):
        require_equal(session.run(None, {"x": x}), [expected(x, parameters)])
    assert len(session._parts) == 1  # one run at a time needs no memory for a second one
    require_runs_at_once(session, 2, monkeypatch)
    assert all(part.device is device and part.last is not None for part in session._parts)
    (first,), (second,) = (part.last.steps for part in session._parts if part.last is not None)
    assert isinstance(first, DeviceStep) and isinstance(second, DeviceStep)
    for sizes, execution in second.executions.items():
        assert execution._operators is first.executions[sizes]._operators  # their weights, and the work of planning
        assert execution.output_tensors["y"].memory() is not first.executions[sizes].output_tensors["y"].memory()
    for wrong in (0, True, 1.5, "2"):
        with pytest.raises(ValueError, match="runs_at_once"):
            InferenceSession(network()[0], device, runs_at_once=wrong)  # type: ignore[arg-type]


def test_two_runs_share_a_gpu_by_default(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a driver on the processor, as which none counts here, has one."""
    is_cpu = device.profile.device_type is dmlvk.DeviceType.CPU
    assert InferenceSession(network()[0], device)._most_runs == (1 if is_cpu else 2)
    monkeypatch.setattr(sessions, "DeviceType", SimpleNamespace(CPU=None))
    session = InferenceSession(network()[0], device, placement="device")
    require_runs_at_once(session, 2, monkeypatch)


def test_runs_at_once_share_the_hosts_steps(device: dmlvk.Device) -> None:
    """Of sizes that are constants, and of the session's own graph; where the device has a step and the host another."""
    parameters = network()[1]
    given = helper.make_tensor_value_info("x", onnx.TensorProto.UINT8, ["n", 3, 8, 8])
    nodes: list[Node] = [convolution(parameters, y="c"), ("Cast", ["c"], ["f"], {"to": 1}), ("Elu", ["f"], ["e"], {})]
    sized: list[Node] = [("Shape", ["c"], ["sizes"], {}), ("Reshape", ["e", "sizes"], ["y"], {})]
    plain: list[Node] = [("Identity", ["e"], ["y"], {})]
    for more in (sized, plain):
        model = model_of([*nodes, *more], {"x": given}, {"y": np.float32}, parameters)
        session = InferenceSession(model, device, runs_at_once=2)
        inputs = batches(3)
        found = [session.run(None, {"x": x}) for x in inputs]
        session._parts[0].turns.users.add(0)  # as if another thread's run were there
        for x, right in zip(inputs, found, strict=True):
            require_equal(session.run(None, {"x": x}), right)
            first, second = (part._schedules[("x", x.shape),] for part in session._parts)
            assert session.placement[0].where == "device" and len(first.steps) == len(second.steps) > 1
            for one, other in zip(first.steps, second.steps, strict=True):
                assert (one is other) == isinstance(one, HostStep)


def test_no_more_batches_are_read_than_are_in_flight(session: InferenceSession) -> None:
    (x,), read = batches(1), []

    def endless() -> Iterator[Array]:
        for number in count():
            read.append(number)
            yield x

    results = session.map(endless(), in_flight=3)
    for number in range(6):
        next(results)
        assert len(read) == number + 3
    results.close()  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="in_flight"):
        session.map([x], in_flight=0)


def test_a_wrong_batch_raises_at_its_turn(session: InferenceSession) -> None:
    good = batches(2)
    results = session.map([*good, np.zeros((1, 4, 8, 8), np.uint8), good[0]])
    next(results), next(results)
    with pytest.raises(ModelError, match="dimension 1 must have size 3"):
        next(results)
    assert list(results) == []


def test_an_array_for_a_model_of_two_inputs() -> None:
    x = np.ones((2, 3), np.float32)
    model = model_of([("Add", ["x", "z"], ["y"], {})], {"x": x, "z": x}, {"y": np.float32})
    with pytest.raises(ModelError, match=r"a batch is a mapping .* its inputs are \['x', 'z'\]"):
        next(InferenceSession(model).map([x]))


def test_wrong_devices() -> None:
    model, _ = network()
    with pytest.raises(ValueError, match="names no device"):
        InferenceSession(model, [])
    with pytest.raises(ValueError, match="names one device twice"):
        InferenceSession(model, [0, 0])
    with pytest.raises(dmlvk.DeviceError, match="absent"):
        InferenceSession(model, [0, "absent"])


def info(index: int, kind: str, vendor: int, number: int, driver: int) -> Any:
    """A device as the choice sees it."""

    class Profile:
        vendor_id, device_id, driver_id = vendor, number, driver

    class Info:
        profile = Profile
        type = dmlvk.DeviceType[kind]

    found = Info()
    found.index = index  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize(
    ("devices", "best"),
    [
        ([("DISCRETE_GPU", 1, 1, 1), ("DISCRETE_GPU", 1, 1, 1), ("CPU", 5, 0, 9)], [0, 1]),
        ([("DISCRETE_GPU", 1, 1, 1), ("INTEGRATED_GPU", 2, 1, 1)], [0]),
        # Two GPUs of one model, each under two drivers; and another model that has one driver.
        (
            [("DISCRETE_GPU", 1, 1, driver) for driver in (3, 3, 4, 4)] + [("DISCRETE_GPU", 1, 2, 4)],
            [0, 1, 4],
        ),
        ([("CPU", 5, 0, 9), ("CPU", 5, 0, 9), ("CPU", 6, 1, 8)], [0, 1, 2]),
    ],
)
def test_the_best_kind(monkeypatch: pytest.MonkeyPatch, devices: list[Any], best: list[int]) -> None:
    found = [info(index, *members) for index, members in enumerate(devices)]
    monkeypatch.setattr(device_info, "devices", lambda: found)
    assert [each.index for each in device_info.best_devices()] == best


UNPICKLE = """
import pickle, sys
import numpy as np
session, operator, x, tensors = pickle.load(sys.stdin.buffer)
assert session.device is operator.device, "the process's default device is opened once"
(y,) = session.run(None, {"x": x})
device = operator.device
output = device.tensor(operator.desc.output_tensor)
operator(**{name: device.tensor(array) for name, array in tensors.items()}, output_tensor=output).wait()
sys.stdout.buffer.write(pickle.dumps((device.name, y, output.numpy())))
"""


def test_a_session_and_an_operator_with_owned_tensors_travel(device: dmlvk.Device) -> None:
    """To another process, whose default device is another."""
    model, parameters = network()
    (x,) = batches(1)
    owned = dmlvk.TensorFlags.OWNED_BY_DML
    one = dmlvk.TensorDesc("float32", (1, 1, 1, 1))
    desc = dmlvk.QuantizedLinearConvolutionDesc(
        input_tensor=dmlvk.TensorDesc("uint8", x.shape),
        input_scale_tensor=one,
        filter_tensor=dmlvk.TensorDesc("int8", (5, 3, 3, 3), flags=owned),
        filter_scale_tensor=dmlvk.TensorDesc("float32", (1, 5, 1, 1), flags=owned),
        output_scale_tensor=one,
        strides=(1, 1),
        dilations=(1, 1),
        start_padding=(0, 0),
        end_padding=(0, 0),
        group_count=1,
    )
    operator = device.compile(desc)
    assert operator.owned_tensors() == {}
    filter_scale = parameters["w_scale"].reshape(1, 5, 1, 1)
    operator.initialize(filter_tensor=parameters["w"], filter_scale_tensor=filter_scale)
    scales = {"input_scale_tensor": np.full((1, 1, 1, 1), 0.01), "output_scale_tensor": np.full((1, 1, 1, 1), 0.1)}
    tensors = {"input_tensor": x, **{name: array.astype(np.float32) for name, array in scales.items()}}
    content = pickle.dumps((InferenceSession(model, device), operator, x, tensors))
    others = [name for name in DEVICE_NAMES if name.lower() not in device.name.lower()]
    other = others[0] if others else device.name
    done = python(
        "-c", f"import os; os.environ['DMLVK_DEVICE'] = {other!r}\n{UNPICKLE}", input=content, text=False, timeout=120
    )
    assert done.returncode == 0, done.stderr.decode()
    name, y, output = pickle.loads(done.stdout)
    assert name != device.name or len(DEVICE_NAMES) == 1
    np.testing.assert_array_equal(y, expected(x, parameters))
    reference = dmlvk.reference.run(desc, **tensors, filter_tensor=parameters["w"], filter_scale_tensor=filter_scale)
    assert reference.std() > 5
    np.testing.assert_array_equal(output, reference)


@pytest.mark.parametrize("means", [copy.copy, copy.deepcopy])
def test_a_session_is_not_copied(session: InferenceSession, means: Any) -> None:
    with pytest.raises(TypeError, match=r"a dmlvk.InferenceSession cannot be copied: make another session"):
        means(session)


def test_what_was_pickled_shares_the_default_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_devices, "_kept", {})
    model, _ = network()
    content = pickle.dumps(InferenceSession(model))
    first, second = pickle.loads(content), pickle.loads(content)
    assert first.device is second.device
    first.device.close()
