"""How long the threads of OpenMP wait for each other before they give up their core."""

from __future__ import annotations

import os

CHOSEN = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
SPINS = 10_000  # of libgomp, 0.1 to 0.5 ms: longer than the gaps between the ops of an epoch


def spin_briefly() -> None:
    """Let OpenMP's threads spin for less than a millisecond, in processes that have yet to load torch.

    By default they spin for several; beside another program that keeps the cores busy, that is most of what they
    get of one, and epochs of GCN on synthetic:reddit:0.05 took 1.5 times as long. What the user has chosen stays.
    """
    if not any(name in os.environ for name in CHOSEN):
        os.environ["GOMP_SPINCOUNT"] = str(SPINS)
