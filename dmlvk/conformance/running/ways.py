"""The ways in which one operator is run: alone, with its tensors in one buffer, in a sequence, beside other work."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

import dmlvk
from dmlvk.conformance.case import Way, Workload, generator
from dmlvk.conformance.running.placement import GUARD, Bytes, Placement
from dmlvk.tensor_desc import TensorDesc

# Submissions of other work before and after the operator.
OTHERS = 3


class PlacedTensor:
    """A tensor on the device, between guards: in a buffer of its own, or at some byte of a given one."""

    def __init__(
        self, device: dmlvk.Device, placement: Placement, buffer: dmlvk.Buffer | None = None, start: int = 0
    ) -> None:
        self.placement = placement
        buffer = device.buffer(placement.size) if buffer is None else buffer
        self.tensor = buffer.tensor(placement.desc, start + placement.start)
        # In elements of 8 bytes: a tensor of single bytes has at most 2^32 - 1 of them.
        self._whole = buffer.tensor(TensorDesc(dmlvk.DataType.UINT64, (placement.size // 8,)), start)

    def fill(self) -> None:
        """Write the content, guards included, to the device."""
        self._whole.write_bytes(self.placement.content)

    def read(self) -> Bytes:
        """Read the present content, guards included."""
        return np.frombuffer(self._whole.read_bytes(), np.uint8)


def placed_on_device(
    device: dmlvk.Device, placements: Mapping[str, Placement], way: Way = Way.ALONE
) -> dict[str, PlacedTensor]:
    """Each tensor in a buffer of its own or, if the way says so, all in one, each between its guards."""
    if way is not Way.ONE_BUFFER:
        return {field: PlacedTensor(device, placement) for field, placement in placements.items()}
    alignments = (placement.desc.guaranteed_base_offset_alignment or 1 for placement in placements.values())
    unit = math.lcm(GUARD, *alignments)
    starts, end = {}, 0
    for field, placement in placements.items():
        starts[field] = end
        end += -(-placement.size // unit) * unit
    buffer = device.buffer(end)
    return {field: PlacedTensor(device, placements[field], buffer, start) for field, start in starts.items()}


class OtherWork:
    """The same operator on tensors of its own, with any bytes in them.

    name: the case's name, from which the bytes come.
    """

    def __init__(self, operator: dmlvk.CompiledOperator, workload: Workload, name: str) -> None:
        random = generator(f"{name}:other")
        self.tensors = {}
        for field, desc in workload.desc.tensors.items():
            if not desc.flags & dmlvk.TensorFlags.OWNED_BY_DML:
                self.tensors[field] = operator.device.tensor(desc)
                self.tensors[field].write_bytes(random.bytes(desc.total_size_in_bytes))
        self.binding = operator.bind(**self.tensors)


def run_once(
    operator: dmlvk.CompiledOperator, tensors: Mapping[str, dmlvk.Tensor], way: Way, other: OtherWork | None
) -> None:
    """Run an operator in one of the ways, and wait for it and for all other work."""
    if other is None:
        operator(**tensors).wait()
        return
    binding = operator.bind(**tensors)
    if way is Way.SEQUENCE:
        # Twice, because the first time may leave something to the second.
        operator.device.sequence([other.binding, binding, other.binding, binding]).submit().wait()
        return
    device = operator.device
    submissions = [device.submit([other.binding]) for _ in range(OTHERS)]
    submissions.append(device.submit([other.binding, binding]))
    submissions += [device.submit([other.binding]) for _ in range(OTHERS)]
    for submission in submissions:
        submission.wait()
