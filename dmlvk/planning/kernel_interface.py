"""The inputs of kernels by name: push constants and specialization constants, as their SPIR-V declares them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from dmlvk._common import files

# The specialization constant with a workgroup's number of invocations along x.
LOCAL_SIZE_X = "LOCAL_SIZE_X"


class KernelInterfaceError(ValueError):
    """A plan names a constant that its kernel does not have, or leaves one out: a mistake of the planner."""


@dataclass(frozen=True)
class KernelInterface:
    """The constants of one kernel.

    kernel: name of the kernel, such as "slice1/tiles".
    push_constants: the first 32-bit word of each push constant, and its number of words.
    specialization_constants: names in the order of their ids 0, 1, 2, ...
    """

    kernel: str
    push_constants: Mapping[str, tuple[int, int]]
    specialization_constants: tuple[str, ...]

    @cached_property
    def _word_count(self) -> int:
        """32-bit words of all push constants."""
        return max((first + count for first, count in self.push_constants.values()), default=0)

    def push_constant_words(self, values: Mapping[str, int | Sequence[int]]) -> tuple[int, ...]:
        """All push constants as unsigned 32-bit words; negative values become two's complement.

        Raises KernelInterfaceError: a name is missing or unknown, or a value has the wrong number of words.
        """
        if self.push_constants.keys() != values.keys():
            self._require_names("push constants", self.push_constants.keys(), values.keys())
        words = [0] * self._word_count
        for name, (first, count) in self.push_constants.items():
            value = values[name]
            if count == 1 and isinstance(value, int):
                words[first] = value & 0xFFFFFFFF
                continue
            given = [value] if isinstance(value, int) else value
            if len(given) != count:
                raise KernelInterfaceError(f"kernel {self.kernel}: {name} has {count} words, not {len(given)}")
            words[first : first + count] = [word & 0xFFFFFFFF for word in given]
        return tuple(words)

    def specialization(self, values: Mapping[str, int]) -> tuple[int, ...]:
        """All specialization constants in the order of their ids.

        Raises KernelInterfaceError: a name is missing or unknown.
        """
        names = self.specialization_constants
        try:
            found = tuple([int(values[name]) for name in names])
        except KeyError:
            found = ()
        if not len(found) == len(values) == len(names):
            self._require_names("specialization constants", names, values.keys())
        return found

    def word_of(self, name: str) -> int:
        """The first word of a push constant; "start[2]" is the word of an element of an array."""
        name, _, index = name.rstrip("]").partition("[")
        if name not in self.push_constants:
            raise KernelInterfaceError(f"kernel {self.kernel} has no push constant {name!r}")
        return self.push_constants[name][0] + int(index or 0)

    def _require_names(self, kind: str, expected: Any, given: Any) -> None:
        missing, unknown = sorted(set(expected) - set(given)), sorted(set(given) - set(expected))
        if missing or unknown:
            raise KernelInterfaceError(f"kernel {self.kernel}: {kind} missing: {missing}, unknown: {unknown}")


@cache
def compiled_kernels() -> dict[str, dict[str, Any]]:
    """What the manifest beside the SPIR-V has of each kernel, by its name."""
    return dict(files.packaged_json("dmlvk", "spirv/manifest.json")["kernels"])


def has_kernel(kernel: str) -> bool:
    """Whether there is a kernel of a name."""
    return kernel in compiled_kernels()


@cache
def kernel_interface(kernel: str) -> KernelInterface:
    """The interface of a kernel, from the manifest beside the SPIR-V.

    Raises KernelInterfaceError: there is no such kernel.
    """
    entry = compiled_kernels().get(kernel)
    if entry is None:
        raise KernelInterfaceError(f"there is no kernel {kernel!r}")
    places = {name: (first, count) for name, (first, count) in entry["push_constants"].items()}
    return KernelInterface(kernel, places, tuple(entry["specialization_constants"]))
