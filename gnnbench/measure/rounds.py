"""Interleaved rounds: samples of all contestants are taken next to each other, never at the same time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

SAMPLES = 8  # at most, of one round
QUICK_S = 0.1  # a call below this has one untimed before every round, as others have used the caches meanwhile


# What can be timed: (samples, calls) -> mean seconds of `calls` calls after each other, `samples` times.
Timed = Callable[[int, int], list[float]]


@dataclass(frozen=True)
class Budget:
    """How many rounds to measure, and for how long."""

    rounds: int = 5  # for every contestant, but two for one that is slow
    least_s: float = 0.2  # to measure one contestant for, in all rounds together
    most_s: float = 20.0  # after which a slow one gets fewer rounds

    def plan(self, seconds: float) -> tuple[int, int, int]:
        """Rounds, samples of one and calls of each, for calls of so many seconds."""
        rounds = self.rounds if seconds * self.rounds <= self.most_s else min(2, self.rounds)
        wanted = max(1, math.ceil(self.least_s / self.rounds / max(seconds, 1e-9)))
        samples = min(SAMPLES, wanted)
        return rounds, samples, math.ceil(wanted / samples)


def interleaved(
    contestants: Mapping[str, Timed], budget: Budget, failed: Callable[[str, Exception], Any]
) -> dict[str, list[list[float]]]:
    """Seconds per call, one list per round, of every contestant that came to the end; `failed` hears of others.

    Contestants have run before, so that one more call tells what they need; the order rotates.
    """
    plans: dict[str, tuple[int, int, int]] = {}
    quick: set[str] = set()
    result: dict[str, list[list[float]]] = {name: [] for name in contestants}

    def attempt(work: Callable[[str], None], name: str) -> None:
        try:
            work(name)
        except Exception as error:
            del result[name]
            failed(name, error)

    def plan(name: str) -> None:
        seconds = contestants[name](1, 1)[0]
        if seconds < QUICK_S:
            quick.add(name)
            seconds = min([seconds, *contestants[name](3, 1)])
        plans[name] = budget.plan(seconds)

    def measure(name: str) -> None:
        _, samples, calls = plans[name]
        if name in quick:
            contestants[name](1, 1)
        result[name].append(contestants[name](samples, calls))

    for name in contestants:
        attempt(plan, name)
    for round_ in range(budget.rounds):
        names = list(result)
        for name in rotated(names, round_):
            if round_ < plans[name][0]:
                attempt(measure, name)
    return result


def timed(work: Callable[[], Any], now: Callable[[], Any], samples: int, calls: int) -> list[float]:
    """Mean seconds of `calls` calls of `work` after each other, `samples` times.

    Args:
        now: a clock; the difference of two readings is in seconds.
    """
    result = []
    for _ in range(samples):
        start = now()
        for _ in range(calls):
            work()
        result.append((now() - start) / calls)
    return result


def rotated(names: list[str], start: int) -> list[str]:
    """`names` from the one at `start` on, so that each comes first equally often."""
    first = start % len(names) if names else 0
    return [*names[first:], *names[:first]]
