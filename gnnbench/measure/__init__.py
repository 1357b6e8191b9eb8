"""Measuring: time, memory and the machine, and what to think of the figures.

clock        the only reader of clocks: seconds of every phase of every epoch
memory       peak memory of every epoch, limits, running out of it, and what becomes of freed memory
energy       joules of every epoch, where the machine counts them
code         which code ran, as a hash
environment  processor, GPU, threads, versions, revision
rounds       repeated calls of several candidates, interleaved
advice       doubts about a result, each with its remedy
"""

from __future__ import annotations

import os

SPIN_VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")  # by which a user chooses
SPINS = 10_000  # of libgomp, 0.1 to 0.5 ms: longer than the gaps between the ops of an epoch


def spin_briefly() -> None:
    """Let OpenMP's threads wait for each other for less than a millisecond, in processes before they load torch.

    By default they spin for several; beside another program that keeps the cores busy, that is most of what they
    get of one, and epochs of GCN on synthetic:reddit:0.05 took 1.5 times as long. What the user has chosen stays.
    """
    if not any(name in os.environ for name in SPIN_VARIABLES):
        os.environ["GOMP_SPINCOUNT"] = str(SPINS)
