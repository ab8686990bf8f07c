"""The measurements of `bench.dispatch`, with a clock that the test advances."""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile

import pytest

from bench import dispatch
from bench.dispatch import ROUNDS_A_TURN, Contender, in_turns


class Clock:
    """A clock that only the contenders' calls and waits advance."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.done: list[str] = []
        monkeypatch.setattr(dispatch, "perf_counter", lambda: self.now)

    def step(self, name: str, seconds: Callable[[], float]) -> Callable[[], None]:
        """A function that advances the clock and records its name."""

        def take() -> None:
            self.done.append(name)
            self.now += seconds()

        return take

    def contender(self, name: str, first: float, later: float) -> Contender:
        """A contender whose waits take an hour.

        A call takes `first` seconds until the contender has waited once since another contender's last step, then
        `later` seconds.
        """

        def seconds() -> float:
            own = list(takewhile(lambda done: done.startswith(name), reversed(self.done)))
            return later if f"{name} wait" in own else first

        return Contender(self.step(name, seconds), self.step(f"{name} wait", lambda: 3600.0))


def test_in_turns_counts_neither_a_turn_s_first_round_nor_the_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "ROUNDS_A_TURN", 2)  # few enough that a median shows a slow first round
    clock = Clock(monkeypatch)
    found = in_turns({"a": clock.contender("a", 500.0, 1.0), "b": clock.contender("b", 700.0, 2.0)}, 2, 3)
    assert found == pytest.approx({"a": 1.0, "b": 2.0})


def test_in_turns_lets_each_wait_by_its_own_means_after_each_round(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    in_turns({"a": clock.contender("a", 1.0, 1.0), "b": clock.contender("b", 1.0, 1.0)}, 3, 2)
    turn = {name: [*[name] * 3, f"{name} wait"] * ROUNDS_A_TURN for name in "ab"}
    assert clock.done == (turn["a"] + turn["b"]) * 3  # the first turn warms up
