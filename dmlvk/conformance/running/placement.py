"""Places a case's tensors: each in a buffer of its own, between guard bytes. All bytes are random before a run."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlvk._common.bits import as_bits, equal_bits
from dmlvk.conformance.case import Workload, generator
from dmlvk.device_profile import LARGEST_OFFSET_ALIGNMENT, DeviceProfile
from dmlvk.runtime.elements import element_view, write_elements
from dmlvk.tensor_desc import TensorDesc

Bytes = npt.NDArray[np.uint8]

GUARD = LARGEST_OFFSET_ALIGNMENT
# A guard that would be as long as a memory segment is omitted if segments are longer than this.
LONGEST_GUARD = 1 << 20


class Placement:
    """A tensor's place in a buffer, and the buffer's content before a run.

    start, size: bytes from the buffer's start to the tensor, and the buffer's size in bytes.
    content: the whole buffer: the tensor's elements, and random bytes everywhere else.
    """

    def __init__(self, desc: TensorDesc, offset: int, segment_size: int | None, random: np.random.Generator) -> None:
        self.desc = desc
        self.start = _guard_before(desc, offset, segment_size) + offset
        self.size = -(-(self.start + desc.total_size_in_bytes + GUARD) // 16) * 16
        self.content: Bytes = np.frombuffer(random.bytes(self.size), np.uint8).copy()

    @property
    def memory(self) -> Bytes:
        """The tensor's own part of the content."""
        return self.content[self.start : self.start + self.desc.total_size_in_bytes]

    @property
    def layout(self) -> dict[str, Any]:
        """What finds the elements in the content without dmlvk: strides in bytes."""
        size = self.desc.data_type.size_in_bytes
        return {
            "type": self.desc.data_type.name.lower(),
            "start": self.start,
            "sizes": list(self.desc.sizes),
            "strides": [stride * size for stride in self.desc.element_strides],
        }

    def content_with(self, array: npt.NDArray[Any]) -> Bytes:
        """The content with other elements."""
        content = self.content.copy()
        memory = content[self.start : self.start + self.desc.total_size_in_bytes]
        as_bits(element_view(self.desc, memory))[...] = as_bits(array)
        return content

    def set_elements(self, array: npt.NDArray[Any]) -> None:
        """Put elements into the content.

        Raises ValueError: elements share memory and are not equal: the case asks for the impossible.
        """
        write_elements(self.desc, self.memory, array)
        if self.desc.has_overlap() and not equal_bits(element_view(self.desc, self.memory), array):
            raise ValueError(f"the case has different values for elements that have one place in memory: {self.desc}")


def placed_tensors(name: str, workload: Workload, profile: DeviceProfile | None) -> dict[str, Placement]:
    """Every tensor of a case, by descriptor field: inputs with their elements, the output all random.

    Without a profile, as on a device whose memory is in one piece.
    """
    segment_size = None if profile is None else profile.segment_size
    random = generator(f"{name}:poison")
    placements = {}
    for field, desc in workload.desc.tensors.items():
        placements[field] = Placement(desc, workload.offsets.get(field, 0), segment_size, random)
        if field in workload.desc.input_fields:
            placements[field].set_elements(np.asarray(workload.inputs[field]))
    return placements


def _guard_before(desc: TensorDesc, offset: int, segment_size: int | None) -> int:
    """Bytes of the guard before a tensor, chosen so that its alignment and its place in segments stay the same."""
    guard = math.lcm(GUARD, desc.guaranteed_base_offset_alignment or 1)
    if segment_size is None or guard + offset + desc.total_size_in_bytes + GUARD <= segment_size:
        return guard
    guard = math.lcm(guard, segment_size)
    return guard if guard <= LONGEST_GUARD else 0
