"""Calls of an operator that may come again: with the same tensors nothing is checked, bound or recorded anew."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from weakref import WeakSet, proxy, ref

if TYPE_CHECKING:
    from dmlvk.runtime.binding import Binding
    from dmlvk.runtime.tensor import Tensor

# Calls that an operator remembers; each costs a descriptor set and a command buffer.
MAXIMUM_CALLS = 256


class Call:
    """An operator bound to tensors, recorded.

    Attributes
    ----------
    tensors : dict of str to proxy of Tensor, or None
        Equal to the keyword arguments that the call was made with, which Python compares without running a line of
        Python; None once it is forgotten.
    binding : Binding
        With the memory: whoever submits the batch keeps the call.
    batch : Batch
        The binding recorded.
    """

    __slots__ = ("__weakref__", "_calls", "_key", "_tensors", "batch", "binding", "tensors")

    def __init__(self, calls: Calls, key: tuple[object, ...], tensors: Mapping[str, Tensor], binding: Binding) -> None:
        # Weak: the calls go with their operator, whichever of their tensors are still there.
        self._calls = ref(calls)
        self._key = key
        self._tensors = tuple(ref(tensor) for tensor in tensors.values())
        self.tensors: dict[str, Tensor] | None = {name: proxy(tensor) for name, tensor in tensors.items()}
        self.binding = binding
        assert binding.batch is not None, "a call is remembered once it is recorded"
        self.batch = binding.batch

    def forget(self) -> None:
        """Let go of it: a tensor of it was dropped or freed, or there are too many."""
        self.tensors = None
        calls = self._calls()
        if calls is not None:
            calls.pop(self._key, None)
            if calls.last is self:
                calls.last = None
        for reference in self._tensors:
            tensor = reference()
            if tensor is not None and tensor.calls is not None:
                tensor.calls.discard(self)


class Calls(dict[tuple[object, ...], Call]):
    """Calls by the names and ids of their tensors.

    An id means a tensor for as long as the tensor is there. The calls of a tensor are forgotten when it goes, so that
    they neither hold its memory nor are taken for those of the next one with the same id.

    Attributes
    ----------
    last : Call or None
        The latest one: comparing its tensors costs a third of making a key of them.
    """

    last: Call | None = None

    def find(self, tensors: Mapping[str, Tensor]) -> Call | None:
        """The call with these tensors, which becomes the last."""
        call = self.get((*tensors, *map(id, tensors.values())))
        if call is None:
            return None
        try:
            is_same = call.tensors == tensors
        except ReferenceError:  # an exception kept a tensor that has gone from being forgotten
            is_same = False
        if not is_same:  # or forgotten by another thread, just now
            call.forget()
            return None
        self.last = call
        if call.tensors is None:  # forgotten by another thread, just now
            self.last = None
        return call

    def add(self, tensors: Mapping[str, Tensor], binding: Binding) -> None:
        """Remember a call whose binding is recorded. Called with the device's monitor entered."""
        while len(self) >= MAXIMUM_CALLS:
            for oldest in list(self.values())[:1]:
                oldest.forget()
        call = Call(self, (*tensors, *map(id, tensors.values())), tensors, binding)
        # The tensors first: a call that is found is one that goes with its tensors.
        for tensor in tensors.values():
            if tensor.calls is None:
                tensor.calls = WeakSet()
            tensor.calls.add(call)
        self[call._key] = call
        if any(tensor.is_freed for tensor in tensors.values()):  # by another thread, just now
            call.forget()
