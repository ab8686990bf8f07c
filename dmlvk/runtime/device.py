"""A device for users: tensors, compiled operators, submissions."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import count
from types import TracebackType
from typing import Any, SupportsIndex, TypeAlias

import numpy as np

from dmlvk import planning
from dmlvk._common.arguments import as_argument, named_arguments
from dmlvk.data_type import DataType
from dmlvk.device_profile import DeviceProfile, DeviceType
from dmlvk.errors import shown
from dmlvk.operators import OperatorDesc
from dmlvk.planning.plan import Plan
from dmlvk.runtime import background, debug, tuning
from dmlvk.runtime.binding import Binding
from dmlvk.runtime.bound_tensors import Compiled
from dmlvk.runtime.compiled_operator import CompiledOperator
from dmlvk.runtime.copying import NotCopied
from dmlvk.runtime.device_info import DeviceInfo, chosen
from dmlvk.runtime.engine import Engine
from dmlvk.runtime.exchange import array_of, tensor_of_cuda
from dmlvk.runtime.implementation import new_pipelines_first
from dmlvk.runtime.measured_rates import MeasuredRates
from dmlvk.runtime.self_test import SelfTest, mode, prepare
from dmlvk.runtime.sequence import Sequence
from dmlvk.runtime.submission import Submission
from dmlvk.runtime.submitting import checked, submit
from dmlvk.runtime.tensor import Buffer, Tensor
from dmlvk.runtime.tuned_paths import TunedPaths, record_descriptor
from dmlvk.tensor_desc import TensorDesc
from dmlvk.vulkan.host_threads import Job, core_count, for_each
from dmlvk.vulkan.interrupts.monitor import Monitor

# A device keeps at most this many compiled operators, for descriptors that are compiled again. Each operator keeps its
# pipelines, which cost megabytes on a CPU driver.
OPERATORS_KEPT = 512
OPERATORS_KEPT_ON_CPU = 128

# Compilations are equal if they have the same descriptor and the same requested path.
OperatorKey: TypeAlias = tuple[OperatorDesc, "str | None"]
# A plan, and the path by which it was asked for.
ChosenPlan: TypeAlias = tuple[Plan, "str | None"]


class Device(NotCopied):
    """A Vulkan device with one queue, on which all work runs in the order in which it was submitted.

    Args:
        selector (int, str, DeviceInfo or None): A position in `devices()`, or an element of it; or part of a name in
            any case; None for $DMLVK_DEVICE, else the best device. A string of digits is a position.
        timestamps (bool): Whether submissions measure their time on the GPU, for `Submission.gpu_time`. May be changed
            at any time.
        profile (DeviceProfile, optional): Plan for this profile in place of the device's own. It may have tighter
            limits and fewer features, never more.
        force_staging (bool): Move data through staging memory even if the host can map the device's memory.
        force_copy_queue (bool): Treat a device's only queue as two, one of them for copies. If the device has two
            queues, both are used anyway.

    Attributes:
        compile_progress (callable, optional): Called by `compile_all` at its beginning and after each operator, in any
            thread, with two numbers: how many are compiled, and how many there are. A model's first run does so too.
            With `tune=True` it is first called for the measurement, which has two steps for each path: it is compiled,
            and measured.

    Raises:
        DeviceError: There is no Vulkan loader, driver or device; the message says what to install. Or no device matches
            the selector; the message lists the devices.
        TypeError, ValueError: For a selector of another type, or a profile that claims more than the device has.

    A device and all objects that belong to it may be used from several threads. It is closed by `close`, at the end
    of a `with` block, and when the process ends. An exception from a signal handler (Ctrl-C) may interrupt a call
    anywhere: the call's effect is then complete or absent, except that a large `Tensor.write` may have written a
    part. A signal handler or finalizer that calls into the device in the middle of another call of the same thread
    may get a DeviceError. A device opened before a fork belongs to the parent; a child process opens its own.
    """

    in_place_of_a_copy = "open the device once more (dmlvk.Device(selector)) where it is needed"

    @named_arguments
    def __init__(
        self,
        selector: int | str | DeviceInfo | None = None,
        *,
        timestamps: bool = False,
        profile: DeviceProfile | None = None,
        force_staging: bool = False,
        force_copy_queue: bool = False,
    ) -> None:
        debug_level = debug.debug_level()
        _require_settings()
        physical = chosen(selector)
        questions: Job | None = None
        planned = None
        if profile is None:
            planned = replace(physical.profile, rates=MeasuredRates(physical.profile).rates())
            questions = prepare(planned)
        engine = Engine(
            physical,
            planned=planned,
            profile=profile,
            force_staging=force_staging,
            force_copy_queue=force_copy_queue,
            debug_level=debug_level,
        )
        if questions is not None:
            questions.finish()
        engine.timestamps = timestamps
        engine.self_test = SelfTest()
        # Measurements on the unchanged device say nothing about another profile.
        engine.tuned_paths = TunedPaths(engine.vulkan.profile) if profile is None else None
        self._shows(engine)

    def _shows(self, engine: Engine) -> None:
        self.engine = engine
        self.vulkan = engine.vulkan
        # The operators hold the engine. So they are kept here and not there.
        self._operators: OrderedDict[OperatorKey, CompiledOperator] = OrderedDict()
        self._operators_kept = OPERATORS_KEPT_ON_CPU if self.profile.device_type == DeviceType.CPU else OPERATORS_KEPT
        self._operators_monitor = Monitor(self.vulkan.context.availability)
        self.compile_progress: Callable[[int, int], object] | None = None
        engine.show(self, type(self)._showing)

    @classmethod
    def _showing(cls, engine: Engine) -> Device:
        """A Device of an engine whose first Device was dropped."""
        made = cls.__new__(cls)
        made._shows(engine)
        return made

    def __repr__(self) -> str:
        return f"<dmlvk.Device {self.name}{', closed' if self.vulkan.is_closed else ''}>"

    @property
    def name(self) -> str:
        """The driver's name for the device."""
        return self.engine.name

    @property
    def profile(self) -> DeviceProfile:
        """The device's limits and features. Plans are made for this profile."""
        return self.engine.profile

    def distrusted_paths(self) -> dict[str, str]:
        """What was wrong with the device's answers to known questions, by kernel path. Asks what was not asked yet."""
        self_test = self.engine.self_test
        return {} if self_test is None else self_test.faults(self.engine)

    @property
    def timestamps(self) -> bool:
        """Whether submissions measure their time on the GPU, for `Submission.gpu_time`. May be changed at any time."""
        return self.engine.timestamps

    @timestamps.setter
    def timestamps(self, value: bool) -> None:
        self.engine.timestamps = value

    @property
    def debug_level(self) -> int:
        """$DMLVK_DEBUG when the device was opened: 1 prints a line for each dispatch; 2 prints its plan too."""
        return self.engine.debug_level

    @property
    def memory_used(self) -> int:
        """Bytes of device memory that live tensors, buffers and bindings hold."""
        self.require_open()
        return self.vulkan.memory.used

    @property
    def is_closed(self) -> bool:
        return self.vulkan.is_closed

    def require_open(self) -> None:
        """Raise a DeviceError when the device is closed or lost."""
        self.vulkan.require_open()

    @named_arguments
    def tensor(self, array_or_desc: Any, dtype: Any = None) -> Tensor:
        """Make a tensor.

        Args:
            array_or_desc (array_like or TensorDesc): Elements are copied to a packed tensor of their shape and type: a
                NumPy array of any strides and byte order, a number, a list, a Tensor of this or another device, or an
                array of another library (torch, CuPy, whatever has `__dlpack__`). Elements without dimensions become a
                tensor of sizes (1,). A desc makes a tensor whose contents are undefined.
            dtype (DataType or dtype, optional): The elements are converted to this type. Fractions are cut off for
                integers; floats are rounded, to an infinity past the largest. An integer type has to hold every
                element.

        Raises:
            DescriptorError: For an array that no tensor can hold: it has no elements, or more than 8 dimensions. For a
                `dtype` without a DirectML data type.
            TypeError: For elements without a DirectML data type: bools, for example, which `dtype="uint8"` converts.
            ValueError: For lists of unequal lengths, an array with masked elements, or a NaN for a `dtype` of integers.
            OverflowError: For a number that `dtype` cannot hold, where `astype` would wrap: 300 or -1 for uint8,
                infinity for int32.
            BufferError: Another library does not give its elements away; the message is that library's.
            DeviceError: Out of memory, with how much was asked and how much there is.
        """
        if isinstance(array_or_desc, TensorDesc):
            if dtype is not None:
                raise TypeError(f"dtype = {shown(dtype)}: a TensorDesc has a data type; pass one of the two")
            engine = self.engine  # `Tensor.empty` written out, because programs make many this way
            return Tensor(engine, array_or_desc, engine.vulkan.memory.allocate(array_or_desc.total_size_in_bytes))
        if isinstance(array_or_desc, Tensor) and array_or_desc.engine is self.engine and dtype is None:
            tensor = self.empty(array_or_desc.desc.sizes, array_or_desc.desc.data_type)
            tensor.write(array_or_desc)
            return tensor
        shared: Tensor | None = tensor_of_cuda(self.engine, array_or_desc) if dtype is None else None
        if shared is not None:
            return shared
        array = array_of(array_or_desc, dtype)
        desc = TensorDesc.of(array)
        tensor = Tensor.empty(self.engine, desc)
        tensor.write(array.reshape(desc.sizes))
        return tensor

    @named_arguments
    def empty(self, sizes: int | Iterable[SupportsIndex], data_type: Any = DataType.FLOAT32) -> Tensor:
        """Make a packed tensor whose contents are undefined.

        Args:
            sizes (int or sequence of int): The extent of each dimension, in elements.
            data_type (DataType or dtype, optional): Of the elements; FLOAT32 by default.

        Raises:
            DescriptorError: For sizes or a type that no tensor has.
            DeviceError: Out of memory, with how much was asked and how much there is.
        """
        # Not SupportsIndex: arrays have an __index__, even those that are no index.
        return self.tensor(TensorDesc(data_type, (sizes,) if isinstance(sizes, (int, np.integer)) else sizes))

    @named_arguments
    def zeros(self, sizes: int | Iterable[SupportsIndex], data_type: Any = DataType.FLOAT32) -> Tensor:
        """Make a packed tensor of zeros, without moving them from the host. Parameters and errors as for `empty`."""
        tensor = self.empty(sizes, data_type)
        self.vulkan.transfers.clear(tensor.memory(), tensor.offset, tensor.desc.total_size_in_bytes)
        return tensor

    @named_arguments
    def buffer(self, size_in_bytes: int) -> Buffer:
        """Make a buffer, in which `Buffer.tensor` places tensors. Its contents are undefined.

        Raises:
            BindingError: For a size that is below 1 or not an integer.
            DeviceError: Out of memory, with how much was asked and how much there is.
        """
        self.require_open()
        size = as_argument("size_in_bytes", size_in_bytes, 1, None, "a buffer has 1 byte or more")
        return Buffer(self.engine, size, self.vulkan.memory.allocate(size))

    def plan(self, desc: OperatorDesc, path: str | None = None, offsets: Mapping[str, int] | None = None) -> Plan:
        """Plan an operator for this device: see `dmlvk.planning.plan`."""
        return self.engine.plan(desc, path, offsets)

    @named_arguments
    def compile(self, desc: Compiled, path: str | None = None, *, wait: bool = False) -> CompiledOperator[Compiled]:
        """Plan an operator and build its pipelines. Equal descriptors are compiled once.

        A driver may take a second to compile a kernel for sizes that are new to it. So a convolution's first results
        may come from a general kernel that is compiled already, while the kernels of its plan are compiled in the
        background; they take over between two submissions. The bits are the same.

        Args:
            desc (OperatorDesc): What to run.
            path (str, optional): Forces one of the operator's kernel paths. $DMLVK_KERNEL forces a path for all
                operators that have it. By default, the path is the fastest that `dmlvk tune` found for this descriptor,
                or else the planner's choice.
            wait (bool, optional): Whether to wait until the kernels of the plan are compiled. A forced path is always
                waited for, and so is everything where there is one core only, or with DMLVK_BACKGROUND=0.

        Raises:
            ValueError: There is no such path on this device; the message lists the paths that exist. Or
                DMLVK_BACKGROUND is neither 0 nor 1.
            DeviceError: The driver refuses a kernel, or the device is closed.
        """
        return self._compiled(desc, path, None, wait=wait)

    def _compiled(
        self, desc: Compiled, path: str | None, chosen: ChosenPlan | None, *, wait: bool
    ) -> CompiledOperator[Compiled]:
        """As `compile`; with the plan, if that was chosen before."""
        self.require_open()
        path = _forced_path(desc) if path is None else path
        key = (desc, path)
        try:
            known = self._operators.get(key)
        except TypeError:  # an array, or a list, which is not hashable
            planning.require_descriptor(desc)
            raise
        if known is not None:
            try:  # noqa: SIM105 - contextlib.suppress would be a third of it all
                self._operators.move_to_end(key)
            except KeyError:  # it was just removed to make room
                pass
            if wait:
                known.wait_for_compiler()
            return known
        # Outside the monitor: a driver may take seconds to compile a kernel, and other threads need not wait for that.
        record_descriptor(desc)
        plan, by_path = chosen or self._chosen_plan(desc, path)
        implementation = background.built(self.engine, desc, plan, by_path, is_forced=path is not None, waits=wait)
        operator = CompiledOperator(desc, implementation)
        # An operator with tensors that are OWNED_BY_DML is not shared: two users initialise it differently.
        return operator if operator.has_state else self._operators_monitor.run(self._remember_operator, key, operator)

    def is_ready(self, desc: OperatorDesc) -> bool:
        """Whether `compile` need not wait for the driver's compiler; if it would, this starts it in the background.

        Where nothing is compiled in the background, there is nothing better than to wait, and all is ready.
        """
        planning.require_descriptor(desc)
        path = _forced_path(desc)
        if (desc, path) in self._operators:
            return True
        return background.is_ready(self.engine, desc, *self._chosen_plan(desc, path))

    def compile_all(self, descs: Iterable[Compiled], *, tune: bool = False) -> list[CompiledOperator[Compiled]]:
        """Compile several operators at a time, in as many threads as this process has cores, and wait for all of them.

        Args:
            descs (iterable of OperatorDesc): What to compile; equal ones are compiled once.
            tune (bool, optional): Measure first, for each descriptor that was not measured yet, the kernel paths and
                tiles that are estimated to be close, and remember the fastest for this device, driver and set of
                kernels. All later programs take it. Operators that were compiled before keep their kernels. No result
                depends on it.

        Returns:
            list of CompiledOperator: In the order of the descriptors.

        Raises:
            ValueError, DeviceError: As `compile`, for a descriptor that it refuses.
        """
        if isinstance(descs, OperatorDesc):
            raise TypeError(f"descs is a {type(descs).__name__}, not a list of descriptors: compile(desc) takes one")
        listed = list(descs)
        operators: list[Any] = [None] * len(listed)
        done = count()

        def show() -> None:
            if self.compile_progress is not None:
                self.compile_progress(next(done), len(listed))

        self.require_open()
        if tune:
            tuning.tune(self.engine, self.compile, listed, self.compile_progress)
            for desc in listed:
                self._operators.pop((desc, None), None)
        chosen = [self._chosen_plan(desc, _forced_path(desc)) for desc in listed]

        def compile_one(number: int) -> None:
            operators[number] = self._compiled(listed[number], None, chosen[number], wait=True)
            show()

        show()

        # In the middle of another call of this thread (a signal handler), other threads could only wait for that call.
        self_test = self.engine.self_test
        asks = self_test is not None and self_test.is_entered
        is_nested = self.vulkan.is_entered or self._operators_monitor.is_entered or asks
        order = new_pipelines_first([plan for plan, _ in chosen])
        for_each(order, compile_one, threads=1 if is_nested else core_count())
        return operators

    def _remember_operator(self, key: OperatorKey, operator: CompiledOperator) -> CompiledOperator:
        operator = self._operators.setdefault(key, operator)
        if len(self._operators) > self._operators_kept:
            self._operators.popitem(last=False)
        return operator

    def _chosen_plan(self, desc: OperatorDesc, path: str | None) -> ChosenPlan:
        """The plan and its path: the given path, or else the remembered one, or else the planner's choice."""
        remembered = tuned.path(desc) if path is None and (tuned := self.engine.tuned_paths) is not None else None
        if remembered is not None:
            try:
                return self.plan(desc, remembered), remembered
            except planning.PathError:
                pass  # the file has a path that the planner does not know
        return self.plan(desc, path), path

    def submit(self, bindings: Iterable[Binding]) -> Submission:
        """Run bindings in order, in one submission after all earlier work; does not wait.

        A barrier stands exactly where a binding reads or overwrites bytes that an earlier binding of the list wrote, or
        overwrites bytes that one read. Work that would run longer than a watchdog allows is split into several
        submissions.

        Raises:
            BindingError: A binding belongs to another device.
            DeviceError: The device is closed or lost.
        """
        return submit(self.engine, bindings)

    def sequence(self, bindings: Iterable[Binding]) -> Sequence:
        """Record bindings once, to be replayed by `Sequence.submit`.

        Raises:
            BindingError, DeviceError: As `submit` does.
        """
        listed = checked(self.engine, bindings)
        self.require_open()
        has_timestamps = bool(self.vulkan.context.configuration.compute_family.timestamp_valid_bits)
        return Sequence(self.engine, listed, self.timestamps or bool(self.debug_level and has_timestamps))

    def wait(self) -> None:
        """Wait for all work submitted so far."""
        self.require_open()
        self.vulkan.wait_idle()

    def close(self) -> None:
        """Wait for all work, then release all memory. Its tensors cannot be used afterwards. May be repeated."""
        self.engine.close()
        self._operators.clear()

    def __enter__(self) -> Device:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _require_settings() -> None:
    """Raise a ValueError if a variable DMLVK_... has a value that it cannot have: here, not at the first use."""
    background.is_allowed()
    mode()
    if forced := os.environ.get("DMLVK_KERNEL"):
        planning.require_path_name(forced)


def _forced_path(desc: OperatorDesc) -> str | None:
    """The path that $DMLVK_KERNEL forces on an operator."""
    forced = os.environ.get("DMLVK_KERNEL")
    return planning.preferred_path(desc, forced) if forced else None
