"""Remembered calls of an operator: a repeated call with the same tensors is not checked, bound or recorded anew."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from weakref import proxy, ref

if TYPE_CHECKING:
    from dmlvk.runtime.binding import Binding
    from dmlvk.runtime.tensor import Tensor

# An operator remembers at most this many calls; each costs a descriptor set and a command buffer.
MAXIMUM_CALLS = 256


class Call:
    """An operator bound to tensors and recorded.

    tensors: equal to the keyword arguments of the call; the interpreter compares the two without running any Python
        code. None once the call is forgotten.
    """

    __slots__ = ("__weakref__", "_calls", "_key", "_tensors", "batch", "binding", "tensors")

    def __init__(self, calls: Calls, key: tuple[object, ...], tensors: Mapping[str, Tensor], binding: Binding) -> None:
        # A weak reference: the calls are dropped with their operator, even if some of their tensors remain.
        self._calls = ref(calls)
        self._key = key
        self._tensors = tuple(ref(tensor) for tensor in tensors.values())
        self.tensors: dict[str, Tensor] | None = {name: proxy(tensor) for name, tensor in tensors.items()}
        self.binding = binding
        assert binding.batch is not None, "a call is remembered once it is recorded"
        self.batch = binding.batch

    def forget(self) -> None:
        """Forget this call: one of its tensors was dropped or freed, or there are too many calls."""
        self.tensors = None
        calls = self._calls()
        if calls is not None:
            calls.pop(self._key, None)
            if calls.last is self:
                calls.last = None
        for reference in self._tensors:
            tensor = reference()
            if tensor is not None and tensor.calls is not None:
                tensor.calls.discard(ref(self))


class Calls(dict[tuple[object, ...], Call]):
    """Calls by the names and ids of their tensors.

    An id stands for a tensor as long as the tensor exists. A tensor's calls are forgotten when the tensor is dropped.
    So they do not hold its memory, and are not taken for the calls of a later tensor with the same id.

    last: the latest call: comparing its tensors costs a third of making a key from them.
    """

    last: Call | None = None

    def find(self, tensors: Mapping[str, Tensor]) -> Call | None:
        """The remembered call with these tensors, which becomes `last`."""
        call = self.get((*tensors, *map(id, tensors.values())))
        if call is None:
            return None
        try:
            is_same = call.tensors == tensors
        except ReferenceError:  # a dropped tensor whose calls were not forgotten, due to an exception
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
        # The tensors come first: so every call that can be found is also forgotten with its tensors.
        for tensor in tensors.values():
            if tensor.calls is None:
                tensor.calls = set()
            tensor.calls.add(ref(call, tensor.calls.discard))
        self[call._key] = call
        if any(tensor.is_freed for tensor in tensors.values()):  # by another thread, just now
            call.forget()
