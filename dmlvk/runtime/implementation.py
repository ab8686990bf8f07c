"""How an operator runs on a device: a plan with its pipelines, and the one that takes over once it is compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType

from dmlvk import quirks
from dmlvk.device_profile import LARGEST_OFFSET_ALIGNMENT
from dmlvk.errors import DeviceError, OutOfMemoryError
from dmlvk.operators import OperatorDesc
from dmlvk.planning.plan import CLEAN, PERSISTENT, SCRATCH, Dispatch, Plan
from dmlvk.runtime import debug
from dmlvk.runtime.binding import Binding, MemoryRange, Provisional
from dmlvk.runtime.engine import Engine
from dmlvk.runtime.kernel_modules import spirv
from dmlvk.runtime.submission import Submission, submission_of
from dmlvk.runtime.submitting import submit
from dmlvk.vulkan.allocation import Allocation
from dmlvk.vulkan.descriptors import BufferRange
from dmlvk.vulkan.pipelines import Pipeline
from dmlvk.vulkan.recorder import PreparedDispatch, Recorder

NOTHING_SHARED: Mapping[str, Allocation] = MappingProxyType({})
# An implementation keeps at most this many plans for tensors that cross a segment's end in different places.
PLANS_KEPT = 64


class Implementation:
    """One way to run an operator on a device: the plans of one kernel path, and their pipelines.

    A general implementation gives the first results while its special one is compiled in the background. Then the
    special one takes over, between two submissions.

    plan: the plan for tensors with memory of their own.
    is_built: whether all pipelines of the plan are there.
    special: of a general implementation: the one that takes over once it is built.
    failure: the reason why the special one cannot be built. The general one then stays.
    """

    def __init__(
        self,
        engine: Engine,
        desc: OperatorDesc,
        plan: Plan,
        path: str | None = None,
        *,
        is_forced: bool = False,
        special: Implementation | None = None,
    ) -> None:
        self.engine = engine
        self.desc = desc
        self.plan = plan
        self.special = special
        self.is_built = False
        self.failure: BaseException | None = None
        self._path = path
        self._is_forced = is_forced
        self._plans: dict[tuple[tuple[str, int], ...], Plan] = {(): plan}
        # By the ids of the dispatches. The implementation keeps its plans, so an id always means the same dispatch.
        self._pipelines: dict[int, Pipeline] = {}

    @property
    def is_final(self) -> bool:
        """Whether no other implementation takes over. What is recorded then may be kept and run again."""
        return self.special is None or self.failure is not None

    @property
    def latest(self) -> Implementation:
        """The special implementation once it is built, until then this one."""
        special = self.special
        return self if special is None or not special.is_built or self.failure is not None else special

    def build(self, *, gives_way: bool = False) -> None:
        """Build all pipelines: a driver's refusal is reported here, and no call waits for the driver's compiler.

        gives_way: whether a driver that compiles where its queue does waits for a pause between calls.
        Raises DeviceError: the driver refuses a kernel, or the device is closed.
        Raises PathError: the plan was forced, and the driver's answer to a known question was wrong.
        """
        self_test = self.engine.self_test

        def is_trusted() -> bool:
            return self_test is None or self_test.allows(self.engine, self.plan)

        while True:
            # Compiling need not wait for the answer to a question of another thread.
            if (self_test is not None and self_test.is_asked_elsewhere(self.engine, self.plan)) or is_trusted():
                try:
                    self._build_pipelines(gives_way)
                except DeviceError:
                    if is_trusted():
                        raise
                else:
                    if is_trusted():
                        break
            # The device no longer has the path. A path that was remembered as the fastest gives way to the
            # planner's choice.
            self._path = self._path if self._is_forced else None
            self.plan = self.engine.plan(self.desc, self._path)
            self._plans, self._pipelines = {(): self.plan}, {}
        self.is_built = True

    def _build_pipelines(self, gives_way: bool) -> None:
        dispatches = [dispatch for stage in (*self.plan.initialization, *self.plan.stages) for dispatch in stage]
        for dispatch in dispatches:
            self.pipeline(dispatch)
        if quirks.LAVAPIPE_COMPILES_AT_THE_FIRST_CALL.applies_to(self.engine.profile):
            fresh = {self.pipeline(dispatch): dispatch for dispatch in dispatches}
            fresh = {pipeline: dispatch for pipeline, dispatch in fresh.items() if not pipeline.has_run}
            if gives_way:
                for pipeline, dispatch in fresh.items():
                    self.engine.vulkan.pauses.use(partial(self._run_on_nothing, {pipeline: dispatch}))
            elif fresh:
                self._run_on_nothing(fresh)

    def _run_on_nothing(self, fresh: dict[Pipeline, Dispatch]) -> None:
        """Run kernels with no workgroups, and wait for that, so that the driver compiles them."""
        vulkan = self.engine.vulkan
        memory = vulkan.memory.allocate(LARGEST_OFFSET_ALIGNMENT)
        segment = memory.segments[0]
        # Each binding needs a buffer; no kernel reads it.
        unread = BufferRange(segment.block.buffer, segment.offset, segment.size)
        prepared = [
            PreparedDispatch(
                dispatch.kernel,
                pipeline,
                vulkan.descriptors.take([unread] * len(dispatch.windows)),
                (0,) * len(dispatch.push_constants),
                (0, 0, 0),
            )
            for pipeline, dispatch in fresh.items()
        ]

        def submit_on_nothing() -> int:
            recorder = Recorder(vulkan.queue.command_buffers.acquire())
            for each in prepared:
                recorder.dispatch(each)
                # They share the buffer; the validation layer expects a barrier even where no workgroup runs.
                recorder.between_dispatches()
            return vulkan.queue.submit_inside(vulkan.queue.batch([recorder.end()], (), (), kept=(prepared, memory)))

        vulkan.queue.wait(vulkan.monitor.run(submit_on_nothing))
        for pipeline in fresh:
            pipeline.has_run = True

    def build_without_compiler(self) -> bool:
        """Find all pipelines in the driver's caches; returns whether they are there. `build` then takes no time.

        It finds nothing while the plan's path has questions to answer.
        """
        if self.engine.self_test is not None and not self.engine.self_test.has_answered(self.engine, self.plan):
            return False
        for stage in (*self.plan.initialization, *self.plan.stages):
            for dispatch in stage:
                found = self.engine.vulkan.pipelines.find(*_request(dispatch))
                if found is None:
                    return False
                self._pipelines[id(dispatch)] = found
        return True

    def build_special(self, *, gives_way: bool = False) -> None:
        """Build the implementation that takes over, if there is one.

        gives_way: as for `build`.
        Raises DeviceError: as `build`; the same error again if it failed before.
        """
        if self.failure is not None:
            raise self.failure
        if self.special is not None and not self.special.is_built:
            self.special.build(gives_way=gives_way)

    def stay(self, failure: BaseException) -> None:
        """Note that the special implementation does not take over, and why."""
        self.failure = failure
        debug.note(self.engine, self.desc, f"stays on the path {self.plan.path}, {type(failure).__name__}: {failure}")

    def pipeline(self, dispatch: Dispatch) -> Pipeline:
        """The pipeline of a dispatch in one of its plans. Operators of one device share pipelines."""
        pipeline = self._pipelines.get(id(dispatch))
        if pipeline is None:
            pipeline = self._pipelines[id(dispatch)] = self.engine.vulkan.pipelines.get(*_request(dispatch))
        return pipeline

    def plan_for(self, memory: Mapping[str, MemoryRange]) -> Plan:
        """The plan for tensors in these places. A tensor that crosses a segment's end needs another plan."""
        offsets = tuple(
            (name, place.start % place.memory.segment_size)
            for name, place in memory.items()
            if len(place.memory.segments) > 1 and _crosses_unexpectedly(place)
        )
        plan = self._plans.get(offsets)
        if plan is None:
            plan = self.engine.plan(self.desc, self._path, dict(offsets))
            if len(self._plans) >= PLANS_KEPT:
                self._plans = {(): self.plan}
                self._pipelines = {}
            self._plans[offsets] = plan
        return plan

    def binding(
        self, plan: Plan, stages: tuple[tuple[Dispatch, ...], ...], memory: Mapping[str, MemoryRange]
    ) -> Binding:
        """Bind memory to some stages of one of its plans."""
        return Binding(self.engine, self.desc.operator_name, plan, stages, memory, self.pipeline)

    def new_memory(self, size: int) -> MemoryRange:
        """Memory of the device's own."""
        return MemoryRange(self.engine.vulkan.memory.allocate(size), 0, size)


class Initialized:
    """An implementation with the contents of the tensors that are OWNED_BY_DML, and with what it derived from them.

    owned: copies of the tensors that are OWNED_BY_DML, by field.
    submission: the work that fills the memory. Work that is submitted later sees the contents.
    """

    def __init__(self, implementation: Implementation, owned: Mapping[str, MemoryRange]) -> None:
        plan = implementation.plan
        engine = implementation.engine
        self.implementation = implementation
        self.owned = dict(owned)
        self.submission: Submission = submission_of(engine.vulkan.queue, engine.vulkan.queue.submitted)
        self._memory = dict(owned)
        self._successor: Initialized | None = None
        if plan.persistent_size:
            self._memory[PERSISTENT] = implementation.new_memory(plan.persistent_size)
        if plan.initialization:
            memory = dict(self._memory)
            if plan.scratch_size:
                memory[SCRATCH] = implementation.new_memory(plan.scratch_size)
            self.submission = submit(engine, (implementation.binding(plan, plan.initialization, memory),))

    def latest(self) -> Initialized:
        """The same contents with the special implementation, once that is built; until then this object."""
        general = self.implementation
        special = general.latest
        if special is general:
            return self
        if self._successor is None:
            try:
                self._successor = Initialized(special, self.owned)
            except OutOfMemoryError as error:  # there is not enough memory for both
                general.stay(error)
                return self
            debug.note(general.engine, general.desc, f"path {special.plan.path} takes over from {general.plan.path}")
        return self._successor

    def bind(self, memory: Mapping[str, MemoryRange], shared: Mapping[str, Allocation] = NOTHING_SHARED) -> Binding:
        """Bind tensors in these places.

        memory: by field, excluding tensors that are OWNED_BY_DML.
        shared: temporary memory, by name, that may be used if it is large enough.
        """
        implementation = self.implementation
        plan = implementation.plan_for(memory)
        whole = {**memory, **self._memory}
        for name, size in ((SCRATCH, plan.scratch_size), (CLEAN, plan.clean_size)):
            if not size:
                continue
            known = shared.get(name)
            if known is not None and known.size >= size:
                whole[name] = MemoryRange(known, 0, size)
                continue
            whole[name] = implementation.new_memory(size)
            if name == CLEAN:
                implementation.engine.vulkan.transfers.clear(whole[name].memory, 0, size)
        binding = implementation.binding(plan, plan.stages, whole)
        if not implementation.is_final:
            binding.provisional = Rebinding(self, memory)
        return binding


class Rebinding(Provisional):
    """What a binding of a general implementation needs in order to be bound once more to the special one.

    memory: the places of the bound tensors, by field.
    """

    def __init__(self, initialized: Initialized, memory: Mapping[str, MemoryRange]) -> None:
        self._initialized = initialized
        self._memory = memory

    @property
    def is_final(self) -> bool:
        """Whether the general implementation stays."""
        return self._initialized.implementation.is_final

    @property
    def is_settled(self) -> bool:
        """Whether it is known which implementation stays: the special one is built, or failed."""
        implementation = self._initialized.implementation
        return implementation.is_final or implementation.latest is not implementation

    def latest(self) -> Binding | None:
        """The same tensors bound to the special implementation; None until that is built."""
        latest = self._initialized.latest()
        if latest is self._initialized:
            return None
        try:
            return latest.bind(self._memory)
        except OutOfMemoryError as error:
            self._initialized.implementation.stay(error)
            return None


def new_pipelines_first(plans: Sequence[Plan]) -> list[int]:
    """The numbers of some plans in an order in which to build them on several threads.

    First come those that need a pipeline which no plan before them needs: the driver then compiles all at once. Threads
    that build the others wait for these pipelines, or for the answer to a known question.
    """
    seen: set[tuple[str, tuple[int, ...], int]] = set()
    first: list[int] = []
    others: list[int] = []
    for number, plan in enumerate(plans):
        stages = (*plan.initialization, *plan.stages)
        needed = {(each.kernel, each.specialization, each.subgroup_size) for stage in stages for each in stage}
        (others if needed <= seen else first).append(number)
        seen |= needed
    return first + others


def _request(dispatch: Dispatch) -> tuple[str, bytes, tuple[int, ...], int]:
    """The arguments by which a device finds or builds the pipeline of a dispatch."""
    return dispatch.kernel, spirv(dispatch.kernel), dispatch.specialization, dispatch.subgroup_size


def _crosses_unexpectedly(place: MemoryRange) -> bool:
    segment_size = place.memory.segment_size
    return place.start % segment_size != 0 and place.start // segment_size != (place.end - 1) // segment_size
