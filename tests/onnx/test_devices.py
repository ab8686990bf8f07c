"""A session on several devices: the same bits, runs at the same time, batches in order; and sessions in pickle."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import dmlvk
from dmlvk.errors import OutOfMemoryError
from dmlvk.onnx import InferenceSession, ModelError
from dmlvk.runtime import device_info, shared_devices
from tests.conftest import DEVICE_NAMES
from tests.onnx.models import Array, convolution, convolution_parameters, convolved, elements, model_of, require_equal


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
    """Each run waits for so many runs: with fewer at once, the barrier would break."""
    barrier = threading.Barrier(many, timeout=60)
    places: list[int] = []
    for number, part in enumerate(session._parts):

        def run(*arguments: Any, number: int = number, whole: Any = part.run) -> Any:
            places.append(number)
            barrier.wait()
            return whole(*arguments)

        monkeypatch.setattr(part, "run", run)
    given = batches(4 * many)
    for x, outputs in zip(given, session.map(given), strict=True):
        require_equal(outputs, [expected(x, network()[1])])
    assert all(set(places[k : k + many]) == set(range(many)) for k in range(0, len(given), many)), places
    assert not any(part.users for part in session._parts)


def test_as_many_runs_at_once_as_devices(session: InferenceSession, monkeypatch: pytest.MonkeyPatch) -> None:
    require_runs_at_once(session, len(session.devices), monkeypatch)


def test_a_run_waits_for_its_turn_if_the_device_has_no_memory_for_two(
    device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    parameters = network()[1]
    session = InferenceSession(network()[0], device, runs_at_once=2)
    first, second = session._parts
    refused: list[None] = []

    def run(*arguments: Any) -> Any:
        refused.append(None)
        raise OutOfMemoryError("as a small GPU does")

    monkeypatch.setattr(second, "run", run)
    given = batches(12)
    for x, outputs in zip(given, session.map(given), strict=True):
        require_equal(outputs, [expected(x, parameters)])
    monkeypatch.setattr(first, "run", run)
    refused.clear()
    with pytest.raises(OutOfMemoryError, match="small GPU"):
        session.run(None, {"x": given[0]})
    assert len(refused) == 1 and not any(part.users for part in session._parts)


def test_two_runs_share_a_device(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    (x,), parameters = batches(1), network()[1]
    session = InferenceSession(network()[0], device, runs_at_once=2)
    require_equal(session.run(None, {"x": x}), [expected(x, parameters)])
    assert [part.last is None for part in session._parts] == [False, True]  # one run at a time needs no second part
    require_runs_at_once(session, 2, monkeypatch)
    assert all(part.device is device and part.last is not None for part in session._parts)
    for wrong in (0, True, 1.5, "2"):
        with pytest.raises(ValueError, match="runs_at_once"):
            InferenceSession(network()[0], device, runs_at_once=wrong)  # type: ignore[arg-type]


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
    done = subprocess.run(
        [sys.executable, "-c", f"import os; os.environ['DMLVK_DEVICE'] = {other!r}\n{UNPICKLE}"],
        input=content,
        capture_output=True,
        cwd=Path(__file__).parents[2],
        timeout=120,
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
