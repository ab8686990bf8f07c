"""A run that is divided between host and device, timed beside the same model as a whole on the host.

The estimate by which a graph is divided knows magnitudes. Where it says that the host alone would not take much longer,
a run measures both ways, and the session keeps the faster one for inputs of these sizes. No result depends on that: the
host alone is taken only if its outputs have the bits of the divided run's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from threading import Lock
from time import perf_counter
from typing import Any, Generic, TypeVar

import numpy as np

from dmlvk._common.bits import first_difference
from dmlvk.onnx.errors import ModelError

Runnable = TypeVar("Runnable")

# The factor by which an estimate may be wrong: nothing is measured where the host alone is estimated to take longer
# than this many times the divided run. Of twelve networks in 2 to 38 parts, timed on an H100 and an H200 beside 16
# processors, the estimate of one (a U-Net in 7 parts) was wrong by 8.0, and those of the others by 1.1 to 6.6.
DOUBT = 8.0
# A way is timed until so many runs in a row are not faster than the fastest before by more than a part of it: the first
# runs of a session of ONNX Runtime, and of a GPU whose clock rises, are slower.
RUNS, FASTER = 5, 0.02
# But no more runs than that, and none after one that took so many times as long as the divided run.
MOST_RUNS, HOPELESS = 40, 4.0


class DivisionTrial(Generic[Runnable]):
    """The choice between two ways to run a model, made once for all runs that share their plan.

    alone: the way of the host alone; None once it is known that it is not taken.
    is_decided: whether the choice was made.
    reason: what was found, for a user; "" before.
    """

    def __init__(self, alone: Runnable) -> None:
        self.alone: Runnable | None = alone
        self.is_decided = False
        self.reason = ""
        self._turn = Lock()

    def choose(self, divided: Runnable, parts: int, run: Callable[[Runnable], Sequence[Any]]) -> Runnable:
        """The faster way. Where another thread is measuring, or has not, it is the divided one meanwhile.

        Each way is timed in a stretch of its own, the divided one first: ONNX Runtime's threads spin for a while after
        each run of a whole model.

        parts: of the divided way, which has run before.
        run: runs a way, and returns its outputs. What it raises for the divided way is the caller's, and leaves the
            choice to a later run.
        """
        if not self.is_decided and self._turn.acquire(blocking=False):
            try:
                if not self.is_decided:
                    self._measure(divided, parts, run)
            finally:
                self._turn.release()
        return divided if self.alone is None or not self.is_decided else self.alone

    def _measure(self, divided: Runnable, parts: int, run: Callable[[Runnable], Sequence[Any]]) -> None:
        alone = self.alone
        assert alone is not None
        outputs, of_parts = _least_seconds(lambda: run(divided))
        of_host = math.inf
        try:
            # The first run makes ONNX Runtime's session, and its memory.
            if not all(map(has_same_bits, run(alone), outputs)):
                reason = "as a whole on the host, an output has other bits, or is no tensor of numbers"
            else:
                _, of_host = _least_seconds(lambda: run(alone), HOPELESS * of_parts)
                times = f"{1e3 * of_host:.3g} ms as a whole on the host, {1e3 * of_parts:.3g} in {parts} parts"
                reason = f"measured: {times}"
        except ModelError as error:
            reason = f"not as a whole on the host: {error}"
        if of_host >= of_parts:
            self.alone = None
        self.reason, self.is_decided = reason, True


def _least_seconds(run: Callable[[], Sequence[Any]], most: float = math.inf) -> tuple[Sequence[Any], float]:
    """The outputs of the last of some runs, and the least that one took. No run follows one that took over `most`."""
    least, seconds = math.inf, 0.0
    slower = 0
    outputs: Sequence[Any] = []
    for _ in range(MOST_RUNS):
        start = perf_counter()
        outputs = run()
        seconds = perf_counter() - start
        slower = 0 if seconds < (1 - FASTER) * least else slower + 1
        least = min(least, seconds)
        if slower == RUNS or seconds > most:
            break
    return outputs, least


def has_same_bits(first: Any, second: Any) -> bool:
    """Whether two results of a run are the same, to the bit. Results that are no tensors of numbers count as others."""
    if not (isinstance(first, np.ndarray) and isinstance(second, np.ndarray)) or first.dtype.kind == "O":
        return False
    return first.dtype == second.dtype and first.shape == second.shape and first_difference(first, second) is None
