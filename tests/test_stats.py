"""Statistics of times, against distributions whose answers are known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnbench import stats

seconds = st.lists(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=20), min_size=1, max_size=4)


def noisy(rng: np.random.Generator, count: int, scale: float = 1.0) -> list[float]:
    """Times with a long right tail and median `scale`."""
    return list(scale * rng.lognormal(0.0, 0.2, count))


def test_mad_of_known_values() -> None:
    assert stats.mad([1, 2, 3, 4, 100]) == 1
    assert stats.mad([5.0]) == 0


def test_the_interval_covers_the_true_median_as_often_as_it_says() -> None:
    rng = np.random.default_rng(3)
    intervals = [stats.median_interval([noisy(rng, 40)]) for _ in range(120)]
    covered = sum(interval.low <= 1.0 <= interval.high for interval in intervals)
    assert 0.90 <= covered / len(intervals) <= 0.99


def test_the_interval_narrows_with_more_samples() -> None:
    rng = np.random.default_rng(4)
    few, many = stats.median_interval([noisy(rng, 20)]), stats.median_interval([noisy(rng, 2000)])
    assert many.high - many.low < 0.3 * (few.high - few.low)


def test_rounds_that_disagree_widen_the_interval() -> None:
    assert stats.median_interval([[1.0] * 50, [2.0] * 50, [3.0] * 50]) == (2.0, 1.0, 3.0)
    assert stats.median_interval([[1.0] * 50]) == (1.0, 1.0, 1.0)


def test_rounds_of_unequal_length_count_by_their_samples() -> None:
    interval = stats.median_interval([[1.0], [2.0, 2.0, 2.0]])
    assert interval.value == 2.0
    # Both draws are the short round in a quarter of the resamples.
    assert (interval.low, interval.high) == (1.0, 2.0)


@pytest.mark.parametrize("factor", [0.5, 1.0, 40.0])
def test_ratio_of_a_known_speedup(factor: float) -> None:
    rng = np.random.default_rng(5)
    baseline = [noisy(rng, 100, factor) for _ in range(3)]
    candidate = [noisy(rng, 100) for _ in range(3)]
    ratio = stats.ratio_interval(baseline, candidate)
    assert ratio.low < factor < ratio.high
    assert (ratio.high - ratio.low) / factor < 0.3


def test_a_tenth_faster_is_told_from_equal() -> None:
    rng = np.random.default_rng(6)
    baseline, candidate = ([noisy(rng, 200, scale)] for scale in (1.1, 1.0))
    assert stats.ratio_interval(baseline, candidate).low > 1.0


def test_drift_common_to_paired_rounds_cancels() -> None:
    drift = [1.0, 1.5, 2.5, 4.0]
    baseline = [[2 * slow] * 9 for slow in drift]
    candidate = [[slow] * 9 for slow in drift]
    assert stats.ratio_interval(baseline, candidate) == (2.0, 2.0, 2.0)
    unpaired = stats.ratio_interval(baseline, candidate[:3])
    assert unpaired.high - unpaired.low > 1


def test_the_two_sides_of_a_ratio_draw_their_samples_independently() -> None:
    samples = [[1.0, 2.0, 3.0, 4.0, 5.0]]
    ratio = stats.ratio_interval(samples, samples)
    assert ratio.low < 0.7 < 1.0 < 1.4 < ratio.high


@settings(deadline=None, max_examples=25)
@given(seconds)
def test_intervals_stay_within_the_samples_and_repeat(rounds: list[list[float]]) -> None:
    interval = stats.median_interval(rounds)
    pooled = [value for samples in rounds for value in samples]
    assert min(pooled) <= interval.low <= interval.high <= max(pooled)
    assert interval.value == np.median(pooled)
    assert interval == stats.median_interval(rounds)


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        (np.linspace(2, 1, 40), True),
        (np.concatenate([np.linspace(2, 1, 12), np.ones(12) + np.linspace(0, 1e-3, 12)]), True),
        (np.linspace(1, 2, 40), False),
        (np.linspace(1.03, 1, 40), False),
        (np.ones(40), False),
        (np.random.default_rng(7).normal(1, 0.1, 200), False),
        (np.linspace(2, 1, 7), False),
    ],
    ids=["falls", "settles", "rises", "falls by little", "constant", "noise", "too few"],
)
def test_falling(samples: np.ndarray, expected: bool) -> None:
    assert stats.falling(list(samples)) is expected
