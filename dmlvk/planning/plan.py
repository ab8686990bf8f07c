"""A plan: everything that turns an operator into work on a device, as plain data.

The runtime carries a plan out without knowing which operator it came from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from dmlvk.errors import PathError, shown


def require_path(operator_name: str, path: str | None, paths: Sequence[str]) -> None:
    """Raise a PathError unless a path is None or one of an operator's kernel paths."""
    if path is not None and path not in paths:
        names = ", ".join(repr(name) for name in paths)
        raise PathError(f"{operator_name} has no kernel path {shown(path)}; it has {names}")


class Access(Enum):
    """How a kernel uses a window. A WRITE window is also read, because its partial words are merged atomically."""

    READ = "read"
    WRITE = "write"


# Names of memory that no caller binds: DirectML's temporary and persistent resources, and a temporary one that holds
# zeros before each run and after it. So workgroups can add to it, and no dispatch has to clear it.
SCRATCH = "scratch"
PERSISTENT = "persistent"
CLEAN = "clean"

# The path, of operators that have it, whose pipelines are not special to a descriptor's sizes. No planner chooses it.
GENERAL_PATH = "general"

# Each tensor starts where its memory starts.
NO_OFFSETS: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True)
class Window:
    """The part of a tensor's memory that one dispatch sees as a storage buffer.

    A device may align buffer bindings more coarsely than `offset` and than the tensor itself. The runtime then binds
    from the aligned address below and adds the distance, a multiple of 16 bytes, to the push constant `base_word`, in
    units of `base_unit` bytes.

    Attributes:
        tensor (str): The descriptor field whose tensor it is ("input_tensor"), or SCRATCH, or PERSISTENT.
        offset (int): Bytes from the tensor's start; a multiple of 16.
        size (int): Bytes; a multiple of 4. Lies in one segment of the tensor's memory.
        access (Access):
        base_word (int): Index of the 32-bit push constant that holds the window-relative start; the sum wraps at 32
            bits.
        base_unit (int): Bytes that one step of that push constant stands for; divides 16.
    """

    tensor: str
    offset: int
    size: int
    access: Access
    base_word: int
    base_unit: int


@dataclass(frozen=True)
class Dispatch:
    """One vkCmdDispatch.

    Attributes:
        kernel (str): Stem of the SPIR-V file under dmlvk/spirv.
        specialization (tuple of int): 32-bit values of the specialization constants 0, 1, 2, ...; constant 0 is the
            workgroup size.
        push_constants (tuple of int): Unsigned 32-bit words, for windows that each start at the start of their binding.
        windows (tuple of Window): One for each binding, in order of the binding numbers of descriptor set 0.
        groups (tuple of int): Workgroups along x, y and z.
        seconds (float): The longest time, on the slowest device of a kind. Of a convolution's kernel, this is its share
            of the estimate by which its path was chosen, times a factor: see `dmlvk.planning.device_rates.longest`. The
            runtime starts a new submission before the sum passes MAXIMUM_SUBMISSION_SECONDS.
        subgroup_size (int): The subgroup size that the kernel is specialized for, in full subgroups; 0 if any size will
            do.
        bytes_moved, operations (int): The bytes read and written, and the multiply-adds times two. For GB/s and TOPS.
    """

    kernel: str
    specialization: tuple[int, ...]
    push_constants: tuple[int, ...]
    windows: tuple[Window, ...]
    groups: tuple[int, int, int]
    seconds: float = 0.0
    bytes_moved: int = 0
    operations: int = 0
    subgroup_size: int = 0


@dataclass(frozen=True)
class Plan:
    """What to run for one operator on one device.

    Attributes:
        path (str): Name of the chosen path, such as "blocks". DMLVK_KERNEL or a compile argument can force another
            path.
        stages (tuple of tuples of Dispatch): Dispatches of one stage write disjoint elements and run in any order. A
            stage sees the writes of earlier stages.
        initialization (tuple of tuples of Dispatch): The same for initialization. `CompiledOperator.initialize` runs it
            once, for tensors that are OWNED_BY_DML.
        scratch_size, persistent_size, clean_size (int): Bytes of memory that the runtime provides under the names
            SCRATCH, PERSISTENT and CLEAN.
        seconds (float): The estimate of a run's time by which the path was chosen; 0 if there is none. Those of the
            dispatches are the longest times, on the slowest device of a kind.
    """

    path: str
    stages: tuple[tuple[Dispatch, ...], ...]
    initialization: tuple[tuple[Dispatch, ...], ...] = ()
    scratch_size: int = 0
    persistent_size: int = 0
    clean_size: int = 0
    seconds: float = 0.0

    @property
    def predicted_seconds(self) -> float:
        """The estimate of a run's time; without one, the longest time."""
        return self.seconds or sum(dispatch.seconds for dispatch in self.dispatches)

    @property
    def dispatches(self) -> tuple[Dispatch, ...]:
        """All dispatches of all stages, in order."""
        return tuple(dispatch for stage in self.stages for dispatch in stage)


MAXIMUM_SUBMISSION_SECONDS = 0.1
