"""An operator compiled for a device: its plan, and how tensors are bound to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic
from weakref import ref

from dmlvk.errors import BindingError
from dmlvk.planning.plan import Plan
from dmlvk.runtime import bound_tensors
from dmlvk.runtime.array_protocol import with_advice
from dmlvk.runtime.binding import Binding, MemoryRange, check_aliasing, check_tensors
from dmlvk.runtime.bound_tensors import Described, typed_as
from dmlvk.runtime.calls import Calls
from dmlvk.runtime.command_writer import CommandWriter, record_secondary
from dmlvk.runtime.copying import Pickled
from dmlvk.runtime.engine import Engine
from dmlvk.runtime.exchange import array_of
from dmlvk.runtime.implementation import Implementation, Initialized
from dmlvk.runtime.layouts import plain
from dmlvk.runtime.of_device import OfDevice
from dmlvk.runtime.rows import rows_of
from dmlvk.runtime.submission import Submission, submission_of
from dmlvk.runtime.submitting import submit, submit_measured_inside
from dmlvk.runtime.tensor import Tensor
from dmlvk.tensor_desc import TensorFlags
from dmlvk.vulkan.allocation import Allocation
from dmlvk.vulkan.recorder import SIMULTANEOUS_USE

BY_CALL = "a call runs it: operator(input_tensor=..., output_tensor=...)"
ELSEWHERE = dict.fromkeys(("compute", "dispatch", "execute", "forward", "launch", "run", "submit"), BY_CALL)


@with_advice(ELSEWHERE)
class CompiledOperator(OfDevice, Pickled, Generic[Described]):
    """An operator ready to run. Made by `Device.compile`.

    To a type checker it is a `CompiledOperator[Slice1Desc]`, for example, which takes tensors of SLICE1's names.

    Attributes:
        device (Device):
        desc (OperatorDesc):

    It can be pickled: see `dmlvk.runtime.pickling`.
    """

    in_place_of_a_copy = "compile its descriptor (operator.desc) once more; pickle takes it to another process"

    @classmethod
    def of_plan(cls, engine: Engine, desc: Described, plan: Plan) -> CompiledOperator[Described]:
        """An operator that runs a plan which no planner made."""
        implementation = Implementation(engine, desc, plan)
        implementation.build()
        return cls(desc, implementation)

    def __init__(self, desc: Described, implementation: Implementation) -> None:
        self.engine = engine = implementation.engine
        self.desc = desc
        fields = desc.tensors
        self._owned_fields = {
            name: tensor for name, tensor in fields.items() if tensor.flags & TensorFlags.OWNED_BY_DML
        }
        self._bound_fields = {name: tensor for name, tensor in fields.items() if name not in self._owned_fields}
        self._outputs = tuple(name for name in desc.output_fields if name in fields)
        self._vulkan = engine.vulkan
        self._queue = engine.vulkan.queue
        self._calls = Calls()
        # By the name of temporary memory.
        self._call_memory: dict[str, ref[Allocation]] = {}
        self._implementation = implementation
        # None until the tensors that are OWNED_BY_DML have contents.
        self._initialized = None if self.has_state else Initialized(implementation, {})

    def __repr__(self) -> str:
        return f"<dmlvk.CompiledOperator {self.desc.operator_name} ({self.plan.path}) on {self.engine.name}>"

    def another(self) -> CompiledOperator[Described]:
        """The same kernels for other contents of the tensors that are OWNED_BY_DML."""
        return CompiledOperator(self.desc, self._implementation)

    @property
    def plan(self) -> Plan:
        """The plan for tensors with memory of their own. Until its kernels are compiled, another plan may run."""
        implementation = self._implementation
        return (implementation.special or implementation).plan

    @property
    def has_state(self) -> bool:
        """Whether the operator must be initialised, and therefore remembers tensors."""
        return bool(self._owned_fields or self.plan.persistent_size)

    def wait_for_compiler(self) -> None:
        """Wait until the kernels are compiled that are special to the descriptor. They run from the next call on.

        Raises:
            DeviceError: The driver refuses a kernel, or the device is closed.
        """
        self._implementation.build_special()

    @typed_as(bound_tensors.call)
    def __call__(self, **tensors: Tensor) -> Submission:
        """Run once, after all work submitted before; does not wait.

        Args:
            **tensors (Tensor): One for each tensor of the descriptor, by field name, except those that are
                OWNED_BY_DML.

        Raises:
            BindingError: A tensor does not match the descriptor, or an output shares memory with another tensor.
            DeviceError: The device is closed, lost, or out of memory.
        """
        call = self._calls.last
        try:
            if call is None or call.tensors != tensors:
                call = self._calls.find(tensors)
        except (ReferenceError, TypeError, ValueError):  # a tensor was just dropped; or an argument is an array
            call = self._calls.find(tensors)
        if call is None:
            return self._call_anew(tensors)
        if self.engine.timestamps:
            return submit(self.engine, (call.binding,))
        queue = self._queue
        with queue.lock: value = queue.submit_inside(call.batch)  # noqa: E701  # fmt: skip
        submission = Submission()
        submission._queue = queue
        submission._value = value
        return submission

    def _call_anew(self, tensors: dict[str, Tensor]) -> Submission:
        """A call with tensors that are new to the operator."""
        calls = self._calls  # read before the bound memory is: `initialize` binds other memory and starts new calls
        binding = self._bind(tensors, for_call=True)
        if self.engine.debug_level:
            return submit(self.engine, (binding,))
        return self._vulkan.monitor.run(self._record_and_submit, calls, tensors, binding)

    def _record_and_submit(self, calls: Calls, tensors: dict[str, Tensor], binding: Binding) -> Submission:
        queue = self._queue
        binding.batch = batch = CommandWriter(self._vulkan, SIMULTANEOUS_USE).write((binding,))
        if binding.is_final:
            calls.add(tensors, binding)
        if self.engine.timestamps:
            return submit_measured_inside(self.engine, (binding,))
        return submission_of(queue, queue.submit_inside(batch))

    @typed_as(bound_tensors.bind)
    def bind(self, **tensors: Tensor) -> Binding:
        """Check tensors and prepare everything needed to run on them any number of times.

        Raises:
            BindingError, DeviceError: As a call does.
        """
        binding = self._bind(tensors)
        if binding.is_final:
            record_secondary(self.engine.vulkan, binding)
        return binding

    def _bind(self, tensors: Mapping[str, Tensor], *, for_call: bool = False) -> Binding:
        self.engine.require_open()
        name = self.desc.operator_name
        for field in tensors:
            if field in self._owned_fields:
                raise BindingError(f"{name}: {field} is OWNED_BY_DML: bind it with initialize, not here")
        checked = check_tensors(name, self._bound_fields, tensors, self.engine)
        initialized = self._latest()
        if initialized is None:
            fields = ", ".join(self._owned_fields)
            raise BindingError(f"{name}: call initialize({fields}) first")
        memory = self._memory(checked)
        check_aliasing(name, memory, self._outputs)
        if not for_call:
            return initialized.bind(memory)
        # Calls run one after the other, so they share temporary memory; bindings of one list may run at the same time.
        shared = {name: found for name, known in self._call_memory.items() if (found := known()) is not None}
        binding = initialized.bind(memory, shared)
        self._call_memory = {name: ref(found) for name, found in binding.temporary.items()}
        return binding

    def _latest(self) -> Initialized | None:
        """The contents of the tensors that are OWNED_BY_DML, with the implementation that runs now."""
        initialized = self._initialized
        if initialized is None:
            return None
        latest = initialized.latest()
        if latest is not initialized:
            self._vulkan.monitor.run(self._replace, initialized, latest)
        return latest

    def _replace(self, old: Initialized, new: Initialized) -> None:
        if self._initialized is old:  # not if another thread has just given other contents
            self._initialized = new

    @typed_as(bound_tensors.initialize)
    def initialize(self, **tensors: Any) -> Submission:
        """Take over the contents of the tensors that are OWNED_BY_DML, and prepare the data derived from them.

        Work submitted later sees the new contents. The given tensors may be changed or dropped afterwards.

        Args:
            **tensors (Tensor or array_like): One for each tensor of the descriptor that is OWNED_BY_DML, by field name.
                Arrays are copied to the device; they have the sizes and the data type of their fields.

        Raises:
            BindingError, DeviceError: As a call does.
        """
        self.engine.require_open()
        given = {
            name: self._owned_tensor(name, value) if name in self._owned_fields and value is not None else value
            for name, value in tensors.items()
        }
        checked = check_tensors(self.desc.operator_name, self._owned_fields, given, self.engine)
        vulkan = self.engine.vulkan
        owned: dict[str, MemoryRange] = {}
        for name, tensor in checked.items():
            size = self._owned_fields[name].total_size_in_bytes
            copy = vulkan.memory.allocate(size)
            vulkan.transfers.copy(tensor.memory(), tensor.offset, copy, 0, size)
            owned[name] = MemoryRange(copy, 0, size)
        initialized = Initialized(self._implementation.latest, owned)
        # Last, and in one step, after all work that fills the new memory is submitted: until then calls use the old
        # memory.
        self._initialized, self._calls = initialized, Calls()
        return initialized.submission

    def owned_tensors(self) -> dict[str, Tensor]:
        """The operator's own copies of the tensors that are OWNED_BY_DML; none before `initialize`."""
        owned = {} if self._initialized is None else self._initialized.owned
        return {name: Tensor(self.engine, self._owned_fields[name], place.memory) for name, place in owned.items()}

    def _owned_tensor(self, field: str, value: Any) -> Tensor:
        """A tensor, or an array as a tensor that lies as the descriptor says."""
        if isinstance(value, Tensor):
            return value
        desc = plain(self._owned_fields[field])
        name = self.desc.operator_name
        array = array_of(value, name=f"{name}: {field}")
        if array.shape != desc.sizes or array.dtype.newbyteorder("=") != desc.data_type.numpy_dtype:
            raise BindingError(
                f"{name}: {field} is an array of shape {array.shape} and dtype {array.dtype}; the descriptor has sizes "
                f"{desc.sizes} and dtype {desc.data_type.numpy_dtype}"
            )
        if desc.has_overlap():
            raise BindingError(
                f"{name}: {field} has elements that share memory (strides {desc.strides}); pass a Tensor, or describe "
                "the field without strides"
            )
        tensor = Tensor.empty(self.engine, desc)
        tensor.write(array)
        return tensor

    def _memory(self, tensors: Mapping[str, Tensor]) -> dict[str, MemoryRange]:
        found = {}
        for name, tensor in tensors.items():
            desc = self._bound_fields[name]
            end = tensor.offset + desc.total_size_in_bytes
            found[name] = MemoryRange(tensor.memory(), tensor.offset, end, rows_of(desc))
        return found
