"""Objects that represent something on a device cannot be copied by Python's own means. A few travel as a recipe."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn


class NotCopied:
    """Refuses copy.copy, copy.deepcopy and pickle: two objects would own the same resource.

    in_place_of_a_copy: what the user should do instead.
    """

    __slots__ = ()

    in_place_of_a_copy: ClassVar[str] = ""

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise self._refusal("copied or pickled")

    def _refusal(self, what: str) -> TypeError:
        return TypeError(f"a dmlvk.{type(self).__name__} cannot be {what}: {self.in_place_of_a_copy}")


class Pickled(NotCopied):
    """Refuses copy.copy and copy.deepcopy, but travels to other processes by pickle, as the recipe to make it anew.

    A class of this kind has its own `__reduce_ex__`, or a function of `copyreg`.
    """

    __slots__ = ()

    def __copy__(self) -> NoReturn:
        raise self._refusal("copied")

    def __deepcopy__(self, memo: object) -> NoReturn:
        raise self._refusal("copied")
