"""Public calls made by a signal handler in the middle of others, as a program of its own: a crash or hang is its end.

    python -m tests.runtime.nested_calls --device llvmpipe --variant direct --seconds 20

A timer's signal comes at random moments of every public call; its handler makes another one on the same device. That
works, with the right bits, or raises the DeviceError that says why; and so does the call that it came in. With
``--raises`` the handler raises in the end, as Ctrl-C does.
"""

from __future__ import annotations

import argparse
import faulthandler
import random
import signal
import sys
import time
from types import FrameType

import dmlvk
from tests.runtime.struck_calls import CALLS, CLOSES, DESC, VALUES, State, expect, on_another_thread

REASON = "in the middle of another call"
# CPython 3.10 runs handlers between an exception and the end of the `with` that it leaves. A second exception there,
# microseconds after the first, leaves a lock held: no Python code can prevent it. There the next signal comes later.
NOTICES_LATE = sys.version_info < (3, 11)
# Three calls of one kind, with a handler's calls in them, take no longer on any machine: they hang.
LONGEST_CALL_SECONDS = 120


class Raised(BaseException):
    """The exception that the handler raises at its end."""


class Handler:
    """Makes a call each time a signal comes.

    Attributes
    ----------
    made, refused : int
        Number of calls that worked, with the right bits, and of calls that a DeviceError refused.
    """

    def __init__(self, state: State, choice: random.Random, *, raises: bool) -> None:
        self._state = state
        self._choice = choice
        self._raises = raises
        self._source, self._target = state.own.tensor(VALUES), state.own.tensor(DESC)
        self.made = self.refused = 0
        self.is_on = False

    def work(self) -> None:
        """Write, call and read, on tensors of the handler's own; then any other public call."""
        state, values = self._state, VALUES + self._choice.randrange(1000)
        self._source.write(values)
        target = self._target if self._choice.random() < 0.5 else state.own.tensor(DESC)
        state.copy(input_tensor=self._source, output_tensor=target)
        expect(target.numpy(), values, "a call by the handler")
        binding = state.copy.bind(input_tensor=self._source, output_tensor=self._target)
        state.own.submit([binding, binding]).wait(60)
        expect(self._target.numpy(), values, "a list by the handler")
        noisy = ("open", "answer a question", *CLOSES, *CHANGES)  # a question waits for one that is under way
        quiet = [name for name in CALLS if "much" not in name and name not in noisy]
        CALLS[self._choice.choice(quiet)](state)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if not self.is_on:
            return
        self.is_on = False  # no handler inside a handler
        is_timed = self._state.own.timestamps
        try:
            self.work()
            self.made += 1
        except dmlvk.DeviceError as error:
            if REASON not in str(error):
                raise
            self.refused += 1
        finally:
            self._state.own.timestamps = is_timed  # the call that it came in may need it
        self.is_on = True
        if self._raises and NOTICES_LATE:
            raise Raised
        self.arm()
        if self._raises:
            raise Raised

    def arm(self) -> None:
        """Let the next signal come soon, at any moment."""
        signal.setitimer(signal.ITIMER_REAL, self._choice.uniform(50e-6, 2e-3))


# Calls that change the results that the interrupted call is checked for afterwards.
CHANGES = ("write", "write a tensor", "write bytes", "write with gaps")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", required=True)
    parser.add_argument("--variant", required=True)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--raises", action="store_true")
    arguments = parser.parse_args()
    sys.unraisablehook = lambda _: None  # exceptions in a finalizer end there
    state = State(arguments.device, arguments.variant)
    state.check()
    handler = Handler(state, random.Random(arguments.seed), raises=arguments.raises)
    signal.signal(signal.SIGALRM, handler)
    end = time.monotonic() + arguments.seconds
    calls = interrupted = 0
    names = [name for name in CALLS if name not in ("open", *CLOSES)]
    while time.monotonic() < end:
        for name in names:
            # For each anew: on a busy machine, a round of all calls takes longer than it is asked to last.
            faulthandler.dump_traceback_later(LONGEST_CALL_SECONDS, exit=True)
            state.own.timestamps = False
            try:
                try:
                    handler.is_on = True
                    handler.arm()
                    for _ in range(3):
                        CALLS[name](state)
                        calls += 1
                finally:
                    handler.is_on = False
            except Raised:
                interrupted += 1
                handler.is_on = False
        state.check()
    on_another_thread(state.check)
    expect(state.source.numpy(), VALUES + state.number + 2, "the end")
    on_another_thread(state.own.close)
    print(f"{calls} calls, {interrupted} ended by the handler; in it {handler.made} made, {handler.refused} refused")
    if not handler.made or (arguments.raises and not interrupted):
        raise SystemExit("the handler did nothing")


if __name__ == "__main__":
    main()
