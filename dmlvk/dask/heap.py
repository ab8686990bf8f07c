"""The memory that the C library keeps for later arrays."""

from __future__ import annotations

import ctypes
import sys

# Parameters of `mallopt`, from malloc.h.
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
# To these glibc adapts by itself at most, when a program frees large arrays.
LARGEST_KEPT = 32 << 20
MOST_KEPT = 2 * LARGEST_KEPT


def keep_freed_memory() -> None:
    """Let arrays of up to 32 MiB use the memory of arrays that were freed. On Linux with glibc; else nothing happens.

    It is what glibc does by itself, until Dask's nanny sets MALLOC_TRIM_THRESHOLD_. Then each array that a worker loads
    gets memory that the system has yet to clear: on a host with two H200s, maps were 1.2 times slower
    (docs/decisions/several_gpus.md).
    """
    if not sys.platform.startswith("linux"):
        return
    # int mallopt(int param, int value); musl has none.
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt.argtypes, mallopt.restype = (ctypes.c_int, ctypes.c_int), ctypes.c_int
        mallopt(M_MMAP_THRESHOLD, LARGEST_KEPT)
        mallopt(M_TRIM_THRESHOLD, MOST_KEPT)
