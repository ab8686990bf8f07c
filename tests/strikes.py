"""Exceptions raised at a chosen line; a signal handler may raise one at any line."""

from __future__ import annotations

import sys
from types import FrameType, TracebackType
from typing import Any

from dmlvk.vulkan import library


class Struck(BaseException):
    """The exception of a Strike. Like KeyboardInterrupt, it is caught only by a handler of all exceptions."""


class Strike:
    """In `with Strike(n, folder)` the n-th line that runs in files of the folder raises Struck; the `with` catches it.

    Lines that watch the driver's functions for the validation layer are excluded. Without the layer these are functions
    in C, in which nothing strikes.

    Attributes
    ----------
    lines : int
        Number of lines that have run.
    place : str
        The file and line that were struck; empty if none was.
    """

    def __init__(self, number: int, folder: str) -> None:
        self._number = number
        self._folder = folder
        self.lines = 0
        self.place = ""

    @property
    def has_struck(self) -> bool:
        """Whether the n-th line was reached."""
        return bool(self.place)

    def __enter__(self) -> Strike:
        self._before = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        sys.settrace(self._before)
        return kind is Struck

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        name = frame.f_code.co_filename
        if not name.startswith(self._folder) or name == library.__file__:
            return None
        if event == "line" and not self.place:
            if self.lines == self._number:
                self.place = f"{frame.f_code.co_filename}:{frame.f_lineno} ({frame.f_code.co_name})"
                raise Struck(self.place)
            self.lines += 1
        return self._trace
