"""An operator compiled for a device: its plan, and how tensors are bound to it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pkgutil import get_data
from typing import TYPE_CHECKING, Any, Generic, overload
from weakref import ref

from dmlvk.errors import BindingError, DeviceError
from dmlvk.operators import OperatorDesc
from dmlvk.planning.plan import CLEAN, PERSISTENT, SCRATCH, Dispatch, Plan
from dmlvk.runtime.binding import Binding, MemoryRange, check_aliasing, check_tensors
from dmlvk.runtime.bound_tensors import Described
from dmlvk.runtime.calls import Calls
from dmlvk.runtime.command_writer import CommandWriter, record_secondary
from dmlvk.runtime.copying import Pickled
from dmlvk.runtime.exchange import array_of
from dmlvk.runtime.layouts import plain
from dmlvk.runtime.submission import Submission, submission_of
from dmlvk.runtime.tensor import Tensor
from dmlvk.tensor_desc import TensorFlags
from dmlvk.vulkan.allocation import Allocation
from dmlvk.vulkan.pipelines import Pipeline
from dmlvk.vulkan.recorder import SIMULTANEOUS_USE

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from dmlvk.operators import (
        DiagonalMatrix1Desc,
        DiagonalMatrixDesc,
        OneHotDesc,
        QuantizedLinearConvolutionDesc,
        Slice1Desc,
        SliceDesc,
    )
    from dmlvk.runtime.bound_tensors import (
        DiagonalMatrix1Inputs,
        DiagonalMatrix1Tensors,
        DiagonalMatrixInputs,
        DiagonalMatrixTensors,
        OneHotInputs,
        OneHotTensors,
        QuantizedLinearConvolutionInputs,
        QuantizedLinearConvolutionTensors,
        Slice1Inputs,
        Slice1Tensors,
        SliceInputs,
        SliceTensors,
    )
    from dmlvk.runtime.device import Device


@cache
def spirv(kernel: str) -> bytes:
    """The SPIR-V of a kernel, by its name.

    Raises
    ------
    DeviceError
        There is no such kernel: the installation is damaged.
    """
    try:
        content = get_data("dmlvk", f"spirv/{kernel}.spv")
    except OSError as error:
        raise DeviceError(
            f"{kernel}.spv, a compiled kernel, is missing from this installation of dmlvk: install it again"
        ) from error
    assert content is not None, "whatever loaded this module also reads what lies beside it"
    return content


# An operator keeps at most this many plans for tensors that cross a segment's end in different places.
PLANS_KEPT = 64


class CompiledOperator(Pickled, Generic[Described]):
    """An operator ready to run. Made by `Device.compile`.

    To a type checker it is a `CompiledOperator[Slice1Desc]`, for example, which takes tensors of SLICE1's names.

    Attributes
    ----------
    device : Device
    desc : OperatorDesc
    plan : Plan
        The plan for tensors with memory of their own.

    Notes
    -----
    It can be pickled: see `dmlvk.runtime.pickling`.
    """

    in_place_of_a_copy = "compile its descriptor (operator.desc) once more; pickle takes it to another process"

    def __init__(self, device: Device, desc: Described, plan: Plan, path: str | None = None) -> None:
        self.device = device
        self.desc = desc
        self.plan = plan
        self._path = path
        self._plans: dict[tuple[tuple[str, int], ...], Plan] = {(): plan}
        fields = desc.tensors
        self._owned_fields = {
            name: tensor for name, tensor in fields.items() if tensor.flags & TensorFlags.OWNED_BY_DML
        }
        self._bound_fields = {name: tensor for name, tensor in fields.items() if name not in self._owned_fields}
        self._outputs = tuple(name for name in desc.output_fields if name in fields)
        self._owned: dict[str, MemoryRange] | None = None
        self._vulkan = device.vulkan
        self._queue = device.vulkan.queue
        self._calls = Calls()
        self._call_memory: dict[str, ref[Allocation]] = {}
        # By the ids of the dispatches. The operator keeps its plans, so an id always means the same dispatch.
        self._pipelines: dict[int, Pipeline] = {}
        # The pipelines are built now: a driver's refusal is reported here, and no call waits for the driver's compiler.
        for stage in (*plan.initialization, *plan.stages):
            for dispatch in stage:
                self.pipeline(dispatch)

    def __repr__(self) -> str:
        return f"<dmlvk.CompiledOperator {self.desc.operator_name} ({self.plan.path}) on {self.device.name}>"

    @property
    def has_state(self) -> bool:
        """Whether the operator must be initialised, and therefore remembers tensors."""
        return bool(self._owned_fields or self.plan.persistent_size)

    def pipeline(self, dispatch: Dispatch) -> Pipeline:
        """The pipeline of a dispatch in one of its plans. Operators of one device share pipelines."""
        pipeline = self._pipelines.get(id(dispatch))
        if pipeline is None:
            pipeline = self._pipelines[id(dispatch)] = self._vulkan.pipelines.get(
                dispatch.kernel,
                spirv(dispatch.kernel),
                dispatch.specialization,
                len(dispatch.windows),
                4 * len(dispatch.push_constants),
                dispatch.subgroup_size,
            )
        return pipeline

    @overload
    def __call__(self: CompiledOperator[Slice1Desc], **tensors: Unpack[Slice1Tensors]) -> Submission: ...
    @overload
    def __call__(self: CompiledOperator[OneHotDesc], **tensors: Unpack[OneHotTensors]) -> Submission: ...
    @overload
    def __call__(
        self: CompiledOperator[DiagonalMatrix1Desc], **tensors: Unpack[DiagonalMatrix1Tensors]
    ) -> Submission: ...
    @overload
    def __call__(
        self: CompiledOperator[QuantizedLinearConvolutionDesc], **tensors: Unpack[QuantizedLinearConvolutionTensors]
    ) -> Submission: ...
    @overload
    def __call__(self: CompiledOperator[SliceDesc], **tensors: Unpack[SliceTensors]) -> Submission: ...
    @overload
    def __call__(
        self: CompiledOperator[DiagonalMatrixDesc], **tensors: Unpack[DiagonalMatrixTensors]
    ) -> Submission: ...
    @overload
    def __call__(self: CompiledOperator[OperatorDesc], **tensors: Tensor) -> Submission: ...
    def __call__(self, **tensors: Tensor) -> Submission:
        """Run once, after all work submitted before; does not wait.

        Parameters
        ----------
        **tensors : Tensor
            One for each tensor of the descriptor, by field name, except those that are OWNED_BY_DML.

        Raises
        ------
        BindingError
            A tensor does not match the descriptor, or an output shares memory with another tensor.
        DeviceError
            The device is closed, lost, or out of memory.
        """
        call = self._calls.last
        try:
            if call is None or call.tensors != tensors:
                call = self._calls.find(tensors)
        except (ReferenceError, TypeError, ValueError):  # a tensor was just dropped; or an argument is an array
            call = self._calls.find(tensors)
        if call is None:
            return self._call_anew(tensors)
        if self.device.timestamps:
            return self.device.submit((call.binding,))
        queue = self._queue
        with queue.lock: value = queue.submit_inside(call.batch, call)  # noqa: E701  # fmt: skip
        submission = Submission()
        submission._queue = queue
        submission._value = value
        return submission

    def _call_anew(self, tensors: dict[str, Tensor]) -> Submission:
        """A call with tensors that are new to the operator."""
        calls = self._calls  # read before the bound memory is: `initialize` binds other memory and starts new calls
        binding = self._bind(tensors, for_call=True)
        device = self.device
        if device.debug_level:
            return device.submit((binding,))
        return self._vulkan.monitor.run(self._record_and_submit, calls, tensors, binding)

    def _record_and_submit(self, calls: Calls, tensors: dict[str, Tensor], binding: Binding) -> Submission:
        queue = self._queue
        binding.batch = batch = CommandWriter(self._vulkan, SIMULTANEOUS_USE).write((binding,))
        calls.add(tensors, binding)
        if self.device.timestamps:
            return self.device.submit_inside((binding,))
        return submission_of(queue, queue.submit_inside(batch, (batch, binding)))

    @overload
    def bind(self: CompiledOperator[Slice1Desc], **tensors: Unpack[Slice1Tensors]) -> Binding: ...
    @overload
    def bind(self: CompiledOperator[OneHotDesc], **tensors: Unpack[OneHotTensors]) -> Binding: ...
    @overload
    def bind(self: CompiledOperator[DiagonalMatrix1Desc], **tensors: Unpack[DiagonalMatrix1Tensors]) -> Binding: ...
    @overload
    def bind(
        self: CompiledOperator[QuantizedLinearConvolutionDesc], **tensors: Unpack[QuantizedLinearConvolutionTensors]
    ) -> Binding: ...
    @overload
    def bind(self: CompiledOperator[SliceDesc], **tensors: Unpack[SliceTensors]) -> Binding: ...
    @overload
    def bind(self: CompiledOperator[DiagonalMatrixDesc], **tensors: Unpack[DiagonalMatrixTensors]) -> Binding: ...
    @overload
    def bind(self: CompiledOperator[OperatorDesc], **tensors: Tensor) -> Binding: ...
    def bind(self, **tensors: Tensor) -> Binding:
        """Check tensors and prepare everything needed to run on them any number of times.

        Raises
        ------
        BindingError, DeviceError
            As a call does.
        """
        binding = self._bind(tensors)
        record_secondary(self.device.vulkan, binding)
        return binding

    def _bind(self, tensors: Mapping[str, Tensor], *, for_call: bool = False) -> Binding:
        self.device.require_open()
        name = self.desc.operator_name
        for field in tensors:
            if field in self._owned_fields:
                raise BindingError(f"{name}: {field} is OWNED_BY_DML: bind it with initialize, not here")
        checked = check_tensors(name, self._bound_fields, tensors, self.device)
        owned = self._owned
        if owned is None and self.has_state:
            fields = ", ".join(self._owned_fields)
            raise BindingError(f"{name}: call initialize({fields}) first")
        memory = self._memory(checked)
        check_aliasing(name, memory, self._outputs)
        plan = self._plan_for(memory)
        memory.update(owned or {})
        self._add_scratch(plan, memory, for_call=for_call)
        return Binding(self, plan, plan.stages, memory)

    @overload
    def initialize(self: CompiledOperator[Slice1Desc], **tensors: Unpack[Slice1Inputs]) -> Submission: ...
    @overload
    def initialize(self: CompiledOperator[OneHotDesc], **tensors: Unpack[OneHotInputs]) -> Submission: ...
    @overload
    def initialize(
        self: CompiledOperator[DiagonalMatrix1Desc], **tensors: Unpack[DiagonalMatrix1Inputs]
    ) -> Submission: ...
    @overload
    def initialize(
        self: CompiledOperator[QuantizedLinearConvolutionDesc], **tensors: Unpack[QuantizedLinearConvolutionInputs]
    ) -> Submission: ...
    @overload
    def initialize(self: CompiledOperator[SliceDesc], **tensors: Unpack[SliceInputs]) -> Submission: ...
    @overload
    def initialize(
        self: CompiledOperator[DiagonalMatrixDesc], **tensors: Unpack[DiagonalMatrixInputs]
    ) -> Submission: ...
    @overload
    def initialize(self: CompiledOperator[OperatorDesc], **tensors: Any) -> Submission: ...
    def initialize(self, **tensors: Any) -> Submission:
        """Take over the contents of the tensors that are OWNED_BY_DML, and prepare the data derived from them.

        Work submitted later sees the new contents. The given tensors may be changed or dropped afterwards.

        Parameters
        ----------
        **tensors : Tensor or array_like
            One for each tensor of the descriptor that is OWNED_BY_DML, by field name. Arrays are copied to the device;
            they have the sizes and the data type of their fields.

        Raises
        ------
        BindingError, DeviceError
            As a call does.
        """
        self.device.require_open()
        given = {
            name: self._owned_tensor(name, value) if name in self._owned_fields and value is not None else value
            for name, value in tensors.items()
        }
        checked = check_tensors(self.desc.operator_name, self._owned_fields, given, self.device)
        vulkan = self.device.vulkan
        owned: dict[str, MemoryRange] = {}
        submission = submission_of(vulkan.queue, vulkan.queue.submitted)
        for name, tensor in checked.items():
            size = self._owned_fields[name].total_size_in_bytes
            copy = vulkan.memory.allocate(size)
            value = vulkan.transfers.copy(tensor.memory(), tensor.offset, copy, 0, size)
            submission = submission_of(vulkan.queue, value)
            owned[name] = MemoryRange(copy, 0, size)
        if self.plan.persistent_size:
            owned[PERSISTENT] = self._new_memory(self.plan.persistent_size)
        if self.plan.initialization:
            memory = dict(owned)
            self._add_scratch(self.plan, memory)
            submission = self.device.submit((Binding(self, self.plan, self.plan.initialization, memory),))
        # Last, and in one step, after all work that fills the new memory is submitted: until then calls use the old
        # memory.
        self._owned, self._calls = owned, Calls()
        return submission

    def owned_tensors(self) -> dict[str, Tensor]:
        """The operator's own copies of the tensors that are OWNED_BY_DML; none before `initialize`."""
        owned = self._owned or {}
        return {
            name: Tensor(self.device, self._owned_fields[name], owned[name].memory)
            for name in owned.keys() & self._owned_fields
        }

    def _owned_tensor(self, field: str, value: Any) -> Tensor:
        """A tensor, or an array as a tensor that lies as the descriptor says."""
        if isinstance(value, Tensor):
            return value
        desc = plain(self._owned_fields[field])
        array = array_of(value)
        name = self.desc.operator_name
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
        tensor = self.device.tensor(desc)
        tensor.write(array)
        return tensor

    def _memory(self, tensors: Mapping[str, Tensor]) -> dict[str, MemoryRange]:
        return {
            name: MemoryRange(
                tensor.memory(), tensor.offset, tensor.offset + self._bound_fields[name].total_size_in_bytes
            )
            for name, tensor in tensors.items()
        }

    def _new_memory(self, size: int) -> MemoryRange:
        return MemoryRange(self.device.vulkan.memory.allocate(size), 0, size)

    def _add_scratch(self, plan: Plan, memory: dict[str, MemoryRange], *, for_call: bool = False) -> None:
        # Calls run one after the other, so they share scratch memory; bindings of one list may run at the same time.
        for name, size in ((SCRATCH, plan.scratch_size), (CLEAN, plan.clean_size)):
            if not size:
                continue
            known = self._call_memory.get(name) if for_call else None
            shared = known() if known is not None else None
            if shared is not None and shared.size >= size:
                memory[name] = MemoryRange(shared, 0, size)
                continue
            memory[name] = self._new_memory(size)
            if name == CLEAN:
                self._vulkan.transfers.clear(memory[name].memory, 0, size)
            if for_call:
                self._call_memory[name] = ref(memory[name].memory)

    def _plan_for(self, memory: Mapping[str, MemoryRange]) -> Plan:
        """The plan for tensors in these places. A tensor that crosses a segment's end needs another plan."""
        offsets = tuple(
            (name, place.start % place.memory.segment_size)
            for name, place in memory.items()
            if len(place.memory.segments) > 1 and _crosses_unexpectedly(place)
        )
        plan = self._plans.get(offsets)
        if plan is None:
            plan = self.device.plan(self.desc, self._path, dict(offsets))
            if len(self._plans) >= PLANS_KEPT:
                self._plans = {(): self.plan}
                self._pipelines = {}
            self._plans[offsets] = plan
        return plan


def _crosses_unexpectedly(place: MemoryRange) -> bool:
    segment_size = place.memory.segment_size
    return place.start % segment_size != 0 and place.start // segment_size != (place.end - 1) // segment_size
