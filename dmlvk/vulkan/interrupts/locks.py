"""Locks that no signal handler can leave taken, as long as `with` takes them and the work is on the same line.

Python 3.11 to 3.13 run no handler between a lock that `with` takes and the work inside. Python 3.14 does: a handler
that raises there (Ctrl-C) leaves the lock taken for ever (https://github.com/python/cpython/issues/148874, mended in
3.15). So on 3.14 the lock is taken by a property, at the end of a function: Python runs handlers after a call, and
neither after reading an attribute nor on the way back from a function.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

if sys.version_info[:2] == (3, 14):
    import _thread

    class Lock(_thread.RLock):
        """As `threading.RLock`, for threads that may be interrupted."""

        __slots__ = ()
        taken = property(_thread.RLock.acquire)

        def __enter__(self) -> Any:
            return self.taken

    RLock: Any = Lock
else:
    Lock: Any = threading.Lock
    RLock: Any = threading.RLock
