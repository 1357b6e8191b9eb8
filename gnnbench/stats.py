"""Groups, medians, intervals and ratios of noisy times; pure functions of lists, seeded and without a clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 2000

K = TypeVar("K")
T = TypeVar("T")
Floats = NDArray[np.float64]
Rounds = Sequence[Sequence[float]]  # one inner sequence per process that was measured


class Interval(NamedTuple):
    """An estimate with its 95% bootstrap interval."""

    value: float
    low: float
    high: float


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Lists of items by their key, in the order in which they come."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def mad(samples: Sequence[float]) -> float:
    """Median absolute deviation from the median."""
    values = np.asarray(samples, dtype=float)
    return float(np.median(np.abs(values - np.median(values))))


def median_interval(rounds: Rounds) -> Interval:
    """Median of all samples; whole rounds are resampled, then samples within them, as both bring noise."""
    rng = np.random.default_rng(0)
    return Interval(_median(rounds), *_ends(_resampled_medians(rounds, _pick(len(rounds), rng), rng)))


def ratio_interval(baseline: Rounds, candidate: Rounds, *, paired: bool = True) -> Interval:
    """How many times faster the candidate is: ratio of medians, with its 95% bootstrap interval.

    Where both sides have as many rounds and are `paired`, round i of both ran next to each other, so both are
    resampled by the same draw of rounds and slow drift of the machine cancels.
    """
    rng = np.random.default_rng(0)
    picks = _pick(len(baseline), rng)
    top = _resampled_medians(baseline, picks, rng)
    same = paired and len(candidate) == len(baseline)
    bottom = _resampled_medians(candidate, picks if same else _pick(len(candidate), rng), rng)
    return Interval(_median(baseline) / _median(candidate), *_ends(top / bottom))


def falling(samples: Sequence[float]) -> bool:
    """Return whether times still fall over the run: a Mann-Kendall test, one-sided at 1%, and by more than 5%."""
    values = np.asarray(samples, dtype=float)
    n = len(values)
    if n < 8:
        return False
    score = np.sign(np.subtract.outer(values, values))[np.tril_indices(n, -1)].sum()
    deviation = np.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    first, last = np.median(values[: n // 4]), np.median(values[-(n // 4) :])
    return bool(score / deviation < -2.33 and first > 1.05 * last)


def _median(rounds: Rounds) -> float:
    return float(np.median(np.concatenate([np.asarray(samples, dtype=float) for samples in rounds])))


def _pick(num_rounds: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Rounds drawn with replacement, [RESAMPLES, num_rounds]."""
    return rng.integers(num_rounds, size=(RESAMPLES, num_rounds))


def _resampled_medians(rounds: Rounds, picks: NDArray[np.int64], rng: np.random.Generator) -> Floats:
    """One median per row of `picks`, [RESAMPLES], each over fresh draws within every picked round."""
    sizes = np.array([len(samples) for samples in rounds])
    width = int(sizes.max())
    table = np.full((len(rounds), width), np.nan)
    for row, samples in zip(table, rounds, strict=True):
        row[: len(samples)] = samples
    size = sizes[picks][..., None]  # [RESAMPLES, R, 1]
    within = (rng.random((*picks.shape, width)) * size).astype(np.int64)
    draws = np.where(np.arange(width) < size, table[picks[..., None], within], np.nan)
    draws = np.sort(draws.reshape(len(picks), -1), axis=1)  # what shorter rounds lack is NaN and sorts last
    count = sizes[picks].sum(axis=1)
    rows = np.arange(len(picks))
    return (draws[rows, (count - 1) // 2] + draws[rows, count // 2]) / 2


def _ends(draws: Floats) -> tuple[float, float]:
    low, high = np.quantile(draws, [0.025, 0.975])
    return float(low), float(high)
