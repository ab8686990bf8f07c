"""A driver whose matrices are all the first tile of shared memory: each path on matrix units answers wrong.

Intel's Mesa had this fault (`quirks.py`). Here the kernels have it: whatever the offset at which a matrix is to be
loaded from shared memory, it is loaded from the beginning of the array. `make test-matrices` runs this on lavapipe of
Mesa 26.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import dmlvk
from dmlvk.errors import PathError
from dmlvk.planning import QUESTIONS
from dmlvk.runtime import answers_file, implementation, self_test
from dmlvk.runtime.kernel_modules import spirv

OP_TYPE_INT, OP_CONSTANT, OP_VARIABLE = 21, 43, 59
OP_ACCESS_CHAIN, OP_COOPERATIVE_MATRIX_LOAD = 65, 4457
WORKGROUP = 4


def first_tiles(module: bytes) -> tuple[bytes, int]:
    """A SPIR-V module whose matrices all lie at the beginning of their shared arrays; and how many did not before."""
    words, position = np.frombuffer(module, "<u4").copy(), 5
    integers: set[int] = set()  # types of 32 bits
    zeros: set[int] = set()
    shared: set[int] = set()
    chains: dict[int, int] = {}  # where each pointer's access chain is
    moved = 0
    while position < len(words):
        count, operation = divmod(int(words[position]), 1 << 16)
        operands = [int(word) for word in words[position + 1 : position + count]]
        if operation == OP_TYPE_INT and operands[1] == 32:
            integers.add(operands[0])
        elif operation == OP_CONSTANT and operands[0] in integers and operands[2:] == [0]:
            zeros.add(operands[1])
        elif operation == OP_VARIABLE and operands[2] == WORKGROUP:
            shared.add(operands[1])
        elif operation == OP_ACCESS_CHAIN and operands[2] in shared:
            chains[operands[1]] = position
        elif operation == OP_COOPERATIVE_MATRIX_LOAD and operands[2] in chains:
            index = chains[operands[2]] + 4
            moved += int(words[index]) not in zeros
            words[index] = min(zeros)
        position += count
    return words.tobytes(), moved


@pytest.mark.parametrize("path", QUESTIONS)
def test_a_driver_that_gives_the_first_tile_for_every_offset(
    device: dmlvk.Device, path: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert device.name.startswith("llvmpipe") and device.profile.cooperative_matrices, (
        "needs the lavapipe of Mesa 26: make test-matrices fetches it"
    )
    desc = QUESTIONS[path][0].desc
    monkeypatch.delenv("DMLVK_SELF_TEST", raising=False)
    monkeypatch.setattr(self_test, "WITHOUT_UNITS", frozenset())
    monkeypatch.setenv("DMLVK_CACHE_DIR", str(tmp_path / "right"))
    with dmlvk.Device(device.name) as right:
        assert right.compile(desc, path=path, wait=True).plan.path == path
        assert not right.profile.distrusted_paths

    monkeypatch.setattr(implementation, "spirv", with_first_tiles(spirv))
    monkeypatch.setenv("DMLVK_CACHE_DIR", str(tmp_path / "wrong"))
    with dmlvk.Device(device.name) as wrong:
        with pytest.raises(PathError, match=f"no kernel path '{path}'"):
            wrong.compile(desc, path=path, wait=True)
        assert wrong.profile.distrusted_paths == {path}
        (fault,) = answers_file.faults(wrong.profile).values()
    assert "in place of" in fault


def with_first_tiles(whole: Callable[[str], bytes]) -> Callable[[str], bytes]:
    """The kernels with the fault; those without matrices as they are."""

    def spirv(kernel: str) -> bytes:
        module, moved = first_tiles(whole(kernel))
        assert moved or not kernel.endswith(tuple(QUESTIONS)), f"{kernel} loads each matrix from the beginning anyway"
        return module

    return spirv
