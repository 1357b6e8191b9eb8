"""Medians, intervals and ratios of noisy times; pure functions of lists, seeded and without a clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

RESAMPLES = 2000


class Interval(NamedTuple):
    """An estimate with its 95% bootstrap interval."""

    value: float
    low: float
    high: float


def mad(samples: Sequence[float]) -> float:
    """Median absolute deviation from the median."""
    values = np.asarray(samples, dtype=float)
    return float(np.median(np.abs(values - np.median(values))))


def median_interval(rounds: Sequence[Sequence[float]]) -> Interval:
    """Median of all samples; whole rounds are resampled, then samples within them, as noise comes by both."""
    draws = _bootstrap(rounds)
    pooled = np.concatenate([np.asarray(samples, dtype=float) for samples in rounds])
    return Interval(float(np.median(pooled)), *_ends(draws))


def ratio_interval(baseline: Sequence[Sequence[float]], candidate: Sequence[Sequence[float]]) -> Interval:
    """How many times faster the candidate is: ratio of medians, rounds of both resampled together.

    Round i of both sides ran next to each other, so slow drift of the machine cancels.
    """
    top, bottom = _bootstrap(baseline), _bootstrap(candidate)
    value = median_interval(baseline).value / median_interval(candidate).value
    return Interval(value, *_ends(top / bottom))


def falling(samples: Sequence[float]) -> bool:
    """Whether times still fall over the run: a Mann-Kendall test, one-sided at 1%, and by more than 5%."""
    values = np.asarray(samples, dtype=float)
    n = len(values)
    if n < 8:
        return False
    score = np.sign(np.subtract.outer(values, values))[np.tril_indices(n, -1)].sum()
    deviation = np.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    first, last = np.median(values[: n // 4]), np.median(values[-(n // 4) :])
    return bool(score / deviation < -2.33 and first > 1.05 * last)


def _bootstrap(rounds: Sequence[Sequence[float]]) -> np.ndarray:
    """`RESAMPLES` medians; the same seed pairs the rounds drawn for two sides of equally many rounds."""
    arrays = [np.asarray(samples, dtype=float) for samples in rounds]
    picks = np.random.default_rng(0).integers(len(arrays), size=(RESAMPLES, len(arrays)))
    within = np.random.default_rng(1)
    draws = [within.choice(samples, size=(RESAMPLES, len(samples))) for samples in arrays]
    return np.array([np.median(np.concatenate([draws[i][r] for i in picks[r]])) for r in range(RESAMPLES)])


def _ends(draws: np.ndarray) -> tuple[float, float]:
    low, high = np.quantile(draws, [0.025, 0.975])
    return float(low), float(high)
