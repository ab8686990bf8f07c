"""Submits lists of bindings: recorded at the first time, remembered for the next."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import repeat
from weakref import ref

from dmlvk.errors import BindingError
from dmlvk.operators import OperatorDesc
from dmlvk.planning.plan import MAXIMUM_SUBMISSION_SECONDS
from dmlvk.runtime import debug
from dmlvk.runtime.array_protocol import ArrayProtocol
from dmlvk.runtime.binding import Binding
from dmlvk.runtime.command_writer import CommandWriter, dispatch_count
from dmlvk.runtime.device_info import another_device
from dmlvk.runtime.engine import Engine
from dmlvk.runtime.submission import Submission, TimestampQueries, Timing, submission_of
from dmlvk.vulkan.command_buffers import Batch
from dmlvk.vulkan.recorder import ONE_TIME_SUBMIT, SIMULTANEOUS_USE

# An engine keeps the command buffers of at most this many lists of bindings, for lists that are submitted again.
LIST_CACHE_SIZE = 64


def submit(engine: Engine, bindings: Iterable[Binding]) -> Submission:
    """Run bindings in order: see `Device.submit`."""
    try:
        listed = tuple(bindings)
    except TypeError:
        _require_list(bindings)
        raise
    if engine.timestamps or engine.debug_level:
        return _submit_measured(engine, checked(engine, listed))
    batch = _recorded(engine, listed)
    if batch is None:
        return engine.vulkan.monitor.run(_submit_new, engine, checked(engine, listed))
    queue = engine.vulkan.queue
    with queue.lock: value = queue.submit_inside(batch)  # noqa: E701  # fmt: skip
    submission = Submission()
    submission._queue = queue
    submission._value = value
    return submission


def _submit_new(engine: Engine, listed: tuple[Binding, ...]) -> Submission:
    """Record a list and submit it, with the device's monitor entered and the bindings already checked."""
    return submission_of(engine.vulkan.queue, engine.vulkan.queue.submit_inside(_record(engine, listed)))


def _recorded(engine: Engine, listed: tuple[Binding, ...]) -> Batch | None:
    """The remembered batch of a list that was submitted to this device before; None if there is none."""
    try:
        if len(listed) == 1:
            return listed[0].batch if listed[0].engine is engine else None
        known = engine.lists.get(tuple([binding.serial for binding in listed]))
        return None if known is None else known[0]
    except AttributeError:  # not a Binding
        return None


def _record(engine: Engine, bindings: tuple[Binding, ...]) -> Batch:
    """Record a list as command buffers and remember them. Called with the device's monitor entered."""
    writer = CommandWriter(engine.vulkan, SIMULTANEOUS_USE)
    if len(bindings) == 1:
        (binding,) = bindings
        binding.batch = batch = writer.write(bindings)
        return batch
    # A list, not a generator: it runs once a binding.
    if max([binding.total_seconds for binding in bindings], default=0.0) > MAXIMUM_SUBMISSION_SECONDS:
        batch = writer.write(bindings)  # the split may fall inside a binding
    else:
        batch = writer.compose(bindings)
    if not all(binding.provisional is None or binding.is_final for binding in bindings):
        return batch
    # Remembered by the bindings' numbers, which are never reused. The batch keeps the bindings' memory, so it is
    # forgotten with the first of them: by a call of C code alone, which nothing interrupts.
    lists = engine.lists
    key = tuple([binding.serial for binding in bindings])
    forget = partial(lists.pop, key)  # its second argument is the weak reference
    lists[key] = batch, list(map(ref, set(bindings), repeat(forget)))
    if len(lists) > LIST_CACHE_SIZE:
        lists.popitem(last=False)
    return batch


def _submit_measured(engine: Engine, bindings: tuple[Binding, ...]) -> Submission:
    submission = engine.vulkan.monitor.run(submit_measured_inside, engine, bindings)
    if engine.debug_level:
        debug.report(engine, bindings, submission)
    return submission


def submit_measured_inside(engine: Engine, bindings: tuple[Binding, ...]) -> Submission:
    """Submit bindings and measure their time, with the device's monitor entered and the bindings already checked."""
    vulkan = engine.vulkan
    queries = None
    if engine.timestamps or vulkan.context.configuration.compute_family.timestamp_valid_bits:
        queries = TimestampQueries(vulkan, dispatch_count(bindings))
    batch = CommandWriter(vulkan, ONE_TIME_SUBMIT, queries).write(bindings)
    value = vulkan.queue.submit_inside(batch)
    return submission_of(vulkan.queue, value, None if queries is None else Timing(queries))


def checked(engine: Engine, bindings: Iterable[Binding]) -> tuple[Binding, ...]:
    """The bindings as they are now: special kernels that are compiled have taken over.

    Raises TypeError: it is no list of bindings.
    Raises BindingError: one belongs to another device.
    """
    try:
        listed = tuple(bindings)
    except TypeError:
        _require_list(bindings)
        raise
    for position, binding in enumerate(listed):
        if not isinstance(binding, Binding):
            kind = type(binding).__name__
            advice = "operator.bind(input_tensor=..., output_tensor=...) makes one"
            raise TypeError(f"bindings[{position}] is a {kind}, not a Binding; {advice}")
        if binding.engine is not engine:
            raise BindingError(f"bindings[{position}] is of {another_device(binding.engine, engine)}")
    return tuple([binding if binding.provisional is None else binding.latest() for binding in listed])


def _require_list(bindings: object) -> None:
    """Raise a TypeError that says what to pass, unless the argument is iterable."""
    try:
        iter(bindings)  # type: ignore[call-overload]
    except TypeError:
        pass
    else:
        if not isinstance(bindings, ArrayProtocol):  # a Tensor has __getitem__, and refuses to be iterated over
            return
    advice = "pass a single one as [binding]: submit([binding])"
    if isinstance(bindings, (OperatorDesc, ArrayProtocol)) or callable(bindings):
        advice = "tensors are bound to a compiled operator: [operator.bind(input_tensor=..., output_tensor=...)]"
    kind = type(bindings).__name__
    raise TypeError(f"bindings is a {kind}, not a list of Bindings; {advice}") from None
