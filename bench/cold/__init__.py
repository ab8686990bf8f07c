"""What a network waits for the driver's compiler: its convolutions in fresh processes, without and with a cache."""

from __future__ import annotations

# What a process does with the layers. Two compile all of them and call them then; the third calls each at once, which
# need not wait for the kernel that is compiled for the layer.
ONE_THREAD, ALL_CORES, FIRST_RESULT = "one thread", "all cores", "first result"
WAYS = (ONE_THREAD, ALL_CORES, FIRST_RESULT)

# dmlvk's pipeline cache when the process begins; the driver's own caches are always off.
EMPTY, KEPT = "empty", "kept"
CACHES = (EMPTY, KEPT)
