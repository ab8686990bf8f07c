"""Objects that belong to a device: they hold its engine, and find the Device again for their users."""

from __future__ import annotations

from typing import Any

from dmlvk.runtime.engine import Engine


class OfDevice:
    """An object that belongs to a device. What type checkers know of it is in the stub beside this file."""

    __slots__ = ()

    engine: Engine

    @property
    def device(self) -> Any:
        """The Device that it belongs to."""
        return self.engine.device
