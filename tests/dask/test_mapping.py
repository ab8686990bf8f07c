"""Maps over batches on a cluster of two processes with different drivers."""

from __future__ import annotations

import itertools
import os
import pickle
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count, pairwise
from typing import Any

import dask
import dask.array
import numpy as np
import onnx
import pytest
from distributed import Client, Event

import dmlvk
from dmlvk.dask import BatchError, ClusterError, DifferenceError, portions, running
from dmlvk.dask import cluster as clusters
from dmlvk.dask import map as map_batches
from dmlvk.dask.checking import Partners, SpreadShare, difference
from dmlvk.dask.cluster import ClusterWorker, prepare
from dmlvk.dask.holding import place_resource
from dmlvk.dask.portions import PortionSize
from dmlvk.dask.running import store_model
from dmlvk.demo import digits
from dmlvk.onnx import InferenceSession, ModelError
from tests.conftest import DEVICE_NAMES
from tests.onnx.models import Array, elements, require_equal, session_with_onnx_runtime
from tests.onnx.test_devices import batches, expected, network


def require_all(found: Any, given: list[Array]) -> None:
    """One result for each batch, in order, with the right bits."""
    _, parameters = network()
    results = list(found)
    assert len(results) == len(given)
    for x, outputs in zip(given, results, strict=True):
        require_equal(outputs, [expected(x, parameters)])


def pids(client: Client) -> dict[str, int]:
    """The process of each worker."""
    return dict(client.run(os.getpid))


@pytest.mark.nightly
def test_two_hundred_batches_with_each_checked(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the network of digits, each batch ran on both devices; it was sent to each worker once, for both maps."""
    pictures = digits.ink(digits.unseen_pictures()[0])
    given = np.array_split(pictures, 200)
    model = onnx.load_from_string(digits.network())
    (whole,), _ = session_with_onnx_runtime(DEVICE_NAMES[0], model, {"pictures": pictures})
    right = np.array_split(whole, 200)
    told: list[tuple[int, int | None]] = []
    sent: list[str] = []
    run = client.run

    def counted(function: Any, *arguments: Any, **options: Any) -> Any:
        if function is store_model:
            sent.extend(options["workers"])
        return run(function, *arguments, **options)

    monkeypatch.setattr(client, "run", counted)
    for part in (given, given[:20]):
        told.clear()
        results = map_batches(client, model, part, check=1, progress=lambda *numbers: told.append(numbers))
        require_equal([found for (found,) in results], right[: len(part)])
        assert told == [(number, len(part)) for number in range(1, len(part) + 1)]
    assert sorted(sent) == sorted(worker.address for worker in prepare(client))


def test_a_session_stands_for_its_model(client: Client) -> None:
    given = batches(5)
    with dmlvk.Device() as device:
        session = InferenceSession(network()[0], device, fuse_qdq=False)
        require_all(map_batches(client, session, given, ["y"]), given)


@pytest.mark.nightly
def test_a_worker_that_is_killed_in_the_middle(client: Client) -> None:
    """Nothing is lost, and nothing comes twice. The worker that takes its place has its device."""
    given = batches(200)
    before = pids(client)
    devices = {worker.place for worker in prepare(client)}
    victim = [*before][1]

    def read() -> Iterator[Array]:
        for number, x in enumerate(given):
            if number == 60:
                os.kill(before[victim], getattr(signal, "SIGKILL", signal.SIGTERM))
            yield x

    require_all(map_batches(client, network()[0], read(), check=0.1), given)
    client.wait_for_workers(2, timeout=60)
    workers = prepare(client)
    assert victim not in [worker.address for worker in workers]
    assert {worker.place for worker in workers} == devices


def test_a_result_that_is_lost_before_it_is_fetched(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker dies after a task has finished: the scheduler says so, and later that the task has finished again."""
    lost: list[Any] = []
    fetched = running.fetched

    async def loses_one(client: Client, future: Any) -> Any:
        if not lost:
            lost.append(future)
            state = future._state
            await state.wait()
            state.lose()
            assert future.status == "lost"
            client.loop.call_later(1.5, state.finish)
        return await fetched(client, future)

    monkeypatch.setattr(running, "fetched", loses_one)
    given = batches(3)
    require_all(map_batches(client, network()[0], given), given)
    assert lost


def broken(dask_worker: Any, is_broken: bool) -> None:
    """Break a worker's kernels: where a sum is below the range of the output, they give its top. Or mend them."""
    from dmlvk.runtime import implementation, shared_devices

    def spirv(kernel: str) -> bytes:
        words, position = np.frombuffer(module.whole_spirv(kernel), "<u4").copy(), 5
        while position < len(words):
            # OpExtInst SClamp becomes UClamp.
            if words[position] & 0xFFFF == 12 and words[position + 4] == 45:
                words[position + 4] = 44
            position += words[position] >> 16
        return words.tobytes()

    module: Any = implementation
    if not hasattr(module, "whole_spirv"):
        module.whole_spirv = module.spirv
    module.spirv = spirv if is_broken else module.whole_spirv
    # The pipelines of the device are made anew.
    holding = dask_worker.plugins["dmlvk"].holding
    holding._models.clear()
    shared_devices.forget(holding.device())


def test_a_worker_with_broken_kernels_is_named(client: Client) -> None:
    given = batches(400)
    workers = prepare(client)
    culprit = workers[1]
    client.run(broken, is_broken=True, workers=[culprit.address])
    try:
        with pytest.raises(DifferenceError) as caught:
            list(map_batches(client, network()[0], given, check=0.05))
    finally:
        client.run(broken, is_broken=False, workers=[culprit.address])
    message = str(caught.value)
    assert message.startswith(f"batch {caught.value.number}: output 0 differs: its element [")
    for worker in workers:
        assert f"{worker.device} ({worker.driver}; worker {worker.address})" in message
    right = expected(given[caught.value.number], network()[1])
    label = f"on {workers[0].device}"
    value = message.split(" is ")[1] if label in message.split(", and ")[0] else message.split(", and ")[1]
    place = tuple(int(k) for k in message.split("element [")[1].split("]")[0].split(","))
    assert int(value.split()[0]) == right[place]
    require_all(map_batches(client, network()[0], given[:20], check=1), given[:20])


def test_no_more_batches_are_read_than_are_in_flight(client: Client) -> None:
    (x,), read = batches(1), []

    def endless() -> Iterator[Array]:
        for number in count():
            read.append(number)
            yield x

    results = map_batches(client, network()[0], endless(), in_flight=3)
    for number in range(6):
        next(results)
        assert len(read) == number + 3
    results.close()  # type: ignore[attr-defined]
    require_no_tasks(client)


def require_no_tasks(client: Client) -> None:
    """What was in flight goes away."""
    end = time.monotonic() + 20
    while left := client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.tasks)):
        assert time.monotonic() < end, left
        time.sleep(0.05)


def test_chunks_of_a_dask_array_and_what_workers_load(client: Client) -> None:
    x = elements(np.random.default_rng(3), np.uint8, (23, 3, 8, 8))
    array = dask.array.from_array(x, chunks=(5, 2, 8, 4))
    told: list[tuple[int, int | None]] = []
    found = list(map_batches(client, network()[0], array, progress=lambda *numbers: told.append(numbers)))
    assert [len(y) for (y,) in found] == [5, 5, 5, 5, 3] and told[-1] == (5, 5)
    np.testing.assert_array_equal(np.concatenate([y for (y,) in found]), expected(x, network()[1]))

    lazy = [dask.delayed(np.array)(x[k : k + 2]) for k in range(4)]
    given = [lazy[0], {"x": lazy[1]}, client.submit(np.array, x[2:4], pure=False), array[3:5]]
    require_all(map_batches(client, network()[0], given), [x[k : k + 2] for k in range(4)])
    del given
    require_no_tasks(client)


def test_what_loads_slowly_is_loaded_by_tasks_of_dask(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Quick loads take place in the task that runs the batches."""
    given = batches(40)
    asked: list[int] = []
    compute = client.compute

    def counted(collections: list[Any], **options: Any) -> Any:
        asked.append(len(collections))
        return compute(collections, **options)

    monkeypatch.setattr(client, "compute", counted)
    lazy = [dask.delayed(np.copy)(x) for x in given]
    for seconds in (60.0, -1.0):
        asked.clear()
        monkeypatch.setattr(portions, "SLOW_LOADING_SECONDS", seconds)
        require_all(map_batches(client, network()[0], lazy, in_flight=8), given)
        # The first portions are submitted before any answer tells how long loading takes.
        assert (sum(asked) == 0) if seconds > 0 else (0 < sum(asked) <= 32), asked
    later = dask.delayed(np.copy)(client.submit(np.copy, given[0]))  # only Dask knows where that is
    asked.clear()
    require_all(map_batches(client, network()[0], [later]), given[:1])
    assert asked == [1]


def operator() -> tuple[dmlvk.QuantizedLinearConvolutionDesc, dict[str, Array]]:
    """A convolution with an owned filter, and its constants."""
    _, parameters = network()
    one = dmlvk.TensorDesc("float32", (1, 1, 1, 1))
    desc = dmlvk.QuantizedLinearConvolutionDesc(
        input_tensor=dmlvk.TensorDesc("uint8", (2, 3, 8, 8)),
        input_scale_tensor=one,
        filter_tensor=dmlvk.TensorDesc("int8", (5, 3, 3, 3), flags=dmlvk.TensorFlags.OWNED_BY_DML),
        filter_scale_tensor=dmlvk.TensorDesc("float32", (1, 5, 1, 1)),
        output_scale_tensor=one,
        strides=(1, 1),
        dilations=(1, 1),
        start_padding=(1, 1),
        end_padding=(0, 0),
        group_count=1,
    )
    constants = {
        "input_scale_tensor": np.full((1, 1, 1, 1), 0.02, np.float32),
        "filter_tensor": parameters["w"],
        "filter_scale_tensor": parameters["w_scale"].reshape(1, 5, 1, 1),
        "output_scale_tensor": np.full((1, 1, 1, 1), 0.15, np.float32),
    }
    return desc, constants


def test_one_operator(client: Client) -> None:
    """As a descriptor with constants, and compiled, with an owned tensor that travels with it."""
    desc, constants = operator()
    generator = np.random.default_rng(5)
    given = [elements(generator, np.uint8, (2, 3, 8, 8)) for _ in range(9)]
    right = [dmlvk.reference.run(desc, input_tensor=x, **constants) for x in given]
    assert np.std(right) > 5
    with dmlvk.Device() as device:
        compiled = device.compile(desc)
        compiled.initialize(filter_tensor=constants["filter_tensor"])
        others = {name: array for name, array in constants.items() if name != "filter_tensor"}
        for model, same in ((desc, constants), (compiled, others)):
            found = list(map_batches(client, model, given, constants=same, check=1))
            require_equal(found, right)
    varying = [{"input_tensor": x, "filter_scale_tensor": constants["filter_scale_tensor"]} for x in given]
    same = {name: array for name, array in constants.items() if name != "filter_scale_tensor"}
    require_equal(list(map_batches(client, desc, varying, constants=same)), right)


def test_a_wrong_batch_is_named_at_its_turn(client: Client) -> None:
    good = batches(3)
    results = map_batches(client, network()[0], [*good, np.zeros((1, 4, 8, 8), np.uint8), good[0]])
    for _ in good:
        next(results)
    with pytest.raises(BatchError, match=r"batch 3: ModelError: .*dimension 1 must have size 3") as caught:
        next(results)
    assert isinstance(caught.value.__cause__, ModelError)
    require_no_tasks(client)  # though the exception keeps all that led to it
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    desc, constants = operator()
    for wrong, message in {
        "shape": (np.zeros((1, 3, 8, 8), np.uint8), r"input_tensor is an array of shape \(1, 3, 8, 8\)"),
        "fields": ({"input": good[0]}, "a batch has input; it must have input_tensor"),
        "nothing": ({}, "a batch has nothing; it must have input_tensor"),
    }.values():
        with pytest.raises(BatchError, match=f"batch 0: BindingError: QUANTIZED_LINEAR_CONVOLUTION: {message}"):
            next(map_batches(client, desc, [wrong], constants=constants))


def test_a_wrong_batch_in_the_middle_of_a_portion(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batches before it in its portion come first, of both devices too; those after it do not come."""
    monkeypatch.setattr(PortionSize, "learn", lambda self, *facts: setattr(self, "_count", 7))
    good = batches(30)
    given: list[Any] = [*good, np.zeros((1, 4, 8, 8), np.uint8), *good]
    for check in (0, 1):
        results = map_batches(client, network()[0], given, check=check)
        require_all([next(results) for _ in good], good)
        with pytest.raises(BatchError, match=r"batch 30: ModelError: .*dimension 1 must have size 3"):
            next(results)
        require_no_tasks(client)
        require_all(map_batches(client, network()[0], good, check=check), good)


def lengths(size: PortionSize, elements: Iterable[Any]) -> list[int]:
    """The batches of each portion."""
    return [len(portion.batches) for portion in size.portions(elements, lambda number: False)]


def test_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many batches as take 50 ms; a failure of the iterable comes after what was read before it."""
    monkeypatch.setattr(portions, "PORTION_SECONDS", 0.05)

    def failing() -> Iterator[int]:
        yield from range(10)
        raise OSError("the disk")

    size = PortionSize(16)
    size.learn(2, 0.025)
    read = size.portions(failing(), lambda number: number in (5, 6))
    found = [(portion.first, portion.batches, portion.is_checked) for portion in itertools.islice(read, 4)]
    assert found == [(0, [0, 1, 2, 3], False), (4, [4], False), (5, [5, 6], True), (7, [7, 8, 9], False)]
    with pytest.raises(OSError, match="the disk"):
        next(read)
    assert list(PortionSize(3).portions([], bool)) == []
    big = np.zeros(20 << 20, np.uint8)
    size.learn(100, 0.001)
    assert lengths(size, [{"x": big, "y": 1}] * 5) == [2, 2, 1]
    assert lengths(size, [0] * 20) == [16, 4]
    size.learn(1, 5.0)
    assert lengths(size, [0] * 3) == [1, 1, 1]

    def slow() -> Iterator[int]:
        for number in range(3):
            time.sleep(0.06)
            yield number

    size.learn(100, 0.001)
    assert lengths(size, slow()) == [1, 1, 1]


def test_wrong_arguments(client: Client) -> None:
    model, (x,) = network()[0], batches(1)
    desc, constants = operator()
    calls: list[tuple[Any, type[Exception], str]] = [
        (lambda: map_batches(client, 3, [x]), TypeError, "a cluster runs .*, not int"),
        (lambda: map_batches(client, b"no model", [x]), ModelError, "this is no ONNX model"),
        (lambda: map_batches(client, model, 3), TypeError, "batches is an iterable or a dask.array, not int"),
        (lambda: map_batches(client, model, dask.delayed(3)), TypeError, "batches is a dask Delayed"),
        (lambda: map_batches(client, model, [x], check=1.5), ValueError, "check = 1.5: must be a share"),
        (lambda: map_batches(client, model, [x], in_flight=0), ValueError, "in_flight"),
        (lambda: map_batches(client, model, [x], constants=constants), TypeError, "constants belong to an operator"),
        (lambda: map_batches(client, desc, [x], ["y"], constants=constants), TypeError, "output_names"),
        (lambda: map_batches(client, desc, [x]), dmlvk.BindingError, "filter_tensor is OWNED_BY_DML"),
        (
            lambda: map_batches(client, desc, [x], constants={"filter": x}),
            dmlvk.BindingError,
            "constants has 'filter', which is no input; the inputs are input_tensor, ",
        ),
        (
            lambda: map_batches(client, desc, [x], constants={**constants, "filter_tensor": x}),
            dmlvk.BindingError,
            "filter_tensor is an array of shape",
        ),
        (
            lambda: map_batches(
                client, desc, [x], constants={**constants, "input_tensor": np.zeros((2, 3, 8, 8), "u1")}
            ),
            dmlvk.BindingError,
            "all its inputs are constants",
        ),
        (lambda: map_batches("tcp://", model, [x]), TypeError, "client is a synchronous distributed.Client, not str"),
    ]
    for call, kind, message in calls:
        with pytest.raises(kind, match=message):
            call()


def test_a_scheduler_that_has_gone(cluster: Any) -> None:
    gone = Client(cluster, set_as_default=False)
    gone.close()
    with pytest.raises(ClusterError, match="the client is closed: connect to a scheduler first"):
        map_batches(gone, network()[0], batches(1))


def test_a_device_that_does_not_come_back(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker of one device is retired in the middle, and nothing takes its place."""
    monkeypatch.setattr(clusters, "PATIENCE", 1.0)
    monkeypatch.setattr(running, "places", lambda client: {"dmlvk.place=elsewhere"})
    monkeypatch.setattr(running, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(running, "run_batches", slow)
    with pytest.raises(
        ClusterError, match=r"batch 0: no worker with .*, on which it is checked, has come back for 1 s"
    ):
        list(map_batches(client, network()[0], batches(4), check=1))


def slow(*arguments: Any) -> Any:
    time.sleep(8)


@pytest.mark.parametrize("share", [0.01, 0.07, 0.29, 1 / 3, 0.5, 1])
def test_a_share_is_spread_evenly(share: float) -> None:
    chosen = [number for number in range(3000) if SpreadShare(share).has(number)]
    assert len(chosen) == pytest.approx(3000 * share, abs=1)
    assert all(later - earlier < 2 / share + 1 for earlier, later in pairwise(chosen))
    assert chosen[0] <= 1 / share
    if share < 0.5:  # not in step with devices that take turns
        assert {number % 2 for number in chosen} == {0, 1}
    assert not SpreadShare(0).has(0)


def test_partners_are_of_another_driver_where_there_is_one() -> None:
    workers = [
        ClusterWorker(address, device, driver)
        for address, device, driver in (("a", "X", "1"), ("b", "X", "1"), ("c", "Y", "1"), ("d", "Z", "2"))
    ]
    partners = Partners(workers)
    pairs = {(first.address, second.address) for first, second in (partners.next() for _ in range(40))}
    assert pairs == {("a", "d"), ("b", "d"), ("c", "d"), ("d", "a"), ("d", "b"), ("d", "c")}
    beside = partners.beside(workers[0], workers[1])
    assert beside is not None and beside.address == "d"
    alike = Partners(workers[:2])
    assert {(first.address, second.address) for first, second in (alike.next() for _ in range(4))} == {
        ("a", "b"),
        ("b", "a"),
    }
    assert alike.beside(*workers[:2]) is None


def test_differences() -> None:
    one = np.array([[1.0, np.nan], [-0.0, 3.0]], np.float32)
    assert difference("A", one, "B", one.copy()) == ""
    text = difference("A", [one], "B", [np.array([[1, np.nan], [0, 3]], np.float32)])
    assert text == "output 0 differs: its element [1, 0] is -0.0 on A, and 0.0 on B; 1 of 4 elements differ"
    assert "float32 (2, 2) on A, and float32 (4,) on B" in difference("A", one, "B", one.ravel())
    assert difference("A", [["a"], np.array(["b"], object)], "B", [["a"], np.array(["b"], object)]) == ""
    assert "is [1] on A, and [2] on B" in difference("A", [[1]], "B", [[2]])


def lose_device(dask_worker: Any) -> None:
    """Somebody else's work loses the device of a worker: its batches find that it is not open any more."""
    dask_worker.plugins["dmlvk"].holding.device().vulkan.context.availability.lose()


def lose_device_in_a_batch(dask_worker: Any) -> None:
    """The next batch of a worker loses the device itself."""
    from dmlvk.errors import DeviceLostError
    from dmlvk.onnx.session import InferenceSession

    whole = InferenceSession.run_batch

    def run_batch(self: Any, output_names: Any, batch: Any) -> Any:
        InferenceSession.run_batch = whole  # type: ignore[method-assign]
        raise DeviceLostError("as a driver's reset does")

    InferenceSession.run_batch = run_batch  # type: ignore[method-assign]


async def drop_idle_models(dask_worker: Any) -> int:
    """Drop all models of a worker as after ten minutes; returns how many are left."""
    from dmlvk.dask import holding

    seconds, holding.IDLE_SECONDS = holding.IDLE_SECONDS, -1
    await dask_worker.plugins["dmlvk"].holding._look_again()
    holding.IDLE_SECONDS = seconds
    return len(dask_worker.plugins["dmlvk"].holding._models)


@pytest.mark.nightly
def test_a_lost_device_is_opened_again_and_a_lost_model_is_sent_again(client: Client) -> None:
    given = batches(60)
    assert set(client.run(mark_device).values()) == {False}

    def read() -> Iterator[Array]:
        for number, x in enumerate(given):
            if number == 15:
                client.run(lose_device)
            elif number == 30:
                assert set(client.run(mark_device).values()) == {False}
                client.run(lose_device_in_a_batch)
            elif number == 45:
                client.run(drop_idle_models)
            yield x

    require_all(map_batches(client, network()[0], read(), check=1, in_flight=8), given)
    assert set(client.run(mark_device).values()) == {False}
    assert set(client.run(drop_idle_models).values()) == {0}


def test_a_worker_whose_device_is_taken_away(client: Client) -> None:
    """In the middle, the cluster is prepared for one device alone, and later for both again."""
    given = batches(120)

    def read() -> Iterator[Array]:
        for number, x in enumerate(given):
            if number == 40:
                assert sum(bool(worker.device) for worker in prepare(client, DEVICE_NAMES[:1])) == 1
            elif number == 80:
                prepare(client, DEVICE_NAMES)
            yield x

    require_all(map_batches(client, network()[0], read()), given)


def wait_for_event(name: str) -> None:
    Event(name).wait(timeout=60)


def test_batches_that_wait_on_a_worker_whose_device_is_taken_away(client: Client) -> None:
    """Something else uses the devices meanwhile, so they have not begun. They run on the worker that has one later."""
    given = batches(12)
    workers = prepare(client, DEVICE_NAMES)
    needs = [{"dmlvk": 1, place_resource(worker.place): 1} for worker in workers]
    busy = [client.submit(wait_for_event, "devices change", resources=each, pure=False) for each in needs]

    def read() -> Iterator[Array]:
        for number, x in enumerate(given):
            if number == 6:
                end = time.monotonic() + 30
                while min(len(client.processing()[worker.address]) for worker in workers) < 2:
                    assert time.monotonic() < end, "no batch waits on one of the workers"
                    time.sleep(0.05)
                prepare(client, DEVICE_NAMES[:1])
                Event("devices change", client=client).set()
            yield x

    with ThreadPoolExecutor(1) as thread:
        found = thread.submit(list, map_batches(client, network()[0], read(), in_flight=8))
        try:
            require_all(found.result(timeout=60), given)
        finally:
            Event("devices change", client=client).set()
            prepare(client, DEVICE_NAMES)
    client.gather(busy)
    Event("devices change", client=client).clear()


def set_claim_aside(dask_worker: Any, is_aside: bool) -> None:
    """Make a worker one that closes: its device is gone, and the scheduler does not know it yet. Or undo that."""
    holding = dask_worker.plugins["dmlvk"].holding
    if is_aside:
        holding.aside, holding._claim = holding._claim, None
    else:
        holding._claim = holding.aside


def test_batches_that_reach_a_worker_which_closes_are_not_lost(client: Client) -> None:
    given = batches(12)
    closing = [prepare(client)[0].address]
    client.run(set_claim_aside, is_aside=True, workers=closing)
    undo = threading.Timer(1.0, lambda: client.run(set_claim_aside, is_aside=False, workers=closing))
    undo.start()
    try:
        require_all(map_batches(client, network()[0], given), given)
    finally:
        undo.join()


def mark_device(dask_worker: Any) -> bool:
    """Mark a worker's Device object; returns whether it was marked before."""
    members = vars(dask_worker.plugins["dmlvk"].holding.device())
    was_marked = "mark of a test" in members
    members["mark of a test"] = True
    return was_marked
