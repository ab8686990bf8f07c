"""Objects that represent something on a device cannot be copied by Python's own means."""

from __future__ import annotations

from typing import ClassVar, NoReturn


class NotCopied:
    """Refuses copy.copy, copy.deepcopy and pickle: two objects would own the same resource.

    Attributes
    ----------
    in_place_of_a_copy : str
        What the user should do instead.
    """

    __slots__ = ()

    in_place_of_a_copy: ClassVar[str] = ""

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        name = type(self).__name__
        raise TypeError(f"a dmlvk.{name} cannot be copied or pickled: {self.in_place_of_a_copy}")
